//! Parapet: trains deployed and parity models.
