//! Patterns of missing outputs of a group.

use tch::{Device, Tensor};

/// Patterns of one step; where there are more, steps take them in turn.
const MOST: usize = 32;

/// Outputs of a group that are missing, as bits: k predictions, then r parity outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    predictions: u32,
    parity: u32,
}

impl Pattern {
    /// One prediction is missing, and every parity output there.
    pub(super) fn is_one_prediction(self) -> bool {
        self.predictions.count_ones() == 1 && self.parity == 0
    }

    fn lacks(self, place: usize, k: usize) -> bool {
        match place.checked_sub(k) {
            None => self.predictions & (1 << place) != 0,
            Some(row) => self.parity & (1 << row) != 0,
        }
    }
}

/// All patterns that a decoder may be asked about: some prediction is missing, and there are at
/// least as many parity outputs.
pub(super) fn all(k: usize, r: usize) -> Vec<Pattern> {
    let parities = 0u32..1 << r;
    let mut patterns = Vec::new();
    for parity in parities {
        let most = r as u32 - parity.count_ones();
        let some = |predictions: &u32| (1..=most).contains(&predictions.count_ones());
        patterns.extend((1u32..1 << k).filter(some).map(|predictions| Pattern {
            predictions,
            parity,
        }));
    }
    patterns
}

/// Returns the patterns of one step: all, or so many in turn.
pub(super) fn of_step(all: &[Pattern], step: u64) -> Vec<Pattern> {
    if all.len() <= MOST {
        return all.to_vec();
    }
    let first = (step % all.len() as u64) as usize * MOST % all.len();
    all.iter().cycle().skip(first).take(MOST).copied().collect()
}

/// Patterns as tensors.
pub(super) struct Selection {
    /// `[patterns, k + r]`: 1 for an output that is there, 0 for one that is missing.
    pub(super) there: Tensor,
    /// Where the missing predictions are among `[patterns, k]` decoded ones, flat.
    pub(super) decoded: Tensor,
    /// The slot of each of them.
    pub(super) slots: Tensor,
}

impl Selection {
    pub(super) fn of(patterns: &[Pattern], k: usize, r: usize, device: Device) -> Self {
        let (mut there, mut decoded, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for (at, pattern) in patterns.iter().enumerate() {
            there.extend((0..k + r).map(|place| f32::from(u8::from(!pattern.lacks(place, k)))));
            for slot in (0..k).filter(|&slot| pattern.lacks(slot, k)) {
                decoded.push((at * k + slot) as i64);
                slots.push(slot as i64);
            }
        }
        let there = Tensor::from_slice(&there).view([patterns.len() as i64, (k + r) as i64]);
        let there = there.to_device(device);
        let [decoded, slots] =
            [decoded, slots].map(|places| Tensor::from_slice(&places).to_device(device));
        Self {
            there,
            decoded,
            slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_those_that_can_be_recovered() {
        let bits = |patterns: Vec<Pattern>| -> Vec<(u32, u32)> {
            patterns
                .into_iter()
                .map(|pattern| (pattern.predictions, pattern.parity))
                .collect()
        };
        assert_eq!(bits(all(2, 1)), [(1, 0), (2, 0)]);
        assert_eq!(
            bits(all(2, 2)),
            [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
        );
        let selection = Selection::of(&all(2, 2), 2, 2, Device::Cpu);
        let there = Vec::<f32>::try_from(selection.there.get(3)).unwrap();
        assert_eq!(there, [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(
            Vec::<i64>::try_from(selection.decoded).unwrap(),
            [0, 3, 4, 5, 6, 9, 10, 13]
        );
        assert_eq!(
            Vec::<i64>::try_from(selection.slots).unwrap(),
            [0, 1, 0, 1, 0, 1, 0, 1]
        );
    }

    proptest! {
        #[test]
        fn all_have_their_turn_and_no_step_has_too_many(k in 2usize..=6, r in 1usize..=4) {
            let r = r.min(k);
            let all = all(k, r);
            let mut met = vec![false; all.len()];
            for step in 0..all.len() as u64 {
                let some = of_step(&all, step);
                prop_assert!(!some.is_empty() && some.len() <= MOST.max(all.len().min(MOST)));
                for pattern in some {
                    prop_assert!(pattern.predictions != 0);
                    met[all.iter().position(|other| *other == pattern).unwrap()] = true;
                }
            }
            prop_assert!(met.into_iter().all(|met| met));
            prop_assert_eq!(all.iter().filter(|pattern| pattern.is_one_prediction()).count(), k);
        }
    }
}
