//! Shrinking one image axis by area averaging (a box filter), the anti-aliased choice for integer and fractional factors.
//!
//! Own code, where a library would be the rule: a cell is written straight into its place in the parity query, from
//! planes of `f32`, with nothing allocated and nothing shared between threads. `fast_image_resize` has the filter and the
//! pixel type, but a resizer holds scratch that each call borrows mutably, so every thread would need one of its own; the
//! others take interleaved or 8-bit pixels.

/// How `source_len` pixels of one axis become `cell_len`: for each output pixel, the inputs it covers and their shares.
#[derive(Debug, Clone)]
pub(crate) struct AxisPlan {
    /// First input pixel of each output pixel.
    starts: Vec<usize>,
    /// `taps` weights for each output pixel; they add up to 1.
    weights: Vec<f32>,
    taps: usize,
    /// Set when every output pixel is the plain mean of exactly this many inputs.
    integer_factor: Option<usize>,
}

impl AxisPlan {
    /// A plan from `source_len` to `cell_len` pixels, `1 <= cell_len <= source_len`.
    pub(crate) fn new(source_len: usize, cell_len: usize) -> Self {
        let factor = source_len as f64 / cell_len as f64;
        let taps = (factor.ceil() as usize + 1).min(source_len);
        let mut starts = Vec::with_capacity(cell_len);
        let mut weights = Vec::with_capacity(cell_len * taps);
        for cell in 0..cell_len {
            let (from, to) = (cell as f64 * factor, (cell + 1) as f64 * factor);
            let start = (from.floor() as usize).min(source_len - taps);
            starts.push(start);
            for tap in 0..taps {
                let pixel = (start + tap) as f64;
                let covered = (to.min(pixel + 1.0) - from.max(pixel)).max(0.0);
                weights.push((covered / factor) as f32);
            }
        }
        let integer_factor = source_len.is_multiple_of(cell_len).then(|| source_len / cell_len);
        Self { starts, weights, taps, integer_factor }
    }

    pub(crate) fn integer_factor(&self) -> Option<usize> {
        self.integer_factor
    }

    /// The first input pixel of output pixel `cell` and the weights of the pixels from there.
    pub(crate) fn cell(&self, cell: usize) -> (usize, &[f32]) {
        let weights = self.weights.get(cell * self.taps..(cell + 1) * self.taps).unwrap_or_default();
        (self.starts.get(cell).copied().unwrap_or_default(), weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up_and_each_pixel_counts_equally(source in 1usize..300, divisor in 1usize..6) {
            let cells = (source / divisor).max(1);
            let plan = AxisPlan::new(source, cells);
            let mut used = vec![0.0f64; source];
            for cell in 0..cells {
                let (start, weights) = plan.cell(cell);
                prop_assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                for (tap, &weight) in weights.iter().enumerate() {
                    prop_assert!(weight >= 0.0);
                    if weight > 0.0 {
                        used[start + tap] += f64::from(weight);
                    }
                }
            }
            let share = cells as f64 / source as f64;
            for value in used {
                prop_assert!((value - share).abs() < 1e-4);
            }
        }
    }
}
