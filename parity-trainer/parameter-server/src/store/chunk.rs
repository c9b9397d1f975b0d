//! Some rows in key order, column by column.

use std::ops::Range;

use super::Layout;
use crate::values::are_finite;
use crate::{Key, KeyRange, are_moderate};
use smallvec::SmallVec;

/// Rows in a sparse chunk at most: an insertion moves half of them on average.
pub(super) const CHUNK_ROWS: usize = 512;

#[derive(Debug, Clone)]
enum Index {
    /// Row i has key `start + i`.
    Run { start: Key, rows: usize },
    /// Row i has key i of these.
    Sorted(Vec<Key>),
}

#[derive(Debug, Clone)]
pub(super) struct Chunk {
    index: Index,
    values: Vec<f32>,
    /// One column for each slot of the rule, so that a run of rows is one slice of each.
    state: SmallVec<[Vec<f32>; 2]>,
    /// Number of updates of each row; empty if the rule does not count them.
    steps: Vec<u32>,
}

/// Numbers of a column that are updated before they are checked: few enough that they, the state
/// and the gradient are still in the processor's cache.
const CHECKED: usize = 4096;

/// Inserts without the doubling of `Vec`: an eighth of slack at most.
fn insert_at<T: Copy>(column: &mut Vec<T>, at: usize, element: T, count: usize) {
    if column.len() + count > column.capacity() {
        column.reserve_exact((column.len() / 8).max(count).max(8));
    }
    column.splice(at..at, std::iter::repeat_n(element, count));
}

fn split_column<T>(column: &mut Vec<T>, at: usize) -> Vec<T> {
    let rest = column.split_off(at.min(column.len()));
    column.shrink_to_fit();
    rest
}

impl Chunk {
    pub(super) fn empty(slots: usize) -> Self {
        let state = (0..slots).map(|_| Vec::new()).collect();
        Self {
            index: Index::Sorted(Vec::new()),
            values: Vec::new(),
            state,
            steps: Vec::new(),
        }
    }

    /// All rows of `range` before their first update.
    pub(super) fn initial(layout: &Layout, range: KeyRange) -> Self {
        let rows = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let mut values = vec![0.0; rows.saturating_mul(layout.width)];
        for (key, row) in (range.start..range.end).zip(values.chunks_exact_mut(layout.width)) {
            layout.write_initial(key, row);
        }
        let state = (0..layout.rule.slots())
            .map(|_| vec![0.0; values.len()])
            .collect();
        let steps = if layout.rule.counts_steps() {
            vec![0; rows]
        } else {
            Vec::new()
        };
        Self {
            index: Index::Run {
                start: range.start,
                rows,
            },
            values,
            state,
            steps,
        }
    }

