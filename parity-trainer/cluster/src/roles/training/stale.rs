//! Steps of which a process may miss some of the others': every consistency model but BSP.
//!
//! Each executor's push is an update by itself, and each process goes through the steps at its own
//! pace, as far ahead of the others as the model lets it read. What it pulls after a step contains
//! all of its own pushes, and of the others' what the model promises. The last step is waited for
//! by all, so that the outcome lacks nothing. An executor that comes from another process may be at
//! another step. One that is behind goes on at this process's step, and what it had not done yet is
//! left out; one that is ahead waits until the process gets there.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{Keys, Values};
use tokio::time::{Instant, timeout, timeout_at};

use super::session::{LOOKS, PATIENCE, late};
use super::{Settled, Training};
use crate::node::{Pending, Pulled, TaskSpec};
use crate::registry::RegistryError;
use crate::roles::Result;

#[derive(Debug, Default)]
pub(super) struct Stale {
    /// The steps that each has handed in a gradient for.
    pub(super) steps: BTreeMap<usize, u64>,
    pub(super) pushed: Vec<Pending<()>>,
    /// The latest step that all executors were seen to have done.
    seen: u64,
}

impl Stale {
    /// Returns those of `own` that are known to have the step after `step` to do.
    pub(super) fn to_do(&self, own: &BTreeSet<usize>, step: u64) -> Vec<usize> {
        let is_next = |place: &usize| self.steps.get(place) == Some(&step);
        own.iter().copied().filter(is_next).collect()
    }
}

impl Training {
    /// Begins with these parameters, at the step that all executors have done.
    pub(super) async fn begin_stale(&mut self, pulled: Pulled) -> Result<()> {
        let step = self.job.steps_at(pulled.clock);
        self.go_on(pulled, step);
        self.meet(&self.own()).await
    }

    /// Waits as long as the others get on: a fast process has done its last step long before.
    pub(super) async fn settle_stale(&mut self) -> Result<Settled> {
        let step = self.steps_done() + 1;
        let mut heard = (self.stale.seen, Instant::now());
        loop {
            let settled = timeout_at(heard.1 + PATIENCE, self.try_to_settle()).await;
            if let Some(settled) = settled.unwrap_or_else(|_| Err(late(step)))? {
                return Ok(settled);
            }
            if self.stale.seen > heard.0 {
                heard = (self.stale.seen, Instant::now());
            }
        }
    }

    /// Nothing if there is more to wait for.
    async fn try_to_settle(&mut self) -> Result<Option<Settled>> {
        let own = self.own();
        self.executors.keep(&own, false);
        self.meet(&own).await?;
        if !self.stale.to_do(&own, self.step).is_empty() {
            return Ok(Some(Settled::MoreToDo));
        }
        // So that no process has more under way than one step's.
        for push in std::mem::take(&mut self.stale.pushed) {
            let pushed = push.await;
            pushed.map_err(|error| self.failed("the gradient", error))?;
        }
        let is_last = self.steps_done() + 1 >= self.job.training.rule.steps;
        let seen = match own.first() {
            Some(&asker) if !is_last => self.next_parameters(asker, &own).await?,
            _ => self.parameters_of_all().await?,
        };
        let Some(pulled) = seen else { return Ok(None) };
        let step = match own.is_empty() {
            true => self.job.steps_at(pulled.clock),
            false => self.step + 1,
        };
        self.go_on(pulled, step);
        Ok(Some(Settled::Done))
    }

    /// Returns the parameters after this step; `None` if the executors are others by now.
    async fn next_parameters(
        &mut self,
        asker: usize,
        own: &BTreeSet<usize>,
    ) -> Result<Option<Pulled>> {
        let worker = self.executors.worker(asker);
        let mut pull = self.pull(&worker, self.clock().next()).await?;
        while self.own() == *own {
            tokio::select! {
                pulled = &mut pull => {
                    let pulled = pulled.map_err(|error| self.failed("the pull", error))?;
                    return Ok(Some(pulled));
                }
                changed = self.view.changed() => changed.map_err(|_| RegistryError::Closed)?,
            }
        }
        Ok(None)
    }

    /// Parameters that contain this step of all executors, if they do yet.
    async fn parameters_of_all(&mut self) -> Result<Option<Pulled>> {
        let pulled = self.pull_now(&self.reader).await?;
        let contained = self.job.steps_at(pulled.clock);
        self.stale.seen = self.stale.seen.max(contained);
        if contained > self.step {
            return Ok(Some(pulled));
        }
        let _ = timeout(LOOKS, self.view.changed()).await;
        Ok(None)
    }

    /// Finds out how far executors are that have come here.
    async fn meet(&mut self, own: &BTreeSet<usize>) -> Result<()> {
        self.stale.steps.retain(|place, _| own.contains(place));
        for &place in own {
            if self.stale.steps.contains_key(&place) {
                continue;
            }
            let worker = self.executors.worker(place);
            let pulled = self.pull_now(&worker).await?;
            let mut done = self.job.steps_at(pulled.own);
            while done < self.step {
                done += 1;
                let (array, keys) = (self.job.array(), self.job.keys());
                let spec = TaskSpec::new(array, keys, self.job.clock_of(done));
                let failed = |error| self.failed("the gradient", error);
                let skipped = worker.push(spec.keys(Keys::none()), Values::none()).await;
                skipped.map_err(failed)?.await.map_err(failed)?;
            }
            self.stale.steps.insert(place, done);
        }
        Ok(())
    }
}
