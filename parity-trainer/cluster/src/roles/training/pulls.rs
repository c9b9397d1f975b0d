//! Pulls of the parameters after the next step, in the pieces in which a gradient was handed in.

use parapet_parameter_server::KeyRange;

use super::Training;
use crate::node::{Pending, Pulled, TaskError, TaskSpec};
use crate::roles::Result;

/// Pulls of one executor, the last rows first, as they were asked for: those of the last layers
/// travel while gradients of the first are computed.
#[derive(Debug)]
pub(super) struct Pulls {
    pub(super) asker: usize,
    rows: KeyRange,
    under_way: Vec<Pending<Pulled>>,
    done: Vec<Pulled>,
}

impl Pulls {
    pub(super) const fn new(asker: usize, end: u64) -> Self {
        let rows = KeyRange::new(end, end);
        Self { asker, rows, under_way: Vec::new(), done: Vec::new() }
    }

    /// Takes over the pull of the rows before those that are asked for, and no other.
    pub(super) fn add(&mut self, rows: KeyRange, pull: Pending<Pulled>) {
        if rows.end == self.rows.start {
            self.rows = KeyRange::new(rows.start, self.rows.end);
            self.under_way.push(pull);
        }
    }

    pub(super) fn cover(&self, rows: KeyRange) -> bool {
        self.rows.covers(rows)
    }

    /// Waits for all; it may be dropped and called again.
    pub(super) async fn wait(&mut self) -> Result<Pulled, TaskError> {
        while let Some(pull) = self.under_way.last_mut() {
            let pulled = pull.await;
            self.under_way.pop();
            self.done.push(pulled?);
        }
        let mut pieces = std::mem::take(&mut self.done);
        if let [_] = pieces[..] {
            return Ok(pieces.swap_remove(0));
        }
        let all = pieces.iter();
        let values = all.clone().map(|piece| &piece.values[..]).collect::<Vec<_>>().concat();
        Ok(Pulled {
            clock: all.clone().map(|piece| piece.clock).min().unwrap_or_default(),
            newest: all.clone().map(|piece| piece.newest).max().unwrap_or_default(),
            own: all.clone().map(|piece| piece.own).min().unwrap_or_default(),
            values: values.into(),
            updates: all.clone().flat_map(|piece| piece.updates.iter().cloned()).collect(),
            served: all.flat_map(|piece| piece.served.iter().copied()).collect(),
        })
    }
}

impl Training {
    /// Asks for these rows after the next step, for an executor that gave its gradient of them.
    pub(super) async fn ask(&mut self, mut pulls: Pulls, rows: KeyRange) -> Result<Pulls> {
        let worker = self.executors.worker(pulls.asker);
        for piece in self.mirrored.pieces(rows) {
            let held = self.mirrored.mirror.held();
            let spec = TaskSpec::new(self.job.array(), piece, self.clock().next());
            let pull = worker.pull(TaskSpec { held, ..spec }).await;
            pulls.add(piece, pull.map_err(|error| self.failed("the pull", error))?);
        }
        Ok(pulls)
    }

    /// The same while the gradients of earlier rows are computed.
    pub(super) async fn ask_ahead(&mut self, executor: usize, rows: KeyRange) -> Result<()> {
        // The last one to hand in, as in `settle_all`.
        if self.adds_up() && self.own().last() == Some(&executor) {
            let end = self.job.keys().end;
            let next = self.next.take().filter(|next| next.asker == executor && rows.end < end);
            let next = next.unwrap_or_else(|| Pulls::new(executor, end));
            self.next = Some(self.ask(next, rows).await?);
        }
        Ok(())
    }
}
