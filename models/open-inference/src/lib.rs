//! Parapet: Open Inference Protocol v2 types and codec.
