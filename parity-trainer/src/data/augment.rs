//! Variants of training images.
//!
//! The deployed model answers for any input, so a parity model can learn from variants of the
//! training samples as well as from the samples themselves: with a few thousand samples that is
//! what keeps it from learning them by heart.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use serde::{Deserialize, Serialize};

/// The farthest an image is shifted along each axis, pixels.
const SHIFT: usize = 2;
/// A crop's padding is a side's length divided by this: 4 pixels of 32, as is usual for CIFAR (He
/// et al. 2015, section 4.2).
const CROP: usize = 8;
/// The side of what is cut out is the image's divided by this: 16 of 32 pixels (DeVries and Taylor
/// 2017).
const CUTOUT: usize = 2;

/// Augmentation of training images: `none`, or some of `shift` (or `crop`), `flip` and `cutout`
/// with `+` between.
///
/// Flipping and cutting out are for data where they keep the class: they spoil digits and letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Augment {
    movement: Movement,
    flip: bool,
    cutout: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movement {
    None,
    /// By up to two pixels along each axis.
    Shift,
    /// Padded with zeros by an eighth of each side, then cropped to the size it had.
    Crop,
}

/// A way to vary images that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}`: {reason}; write `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as \
        `crop+flip`"
)]
pub struct AugmentError {
    name: String,
    reason: &'static str,
}

impl Augment {
    /// Images stay as they are.
    pub const NONE: Self = Self {
        movement: Movement::None,
        flip: false,
        cutout: false,
    };
    /// Shifted by up to two pixels along each axis.
    pub const SHIFT: Self = Self {
        movement: Movement::Shift,
        flip: false,
        cutout: false,
    };

    /// Writes a random variant of `sample`, of `shape`, into `variant`; samples that are no images
    /// stay as they are.
    pub(crate) fn apply(
        self,
        rng: &mut impl Rng,
        shape: &[usize],
        sample: &[f32],
        variant: &mut [f32],
    ) {
        let (&[_, height, width], false) = (shape, self == Self::NONE) else {
            variant.copy_from_slice(sample);
            return;
        };
        let (farthest_down, farthest_right) = match self.movement {
            Movement::None => (0, 0),
            Movement::Shift => (SHIFT, SHIFT),
            Movement::Crop => (height / CROP, width / CROP),
        };
        let mut moved_by = |farthest: usize| match farthest as i64 {
            0 => 0,
            farthest => rng.random_range(-farthest..=farthest),
        };
        let (down, right) = (moved_by(farthest_down), moved_by(farthest_right));
        let mirrored = self.flip && rng.random::<bool>();
        let hole = self.cutout.then(|| (hole(rng, height), hole(rng, width)));
        let planes = sample
            .chunks_exact(height * width)
            .zip(variant.chunks_exact_mut(height * width));
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
            if let Some((rows, columns)) = &hole {
                // The mean and not black: black may be the far end of what the network has seen.
                let mean = plane.iter().sum::<f32>() / plane.len().max(1) as f32;
                let rows = out
                    .chunks_exact_mut(width)
                    .skip(rows.start)
                    .take(rows.len());
                rows.for_each(|row| row[columns.clone()].fill(mean));
            }
        }
    }
}

/// Returns the pixels to cut out along an axis: their middle is anywhere, so that they may reach
/// beyond an edge.
fn hole(rng: &mut impl Rng, length: usize) -> std::ops::Range<usize> {
    let (side, middle) = (length / CUTOUT, rng.random_range(0..length.max(1)));
    middle.saturating_sub(side / 2)..(middle + side.div_ceil(2)).min(length)
}

/// The position that comes to lie at `position` when all move by `by`; nothing beyond the edges.
fn moved(position: usize, by: i64, length: usize) -> Option<usize> {
    let from = usize::try_from(position as i64 - by).ok()?;
    (from < length).then_some(from)
}

impl FromStr for Augment {
    type Err = AugmentError;

    fn from_str(name: &str) -> Result<Self, AugmentError> {
        let wrong = |reason| AugmentError {
            name: name.to_owned(),
            reason,
        };
        let mut augment = Self::NONE;
        let parts = match name {
            "none" => return Ok(augment),
            // How `shift+flip` was called when there was nothing else.
            "shift-flip" => "shift+flip",
            name => name,
        };
        for part in parts.split('+') {
            match (part, augment.movement) {
                ("shift", Movement::None) => augment.movement = Movement::Shift,
                ("crop", Movement::None) => augment.movement = Movement::Crop,
                ("shift" | "crop", _) => {
                    return Err(wrong("images are shifted or cropped, and that once"));
                }
                ("flip", _) => augment.flip = true,
                ("cutout", _) => augment.cutout = true,
                _ => return Err(wrong("no such way to vary images")),
            }
        }
        Ok(augment)
    }
}

impl TryFrom<String> for Augment {
    type Error = AugmentError;

    fn try_from(name: String) -> Result<Self, AugmentError> {
        name.parse()
    }
}

