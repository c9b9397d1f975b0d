//! The rows of a range, with the optimiser's state beside them.
//!
//! A dense range is a list of runs of some megabytes, so that cutting it takes no second copy. A
//! sparse range is a list of sorted chunks of at most [`CHUNK_ROWS`] rows rather than a hash map:
//! with short rows a map's empty places and its keys would cost more than the parameters, and
//! ranges could not be cut without a pass over all. Memory stays within 1.2 times what the keys,
//! parameters and state need.

mod chunk;

use std::sync::Arc;

use crate::values::are_finite;
use crate::{Key, KeyRange, Keys, Refusal, Rows, Shared, UpdateRule};
use chunk::{CHUNK_ROWS, Chunk};

/// Bytes of parameters in a run of a dense range, unless one row has more.
const RUN_BYTES: usize = 16 << 20;

/// Numbers of a column that are copied at a time.
const COPIED: usize = 4096;

/// Layout of an array. Every server is given the same.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Numbers in a row, at least 1.
    pub width: usize,
    /// True if rows exist only once they have been updated. All start as zeros.
    pub sparse: bool,
    pub rule: Arc<dyn UpdateRule>,
}

impl Layout {
    /// An array in which every key has a row.
    pub fn dense(width: usize, rule: impl UpdateRule + 'static) -> Self {
        Self { width: width.max(1), sparse: false, rule: Arc::new(rule) }
    }

    /// An array in which rows begin to exist when they are updated.
    pub fn sparse(width: usize, rule: impl UpdateRule + 'static) -> Self {
        let mut layout = Self::dense(width, rule);
        layout.sparse = true;
        layout
    }
}

/// The rows of one range of one array.
#[derive(Debug, Clone)]
pub struct Store {
    range: KeyRange,
    layout: Layout,
    /// Ascending; none is empty. Those of a dense store have all of its rows.
    chunks: Vec<Chunk>,
    /// No number of any row is above [`crate::MODERATE`] in magnitude. Stays false once it is.
    moderate: bool,
}

impl Store {
    pub fn new(layout: Layout, range: KeyRange) -> Self {
        let row = layout.width.saturating_mul(size_of::<f32>());
        let rows = (RUN_BYTES / row.max(1)).max(1) as u64;
        let runs = match layout.sparse {
            true => 0,
            false => range.len().div_ceil(rows),
        };
        let runs = range.cut(runs);
        let chunks = runs.map(|run| Chunk::run(&layout, run)).collect();
        Self { range, layout, chunks, moderate: true }
    }

    /// The place of the chunk with `key`, or of the first after it.
    fn chunk_of(&self, key: Key) -> usize {
        self.chunks.partition_point(|chunk| chunk.last_key() < key)
    }

    pub const fn range(&self) -> KeyRange {
        self.range
    }

    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn rows(&self) -> usize {
        self.chunks.iter().map(Chunk::rows).sum()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Chunk::memory).sum();
        chunks + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Applies the update rule to the rows `keys` of `range`, which lies within the store's.
    /// `gradients` has `keys x width` numbers; what is missing or out of range is left out.
    ///
    /// # Errors
    /// [`Refusal::Overflow`] if a gradient, or a number that the rule makes, is not finite. The
    /// store is then as before.
    pub fn update(
        &mut self,
        range: KeyRange,
        keys: &Keys,
        gradients: &Shared<f32>,
    ) -> Result<(), Refusal> {
        let Some(range) = self.range.intersect(range) else {
            return Ok(());
        };
        if !self.is_safe(gradients) {
            self.try_update(range, keys, gradients)?;
        }
        let width = self.layout.width;
        if self.layout.sparse || *keys != Keys::All {
            for (key, gradient) in keys.iter(range).zip(gradients.chunks_exact(width)) {
                let chunk = self.chunk_for(key);
                if let Some(chunk) = self.chunks.get_mut(chunk) {
                    let row = chunk.place_or_insert(key, &self.layout);
                    self.moderate &= chunk.update(row..row + 1, gradient, &self.layout);
                }
            }
            return Ok(());
        }
        let first = self.chunk_of(range.start);
        let mut rest: &[f32] = gradients;
        for chunk in self.chunks.iter_mut().skip(first) {
            let rows = chunk.places(range);
            let (now, later) = rest.split_at(rest.len().min(rows.len() * width));
            if now.is_empty() {
                break;
            }
            let rows = rows.start..rows.start + now.len() / width;
            self.moderate &= chunk.update(rows, now, &self.layout);
            rest = later;
        }
        Ok(())
    }

