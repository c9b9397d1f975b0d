//! The store against a map of rows, over random updates, cuts, moves and copies.

use crate::support::*;

const END: Key = 3_000;
const ALL: KeyRange = KeyRange::new(0, END);
const SGD: Sgd = Sgd { rate: 0.1, decay: 0.0 };

/// Adam up to a key, and rows that are replaced from there on.
#[derive(Debug)]
struct Replaced(Adam, Key);

impl UpdateRule for Replaced {
    fn slots(&self) -> usize {
        self.0.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        self.0.apply(step, gradient, values, state);
    }

    fn border(&self) -> Option<Key> {
        Some(self.1)
    }

    fn apply_beyond(&self, _: u32, pushed: &[f32], values: &mut [f32], _: &mut [&mut [f32]]) {
        values.copy_from_slice(pushed);
    }
}

/// Values, state by slot, steps.
type Row = (Vec<f32>, Vec<Vec<f32>>, u32);

/// Row by row, with the rule itself as the only shared part.
#[derive(Default)]
struct Reference(BTreeMap<Key, Row>);

impl Reference {
    fn update(&mut self, layout: &Layout, key: Key, gradient: &[f32]) {
        let (rule, zeros) = (&layout.rule, vec![0.0; layout.width]);
        let new = || (zeros.clone(), vec![zeros.clone(); rule.slots()], 0);
        let (values, state, steps) = self.0.entry(key).or_insert_with(new);
        *steps += u32::from(rule.counts_steps());
        let mut slices: Vec<&mut [f32]> = state.iter_mut().map(|s| &mut s[..]).collect();
        if rule.border().is_some_and(|border| key >= border) {
            rule.apply_beyond(*steps, gradient, values, &mut slices);
        } else {
            rule.apply(*steps, gradient, values, &mut slices);
        }
    }

