//! Parapet: decoders that reconstruct missing predictions of a coding group.
