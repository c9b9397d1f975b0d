//! The rows of a range, with the optimiser's state beside them.
//!
//! A dense range is a list of runs of some megabytes, so that to cut it takes no second copy of it.
//! A sparse range is a list of sorted chunks of at most [`CHUNK_ROWS`] rows, rather than a hash
//! map: with short rows a map's empty places and its keys would cost more than the parameters, and
//! ranges could not be cut without a pass over all. Memory stays within 1.2 times what the keys,
//! parameters and state need.

mod chunk;
mod trial;

use std::fmt;
use std::sync::Arc;

use crate::{Key, KeyRange, Keys, Rows, Shared, UpdateRule};
use chunk::{CHUNK_ROWS, Chunk};
pub use trial::NotFinite;

/// Bytes of parameters in a run of a dense range, unless one row has more.
const RUN_BYTES: usize = 16 << 20;

/// Gives a row its value before the first update; the same on every server.
pub trait Initial: Send + Sync {
    /// Writes the row of `key`.
    fn write(&self, key: Key, row: &mut [f32]);
}

impl<F: Fn(Key, &mut [f32]) + Send + Sync> Initial for F {
    fn write(&self, key: Key, row: &mut [f32]) {
        self(key, row);
    }
}

/// Layout of an array. Every server is given the same.
#[derive(Clone)]
pub struct Layout {
    /// Numbers in a row, at least 1.
    pub width: usize,
    /// True if rows are there only once they have been updated.
    pub sparse: bool,
    /// Rule that pushes follow.
    pub rule: Arc<dyn UpdateRule>,
    /// Value of a row before its first update; zeros if `None`.
    pub initial: Option<Arc<dyn Initial>>,
}

impl Layout {
    /// An array in which every key has a row.
    pub fn dense(width: usize, rule: impl UpdateRule + 'static) -> Self {
        Self {
            width: width.max(1),
            sparse: false,
            rule: Arc::new(rule),
            initial: None,
        }
    }

    /// An array in which rows come to be when they are updated.
    pub fn sparse(width: usize, rule: impl UpdateRule + 'static) -> Self {
        Self {
            sparse: true,
            ..Self::dense(width, rule)
        }
    }

    /// With these initial rows.
    #[must_use]
    pub fn starting_from(self, initial: impl Initial + 'static) -> Self {
        Self {
            initial: Some(Arc::new(initial)),
            ..self
        }
    }

    fn write_initial(&self, key: Key, row: &mut [f32]) {
        if let Some(initial) = &self.initial {
            initial.write(key, row);
        }
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Layout {{ width: {}, sparse: {}, rule: {:?} }}",
            self.width, self.sparse, self.rule
        )
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
    /// The range with its initial rows.
    pub fn new(layout: Layout, range: KeyRange) -> Self {
        let mut store = Self {
            range,
            layout,
            chunks: Vec::new(),
            moderate: true,
        };
        if !store.layout.sparse {
            let rows = store.rows_in_run() as u64;
            let mut start = range.start;
            while start < range.end {
                let end = start.saturating_add(rows).min(range.end);
                store
                    .chunks
                    .push(Chunk::initial(&store.layout, KeyRange::new(start, end)));
                start = end;
            }
            store.moderate = store.chunks.iter().all(Chunk::is_moderate);
        }
        store
    }

    fn rows_in_run(&self) -> usize {
        (RUN_BYTES / self.layout.width.saturating_mul(size_of::<f32>()).max(1)).max(1)
    }

    /// The place of the chunk with `key`, or of the first after it.
    fn chunk_of(&self, key: Key) -> usize {
        self.chunks.partition_point(|chunk| chunk.last_key() < key)
    }

    /// Returns the range.
    pub const fn range(&self) -> KeyRange {
        self.range
    }

