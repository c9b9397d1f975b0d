//! The store against a map of rows, over random updates, cuts, moves and copies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use parapet_parameter_server::{
    Adam, Add, Key, KeyRange, Keys, Layout, Sgd, Store, UpdateRule, Values,
};
use proptest::prelude::*;

const END: Key = 3_000;

/// Adam up to a key, and rows that are replaced from there on.
#[derive(Debug)]
struct Replaced {
    adam: Adam,
    from: Key,
}

impl UpdateRule for Replaced {
    fn slots(&self) -> usize {
        self.adam.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        self.adam.apply(step, gradient, values, state);
    }

    fn border(&self) -> Option<Key> {
        Some(self.from)
    }

    fn apply_beyond(&self, _: u32, pushed: &[f32], values: &mut [f32], _: &mut [&mut [f32]]) {
        values.copy_from_slice(pushed);
    }
}

/// Row by row, with the rule itself as the only shared part.
#[derive(Clone, Default)]
struct Reference(BTreeMap<Key, Row>);

/// Values, state by slot, steps.
type Row = (Vec<f32>, Vec<Vec<f32>>, u32);

fn initial(key: Key, row: &mut [f32]) {
    row.iter_mut()
        .zip(0u8..)
        .for_each(|(v, i)| *v = (key % 17) as f32 + f32::from(i));
}

impl Reference {
    fn update(&mut self, layout: &Layout, key: Key, gradient: &[f32]) {
        let (values, state, steps) = self.0.entry(key).or_insert_with(|| {
            let mut row = vec![0.0; layout.width];
            initial(key, &mut row);
            (row, vec![vec![0.0; layout.width]; layout.rule.slots()], 0)
        });
        *steps += 1;
        let mut slices: Vec<&mut [f32]> = state.iter_mut().map(|s| &mut s[..]).collect();
        let step = if layout.rule.counts_steps() {
            *steps
        } else {
            0
        };
        if layout.rule.border().is_some_and(|border| key >= border) {
            layout
                .rule
                .apply_beyond(step, gradient, values, &mut slices);
        } else {
            layout.rule.apply(step, gradient, values, &mut slices);
        }
    }

    fn read(&self, width: usize, key: Key) -> Vec<f32> {
        self.0.get(&key).map_or_else(
            || {
                let mut row = vec![0.0; width];
                initial(key, &mut row);
                row
            },
            |row| row.0.clone(),
        )
    }
}

#[derive(Debug, Clone)]
enum Op {
    Update(Vec<Key>),
    UpdateRun(Key, Key),
    SplitAndAppend(Key),
    CopyOver { from: Key, to: Key, limit: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop::collection::btree_set(0..END, 0..300)
            .prop_map(|keys| Op::Update(keys.into_iter().collect())),
        2 => (0..END, 0..END).prop_map(|(a, b)| Op::UpdateRun(a.min(b), a.max(b))),
        1 => (0..END).prop_map(Op::SplitAndAppend),
        1 => (0..END, 0..END, 1usize..700)
            .prop_map(|(a, b, limit)| Op::CopyOver { from: a.min(b), to: a.max(b), limit }),
    ]
}

