//! Parapet: model repository on disk and the metadata of models and codes.
