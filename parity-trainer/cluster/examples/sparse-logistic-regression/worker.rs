//! One worker: pull the minibatch's weights, compute, push, again.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use parapet_cluster::node::{Pending, TaskError, TaskSpec, Worker};
use parapet_parameter_server::{Clock, KeyRange, Keys, PushFilter, Values};
use tokio::sync::watch;

use crate::logistic::gradient;
use crate::training::{Payload, TrainError};
use crate::{ARRAY, Batches, Minibatch, Rows};

/// Pushes that are not acknowledged yet, before the worker waits for the oldest.
const PUSHES: usize = 64;

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
    /// Works until its rows are done or it is told to stop. `learned` is told of each minibatch:
    /// its rows and the sum of their losses before the update.
    pub(crate) async fn run(mut self, learned: impl Fn(usize, f64)) -> Result<Tally, TrainError> {
        let mut tally = Tally {
            payload: self.payload,
            ..Tally::default()
        };
        let mut pushes = Pushes::default();
        let begun = Instant::now();
        let mut next = self.next();
        let mut clock = Clock(0);
        while let Some(batch) = next.take() {
            clock = clock.next();
            let keys = Keys::List(batch.keys().to_vec().into());
            let spec = TaskSpec::new(ARRAY, self.keys, clock).keys(keys.clone());
            // An empty minibatch only raises the clock, so that no one waits for this worker.
            let pull = if batch.keys().is_empty() {
                None
            } else {
                Some(self.worker.pull(spec.clone()).await?)
            };
            next = self.next();
            let (keys, values) = match pull {
                None => (Keys::none(), Values::none()),
                Some(pull) => {
                    let Some(pulled) = self.wait(pull, &mut pushes, &mut tally.idle).await? else {
                        tally.stopped = true;
                        break;
                    };
                    let found = gradient(&batch, &pulled.values);
                    let weights = Values::F32(pulled.values);
                    let sums = Values::from(found.sums);
                    let sent = self
                        .filter
                        .filter(self.keys, &keys, &sums, Some(&weights))?;
                    tally
                        .payload
                        .count(batch.keys().len(), sent.0.len(self.keys));
                    tally.rows += batch.rows().len();
                    tally.loss += found.loss;
                    learned(batch.rows().len(), found.loss);
                    sent
                }
            };
            pushes
                .0
                .push(self.worker.push(spec.keys(keys), values).await?);
            if self
                .finish(&mut pushes, PUSHES, &mut tally.idle)
                .await?
                .is_none()
            {
                tally.stopped = true;
                break;
            }
        }
        tally.stopped |= self
            .finish(&mut pushes, 0, &mut tally.idle)
            .await?
            .is_none();
        tally.busy = begun.elapsed().saturating_sub(tally.idle);
        Ok(tally)
    }

    fn next(&mut self) -> Option<Minibatch> {
        self.batches
            .next()
            .map(|places| Minibatch::new(self.rows, &places))
    }

    /// Waits for a pull. `None` if the worker is to stop. A push that fails ends it: the pull may
    /// wait for that push.
    async fn wait<R>(
        &mut self,
        pull: Pending<R>,
        pushes: &mut Pushes,
        idle: &mut Duration,
    ) -> Result<Option<R>, TaskError> {
        let begun = Instant::now();
        let done = tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            error = pushes.failure() => return Err(error),
            done = pull => Some(done?),
        };
        *idle += begun.elapsed();
        Ok(done)
    }

    /// Waits until at most `most` pushes are under way. `None` if the worker is to stop.
    async fn finish(
        &mut self,
        pushes: &mut Pushes,
        most: usize,
        idle: &mut Duration,
    ) -> Result<Option<()>, TaskError> {
        let begun = Instant::now();
        let done = tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            done = pushes.until(most) => Some(done?),
        };
        *idle += begun.elapsed();
        Ok(done)
    }
}

/// Pushes that are not acknowledged yet.
#[derive(Default)]
struct Pushes(Vec<Pending<()>>);

impl Pushes {
    /// Drops those that are done. Returns the error of one that failed.
    fn sweep(&mut self, context: &mut std::task::Context<'_>) -> Result<(), TaskError> {
        let mut swept = Ok(());
        self.0
            .retain_mut(|push| match Pin::new(push).poll(context) {
                Poll::Ready(Err(error)) => {
                    swept = Err(error);
                    false
                }
                Poll::Ready(Ok(())) => false,
                Poll::Pending => true,
            });
        swept
    }

    async fn until(&mut self, most: usize) -> Result<(), TaskError> {
        poll_fn(|context| match self.sweep(context) {
            Ok(()) if self.0.len() > most => Poll::Pending,
            swept => Poll::Ready(swept),
        })
        .await
    }

    /// Waits for a push that fails.
    async fn failure(&mut self) -> TaskError {
        poll_fn(|context| {
            self.sweep(context)
                .map_or_else(Poll::Ready, |()| Poll::Pending)
        })
        .await
    }
}