    pub(super) fn rows(&self) -> usize {
        match &self.index {
            Index::Run { rows, .. } => *rows,
            Index::Sorted(keys) => keys.len(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let keys = match &self.index {
            Index::Run { .. } => 0,
            Index::Sorted(keys) => keys.capacity() * size_of::<Key>(),
        };
        let state: usize = self.state.iter().map(Vec::capacity).sum();
        keys + (self.values.capacity() + state + self.steps.capacity()) * size_of::<f32>()
    }

    /// The key of `row`; past the end, the largest there is.
    pub(super) fn key(&self, row: usize) -> Key {
        match &self.index {
            Index::Run { start, .. } => start.saturating_add(row as u64),
            Index::Sorted(keys) => keys.get(row).copied().unwrap_or(Key::MAX),
        }
    }

    /// The last row's key; 0 if there is none.
    pub(super) fn last_key(&self) -> Key {
        self.rows().checked_sub(1).map_or(0, |row| self.key(row))
    }

    /// The first row whose key is not below `key`.
    pub(super) fn place(&self, key: Key) -> usize {
        match &self.index {
            Index::Run { start, rows } => usize::try_from(key.saturating_sub(*start))
                .unwrap_or(usize::MAX)
                .min(*rows),
            Index::Sorted(keys) => keys.partition_point(|&k| k < key),
        }
    }

    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let row = self.place(key);
        (row < self.rows() && self.key(row) == key).then_some(row)
    }

    /// The row of `key`, made if it is not there. A run has all the rows it can have.
    pub(super) fn place_or_insert(&mut self, key: Key, layout: &Layout) -> usize {
        let row = self.place(key);
        if self.key(row) == key && row < self.rows() {
            return row;
        }
        if let Index::Sorted(keys) = &mut self.index {
            insert_at(keys, row, key, 1);
            let from = row * layout.width;
            insert_at(&mut self.values, from, 0.0, layout.width);
            layout.write_initial(
                key,
                self.values
                    .get_mut(from..from + layout.width)
                    .unwrap_or_default(),
            );
            for column in &mut self.state {
                insert_at(column, from, 0.0, layout.width);
            }
            if layout.rule.counts_steps() {
                insert_at(&mut self.steps, row, 0, 1);
            }
        }
        row
    }

    /// Applies the rule to the rows `first..last`, in runs of equal steps on one side of its
    /// border. Returns false if a number that it wrote is not moderate.
    pub(super) fn update(
        &mut self,
        first: usize,
        last: usize,
        gradients: &[f32],
        layout: &Layout,
    ) -> bool {
        let width = layout.width;
        let last = last.min(self.rows());
        let border = layout
            .rule
            .border()
            .map_or(usize::MAX, |key| self.place(key));
        let at_once = (CHECKED / width).max(1);
        let (mut from, mut moderate) = (first, true);
        while from < last {
            let is_beyond = from >= border;
            let mut to = if is_beyond { last } else { last.min(border) }.min(from + at_once);
            let mut step = 0;
            if let Some(steps) = self
                .steps
                .get_mut(from..to)
                .filter(|steps| !steps.is_empty())
            {
                let old = steps.first().copied().unwrap_or(0);
                step = old.saturating_add(1);
                to = from + steps.iter().take_while(|&&s| s == old).count();
                steps.iter_mut().take(to - from).for_each(|s| *s = step);
            }
            let gradient = gradients
                .get((from - first) * width..(to - first) * width)
                .unwrap_or_default();
            let values = self
                .values
                .get_mut(from * width..to * width)
                .unwrap_or_default();
            let mut state: SmallVec<[&mut [f32]; 2]> = self
                .state
                .iter_mut()
                .map(|column| column.get_mut(from * width..to * width).unwrap_or_default())
                .collect();
            if is_beyond {
                layout.rule.apply_beyond(step, gradient, values, &mut state);
            } else {
                layout.rule.apply(step, gradient, values, &mut state);
            }
            moderate =
                moderate && are_moderate(values) && state.iter().all(|column| are_moderate(column));
            from = to;
        }
        moderate
    }

    /// A copy of some rows.
    pub(super) fn copy_of(&self, rows: Range<usize>, width: usize) -> Self {
        let index = match &self.index {
            Index::Run { start, .. } => Index::Run {
                start: start.saturating_add(rows.start as u64),
                rows: rows.len(),
            },
            Index::Sorted(keys) => {
                Index::Sorted(keys.get(rows.clone()).unwrap_or_default().to_vec())
            }
        };
        let numbers = rows.start * width..rows.end * width;
        let column = |column: &Vec<f32>| column.get(numbers.clone()).unwrap_or_default().to_vec();
        let steps = self.steps.get(rows).unwrap_or_default().to_vec();
        Self {
            index,
            values: column(&self.values),
            state: self.state.iter().map(column).collect(),
            steps,
        }
    }

    pub(super) fn is_moderate(&self) -> bool {
        are_moderate(&self.values) && self.state.iter().all(|column| are_moderate(column))
    }

    /// The first row with a number that is not finite.
    pub(super) fn first_not_finite(&self, width: usize) -> Option<usize> {
        let columns = std::iter::once(&self.values).chain(&self.state);
        let bad = columns.filter(|column| !are_finite(column));
        bad.filter_map(|column| column.iter().position(|number| !number.is_finite()))
            .min()
            .map(|at| at / width)
    }

    pub(super) fn values(&self, first: usize, last: usize, width: usize) -> &[f32] {
        self.values
            .get(first * width..last * width)
            .unwrap_or_default()
    }

    pub(super) fn state(&self, slot: usize, first: usize, last: usize, width: usize) -> &[f32] {
        self.state
            .get(slot)
            .and_then(|column| column.get(first * width..last * width))
            .unwrap_or_default()
    }

    pub(super) fn steps(&self, first: usize, last: usize) -> &[u32] {
        self.steps.get(first..last).unwrap_or_default()
    }

    /// Copies row `i` of `count` rows into `row`; `state` is slot after slot.
    #[allow(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(super) fn set(
        &mut self,
        row: usize,
        i: usize,
        count: usize,
        width: usize,
        values: &[f32],
        state: &[f32],
        steps: &[u32],
    ) {
        let place = row * width..(row + 1) * width;
        copy(
            self.values.get_mut(place.clone()),
            values.get(i * width..(i + 1) * width),
        );
        for (slot, column) in self.state.iter_mut().enumerate() {
            let from = (slot * count + i) * width;
            copy(column.get_mut(place.clone()), state.get(from..from + width));
        }
        copy(self.steps.get_mut(row..row + 1), steps.get(i..i + 1));
    }

    /// Drops the rows of `range`.
    pub(super) fn remove(&mut self, range: KeyRange, width: usize) {
        let (first, last) = (self.place(range.start), self.place(range.end));
        if let Index::Sorted(keys) = &mut self.index
            && first < last
        {
            keys.drain(first..last);
            self.values.drain(first * width..last * width);
            for column in &mut self.state {
                column.drain(first * width..last * width);
            }
            if !self.steps.is_empty() {
                self.steps.drain(first..last);
            }
        }
    }

    /// Keeps the rows before `row`, returns the others.
    pub(super) fn split_off(&mut self, row: usize, width: usize) -> Self {
        let index = match &mut self.index {
            Index::Run { start, rows } => {
                let upper = Index::Run {
                    start: start.saturating_add(row as u64),
                    rows: *rows - row,
                };
                *rows = row;
                upper
            }
            Index::Sorted(keys) => Index::Sorted(split_column(keys, row)),
        };
        let values = split_column(&mut self.values, row * width);
        let state = self
            .state
            .iter_mut()
            .map(|column| split_column(column, row * width))
            .collect();
        Self {
            index,
            values,
            state,
            steps: split_column(&mut self.steps, row),
        }
    }

    /// Appends a run that starts where this one ends.
    pub(super) fn append(&mut self, mut upper: Self) {
        if let (Index::Run { rows, .. }, Index::Run { rows: more, .. }) =
            (&mut self.index, &upper.index)
        {
            *rows += more;
            append_exact(&mut self.values, &mut upper.values);
            for (column, more) in self.state.iter_mut().zip(&mut upper.state) {
                append_exact(column, more);
            }
            append_exact(&mut self.steps, &mut upper.steps);
        }
    }
}

fn append_exact<T>(column: &mut Vec<T>, more: &mut Vec<T>) {
    column.reserve_exact(more.len());
    column.append(more);
}

fn copy<T: Copy>(to: Option<&mut [T]>, from: Option<&[T]>) {
    if let (Some(to), Some(from)) = (to, from)
        && to.len() == from.len()
    {
        to.copy_from_slice(from);
    }
}
