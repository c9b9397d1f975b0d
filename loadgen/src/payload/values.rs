//! Values of samples.

/// Values of all samples.
#[derive(Debug, Clone)]
pub(super) enum Values {
    /// Scaled to `0.0..=1.0` when sent.
    Bytes(Vec<u8>),
    /// Sent as they are.
    Floats(Vec<f32>),
}