    /// Appends the rows `keys` of `range` to `out`: zeros for a row that does not exist.
    pub fn read(&self, range: KeyRange, keys: &Keys, out: &mut Vec<f32>) {
        let width = self.layout.width;
        if !self.layout.sparse && *keys == Keys::All {
            for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
                let rows = chunk.places(range);
                if rows.is_empty() {
                    return;
                }
                out.extend_from_slice(chunk.column(0, rows, width));
            }
            return;
        }
        for key in keys.iter(range) {
            match self.find(key) {
                Some((chunk, row)) => out.extend_from_slice(chunk.column(0, row..row + 1, width)),
                None => out.resize(out.len() + width, 0.0),
            }
        }
    }

    fn find(&self, key: Key) -> Option<(&Chunk, usize)> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        Some((chunk, chunk.find(key)?))
    }

    /// A copy of the rows from `range.start` on, at most `limit` (at least 1) and none at or after
    /// `range.end`. The result's range goes up to `range.end`, or up to the first row left out.
    pub fn extract(&self, range: KeyRange, limit: usize) -> Rows {
        let (limit, width) = (limit.max(1), self.layout.width);
        let mut pieces = Vec::new();
        let (mut taken, mut end) = (0, range.end);
        for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
            let rows = chunk.places(range);
            if rows.len() > limit - taken {
                let rows = rows.start..rows.start + limit - taken;
                end = chunk.key(rows.end);
                pieces.push((chunk, rows));
                break;
            }
            taken += rows.len();
            pieces.push((chunk, rows));
        }
        let column = |column| {
            let pieces = pieces.iter();
            pieces.flat_map(move |(chunk, rows)| chunk.column(column, rows.clone(), width))
        };
        let (pieces, listed) = (pieces.iter(), pieces.iter());
        let listed = listed.flat_map(|(chunk, rows)| chunk.keys(rows.clone()));
        let keys = match self.layout.sparse {
            true => Keys::List(listed.collect::<Vec<Key>>().into()),
            false => Keys::All,
        };
        let steps = pieces.flat_map(|(chunk, rows)| chunk.steps(rows.clone()));
        let values: Vec<f32> = column(0).copied().collect();
        let slots = 1..=self.layout.rule.slots();
        let state: Vec<f32> = slots.flat_map(column).copied().collect();
        Rows {
            range: KeyRange::new(range.start, end),
            keys,
            values: values.into(),
            state: state.into(),
            steps: steps.copied().collect::<Vec<u32>>().into(),
        }
    }

    /// Replaces what the store has of `rows.range` by `rows`, which [`fit`](Store::fits).
    pub fn insert(&mut self, rows: &Rows) {
        let Some(range) = self.range.intersect(rows.range) else {
            return;
        };
        let width = self.layout.width;
        if self.layout.sparse {
            self.chunks.iter_mut().for_each(|chunk| chunk.remove(range, width));
            self.chunks.retain(|chunk| chunk.rows() > 0);
        }
        let (values, state) = (rows.values.to_f32(), rows.state.to_f32());
        self.moderate &= values.is_moderate() && state.is_moderate();
        let count = values.len() / width;
        let mut columns = vec![&values[..]];
        columns.extend(state.chunks_exact(values.len().max(1)));
        for (from, key) in rows.keys.iter(rows.range).enumerate().take(count) {
            let chunk = self.chunk_for(key);
            let Some(chunk) = self.chunks.get_mut(chunk) else {
                return;
            };
            let row = chunk.place_or_insert(key, &self.layout);
            chunk.set(row, from, &columns, &rows.steps, width);
        }
    }

    /// Returns true if `rows` has as many numbers as this layout asks, in its range, all finite.
    pub fn fits(&self, rows: &Rows) -> bool {
        let (rule, width) = (&self.layout.rule, self.layout.width);
        let count = rows.keys.len(rows.range);
        self.range.covers(rows.range)
            && rows.keys.are_valid(rows.range)
            && (self.layout.sparse || rows.keys == Keys::All)
            && rows.values.check(count, width).is_ok()
            && rows.state.check(count, width * rule.slots()).is_ok()
            && rows.steps.len() == if rule.counts_steps() { count } else { 0 }
    }

    /// Cuts the store at `key`: keeps what is below, returns the rest.
    #[must_use]
    pub fn split_off(&mut self, key: Key) -> Self {
        let key = key.clamp(self.range.start, self.range.end);
        let mut chunks = self.chunks.split_off(self.chunk_of(key));
        if let Some(first) = chunks.first_mut()
            && first.key(0) < key
        {
            let upper = first.split_off(first.place(key), self.layout.width);
            self.chunks.push(std::mem::replace(first, upper));
        }
        let range = KeyRange::new(key, self.range.end);
        self.range.end = key;
        self.chunks.shrink_to_fit();
        Self { range, layout: self.layout.clone(), chunks, moderate: self.moderate }
    }

    /// The place of the chunk that has `key`, or should have it, with room for one more row.
    fn chunk_for(&mut self, key: Key) -> usize {
        let mut at = self.chunk_of(key);
        if !self.layout.sparse {
            return at;
        }
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::empty(self.layout.rule.slots()));
        }
        // After the last key, the last chunk grows.
        at = at.min(self.chunks.len() - 1);
        if let Some(chunk) = self.chunks.get_mut(at)
            && chunk.rows() >= CHUNK_ROWS
        {
            // Keys that arrive in order leave full chunks behind, not half-full ones.
            let is_last = key > chunk.last_key();
            let rows = chunk.rows();
            let cut = if is_last { rows } else { rows / 2 };
            let upper = chunk.split_off(cut, self.layout.width);
            let is_above = upper.rows() == 0 || key >= upper.key(0);
            self.chunks.insert(at + 1, upper);
            at += usize::from(is_above);
        }
        at
    }

    /// Returns true if the update is finite by the rule's own bounds.
    fn is_safe(&self, gradients: &Shared<f32>) -> bool {
        self.moderate && self.layout.rule.keeps_moderate_finite() && gradients.is_moderate()
    }

    /// Makes an update that may overflow on row copies, in parts, and checks the results (PS-7).
    fn try_update(&self, range: KeyRange, keys: &Keys, gradients: &[f32]) -> Result<(), Refusal> {
        let (layout, width) = (&self.layout, self.layout.width);
        if layout.sparse || *keys != Keys::All {
            let mut rows = keys.iter(range).zip(gradients.chunks_exact(width));
            return rows.try_for_each(|(key, gradient)| {
                let row = match self.find(key) {
                    Some((chunk, row)) => chunk.copy_of(row..row + 1, width),
                    None => Chunk::run(layout, KeyRange::new(key, key.saturating_add(1))),
                };
                try_on(row, gradient, layout)
            });
        }
        let mut rest = gradients;
        for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
            let mut rows = chunk.places(range);
            while !rows.is_empty() && !rest.is_empty() {
                let to = rows.end.min(rows.start + (COPIED / width).max(1));
                let (now, later) = rest.split_at(rest.len().min((to - rows.start) * width));
                let copied = rows.start..rows.start + now.len() / width;
                try_on(chunk.copy_of(copied, width), now, layout)?;
                (rows.start, rest) = (to, later);
            }
        }
        Ok(())
    }
}

fn try_on(mut rows: Chunk, gradients: &[f32], layout: &Layout) -> Result<(), Refusal> {
    let mut bad = None;
    if !are_finite(gradients) {
        let at = gradients.iter().position(|gradient| !gradient.is_finite());
        bad = at.map(|at| at / layout.width);
    } else if !rows.update(0..rows.rows(), gradients, layout) {
        bad = rows.first_not_finite(layout.width);
    }
    match bad.map(|row| rows.key(row)) {
        Some(key) => Err(Refusal::Overflow { key }),
        None => Ok(()),
    }
}
