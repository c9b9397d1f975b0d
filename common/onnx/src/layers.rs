//! Parameters of the layers that have more than two.

/// A two-dimensional convolution in `[channels, height, width]`, square kernel.
#[derive(Debug, Clone, Copy)]
pub struct Conv<'a> {
    /// `[out channels, in channels, kernel, kernel]`, row-major.
    pub weights: &'a [f32],
    /// `[out channels]`.
    pub bias: &'a [f32],
    /// Side of the kernel, pixels.
    pub kernel: usize,
    /// Step between windows, pixels.
    pub stride: usize,
    /// Zeros added at each edge, pixels.
    pub padding: usize,
    /// Step between the pixels of a window; 1 for neighbours.
    pub dilation: usize,
}

/// Batch normalisation with fixed statistics: `scale * (x - mean) / sqrt(variance + epsilon) +
/// bias`.
#[derive(Debug, Clone, Copy)]
pub struct BatchNorm<'a> {
    /// `[channels]`.
    pub scale: &'a [f32],
    /// `[channels]`.
    pub bias: &'a [f32],
    /// `[channels]`.
    pub mean: &'a [f32],
    /// `[channels]`.
    pub variance: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}