    fn read(&self, width: usize) -> Vec<f32> {
        let row = |key| self.0.get(&key).map_or(vec![0.0; width], |row| row.0.clone());
        (0..END).flat_map(row).collect()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Update(Vec<Key>),
    UpdateRun(Key, Key),
    SplitAndJoin(Key),
    CopyOver(Key, Key, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let pair = || (0..END, 0..END).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        4 => prop::collection::btree_set(0..END, 0..300)
            .prop_map(|keys| Op::Update(keys.into_iter().collect())),
        2 => pair().prop_map(|(from, to)| Op::UpdateRun(from, to)),
        1 => (0..END).prop_map(Op::SplitAndJoin),
        1 => (pair(), 1usize..700).prop_map(|((from, to), limit)| Op::CopyOver(from, to, limit)),
    ]
}

/// A copy in pieces of at most `limit` rows, into a store that has other rows there, which must go.
fn copy(store: &Store, from: Key, to: Key, limit: usize) -> Store {
    let mut copy = Store::new(store.layout().clone(), ALL);
    let rows = vec![1.0; 2 * store.layout().width];
    copy.update(ALL, &list([from, END - 1]), &rows.into()).unwrap();
    let mut at = 0;
    while at < END {
        let rows = store.extract(KeyRange::new(at, if at < to { to } else { END }), limit);
        assert!(rows.keys.len(rows.range) <= limit && rows.range.end > at && copy.fits(&rows));
        copy.insert(&rows);
        at = rows.range.end;
    }
    copy
}

fn check(layout: Layout, ops: Vec<Op>) {
    let width = layout.width as u64;
    let mut store = Store::new(layout.clone(), ALL);
    let mut reference = Reference::default();
    for (i, op) in (0..).zip(ops) {
        let gradient = |key: Key| (0..width).map(move |j| ((key + j + i) % 7) as f32 - 3.0);
        let mut update = |keys: &[Key], range: KeyRange, named: Keys, store: &mut Store| {
            for &key in keys {
                let gradient: Vec<f32> = gradient(key).collect();
                reference.update(&layout, key, &gradient);
            }
            let gradients: Vec<f32> = keys.iter().copied().flat_map(gradient).collect();
            store.update(range, &named, &gradients.into()).unwrap();
        };
        match op {
            Op::Update(keys) => update(&keys, ALL, list(keys.clone()), &mut store),
            Op::UpdateRun(from, to) => {
                let keys: Vec<Key> = (from..to).collect();
                update(&keys, KeyRange::new(from, to), Keys::All, &mut store);
            }
            Op::SplitAndJoin(key) => {
                let upper = store.split_off(key);
                assert_eq!(store.range(), KeyRange::new(0, key));
                assert_eq!(upper.range(), KeyRange::new(key, END));
                let mut joined = Store::new(layout.clone(), ALL);
                for part in [&store, &upper] {
                    joined.insert(&part.extract(part.range(), usize::MAX));
                }
                store = joined;
            }
            Op::CopyOver(from, to, limit) => store = copy(&store, from, to, limit),
        }
        assert_eq!(read(&store, ALL), reference.read(layout.width));
        let rows = if layout.sparse { reference.0.len() } else { END as usize };
        assert_eq!(store.rows(), rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn store_equals_a_map_of_rows(
        ops in prop::collection::vec(op(), 1..12),
        sparse: bool,
        width in 1usize..4,
        rule in 0..3,
        border in 0..=END,
    ) {
        let layout = match rule {
            0 => Layout::dense(width, Adam::default()),
            1 => Layout::dense(width, SGD),
            _ => Layout::dense(width, Replaced(Adam::default(), border)),
        };
        check(Layout { sparse, ..layout }, ops);
    }
}

/// At most a fifth more than keys, parameters and optimiser state need.
fn assert_small(store: &Store) {
    let (layout, rule) = (store.layout(), &store.layout().rule);
    let key = if layout.sparse { 8 } else { 0 };
    let steps = if rule.counts_steps() { 4 } else { 0 };
    let needed = store.rows() * (key + 4 * layout.width * (1 + rule.slots()) + steps);
    let memory = store.memory();
    assert!(memory as f64 <= 1.2 * needed as f64, "{memory} bytes where {needed} are needed");
}

#[test]
fn memory_stays_within_a_fifth_of_what_is_needed() {
    fn check(rule: impl UpdateRule + Copy + 'static, width: usize) {
        let all = KeyRange::new(0, 1 << 40);
        for stride in [1u64, 0x9e37_79b9] {
            let mut store = Store::new(Layout::sparse(width, rule), all);
            for i in 0..40_000u64 {
                let key = list([(i * stride) % all.end]);
                store.update(all, &key, &vec![1.0; width].into()).unwrap();
            }
            assert_small(&store);
            assert_small(&store.split_off(20_000));
        }
        let mut dense = Store::new(Layout::dense(width, rule), KeyRange::new(0, 40_000));
        assert_small(&dense.split_off(13_000));
        assert_small(&dense);
    }
    check(SGD, 1);
    check(Adam::default(), 1);
    check(Adam::default(), 16);
}

#[test]
fn dense_range_of_many_runs_is_one_range() {
    // A megabyte a row, sixteen in a run.
    const WIDTH: usize = 1 << 18;
    let [all, part] = [KeyRange::new(3, 53), KeyRange::new(10, 40)];
    let mut store = Store::new(Layout::dense(WIDTH, Add), all);
    let row = |key| std::iter::repeat_n(key as f32, WIDTH);
    let numbers: Vec<f32> = (part.start..part.end).flat_map(row).collect();
    store.update(part, &Keys::All, &numbers.into()).unwrap();
    let check = |store: &Store, start, end| {
        let range = KeyRange::new(start, end);
        let found = read(store, range);
        let found: Vec<f32> = found.chunks(WIDTH).map(|row| row[WIDTH - 1]).collect();
        let value = |key| if part.contains(key) { key as f32 } else { 0.0 };
        assert_eq!(found, (start..end).map(value).collect::<Vec<f32>>(), "{range:?}");
    };
    for (start, end) in [(3, 53), (10, 40), (18, 20), (34, 53), (7, 7)] {
        check(&store, start, end);
    }
    let before = store.memory();
    let upper = store.split_off(25);
    assert!(store.memory() + upper.memory() <= before + (1 << 16));
    check(&store, 3, 25);
    check(&upper, 25, 53);
    assert_eq!(store.rows() + upper.rows(), 50);
}

#[test]
fn rows_that_do_not_fit_the_layout_are_told() {
    let store = Store::new(Layout::dense(2, Adam::default()), KeyRange::new(0, 4));
    let good = store.extract(KeyRange::new(1, 3), 9);
    assert!(store.fits(&good));
    let wrong: [fn(&mut Rows); 6] = [
        |rows| rows.range = KeyRange::new(3, 5),
        |rows| rows.keys = list([1, 2]),
        |rows| rows.values = vec![0.0; 3].into(),
        |rows| rows.values = vec![f32::NAN; 4].into(),
        |rows| rows.state = vec![0.0; 4].into(),
        |rows| rows.steps = vec![0].into(),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        let mut rows = good.clone();
        change(&mut rows);
        assert!(!store.fits(&rows), "{number}");
    }
}

/// Makes values four times as large, which keeps moderate ones finite.
#[derive(Debug)]
struct Quadruple;

impl UpdateRule for Quadruple {
    fn keeps_moderate_finite(&self) -> bool {
        true
    }

    fn apply(&self, _: u32, _: &[f32], values: &mut [f32], _: &mut [&mut [f32]]) {
        values.iter_mut().for_each(|value| *value *= 4.0);
    }
}

#[test]
fn inserted_rows_are_checked_when_an_update_makes_them_larger() {
    let mut store = Store::new(Layout::dense(1, Quadruple), KeyRange::new(0, 8));
    let mut rows = store.extract(KeyRange::new(4, 8), usize::MAX);
    rows.values = vec![3e38; 4].into();
    store.insert(&rows);
    for (key, overflows) in [(2, false), (6, true)] {
        let range = KeyRange::new(key, key + 1);
        let updated = store.update(range, &Keys::All, &vec![0.0].into());
        assert_eq!(updated.is_err(), overflows, "{key}");
    }
}
