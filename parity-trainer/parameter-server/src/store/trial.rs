//! Updates that may overflow are made on a copy first (PS-7).

use super::chunk::Chunk;
use super::{Layout, Store};
use crate::values::are_finite;
use crate::{Key, KeyRange, Keys, Shared};

/// Numbers of a column that are copied at a time.
const COPIED: usize = 4096;

/// An update, or its gradient, that is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the update of key {key} is not finite")]
pub struct NotFinite {
    /// The first such key.
    pub key: Key,
}

impl Store {
    /// Returns true if the update is finite by the rule's own bounds.
    pub(super) fn is_safe(&self, gradients: &Shared<f32>) -> bool {
        // A sparse row that is not there yet may begin with any number.
        let may_be_born_large = self.layout.sparse && self.layout.initial.is_some();
        self.moderate
            && !may_be_born_large
            && self.layout.rule.keeps_moderate_finite()
            && gradients.is_moderate()
    }

    /// Makes the update on copies of the rows, some at a time, and looks at the results.
    pub(super) fn try_update(
        &self,
        range: KeyRange,
        keys: &Keys,
        gradients: &[f32],
    ) -> Result<(), NotFinite> {
        let layout = &self.layout;
        if layout.sparse || *keys != Keys::All {
            let rows = keys.iter(range).zip(gradients.chunks_exact(layout.width));
            return rows
                .into_iter()
                .try_for_each(|(key, gradient)| try_on(self.copy_of(key), gradient, layout));
        }
        let mut rest = gradients;
        for chunk in self.chunks.iter().skip(self.chunk_of(range.start)) {
            let (mut from, end) = (chunk.place(range.start), chunk.place(range.end));
            while from < end && !rest.is_empty() {
                let to = end.min(from + (COPIED / layout.width).max(1));
                let (now, later) = rest.split_at(rest.len().min((to - from) * layout.width));
                let rows = from..from + now.len() / layout.width;
                try_on(chunk.copy_of(rows, layout.width), now, layout)?;
                (from, rest) = (to, later);
            }
        }
        Ok(())
    }

    /// A copy of one row, as it is before its first update if it is not there.
    fn copy_of(&self, key: Key) -> Chunk {
        let chunk = self.chunks.get(self.chunk_of(key));
        let found = chunk.and_then(|chunk| {
            chunk
                .find(key)
                .map(|row| chunk.copy_of(row..row + 1, self.layout.width))
        });
        found.unwrap_or_else(|| {
            Chunk::initial(&self.layout, KeyRange::new(key, key.saturating_add(1)))
        })
    }
}

fn try_on(mut rows: Chunk, gradients: &[f32], layout: &Layout) -> Result<(), NotFinite> {
    let mut bad = None;
    if !are_finite(gradients) {
        bad = gradients
            .iter()
            .position(|gradient| !gradient.is_finite())
            .map(|at| at / layout.width);
    } else if !rows.update(0, rows.rows(), gradients, layout) {
        bad = rows.first_not_finite(layout.width);
    }
    bad.map_or(Ok(()), |row| Err(NotFinite { key: rows.key(row) }))
}
