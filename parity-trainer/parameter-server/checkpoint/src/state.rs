//! What a server holds of a shard.

use parapet_parameter_server::{ArrayId, Key, KeyRange, Rows, ShardView, WorkerClock};

use crate::rows;

/// A shard at one moment: all that training needs to go on from there.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardState {
    /// The array.
    pub array: ArrayId,
    /// Numbers in a row.
    pub width: usize,
    /// Whether rows are there only once they have been updated.
    pub sparse: bool,
    /// Its rows, over its whole range.
    pub rows: Rows,
    /// What they contain of each worker.
    pub clocks: Vec<WorkerClock>,
}

impl ShardState {
    /// A copy of what the server holds now. Take it of the tail: what it has is acknowledged.
    pub fn of(view: &ShardView<'_>) -> Self {
        Self::piece(view, view.at.range.start, usize::MAX)
    }

    /// A copy of the rows from this key on, at most so many, for a server that has other things to do, too: [`Self::joined`]
    /// makes a shard of its pieces, if none was updated meanwhile. The clocks are with the first piece.
    pub fn piece(view: &ShardView<'_>, from: Key, limit: usize) -> Self {
        let layout = view.store.layout();
        let is_first = from == view.at.range.start;
        Self {
            array: view.at.array,
            width: layout.width,
            sparse: layout.sparse,
            rows: view.store.extract(KeyRange::new(from, view.at.range.end), limit),
            clocks: if is_first { view.clocks.to_entries() } else { Vec::new() },
        }
    }

    /// Its keys.
    pub const fn range(&self) -> KeyRange {
        self.rows.range
    }

    /// The part of it that is about `range`; empty if it has none of it.
    #[must_use]
    pub fn part(&self, range: KeyRange) -> Self {
        let range = self.range().intersect(range).unwrap_or(KeyRange::new(range.start, range.start));
        let within =
            |clock: &WorkerClock| clock.range.intersect(range).map(|range| WorkerClock { range, ..*clock });
        Self {
            rows: rows::cut(&self.rows, range, self.width),
            clocks: self.clocks.iter().filter_map(within).collect(),
            ..self.clone()
        }
    }

    /// This and the states of the ranges that follow, as one.
    #[must_use]
    pub fn joined(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let rows: Vec<&Rows> = parts.iter().map(|part| &part.rows).collect();
        let mut clocks: Vec<WorkerClock> =
            parts.iter().flat_map(|part| part.clocks.iter().copied()).collect();
        clocks.sort_unstable_by_key(|clock| (clock.worker, clock.range));
        Some(Self { rows: rows::join(&rows, first.width), clocks, ..first.clone() })
    }
}
