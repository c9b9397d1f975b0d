//! Parapet: minimal ONNX writer.
