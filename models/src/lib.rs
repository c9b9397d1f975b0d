//! Parapet: inference engines, dynamic batching and the model-instance server.
