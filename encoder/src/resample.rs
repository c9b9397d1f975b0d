//! Shrinking an image axis by area averaging (a box filter), anti-aliased for any factor.
//!
//! Own code, where a library would be the rule: a cell is written straight into its place in the
//! parity query, from `f32` planes, with nothing allocated and nothing shared between threads.
//! `fast_image_resize` has the filter and the pixel type, but a resizer holds scratch that each
//! call borrows mutably, so each thread needs its own; the others take interleaved or 8-bit pixels.

use std::ops::Range;

/// Input pixels that are worked on at a time: they stay in the first-level cache, on the stack.
pub(crate) const STRIP: usize = 512;

/// Output pixels whose inputs fit into a strip.
#[derive(Debug, Clone)]
pub(crate) struct Strip {
    /// Output pixels of one axis.
    pub(crate) cells: Range<usize>,
    /// The inputs that they cover, at most [`STRIP`].
    pub(crate) pixels: Range<usize>,
}

/// Plan that shrinks `source_len` pixels of one axis to `cell_len`: for each output pixel, the
/// inputs it covers and their shares.
#[derive(Debug, Clone)]
pub(crate) struct AxisPlan {
    /// First input pixel of each output pixel.
    starts: Vec<usize>,
    /// `taps` weights for each output pixel; they add up to 1.
    weights: Vec<f32>,
    taps: usize,
    integer_factor: Option<usize>,
}

impl AxisPlan {
    /// A plan from `source_len` to `cell_len` pixels, `1 <= cell_len <= source_len`. An output
    /// pixel covers fewer than [`STRIP`] inputs, as it does in every grid of up to `K_MAX` cells.
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

    /// Set when every output pixel is the plain mean of exactly this many inputs.
    pub(crate) const fn integer_factor(&self) -> Option<usize> {
        self.integer_factor
    }

    /// The output pixels in order, in pieces whose inputs fit into a strip.
    pub(crate) fn strips(&self) -> Vec<Strip> {
        let mut strips: Vec<Strip> = Vec::new();
        for (cell, &start) in self.starts.iter().enumerate() {
            let end = start + self.taps;
            match strips.last_mut() {
                Some(strip) if end - strip.pixels.start <= STRIP => {
                    strip.cells.end = cell + 1;
                    strip.pixels.end = end;
                }
                _ => strips.push(Strip { cells: cell..cell + 1, pixels: start..end }),
            }
        }
        strips
    }

    /// Shrinks the pixels of `strip`, which begin with its first one, to its cells.
    pub(crate) fn shrink(&self, strip: &Strip, pixels: &[f32], out: &mut [f32]) {
        match (self.integer_factor, self.taps) {
            (Some(1), _) => out.copy_from_slice(pixels.get(..out.len()).unwrap_or_default()),
            (Some(2), _) => means::<2>(pixels, out),
            (Some(3), _) => means::<3>(pixels, out),
            (Some(4), _) => means::<4>(pixels, out),
            (_, 3) => self.weighted::<3>(strip, pixels, out),
            (_, 4) => self.weighted::<4>(strip, pixels, out),
            (_, 5) => self.weighted::<5>(strip, pixels, out),
            _ => {
                for (cell, out) in strip.cells.clone().zip(out) {
                    let (first, weights) = self.cell(cell);
                    let pixels = pixels.get(first - strip.pixels.start..).unwrap_or_default();
                    *out = pixels.iter().zip(weights).map(|(pixel, weight)| pixel * weight).sum();
                }
            }
        }
    }

    /// A number of weights that is known when this is compiled needs no loop over them.
    fn weighted<const TAPS: usize>(&self, strip: &Strip, pixels: &[f32], out: &mut [f32]) {
        let starts = self.starts.get(strip.cells.clone()).unwrap_or_default();
        let weights =
            self.weights.as_chunks::<TAPS>().0.get(strip.cells.clone()).unwrap_or_default();
        for ((out, first), weights) in out.iter_mut().zip(starts).zip(weights) {
            let Some(pixels) =
                pixels.get(first - strip.pixels.start..).and_then(<[f32]>::first_chunk::<TAPS>)
            else {
                return;
            };
            *out = pixels.iter().zip(weights).map(|(pixel, weight)| pixel * weight).sum();
        }
    }

    /// The first input pixel of output pixel `cell` and the weights of the pixels from there.
    pub(crate) fn cell(&self, cell: usize) -> (usize, &[f32]) {
        let weights =
            self.weights.get(cell * self.taps..(cell + 1) * self.taps).unwrap_or_default();
        (self.starts.get(cell).copied().unwrap_or_default(), weights)
    }
}

/// The mean of every `N` pixels.
fn means<const N: usize>(pixels: &[f32], out: &mut [f32]) {
    let share = 1.0 / N as f32;
    for (out, pixels) in out.iter_mut().zip(pixels.as_chunks::<N>().0) {
        *out = pixels.iter().sum::<f32>() * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up_and_each_pixel_counts_equally(
            source in 1usize..300,
            divisor in 1usize..6,
        ) {
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
