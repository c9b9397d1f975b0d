//! Parapet: open-loop load generator.
