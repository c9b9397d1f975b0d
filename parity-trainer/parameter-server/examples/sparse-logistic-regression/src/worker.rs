//! One worker: pull the minibatch's weights, compute, push, again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parapet_parameter_server::{Clock, KeyRange, Keys, PushFilter, Values};
use parapet_parameter_server_node::{Pending, TaskError, TaskSpec, Worker};
use tokio::sync::watch;

use crate::logistic::gradient;
use crate::training::{Payload, TrainError};
use crate::{ARRAY, Batches, Minibatch, Rows};

/// Pushes that are not acknowledged yet, before the worker waits for the oldest.
const PUSHES: usize = 64;

/// What a worker did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) rows: usize,
    pub(crate) loss: f64,
    /// Time that it waited for servers.
    pub(crate) idle: Duration,
    pub(crate) busy: Duration,
    pub(crate) payload: Payload,
    pub(crate) stopped: bool,
}

pub(crate) struct WorkerRun<'a> {
    pub(crate) worker: Worker,
    pub(crate) keys: KeyRange,
    pub(crate) rows: &'a Rows,
    pub(crate) batches: Batches,
    pub(crate) filter: PushFilter,
    pub(crate) payload: Payload,
    pub(crate) stop: watch::Receiver<bool>,
}

impl WorkerRun<'_> {
    /// Works until its rows are done or it is told to stop. `learned` is told of each minibatch: its rows and the sum of
    /// their losses before the update.
    pub(crate) async fn run(mut self, learned: impl Fn(usize, f64)) -> Result<Tally, TrainError> {
        let mut tally = Tally { payload: self.payload, ..Tally::default() };
        let mut pushes = VecDeque::new();
        let begun = Instant::now();
        let mut next = self.next();
        let mut clock = Clock(0);
        while let Some(batch) = next.take() {
            clock = clock.next();
            let keys = Keys::List(batch.keys().to_vec().into());
            let spec = TaskSpec::new(ARRAY, self.keys, clock).keys(keys.clone());
            // An empty minibatch only raises the clock, so that nobody waits for this worker.
            let pull =
                if batch.keys().is_empty() { None } else { Some(self.worker.pull(spec.clone()).await?) };
            next = self.next();
            let (keys, values) = match pull {
                None => (Keys::none(), Values::none()),
                Some(pull) => {
                    let Some(pulled) = self.wait(pull, &mut tally.idle).await? else {
                        tally.stopped = true;
                        break;
                    };
                    let found = gradient(&batch, &pulled.values);
                    let weights = Values::F32(pulled.values);
                    let sums = Values::from(found.sums);
                    let sent = self.filter.filter(self.keys, &keys, &sums, Some(&weights))?;
                    tally.payload.count(batch.keys().len(), sent.0.len(self.keys));
                    tally.rows += batch.rows().len();
                    tally.loss += found.loss;
                    learned(batch.rows().len(), found.loss);
                    sent
                }
            };
            pushes.push_back(self.worker.push(spec.keys(keys), values).await?);
            if pushes.len() > PUSHES
                && let Some(oldest) = pushes.pop_front()
                && self.wait(oldest, &mut tally.idle).await?.is_none()
            {
                tally.stopped = true;
                break;
            }
        }
        for push in pushes {
            tally.stopped |= self.wait(push, &mut tally.idle).await?.is_none();
        }
        tally.busy = begun.elapsed().saturating_sub(tally.idle);
        Ok(tally)
    }

    fn next(&mut self) -> Option<Minibatch> {
        self.batches.next().map(|places| Minibatch::new(self.rows, &places))
    }

    /// What a task gives; `None` if it is not waited for any longer.
    async fn wait<R>(&mut self, task: Pending<R>, idle: &mut Duration) -> Result<Option<R>, TaskError> {
        let begun = Instant::now();
        let done = tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            done = task => Some(done?),
        };
        *idle += begun.elapsed();
        Ok(done)
    }
}
