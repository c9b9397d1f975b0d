//! Filters of pushes: nothing is lost in the long run, and what is left out has no effect.

#![allow(clippy::unwrap_used, reason = "tests")]

mod kkt;

use std::collections::BTreeMap;

use parapet_parameter_server::{
    ArrayFilters, ArrayId, Filter, FilterError, Ftrl, Key, KeyRange, Keys, Kkt, Layout, LeftOut,
    Precision, PushFilter, Store, UpdateRule, Values, ValuesError,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const ARRAY: ArrayId = ArrayId(1);
const KEYS: u64 = 40;

/// A push's range, keys and numbers of the greatest width.
type Given = (KeyRange, Option<Vec<Key>>, Vec<f32>);

const WIDEST: usize = 3;

fn given(number: impl Strategy<Value = f32> + 'static) -> impl Strategy<Value = Given> {
    let range = prop_oneof![
        Just((0, KEYS)),
        (0..KEYS, 0..=KEYS).prop_map(|(a, b)| (a.min(b), a.max(b)))
    ];
    let keys = prop::option::of(prop::collection::btree_set(0..KEYS, 0..20));
    let numbers = prop::collection::vec(number, KEYS as usize * WIDEST);
    (range, keys, numbers).prop_map(|((start, end), keys, numbers)| {
        let range = KeyRange::new(start, end);
        let keys = keys.map(|keys| {
            keys.into_iter()
                .filter(|&key| range.contains(key))
                .collect()
        });
        (range, keys, numbers)
    })
}

fn push((range, keys, numbers): &Given, width: usize) -> (KeyRange, Keys, Values) {
    let keys = keys
        .as_ref()
        .map_or(Keys::All, |keys| Keys::List(keys.clone().into()));
    let count = keys.len(*range) * width;
    (*range, keys, Values::from(numbers[..count].to_vec()))
}

/// Sums in 64 bits, by key and column.
#[derive(Debug, Default, PartialEq)]
struct Sums(BTreeMap<(Key, usize), f64>);

impl Sums {
    fn add(&mut self, range: KeyRange, keys: &Keys, values: &Values, width: usize) {
        let numbers = values.to_f32();
        for (key, row) in keys.iter(range).zip(numbers.chunks_exact(width)) {
            for (column, &number) in row.iter().enumerate() {
                *self.0.entry((key, column)).or_default() += f64::from(number);
            }
        }
    }

    /// Returns the largest difference.
    fn distance(&self, other: &Self) -> f64 {
        let of = |sums: &Self, at| sums.0.get(at).copied().unwrap_or(0.0);
        self.0
            .keys()
            .chain(other.0.keys())
            .map(|at| (of(self, at) - of(other, at)).abs())
            .fold(0.0, f64::max)
    }
}

fn filters() -> impl Strategy<Value = ArrayFilters> {
    let precision = prop_oneof![
        Just(Precision::F32),
        Just(Precision::Bf16),
        Just(Precision::F16)
    ];
    let most = prop_oneof![2 => Just(1_000usize), 1 => 0usize..50];
    let kkt = prop::option::of(Just(Kkt {
        threshold: 60.0,
        scale: 2.0,
        left_out: LeftOut::KeptBack,
    }));
    (prop::option::of(0.01f64..1.0), precision, most, kkt).prop_map(
        |(top, precision, max_residual, kkt)| ArrayFilters {
            kkt,
            top,
            precision,
            max_residual,
            ..ArrayFilters::default()
        },
    )
}

/// Pushes all to weights of 0, and flushes: the largest difference between what was given and
/// what was sent.
fn lost(pushes: &[Given], filters: ArrayFilters, width: usize) -> Result<f64, TestCaseError> {
    let mut filter = PushFilter::new(ARRAY, width, filters);
    let (mut given, mut sent) = (Sums::default(), Sums::default());
    for each in pushes {
        let (range, keys, values) = push(each, width);
        given.add(range, &keys, &values, width);
        let weights = Values::from(vec![0.0; values.len()]);
        let (sent_keys, sent_values) = filter
            .filter(range, &keys, &values, Some(&weights))
            .unwrap();
        prop_assert!(sent_keys.are_valid(range));
        prop_assert!(sent_values.check(sent_keys.len(range), width).is_ok());
        prop_assert!(filter.kept_back() <= filters.max_residual);
        if let (Some(top), 1_000) = (filters.top, filters.max_residual) {
            prop_assert!(sent_keys.len(range) <= (top * keys.len(range) as f64).ceil() as usize);
        }
        sent.add(range, &sent_keys, &sent_values, width);
    }
    let all = KeyRange::new(0, KEYS);
    let (keys, values) = filter.flush(all);
    prop_assert!(keys.are_valid(all));
    prop_assert_eq!(filter.kept_back(), 0);
    sent.add(all, &keys, &values, width);
    Ok(given.distance(&sent))
}

proptest! {
    /// Of numbers whose sums 32-bit floats hold exactly, exactly.
    #[test]
    fn what_was_sent_and_what_is_kept_is_what_was_given(
        pushes in prop::collection::vec(given((-4096i16..=4096).prop_map(|n| f32::from(n) / 64.0)),
            1..12),
        filters in filters(),
        width in 1..=WIDEST,
    ) {
        prop_assert_eq!(lost(&pushes, filters, width)?, 0.0);
    }

    /// Of any numbers, also beyond the range of 16-bit floats, up to the rounding of the additions.
    #[test]
    fn nothing_but_the_rounding_of_additions_is_lost(
        pushes in prop::collection::vec(given(-1e6f32..1e6), 1..12),
        filters in filters(),
        width in 1..=WIDEST,
    ) {
        let most = 1e6 * pushes.len() as f64;
        let rounding = most * pushes.len() as f64 * f64::from(f32::EPSILON);
        prop_assert!(lost(&pushes, filters, width)? <= rounding);
    }

    #[test]
    fn the_largest_rows_go_first(
        each in given(-100f32..100.0),
        top in 0.01f64..1.0,
        width in 1..=WIDEST,
    ) {
        let (range, keys, values) = push(&each, width);
        let mut filter = PushFilter::new(
            ARRAY,
            width,
            ArrayFilters {
                top: Some(top),
                ..ArrayFilters::default()
            },
        );
        let (_, sent) = filter.filter(range, &keys, &values, None).unwrap();
        let (_, kept) = filter.flush(range);
        let squares = |values: &Values| {
            values
                .to_f32()
                .chunks_exact(width)
                .map(|row| row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>())
                .collect::<Vec<_>>()
        };
        let least = squares(&sent).into_iter().fold(f64::INFINITY, f64::min);
        prop_assert!(squares(&kept).into_iter().all(|square| square <= least));
        let bytes = filter.traffic().of(ARRAY, Filter::Top);
        prop_assert_eq!(
            bytes.after,
            (sent.len() / width * 8 + sent.len() * 4) as u64
        );
    }

    /// Only gradients that have no effect are dropped, whatever else is on.
    #[test]
    fn kkt_drops_small_gradients_of_zero_weights_alone(
        each in given(-2f32..2.0),
        zeros in prop::collection::vec(any::<bool>(), KEYS as usize * WIDEST),
        width in 1..=WIDEST,
        filters in filters(),
    ) {
        let (range, keys, values) = push(&each, width);
        let kkt = Kkt {
            threshold: 1.0,
            scale: 2.0,
            left_out: LeftOut::Dropped,
        };
        let mut filter = PushFilter::new(
            ARRAY,
            width,
            ArrayFilters {
                kkt: Some(kkt),
                ..filters
            },
        );
        let weights: Vec<f32> = zeros[..values.len()]
            .iter()
            .map(|&zero| if zero { 0.0 } else { -0.25 })
            .collect();
        let (sent_keys, sent) = filter
            .filter(range, &keys, &values, Some(&Values::from(weights.clone())))
            .unwrap();
        let mut found = Sums::default();
        found.add(range, &sent_keys, &sent, width);
        let (kept_keys, kept) = filter.flush(range);
        found.add(range, &kept_keys, &kept, width);
        let mut expected = Sums::default();
        let numbers = values.to_f32();
        for (i, key) in keys.iter(range).enumerate() {
            let row = i * width..(i + 1) * width;
            let silent = numbers[row.clone()].iter().all(|g| g.abs() <= 0.5)
                && weights[row.clone()].iter().all(|w| *w == 0.0);
            if !silent {
                let one = KeyRange::new(key, key + 1);
                expected.add(one, &Keys::All, &Values::from(numbers[row].to_vec()), width);
            }
        }
        prop_assert!(found.distance(&expected) <= 1e-6);
    }
}

/// FTRL-proximal adds up gradients: one that is within the penalty makes a weight if it
/// comes often enough.
#[test]
fn what_is_kept_back_makes_a_weight_in_the_end_and_what_is_dropped_does_not() {
    let rule = Ftrl {
        alpha: 0.1,
        beta: 1.0,
        l1: 1.0,
        l2: 0.0,
    };
    let range = KeyRange::new(0, 2);
    // The gradients of the first key go one way, those of the second cancel out.
    let push = |turn: u64| Values::from(vec![0.3, if turn.is_multiple_of(2) { 0.3 } else { -0.3 }]);
    let train = |left_out: Option<LeftOut>| {
        let kkt = left_out.map(|left_out| Kkt {
            threshold: 0.8,
            scale: 1.0,
            left_out,
        });
        let mut filter = PushFilter::new(
            ARRAY,
            1,
            ArrayFilters {
                kkt,
                ..ArrayFilters::default()
            },
        );
        let mut store = Store::new(Layout::dense(1, rule), range);
        let (mut weights, mut sent) = (vec![0.0; 2], 0);
        for turn in 0..10 {
            let pulled = Values::from(weights.clone());
            let (keys, values) = filter
                .filter(range, &Keys::All, &push(turn), Some(&pulled))
                .unwrap();
            sent += keys.len(range);
            store.update(range, &keys, &values.to_f32()).unwrap();
            weights.clear();
            store.read(range, &Keys::All, &mut weights);
        }
        (weights, sent)
    };
    let (exact, all) = train(None);
    let (kept, some) = train(Some(LeftOut::KeptBack));
    assert!(
        exact[0] < -0.01 && exact[1] == 0.0 && all == 20,
        "{exact:?}"
    );
    assert!(
        (kept[0] - exact[0]).abs() < 0.3 * exact[0].abs() && kept[1] == 0.0,
        "{kept:?} for {exact:?}"
    );
    assert!(some < 10, "{some}");
    assert_eq!(train(Some(LeftOut::Dropped)), (vec![0.0, 0.0], 0));
}

/// 500 pushes of one number that rounds badly: without feedback, the error would grow
/// with every push.
#[test]
fn rounding_errors_do_not_add_up() {
    for (precision, width) in [(Precision::Bf16, 1), (Precision::F16, 2)] {
        let range = KeyRange::new(0, 8);
        let values = Values::from(vec![1.001_f32; 8 * width]);
        let mut filter = PushFilter::new(
            ARRAY,
            width,
            ArrayFilters {
                precision,
                ..ArrayFilters::default()
            },
        );
        let mut sum = 0.0;
        for _ in 0..500 {
            let (keys, sent) = filter.filter(range, &Keys::All, &values, None).unwrap();
            assert_eq!(keys, Keys::All);
            assert_eq!(sent.as_bytes().len(), 16 * width);
            sum += f64::from(sent.to_f32()[0]);
        }
        assert!((sum - 500.5).abs() < 0.01, "{precision:?}: {sum}");
        let bytes = filter.traffic().of(ARRAY, Filter::Precision);
        assert!(bytes.after < bytes.before && bytes.saved() > 0);
    }
}

#[test]
fn without_filters_nothing_is_copied() {
    let values = Values::from(vec![0.5; 10]);
    let mut filter = PushFilter::new(ARRAY, 1, ArrayFilters::default());
    let (keys, sent) = filter
        .filter(KeyRange::new(0, 10), &Keys::All, &values, None)
        .unwrap();
    assert_eq!(keys, Keys::All);
    assert_eq!(sent.as_bytes().as_ptr(), values.as_bytes().as_ptr());
    assert_eq!(filter.traffic().iter().count(), 0);
}

#[test]
fn a_push_that_is_wrong_changes_nothing() {
    let range = KeyRange::new(0, 2);
    let mut filter = PushFilter::new(
        ARRAY,
        1,
        ArrayFilters {
            precision: Precision::F16,
            ..ArrayFilters::default()
        },
    );
    let most = Values::from(vec![f32::MAX, 1.0]);
    filter.filter(range, &Keys::All, &most, None).unwrap();
    let mut before = filter.clone();
    let refused = |filter: &mut PushFilter, keys: Keys, values: Vec<f32>| {
        filter
            .filter(range, &keys, &values.into(), None)
            .unwrap_err()
    };
    let not_finite = FilterError::Values {
        array: ARRAY,
        source: ValuesError::NotFinite { at: 0 },
    };
    assert_eq!(
        refused(&mut filter, Keys::All, vec![f32::MAX, 0.0]),
        not_finite
    );
    assert_eq!(
        refused(&mut filter, Keys::All, vec![f32::NAN, 0.0]),
        not_finite
    );
    assert!(matches!(
        refused(&mut filter, Keys::All, vec![1.0]),
        FilterError::Values { .. }
    ));
    let unsorted = Keys::List(vec![1, 0].into());
    assert_eq!(
        refused(&mut filter, unsorted, vec![1.0, 1.0]),
        FilterError::Keys {
            array: ARRAY,
            range
        }
    );
    assert_eq!(filter.kept_back(), 1);
    assert_eq!(filter.flush(range), before.flush(range));
}
