//! Filters of pushes: nothing is lost in the long run, and what is left out has no effect.

use crate::support::*;

const KEYS: u64 = 40;
const ALL: KeyRange = KeyRange::new(0, KEYS);
const WIDEST: usize = 3;
const OFF: ArrayFilters = ArrayFilters {
    kkt: None,
    precision: Precision::F32,
    max_residual: 1_000,
    key_lists: false,
    lz4: false,
};

/// A push's range, keys and numbers of the greatest width.
type Given = (KeyRange, Option<Vec<Key>>, Vec<f32>);

fn given(number: impl Strategy<Value = f32> + 'static) -> impl Strategy<Value = Given> {
    let part = (0..KEYS, 0..=KEYS).prop_map(|(a, b)| KeyRange::new(a.min(b), a.max(b)));
    let range = prop_oneof![Just(ALL), part];
    let keys = prop::option::of(prop::collection::btree_set(0..KEYS, 0..20));
    let numbers = prop::collection::vec(number, KEYS as usize * WIDEST);
    (range, keys, numbers).prop_map(|(range, keys, numbers)| {
        let is_in = |key: &Key| range.contains(*key);
        let keys = keys.map(|keys| keys.into_iter().filter(is_in).collect());
        (range, keys, numbers)
    })
}

fn push((range, keys, numbers): &Given, width: usize) -> (KeyRange, Keys, Values) {
    let keys = keys.clone().map_or(Keys::All, list);
    let count = keys.len(*range) * width;
    (*range, keys, Values::from(numbers[..count].to_vec()))
}

/// Sums in 64 bits, by key and column.
#[derive(Default)]
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
        let places = self.0.keys().chain(other.0.keys());
        places.map(|at| (of(self, at) - of(other, at)).abs()).fold(0.0, f64::max)
    }
}

fn filters() -> impl Strategy<Value = ArrayFilters> {
    let precision = prop::sample::select(vec![Precision::F32, Precision::Bf16, Precision::F16]);
    let most = prop_oneof![2 => Just(1_000usize), 1 => 0usize..50];
    let kkt =
        prop::option::of(Just(Kkt { threshold: 60.0, scale: 2.0, left_out: LeftOut::KeptBack }));
    (precision, most, kkt).prop_map(|(precision, max_residual, kkt)| ArrayFilters {
        kkt,
        precision,
        max_residual,
        ..OFF
    })
}

/// Pushes all to weights of 0, and flushes: the largest difference between what was given and what
/// was sent.
fn lost(pushes: &[Given], filters: ArrayFilters, width: usize) -> Result<f64, TestCaseError> {
    let mut filter = PushFilter::new(ARRAY, width, filters);
    let (mut given, mut sent) = (Sums::default(), Sums::default());
    for each in pushes {
        let (range, keys, values) = push(each, width);
        given.add(range, &keys, &values, width);
        let weights = Values::from(vec![0.0; values.len()]);
        let (keys, values) = filter.filter(range, &keys, &values, Some(&weights)).unwrap();
        prop_assert!(keys.are_valid(range));
        prop_assert!(values.check(keys.len(range), width).is_ok());
        prop_assert!(filter.kept_back() <= filters.max_residual);
        sent.add(range, &keys, &values, width);
    }
    let (keys, values) = filter.flush(ALL);
    prop_assert!(keys.are_valid(ALL));
    prop_assert_eq!(filter.kept_back(), 0);
    sent.add(ALL, &keys, &values, width);
    Ok(given.distance(&sent))
}

