//! Patterns of missing outputs of a group.

use tch::{Device, Tensor};

/// Patterns of one step; where there are more, steps take them in turn.
const MOST: usize = 32;

/// Outputs of a group that are missing, as bits: k predictions, then r parity outputs.
pub(super) type Pattern = u32;

/// All patterns that a decoder may be asked about: some prediction is missing, and there are at
/// least as many parity outputs.
pub(super) fn all(k: usize, r: usize) -> Vec<Pattern> {
    let can_be_recovered = |pattern: &Pattern| {
        let missing = (pattern & ((1 << k) - 1)).count_ones();
        missing > 0 && missing + (pattern >> k).count_ones() <= r as u32
    };
    (1..1 << (k + r)).filter(can_be_recovered).collect()
}

/// Returns the patterns of one step: all, or so many in turn.
pub(super) fn of_step(all: &[Pattern], step: u64) -> Vec<Pattern> {
    if all.len() <= MOST {
        return all.to_vec();
    }
    let first = (step % all.len() as u64) as usize * MOST % all.len();
    all.iter().cycle().skip(first).take(MOST).copied().collect()
}

/// Patterns as tensors: `[patterns, k + r]` with 1 for an output that is there and 0 for one that
/// is missing; where the missing predictions are among `[patterns, k]` decoded ones, flat; and the
/// slot of each of them.
pub(super) fn selection(patterns: &[Pattern], k: usize, r: usize, device: Device) -> [Tensor; 3] {
    let (mut there, mut decoded, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for (at, pattern) in patterns.iter().enumerate() {
        let is_missing = |place: usize| pattern & (1 << place) != 0;
        there.extend((0..k + r).map(|place| f32::from(u8::from(!is_missing(place)))));
        for slot in (0..k).filter(|&slot| is_missing(slot)) {
            decoded.push((at * k + slot) as i64);
            slots.push(slot as i64);
        }
    }
    let there = Tensor::from_slice(&there).view([patterns.len() as i64, (k + r) as i64]);
    let [decoded, slots] = [decoded, slots].map(|places| Tensor::from_slice(&places));
    [there, decoded, slots].map(|tensor| tensor.to_device(device))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_those_that_can_be_recovered() {
        assert_eq!(all(2, 1), [0b01, 0b10]);
        assert_eq!(all(2, 2), [0b0001, 0b0010, 0b0011, 0b0101, 0b0110, 0b1001, 0b1010]);
        let [there, decoded, slots] = selection(&all(2, 2), 2, 2, Device::Cpu);
        let there = Vec::<f32>::try_from(there.get(3)).unwrap();
        assert_eq!(there, [0.0, 1.0, 0.0, 1.0]);
        let [decoded, slots] = [decoded, slots].map(|places| Vec::<i64>::try_from(places).unwrap());
        assert_eq!(decoded, [0, 3, 4, 5, 6, 9, 10, 13]);
        assert_eq!(slots, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn all_have_their_turn_and_no_step_has_too_many(k in 2usize..=6, r in 1usize..=4) {
            let r = r.min(k);
            let all = all(k, r);
            let mut met = BTreeSet::new();
            for step in 0..all.len() as u64 {
                let some = of_step(&all, step);
                prop_assert!(!some.is_empty() && some.len() <= MOST);
                met.extend(some);
            }
            prop_assert!(met.into_iter().eq(all));
        }
    }
}
