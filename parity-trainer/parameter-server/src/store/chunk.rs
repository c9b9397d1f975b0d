//! Some rows in key order, column by column.

use std::ops::Range;

use super::Layout;
use crate::values::are_finite;
use crate::{Key, KeyRange, are_moderate};
use smallvec::SmallVec;

/// Rows in a sparse chunk at most: an insertion moves half of them on average.
pub(super) const CHUNK_ROWS: usize = 512;

/// Numbers of a column that are updated before they are checked: few enough that they, the state
/// and the gradient are still in the processor's cache.
const CHECKED: usize = 4096;

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
    /// The values, then each slot of the rule, so that a run of rows is one slice of each.
    columns: SmallVec<[Vec<f32>; 3]>,
    /// Number of updates of each row; empty if the rule does not count them.
    steps: Vec<u32>,
}

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

fn copy<T: Copy>(to: Option<&mut [T]>, from: Option<&[T]>) {
    if let (Some(to), Some(from)) = (to, from)
        && to.len() == from.len()
    {
        to.copy_from_slice(from);
    }
}

const fn numbers(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

impl Chunk {
    pub(super) fn empty(slots: usize) -> Self {
        Self {
            index: Index::Sorted(Vec::new()),
            columns: (0..=slots).map(|_| Vec::new()).collect(),
            steps: Vec::new(),
        }
    }

    /// All rows of `range` before their first update.
    pub(super) fn run(layout: &Layout, range: KeyRange) -> Self {
        let rows = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let (start, numbers) = (range.start, rows.saturating_mul(layout.width));
        let counted = if layout.rule.counts_steps() { rows } else { 0 };
        let columns = 0..=layout.rule.slots();
        Self {
            index: Index::Run { start, rows },
            columns: columns.map(|_| vec![0.0; numbers]).collect(),
            steps: vec![0; counted],
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
        let columns: usize = self.columns.iter().map(Vec::capacity).sum();
        keys + (columns + self.steps.capacity()) * size_of::<f32>()
    }

    /// The key of `row`; past the end, the largest there is.
    pub(super) fn key(&self, row: usize) -> Key {
        match &self.index {
            Index::Run { start, .. } => start.saturating_add(row as u64),
            Index::Sorted(keys) => keys.get(row).copied().unwrap_or(Key::MAX),
        }
    }

    pub(super) fn keys(&self, rows: Range<usize>) -> impl Iterator<Item = Key> + '_ {
        rows.map(|row| self.key(row))
    }

    /// The last row's key; 0 if there is none.
    pub(super) fn last_key(&self) -> Key {
        self.rows().checked_sub(1).map_or(0, |row| self.key(row))
    }

    pub(super) fn place(&self, key: Key) -> usize {
        match &self.index {
            Index::Run { start, rows } => {
                let row = usize::try_from(key.saturating_sub(*start));
                row.unwrap_or(usize::MAX).min(*rows)
            }
            Index::Sorted(keys) => keys.partition_point(|&k| k < key),
        }
    }

    pub(super) fn places(&self, range: KeyRange) -> Range<usize> {
        self.place(range.start)..self.place(range.end)
    }

    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let row = self.place(key);
        (row < self.rows() && self.key(row) == key).then_some(row)
    }

    /// The row of `key`, made if it is not there. A run has all the rows it can have.
    pub(super) fn place_or_insert(&mut self, key: Key, layout: &Layout) -> usize {
        let row = self.place(key);
        let is_there = row < self.rows() && self.key(row) == key;
        if let Index::Sorted(keys) = &mut self.index
            && !is_there
        {
            insert_at(keys, row, key, 1);
            for column in &mut self.columns {
                insert_at(column, row * layout.width, 0.0, layout.width);
            }
            if layout.rule.counts_steps() {
                insert_at(&mut self.steps, row, 0, 1);
            }
        }
        row
    }

    /// Applies the rule to `rows`, in runs of equal steps on one side of its border. Returns false
    /// if a number that it wrote is not moderate.
    pub(super) fn update(
        &mut self,
        rows: Range<usize>,
        gradients: &[f32],
        layout: &Layout,
    ) -> bool {
        let (width, last) = (layout.width, rows.end.min(self.rows()));
        let border = layout.rule.border();
        let border = border.map_or(usize::MAX, |key| self.place(key));
        let at_once = (CHECKED / width).max(1);
        let (mut from, mut moderate) = (rows.start, true);
        while from < last {
            let is_beyond = from >= border;
            let end = if is_beyond { last } else { last.min(border) };
            let mut to = end.min(from + at_once);
            let mut step = 0;
            if let Some([first, ..]) = self.steps.get(from..to) {
                let old = *first;
                step = old.saturating_add(1);
                let steps = self.steps.get_mut(from..to).unwrap_or_default();
                let run = steps.iter_mut().take_while(|s| **s == old);
                to = from + run.map(|s| *s = step).count();
            }
            let at = from - rows.start..to - rows.start;
            let gradient = gradients.get(numbers(&at, width)).unwrap_or_default();
            let at = numbers(&(from..to), width);
            let columns = self.columns.iter_mut();
            let mut columns = columns.map(|column| column.get_mut(at.clone()).unwrap_or_default());
            let values = columns.next().unwrap_or_default();
            let mut state: SmallVec<[&mut [f32]; 2]> = columns.collect();
            if is_beyond {
                layout.rule.apply_beyond(step, gradient, values, &mut state);
            } else {
                layout.rule.apply(step, gradient, values, &mut state);
            }
            let state_is_moderate = || state.iter().all(|column| are_moderate(column));
            moderate = moderate && are_moderate(values) && state_is_moderate();
            from = to;
        }
        moderate
    }

    pub(super) fn copy_of(&self, rows: Range<usize>, width: usize) -> Self {
        let index = match &self.index {
            Index::Run { .. } => {
                let (start, rows) = (self.key(rows.start), rows.len());
                Index::Run { start, rows }
            }
            Index::Sorted(_) => Index::Sorted(self.keys(rows.clone()).collect()),
        };
        let column = |column: usize| self.column(column, rows.clone(), width).to_vec();
        Self {
            index,
            columns: (0..self.columns.len()).map(column).collect(),
            steps: self.steps(rows.clone()).to_vec(),
        }
    }

    pub(super) fn first_not_finite(&self, width: usize) -> Option<usize> {
        let bad = self.columns.iter().filter(|column| !are_finite(column));
        let places = bad.filter_map(|column| column.iter().position(|n| !n.is_finite()));
        places.min().map(|at| at / width)
    }

    /// The numbers of some rows: the values at 0, then the slots of state.
    pub(super) fn column(&self, column: usize, rows: Range<usize>, width: usize) -> &[f32] {
        let column = self.columns.get(column).map_or(&[][..], Vec::as_slice);
        column.get(numbers(&rows, width)).unwrap_or_default()
    }

    pub(super) fn steps(&self, rows: Range<usize>) -> &[u32] {
        self.steps.get(rows).unwrap_or_default()
    }

    pub(super) fn set(
        &mut self,
        row: usize,
        from: usize,
        columns: &[&[f32]],
        steps: &[u32],
        width: usize,
    ) {
        let (to, source) = (row..row + 1, from..from + 1);
        let (to, source) = (numbers(&to, width), numbers(&source, width));
        for (column, numbers) in self.columns.iter_mut().zip(columns) {
            copy(column.get_mut(to.clone()), numbers.get(source.clone()));
        }
        copy(self.steps.get_mut(row..row + 1), steps.get(from..from + 1));
    }

    pub(super) fn remove(&mut self, range: KeyRange, width: usize) {
        let rows = self.places(range);
        if let Index::Sorted(keys) = &mut self.index {
            keys.drain(rows.clone());
            for column in &mut self.columns {
                column.drain(numbers(&rows, width));
            }
            if !self.steps.is_empty() {
                self.steps.drain(rows);
            }
        }
    }

    /// Keeps the rows before `row`, returns the others.
    pub(super) fn split_off(&mut self, row: usize, width: usize) -> Self {
        let start = self.key(row);
        let index = match &mut self.index {
            Index::Run { rows, .. } => {
                let upper = *rows - row;
                *rows = row;
                Index::Run { start, rows: upper }
            }
            Index::Sorted(keys) => Index::Sorted(split_column(keys, row)),
        };
        let columns = self.columns.iter_mut();
        let columns = columns.map(|column| split_column(column, row * width));
        Self { index, columns: columns.collect(), steps: split_column(&mut self.steps, row) }
    }
}