proptest! {
    /// Of numbers whose sums 32-bit floats hold exactly, exactly.
    #[test]
    fn sent_and_kept_numbers_are_those_given(
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

    /// Only gradients that have no effect are dropped, whatever else is on.
    #[test]
    fn kkt_drops_small_gradients_of_zero_weights_alone(
        each in given(-2f32..2.0),
        zeros in prop::collection::vec(any::<bool>(), KEYS as usize * WIDEST),
        width in 1..=WIDEST,
        filters in filters(),
    ) {
        let (range, keys, values) = push(&each, width);
        let kkt = Some(Kkt { threshold: 1.0, scale: 2.0, left_out: LeftOut::Dropped });
        let mut filter = PushFilter::new(ARRAY, width, ArrayFilters { kkt, ..filters });
        let weight = |&zero: &bool| if zero { 0.0 } else { -0.25 };
        let weights: Vec<f32> = zeros[..values.len()].iter().map(weight).collect();
        let pulled = Values::from(weights.clone());
        let (sent_keys, sent) = filter.filter(range, &keys, &values, Some(&pulled)).unwrap();
        let (kept_keys, kept) = filter.flush(range);
        let (mut found, mut expected) = (Sums::default(), Sums::default());
        found.add(range, &sent_keys, &sent, width);
        found.add(range, &kept_keys, &kept, width);
        let numbers = values.to_f32();
        let rows = numbers.chunks_exact(width).zip(weights.chunks_exact(width));
        for (key, (row, weights)) in keys.iter(range).zip(rows) {
            let is_small = row.iter().all(|g| g.abs() <= 0.5);
            if !is_small || weights.iter().any(|w| *w != 0.0) {
                let one = KeyRange::new(key, key + 1);
                expected.add(one, &Keys::All, &Values::from(row.to_vec()), width);
            }
        }
        prop_assert!(found.distance(&expected) <= 1e-6);
        let counted = filter.traffic().of(ARRAY, Filter::Kkt);
        let listed = if keys == Keys::All { 0 } else { 8 * keys.len(range) };
        prop_assert_eq!(counted.before as usize, listed + 4 * values.len());
        let sent = sent_keys.len(range);
        prop_assert_eq!(counted.after as usize, sent * (8 + 4 * width));
    }
}

/// FTRL-proximal adds up gradients: one that is within the penalty makes a weight if it comes often
/// enough.
#[test]
fn gradients_kept_back_make_a_weight_in_the_end_and_dropped_ones_do_not() {
    let rule = Ftrl { l1: 1.0, l2: 0.0, ..FTRL };
    let range = KeyRange::new(0, 2);
    let train = |left_out: Option<LeftOut>| {
        let kkt = left_out.map(|left_out| Kkt { threshold: 0.8, scale: 1.0, left_out });
        let mut filter = PushFilter::new(ARRAY, 1, ArrayFilters { kkt, ..OFF });
        let mut store = Store::new(Layout::dense(1, rule), range);
        let mut sent = 0;
        for turn in 0..10 {
            // The gradients of the first key go one way, those of the second cancel out.
            let push = Values::from(vec![0.3, if turn % 2 == 0 { 0.3 } else { -0.3 }]);
            let weights = Values::from(read(&store, range));
            let (keys, values) = filter.filter(range, &Keys::All, &push, Some(&weights)).unwrap();
            sent += keys.len(range);
            store.update(range, &keys, &values.to_f32()).unwrap();
        }
        (read(&store, range), sent)
    };
    let (exact, all) = train(None);
    assert!(exact[0] < -0.01 && exact[1] == 0.0 && all == 20, "{exact:?}");
    let (kept, some) = train(Some(LeftOut::KeptBack));
    assert!((kept[0] - exact[0]).abs() < 0.3 * exact[0].abs(), "{kept:?} for {exact:?}");
    assert!(kept[1] == 0.0 && some < 10, "{kept:?} {some}");
    assert_eq!(train(Some(LeftOut::Dropped)), (vec![0.0, 0.0], 0));
}

/// 500 pushes of one number that rounds badly: without feedback, the error would grow with every
/// push.
#[test]
fn rounding_errors_do_not_add_up() {
    for (precision, width) in [(Precision::Bf16, 1), (Precision::F16, 2)] {
        let range = KeyRange::new(0, 8);
        let values = Values::from(vec![1.001_f32; 8 * width]);
        let mut filter = PushFilter::new(ARRAY, width, ArrayFilters { precision, ..OFF });
        let mut sum = 0.0;
        for _ in 0..500 {
            let (keys, sent) = filter.filter(range, &Keys::All, &values, None).unwrap();
            assert_eq!((keys, sent.as_bytes().len()), (Keys::All, 16 * width));
            sum += f64::from(sent.to_f32()[0]);
        }
        assert!((sum - 500.5).abs() < 0.01, "{precision:?}: {sum}");
        let bytes = filter.traffic().of(ARRAY, Filter::Precision);
        let (rows, row) = (500 * 8, 4 * width as u64);
        assert_eq!((bytes.before, bytes.after), (rows * (8 + row), rows * (8 + row / 2)));
    }
}

#[test]
fn flush_takes_the_rows_of_its_range_alone() {
    let precision = Precision::Bf16;
    let mut filter = PushFilter::new(ARRAY, 1, ArrayFilters { precision, ..OFF });
    let values = Values::from(vec![1.001; 10]);
    filter.filter(KeyRange::new(0, 10), &Keys::All, &values, None).unwrap();
    let (keys, _) = filter.flush(KeyRange::new(2, 5));
    assert_eq!(keys, list([2, 3, 4]));
    assert_eq!(filter.kept_back(), 7);
}

#[test]
fn without_filters_nothing_is_copied() {
    let values = Values::from(vec![0.5; 10]);
    let mut filter = PushFilter::new(ARRAY, 1, OFF);
    let (keys, sent) = filter.filter(KeyRange::new(0, 10), &Keys::All, &values, None).unwrap();
    assert_eq!(keys, Keys::All);
    assert_eq!(sent.as_bytes().as_ptr(), values.as_bytes().as_ptr());
    assert_eq!(filter.traffic().iter().count(), 0);
}

#[test]
fn push_that_is_wrong_is_refused_and_changes_nothing() {
    let (range, array, precision) = (KeyRange::new(0, 2), ARRAY, Precision::F16);
    let mut filter = PushFilter::new(ARRAY, 1, ArrayFilters { precision, ..OFF });
    let most = Values::from(vec![f32::MAX, 1.0]);
    filter.filter(range, &Keys::All, &most, None).unwrap();
    let mut before = filter.clone();
    let error = |source| FilterError::Values { array, source };
    let (expected, found) = (2, 1);
    let length = error(ValuesError::Length { expected, found });
    let not_finite = |at| error(ValuesError::NotFinite { at });
    let keys = FilterError::Keys { array, range };
    let wrong = [
        (Keys::All, vec![f32::MAX, 0.0], None, not_finite(0)),
        (Keys::All, vec![0.0, f32::NAN], None, not_finite(1)),
        (Keys::All, vec![1.0], None, length),
        (Keys::All, vec![1.0, 1.0], Some(vec![0.0]), length),
        (list([1, 0]), vec![1.0, 1.0], None, keys),
    ];
    for (keys, values, weights, error) in wrong {
        let weights = weights.map(Values::from);
        let refused = filter.filter(range, &keys, &values.into(), weights.as_ref());
        assert_eq!(refused, Err(error));
    }
    assert_eq!(filter.kept_back(), 1);
    assert_eq!(filter.flush(range), before.flush(range));
}
