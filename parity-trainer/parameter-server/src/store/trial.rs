//! Updates that may overflow are made on a copy first (PS-7).

use super::chunk::Chunk;
use super::{Layout, Store};
use crate::values::are_finite;
use crate::{KeyRange, Keys, Refusal, Shared};

/// Numbers of a column that are copied at a time.
const COPIED: usize = 4096;

impl Store {
    /// Returns true if the update is finite by the rule's own bounds.
    pub(super) fn is_safe(&self, gradients: &Shared<f32>) -> bool {
        self.moderate && self.layout.rule.keeps_moderate_finite() && gradients.is_moderate()
    }

    /// Makes the update on copies of the rows, some at a time, and looks at the results.
    pub(super) fn try_update(
        &self,
        range: KeyRange,
        keys: &Keys,
        gradients: &[f32],
    ) -> Result<(), Refusal> {
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
