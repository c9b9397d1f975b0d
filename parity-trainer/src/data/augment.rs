//! Variants of training images.
//!
//! The deployed model answers for any input, so a parity model can learn from variants of the training samples as well as
//! from the samples themselves: with a few thousand samples that is what keeps it from learning them by heart.

use rand::Rng;

/// The farthest an image is shifted along each axis, pixels.
const SHIFT: i64 = 2;

/// How training samples are varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Augment {
    /// Not at all.
    None,
    /// Shifted by up to two pixels along each axis.
    Shift,
    /// Shifted, and mirrored left to right half of the time; for data where that keeps the class.
    ShiftFlip,
}

impl Augment {
    /// Writes a random variant of `sample`, of `shape`, into `variant`; samples that are no images stay as they are.
    pub(crate) fn apply(self, rng: &mut impl Rng, shape: &[usize], sample: &[f32], variant: &mut [f32]) {
        let (Self::Shift | Self::ShiftFlip, &[_, height, width]) = (self, shape) else {
            variant.copy_from_slice(sample);
            return;
        };
        let (down, right) = (rng.random_range(-SHIFT..=SHIFT), rng.random_range(-SHIFT..=SHIFT));
        let mirrored = self == Self::ShiftFlip && rng.random::<bool>();
        let planes = sample.chunks_exact(height * width).zip(variant.chunks_exact_mut(height * width));
        for (plane, out) in planes {
            for (y, row) in out.chunks_exact_mut(width).enumerate() {
                let source_row = moved(y, down, height).map(|y| &plane[y * width..(y + 1) * width]);
                for (x, pixel) in row.iter_mut().enumerate() {
                    let x = if mirrored { width - 1 - x } else { x };
                    *pixel = match (source_row, moved(x, right, width)) {
                        (Some(source), Some(x)) => source[x],
                        _ => 0.0,
                    };
                }
            }
        }
    }
}

/// The position that comes to lie at `position` when all move by `by`; nothing beyond the edges.
fn moved(position: usize, by: i64, length: usize) -> Option<usize> {
    let from = usize::try_from(position as i64 - by).ok()?;
    (from < length).then_some(from)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn a_shift_moves_pixels_and_invents_none() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut sample = [0.0; 49];
        sample[24] = 1.0;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut variant = [f32::NAN; 49];
            Augment::Shift.apply(&mut rng, &[1, 7, 7], &sample, &mut variant);
            assert_eq!(variant.iter().sum::<f32>(), 1.0);
            seen.insert(variant.iter().position(|&pixel| pixel == 1.0));
        }
        assert_eq!(seen.len(), 25);
    }

    #[test]
    fn vectors_stay_as_they_are() {
        let mut variant = [0.0; 3];
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        Augment::ShiftFlip.apply(&mut rng, &[3], &[1.0, 2.0, 3.0], &mut variant);
        assert_eq!(variant, [1.0, 2.0, 3.0]);
    }
}
