//! Variants of training images.
//!
//! The deployed model answers for any input, so a parity model can learn from variants of the
//! samples as well: with a few thousand that keeps it from learning them by heart.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// The farthest an image is shifted along each axis, pixels.
const SHIFT: usize = 2;
/// A crop's padding is a side's length divided by this: 4 pixels of 32, as is usual for CIFAR (He
/// et al. 2015, section 4.2).
const CROP: usize = 8;
/// An image's side over that of what is cut out: 16 of 32 pixels (DeVries and Taylor 2017).
const CUTOUT: usize = 2;

/// Augmentation of training images: `none`, or `shift` (or `crop`), `flip`, `cutout`, `+` between.
///
/// Flipping and cutting out are for data where they keep the class: they spoil digits and letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Augment {
    shift: bool,
    /// Padded with zeros by an eighth of each side, then cropped to the size it had.
    crop: bool,
    flip: bool,
    cutout: bool,
}

impl Augment {
    pub const NONE: Self = Self { shift: false, crop: false, flip: false, cutout: false };
    pub const SHIFT: Self = Self { shift: true, ..Self::NONE };

    /// Writes a random variant of `sample`, of `shape`, into `variant`; the same if it is no image.
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
        let farthest = |side: usize| match self {
            Self { shift: true, .. } => SHIFT as i64,
            Self { crop: true, .. } => (side / CROP) as i64,
            _ => 0,
        };
        let mut moved_by = |farthest: i64| match farthest {
            0 => 0,
            farthest => rng.random_range(-farthest..=farthest),
        };
        let (down, right) = (moved_by(farthest(height)), moved_by(farthest(width)));
        let mirrored = self.flip && rng.random::<bool>();
        let hole = self.cutout.then(|| (hole(rng, height), hole(rng, width)));
        let planes = sample.chunks_exact(height * width);
        for (plane, out) in planes.zip(variant.chunks_exact_mut(height * width)) {
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
                for row in out.chunks_exact_mut(width).take(rows.end).skip(rows.start) {
                    row[columns.clone()].fill(mean);
                }
            }
        }
    }
}

/// Returns the pixels to cut out along an axis, anywhere: they may reach beyond an edge.
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
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let wrong = |reason: &str| {
            let fix = "write `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as";
            Err(format!("`{name}`: {reason}; {fix} `crop+flip`"))
        };
        let mut augment = Self::NONE;
        if name == "none" {
            return Ok(augment);
        }
        for part in name.split('+') {
            match part {
                "shift" | "crop" if augment.shift || augment.crop => {
                    return wrong("images are shifted or cropped, and that once");
                }
                "shift" => augment.shift = true,
                "crop" => augment.crop = true,
                "flip" => augment.flip = true,
                "cutout" => augment.cutout = true,
                _ => return wrong("no such way to vary images"),
            }
        }
        Ok(augment)
    }
}

impl fmt::Display for Augment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (self.shift, "shift"),
            (self.crop, "crop"),
            (self.flip, "flip"),
            (self.cutout, "cutout"),
        ];
        let parts = named.iter().filter(|(is_set, _)| *is_set);
        let parts: Vec<&str> = parts.map(|(_, name)| *name).collect();
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
        let augment: Augment = name.parse().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let variant = |_| {
            let mut variant = vec![f32::NAN; sample.len()];
            augment.apply(&mut rng, shape, sample, &mut variant);
            variant
        };
        (0..count).map(variant).collect()
    }

    #[test]
    fn a_bright_pixel_moves_to_every_place_in_reach_and_no_farther() {
        for (name, height, width, places) in [("shift", 7, 7, 25), ("crop", 16, 8, 5 * 3)] {
            let mut sample = vec![0.0; height * width];
            sample[height / 2 * width + width / 2] = 1.0;
            let mut seen = BTreeSet::new();
            for variant in variants(name, &[1, height, width], &sample, 300) {
                assert_eq!(variant.iter().sum::<f32>(), 1.0, "{name}");
                seen.insert(variant.iter().position(|&pixel| pixel == 1.0));
            }
            assert_eq!(seen.len(), places, "{name}");
        }
    }

    #[test]
    fn a_flip_mirrors_every_channel() {
        let sample = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mirrored = [3.0, 2.0, 1.0, 6.0, 5.0, 4.0];
        let seen = variants("flip", &[2, 1, 3], &sample, 40);
        for image in [sample, mirrored] {
            assert!(seen.contains(&image.to_vec()));
        }
        let is_either = |variant: &Vec<f32>| *variant == sample || *variant == mirrored;
        assert!(seen.iter().all(is_either));
    }

    #[test]
    fn a_cutout_takes_a_quarter_at_most_from_all_channels() {
        let sample: Vec<f32> = (0..128).map(|index| (index % 64 + 1) as f32).collect();
        let mut sizes = BTreeSet::new();
        for variant in variants("cutout", &[2, 8, 8], &sample, 300) {
            let is_cut = |index: &usize| variant[*index] != sample[*index];
            let cut: Vec<usize> = (0..128).filter(is_cut).collect();
            assert!(cut.iter().all(|&index| variant[index] == 32.5));
            let (first, second) = cut.split_at(cut.len() / 2);
            let in_second: Vec<usize> = first.iter().map(|index| index + 64).collect();
            assert_eq!(in_second, second);
            sizes.insert(first.len());
        }
        assert_eq!((sizes.first(), sizes.last()), (Some(&4), Some(&16)));
    }

    #[test]
    fn vectors_and_what_is_not_asked_for_stay_as_they_are() {
        let vector: &[f32] = &[1.0, 2.0, 3.0];
        let cases: [(_, &[usize], _); 3] = [
            ("shift+flip+cutout", &[3], vector),
            ("none", &[1, 1, 3], vector),
            ("crop+cutout", &[1, 1, 1], &[2.0]),
        ];
        for (name, shape, sample) in cases {
            assert_eq!(variants(name, shape, sample, 3), [sample; 3], "{name}");
        }
    }

    #[test]
    fn one_seed_makes_the_same_variants() {
        let sample: Vec<f32> = (0..64).map(|index| index as f32).collect();
        let some = || variants("crop+flip+cutout", &[1, 8, 8], &sample, 20);
        assert_eq!(some(), some());
    }

    #[test]
    fn names_say_what_is_done() {
        let same = ["none", "shift", "crop", "flip", "cutout", "shift+flip", "crop+flip+cutout"];
        let others = [("flip+shift", "shift+flip")];
        for (name, told) in same.map(|name| (name, name)).into_iter().chain(others) {
            let augment: Augment = name.parse().unwrap();
            let json = serde_json::to_string(&augment).unwrap();
            assert_eq!(json, format!("{told:?}"));
            let read: Augment = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!(read, augment);
        }
        for name in ["", "shift+", "shift+crop", "flop", "none+flip"] {
            assert!(name.parse::<Augment>().is_err(), "{name}");
        }
    }
}