fn check(layout: Layout, ops: Vec<Op>) {
    let (all, width) = (KeyRange::new(0, END), layout.width);
    let mut store = Store::new(layout.clone(), all);
    let mut reference = Reference::default();
    for (i, op) in ops.into_iter().enumerate() {
        let gradient = |key: Key| {
            (0..width)
                .map(|j| ((key + j as u64 + i as u64) % 7) as f32 - 3.0)
                .collect::<Vec<_>>()
        };
        match op {
            Op::Update(keys) => {
                let gradients: Vec<f32> = keys.iter().flat_map(|&key| gradient(key)).collect();
                keys.iter()
                    .for_each(|&key| reference.update(&layout, key, &gradient(key)));
                store
                    .update(all, &Keys::List(keys.into()), &gradients.into())
                    .unwrap();
            }
            Op::UpdateRun(from, to) => {
                (from..to).for_each(|key| reference.update(&layout, key, &gradient(key)));
                let gradients: Vec<f32> = (from..to).flat_map(gradient).collect();
                store
                    .update(KeyRange::new(from, to), &Keys::All, &gradients.into())
                    .unwrap();
            }
            Op::SplitAndAppend(key) => {
                let upper = store.split_off(key);
                assert_eq!(
                    (store.range(), upper.range()),
                    (KeyRange::new(0, key), KeyRange::new(key, END))
                );
                store.append(upper).unwrap();
            }
            Op::CopyOver { from, to, limit } => {
                // Into a store that has other rows there, which must go.
                let mut other = Store::new(layout.clone(), all);
                other
                    .update(
                        all,
                        &Keys::List(vec![from, END - 1].into()),
                        &vec![1.0; 2 * width].into(),
                    )
                    .unwrap();
                let mut at = 0;
                while at < END {
                    let rows =
                        store.extract(KeyRange::new(at, if at < to { to } else { END }), limit);
                    assert!(
                        rows.keys.len(rows.range) <= limit
                            && rows.range.end > at
                            && other.fits(&rows)
                    );
                    other.insert(&rows);
                    at = rows.range.end;
                }
                store = other;
            }
        }
        let mut found = Vec::new();
        store.read(all, &Keys::All, &mut found);
        let expected: Vec<f32> = (0..END)
            .flat_map(|key| reference.read(width, key))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(
            store.rows(),
            if layout.sparse {
                reference.0.len()
            } else {
                END as usize
            }
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn equals_a_map_of_rows(
        ops in prop::collection::vec(op(), 1..12),
        sparse: bool,
        width in 1usize..4,
        rule in 0..3,
        border in 0..=END,
    ) {
        let layout = match rule {
            0 => Layout::dense(width, Adam::default()),
            1 => Layout::dense(
                width,
                Sgd {
                    rate: 0.1,
                    decay: 0.0,
                },
            ),
            _ => Layout::dense(
                width,
                Replaced {
                    adam: Adam::default(),
                    from: border,
                },
            ),
        };
        check(Layout { sparse, ..layout }.starting_from(initial), ops);
    }
}

/// Bytes that keys, parameters and optimiser state need at the least.
fn needed(rows: usize, layout: &Layout) -> usize {
    let key = if layout.sparse { 8 } else { 0 };
    rows * (key
        + 4 * layout.width * (1 + layout.rule.slots())
        + if layout.rule.counts_steps() { 4 } else { 0 })
}

fn assert_small(store: &Store) {
    let (memory, needed) = (store.memory(), needed(store.rows(), store.layout()));
    assert!(
        memory as f64 <= 1.2 * needed as f64,
        "{memory} bytes where {needed} are needed"
    );
}

#[test]
fn memory_stays_within_a_fifth_of_what_is_needed() {
    fn check(rule: impl UpdateRule + Copy + 'static, width: usize) {
        let all = KeyRange::new(0, 1 << 40);
        for stride in [1u64, 0x9e37_79b9] {
            let mut store = Store::new(Layout::sparse(width, rule), all);
            for i in 0..40_000u64 {
                let key = (i * stride) % all.end;
                store
                    .update(all, &Keys::List(vec![key].into()), &vec![1.0; width].into())
                    .unwrap();
            }
            assert_small(&store);
            let upper = store.split_off(20_000);
            assert_small(&upper);
        }
        let mut dense = Store::new(Layout::dense(width, rule), KeyRange::new(0, 40_000));
        let upper = dense.split_off(13_000);
        assert_small(&upper);
        assert_small(&dense);
        dense.append(upper).unwrap();
        assert_small(&dense);
    }
    check(
        Sgd {
            rate: 0.1,
            decay: 0.0,
        },
        1,
    );
    check(Adam::default(), 1);
    check(Adam::default(), 16);
}

#[test]
fn a_dense_range_of_many_runs_is_one_range() {
    // A megabyte a row, sixteen in a run.
    const WIDTH: usize = 1 << 18;
    let all = KeyRange::new(3, 53);
    let mut store = Store::new(Layout::dense(WIDTH, Add), all);
    let numbers = |range: KeyRange| -> Vec<f32> {
        (range.start..range.end)
            .flat_map(|key| std::iter::repeat_n(key as f32, WIDTH))
            .collect()
    };
    let part = KeyRange::new(10, 40);
    store
        .update(part, &Keys::All, &numbers(part).into())
        .unwrap();
    let read = |store: &Store, range: KeyRange| {
        let mut found = Vec::new();
        store.read(range, &Keys::All, &mut found);
        found
            .chunks(WIDTH)
            .map(|row| row[WIDTH - 1])
            .collect::<Vec<_>>()
    };
    let expected = |range: KeyRange| -> Vec<f32> {
        (range.start..range.end)
            .map(|key| if part.contains(key) { key as f32 } else { 0.0 })
            .collect()
    };
    for range in [
        all,
        part,
        KeyRange::new(18, 20),
        KeyRange::new(34, 53),
        KeyRange::new(7, 7),
    ] {
        assert_eq!(read(&store, range), expected(range), "{range:?}");
    }
    let before = store.memory();
    let mut upper = store.split_off(25);
    assert!(store.memory() + upper.memory() <= before + (1 << 16));
    let halves = [KeyRange::new(3, 25), KeyRange::new(25, 53)];
    assert_eq!(read(&store, halves[0]), expected(halves[0]));
    assert_eq!(read(&upper, halves[1]), expected(halves[1]));
    let tail = upper.split_off(53);
    assert!(upper.append(tail).is_ok() && store.append(upper).is_ok());
    assert_eq!(read(&store, all), expected(all));
    assert_eq!(store.rows(), 50);
}

/// Makes values four times as large, which keeps moderate ones finite.
#[derive(Debug)]
struct Quadruple;

impl UpdateRule for Quadruple {
    fn slots(&self) -> usize {
        0
    }

    fn keeps_moderate_finite(&self) -> bool {
        true
    }

    fn apply(&self, _: u32, _: &[f32], values: &mut [f32], _: &mut [&mut [f32]]) {
        values.iter_mut().for_each(|value| *value *= 4.0);
    }
}

/// A store of values near the largest.
fn huge(range: KeyRange) -> Store {
    let mut added = Store::new(Layout::dense(1, Add), range);
    let count = usize::try_from(range.len()).unwrap();
    let values = Values::from(vec![3e38; count]).to_f32();
    added.update(range, &Keys::All, &values).unwrap();
    let mut store = Store::new(Layout::dense(1, Quadruple), range);
    store.insert(&added.extract(range, count));
    store
}

fn overflows(store: &mut Store, key: Key) -> bool {
    let range = KeyRange::new(key, key + 1);
    let nothing = Values::from(vec![0.0]).to_f32();
    store.update(range, &Keys::All, &nothing).is_err()
}

#[test]
fn inserted_rows_are_looked_at_when_an_update_makes_them_larger() {
    assert!(overflows(&mut huge(KeyRange::new(0, 4)), 2));
}

#[test]
fn rows_of_an_appended_store_are_looked_at_when_an_update_makes_them_larger() {
    let mut store = Store::new(Layout::dense(1, Quadruple), KeyRange::new(0, 4));
    store.append(huge(KeyRange::new(4, 8))).unwrap();
    assert!(!overflows(&mut store, 2));
    assert!(overflows(&mut store, 6));
}