impl From<Augment> for String {
    fn from(augment: Augment) -> Self {
        augment.to_string()
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let movement = match self.movement {
            Movement::None => "",
            Movement::Shift => "shift",
            Movement::Crop => "crop",
        };
        let parts = [
            movement,
            if self.flip { "flip" } else { "" },
            if self.cutout { "cutout" } else { "" },
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn variants(name: &str, shape: &[usize], sample: &[f32], count: usize) -> Vec<Vec<f32>> {
        let (augment, mut rng): (Augment, _) =
            (name.parse().unwrap(), ChaCha8Rng::seed_from_u64(1));
        let mut variant = || {
            let mut variant = vec![f32::NAN; sample.len()];
            augment.apply(&mut rng, shape, sample, &mut variant);
            variant
        };
        (0..count).map(|_| variant()).collect()
    }

    #[test]
    fn a_shift_moves_pixels_and_invents_none() {
        let mut sample = [0.0; 49];
        sample[24] = 1.0;
        let mut seen = BTreeSet::new();
        for variant in variants("shift", &[1, 7, 7], &sample, 200) {
            assert_eq!(variant.iter().sum::<f32>(), 1.0);
            seen.insert(variant.iter().position(|&pixel| pixel == 1.0));
        }
        assert_eq!(seen.len(), 25);
    }

    #[test]
    fn a_crop_moves_by_an_eighth_of_each_side() {
        let mut sample = [0.0; 16 * 8];
        sample[8 * 8 + 4] = 1.0;
        let places = variants("crop", &[1, 16, 8], &sample, 300).into_iter();
        let places: BTreeSet<_> = places
            .map(|variant| variant.iter().position(|&pixel| pixel == 1.0))
            .collect();
        assert_eq!(places.len(), 5 * 3);
        assert!(!places.contains(&None));
    }

    #[test]
    fn a_flip_mirrors_every_channel() {
        let sample = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let seen = variants("flip", &[2, 1, 3], &sample, 40);
        assert!(seen.contains(&sample.to_vec()));
        assert!(seen.contains(&vec![3.0, 2.0, 1.0, 6.0, 5.0, 4.0]));
        assert!(
            seen.iter()
                .all(|variant| variant[..3].iter().sum::<f32>() == 6.0)
        );
    }

    #[test]
    fn a_cutout_takes_a_quarter_at_most_from_all_channels() {
        let sample: Vec<f32> = (0..2 * 8 * 8)
            .map(|index| (index % 64 + 1) as f32)
            .collect();
        let mut sizes = BTreeSet::new();
        for variant in variants("cutout", &[2, 8, 8], &sample, 300) {
            let cut: Vec<usize> = (0..128)
                .filter(|&index| variant[index] != sample[index])
                .collect();
            assert!(cut.iter().all(|&index| variant[index] == 32.5));
            let (first, second) = cut.split_at(cut.len() / 2);
            assert!(
                first
                    .iter()
                    .zip(second)
                    .all(|(first, second)| first + 64 == *second)
            );
            sizes.insert(first.len());
        }
        assert_eq!((sizes.first(), sizes.last()), (Some(&4), Some(&16)));
    }

    #[test]
    fn vectors_and_what_is_not_asked_for_stay_as_they_are() {
        assert_eq!(
            variants("shift+flip+cutout", &[3], &[1.0, 2.0, 3.0], 1),
            [[1.0, 2.0, 3.0]]
        );
        assert_eq!(
            variants("none", &[1, 1, 3], &[1.0, 2.0, 3.0], 1),
            [[1.0, 2.0, 3.0]]
        );
        assert_eq!(
            variants("crop+cutout", &[1, 1, 1], &[2.0], 3),
            [[2.0], [2.0], [2.0]]
        );
    }

    #[test]
    fn one_seed_makes_the_same_variants() {
        let sample: Vec<f32> = (0..64).map(|index| index as f32).collect();
        let some = || variants("crop+flip+cutout", &[1, 8, 8], &sample, 20);
        assert_eq!(some(), some());
    }

    #[test]
    fn names_say_what_is_done() {
        for name in [
            "none",
            "shift",
            "crop",
            "flip",
            "cutout",
            "shift+flip",
            "crop+flip+cutout",
        ] {
            assert_eq!(name.parse::<Augment>().unwrap().to_string(), name);
        }
        assert_eq!(
            "shift-flip".parse::<Augment>().unwrap().to_string(),
            "shift+flip"
        );
        let json = serde_json::to_string(&"crop+flip".parse::<Augment>().unwrap()).unwrap();
        assert_eq!(json, "\"crop+flip\"");
        assert_eq!(
            serde_json::from_str::<Augment>(&json).unwrap().to_string(),
            "crop+flip"
        );
        assert_eq!("flip+shift".parse::<Augment>(), "shift+flip".parse());
        for name in ["", "shift+", "shift+crop", "flop", "none+flip"] {
            assert!(name.parse::<Augment>().is_err(), "{name}");
        }
    }
}
