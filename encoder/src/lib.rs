//! Parapet: coding-group encoders (sum, concatenation).