    /// Returns the layout of the rows.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(Chunk::rows).sum()
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>()
            + self.chunks.iter().map(Chunk::memory).sum::<usize>()
    }

    /// Applies the update rule to the rows `keys` of `range`, which lies within the store's.
    /// `gradients` has `keys x width` numbers; what is missing or out of range is left out.
    ///
    /// # Errors
    /// If a gradient, or a number that the rule makes, is not finite. The store is then as before.
    pub fn update(
        &mut self,
        range: KeyRange,
        keys: &Keys,
        gradients: &Shared<f32>,
    ) -> Result<(), NotFinite> {
        let Some(range) = self.range.intersect(range) else {
            return Ok(());
        };
        if !self.is_safe(gradients) {
            self.try_update(range, keys, gradients)?;
        }
        if !self.layout.sparse && *keys == Keys::All {
            let first = self.chunk_of(range.start);
            let mut rest: &[f32] = gradients;
            for chunk in self.chunks.iter_mut().skip(first) {
                let rows = chunk.place(range.start)..chunk.place(range.end);
                let (now, later) = rest.split_at(rest.len().min(rows.len() * self.layout.width));
                if now.is_empty() {
                    break;
                }
                let end = rows.start + now.len() / self.layout.width;
                self.moderate &= chunk.update(rows.start, end, now, &self.layout);
                rest = later;
            }
            return Ok(());
        }
        for (key, gradient) in keys
            .iter(range)
            .zip(gradients.chunks_exact(self.layout.width))
        {
            let chunk = self.chunk_for(key);
            if let Some(chunk) = self.chunks.get_mut(chunk) {
                let row = chunk.place_or_insert(key, &self.layout);
                self.moderate &= chunk.update(row, row + 1, gradient, &self.layout);
            }
        }
        Ok(())
    }

    /// Appends the rows `keys` of `range` to `out`; a row that is not there as it
    /// would be initially.
    pub fn read(&self, range: KeyRange, keys: &Keys, out: &mut Vec<f32>) {
        let width = self.layout.width;
        if let (false, Keys::All) = (self.layout.sparse, keys) {
            for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
                let (first, last) = (chunk.place(range.start), chunk.place(range.end));
                if first == last {
                    return;
                }
                out.extend_from_slice(chunk.values(first, last, width));
            }
            return;
        }
        for key in keys.iter(range) {
            let chunk = self.chunk_of(key);
            match self
                .chunks
                .get(chunk)
                .and_then(|chunk| chunk.find(key).map(|row| chunk.values(row, row + 1, width)))
            {
                Some(row) => out.extend_from_slice(row),
                None => {
                    let from = out.len();
                    out.resize(from + width, 0.0);
                    self.layout
                        .write_initial(key, out.get_mut(from..).unwrap_or_default());
                }
            }
        }
    }

    /// A copy of the rows from `range.start` on, at most `limit` (at least 1) and none at or after
    /// `range.end`. The result's range says how far it goes: up to `range.end`, or up to the first
    /// row left out.
    pub fn extract(&self, range: KeyRange, limit: usize) -> Rows {
        let limit = limit.max(1);
        let mut pieces = Vec::new();
        let (mut taken, mut end) = (0, range.end);
        for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
            let (first, last) = (chunk.place(range.start), chunk.place(range.end));
            if taken + (last - first) > limit {
                let last = first + limit - taken;
                end = chunk.key(last);
                pieces.push((chunk, first..last));
                break;
            }
            taken += last - first;
            pieces.push((chunk, first..last));
        }
        let range = KeyRange::new(range.start, end);
        let keys = pieces
            .iter()
            .flat_map(|(chunk, rows)| rows.clone().map(|row| chunk.key(row)));
        let keys = if self.layout.sparse {
            Keys::List(keys.collect::<Vec<_>>().into())
        } else {
            Keys::All
        };
        let width = self.layout.width;
        let values: Vec<f32> = pieces
            .iter()
            .flat_map(|(c, rows)| c.values(rows.start, rows.end, width))
            .copied()
            .collect();
        let slots = 0..self.layout.rule.slots();
        let state: Vec<f32> = slots
            .flat_map(|slot| {
                pieces
                    .iter()
                    .flat_map(move |(c, rows)| c.state(slot, rows.start, rows.end, width))
            })
            .copied()
            .collect();
        let steps = pieces
            .iter()
            .flat_map(|(c, rows)| c.steps(rows.start, rows.end))
            .copied()
            .collect();
        Rows {
            range,
            keys,
            values: values.into(),
            state: state.into(),
            steps,
        }
    }

    /// Replaces what the store has of `rows.range` by `rows`. They must fit this layout and range:
    /// see [`Store::fits`].
    pub fn insert(&mut self, rows: &Rows) {
        let Some(range) = self.range.intersect(rows.range) else {
            return;
        };
        if self.layout.sparse {
            for chunk in &mut self.chunks {
                chunk.remove(range, self.layout.width);
            }
            self.chunks.retain(|chunk| chunk.rows() > 0);
        }
        let (width, values, state) = (self.layout.width, rows.values.to_f32(), rows.state.to_f32());
        self.moderate &= values.is_moderate() && state.is_moderate();
        let count = values.len() / width;
        for (i, key) in rows.keys.iter(rows.range).enumerate().take(count) {
            let chunk = self.chunk_for(key);
            let Some(chunk) = self.chunks.get_mut(chunk) else {
                return;
            };
            let row = chunk.place_or_insert(key, &self.layout);
            chunk.set(row, i, count, width, &values, &state, &rows.steps);
        }
    }

    /// Returns true if `rows` has as many numbers as this layout asks for, in its
    /// range, all finite.
    pub fn fits(&self, rows: &Rows) -> bool {
        let rule = &self.layout.rule;
        let count = rows.keys.len(rows.range);
        self.range.covers(rows.range)
            && rows.keys.are_valid(rows.range)
            && (self.layout.sparse || rows.keys == Keys::All)
            && rows.values.check(count, self.layout.width).is_ok()
            && rows
                .state
                .check(count, self.layout.width * rule.slots())
                .is_ok()
            && rows.steps.len() == if rule.counts_steps() { count } else { 0 }
    }

    /// Cuts the store at `key`: keeps what is below, returns the rest.
    #[must_use]
    pub fn split_off(&mut self, key: Key) -> Self {
        let key = key.clamp(self.range.start, self.range.end);
        let mut upper = self.chunks.split_off(self.chunk_of(key));
        if let Some(first) = upper.first_mut()
            && first.key(0) < key
        {
            let rest = first.split_off(first.place(key), self.layout.width);
            self.chunks.push(std::mem::replace(first, rest));
        }
        let range = KeyRange::new(key, self.range.end);
        self.range.end = key;
        self.chunks.shrink_to_fit();
        Self {
            range,
            layout: self.layout.clone(),
            chunks: upper,
            moderate: self.moderate,
        }
    }

    /// Takes over the rows of `upper`, which starts where this one ends and has the same layout.
    /// Gives it back if it does not.
    pub fn append(&mut self, upper: Self) -> Result<(), Box<Self>> {
        if upper.range.start != self.range.end || upper.layout.sparse != self.layout.sparse {
            return Err(Box::new(upper));
        }
        self.range.end = upper.range.end;
        self.moderate &= upper.moderate;
        let mut chunks = upper.chunks.into_iter().peekable();
        let most = self.rows_in_run();
        // Runs that were cut become whole again.
        if !self.layout.sparse
            && let (Some(own), Some(next)) = (self.chunks.last_mut(), chunks.peek())
            && own.rows() + next.rows() <= most
        {
            chunks
                .next()
                .into_iter()
                .for_each(|chunk| own.append(chunk));
        }
        self.chunks.extend(chunks);
        Ok(())
    }

    /// The place of the chunk that has `key`, or should have it, with room for one more row.
    fn chunk_for(&mut self, key: Key) -> usize {
        let mut at = self.chunk_of(key);
        if !self.layout.sparse {
            return at;
        }
        if at == self.chunks.len() {
            // After the last key: the last chunk grows.
            match at.checked_sub(1) {
                Some(last) => at = last,
                None => self.chunks.push(Chunk::empty(self.layout.rule.slots())),
            }
        }
        if let Some(chunk) = self.chunks.get_mut(at)
            && chunk.rows() >= CHUNK_ROWS
        {
            // Keys that arrive in order leave full chunks behind, not half-full ones.
            let cut = if key > chunk.last_key() {
                chunk.rows()
            } else {
                chunk.rows() / 2
            };
            let upper = chunk.split_off(cut, self.layout.width);
            if upper.rows() == 0 || key >= upper.key(0) {
                at += 1;
                self.chunks.insert(at, upper);
            } else {
                self.chunks.insert(at + 1, upper);
            }
        }
        at
    }
}
