//! A query's way through the driver: into the engine, and its actions outside the lock.

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{
    Action, Answer, Arrival, AttemptResult, ClassId, Comparison, Failure, FailureKind, GroupId,
    GroupKey, InstanceId, JobId, QueryId, Rejected, Row, Slot,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Driver, Locked, Waiter, Waiting};
use crate::metrics::Source;
use crate::model::coding::Coder;
use crate::model::coding_queue::CodingQueue;
use crate::payload::{Input, Output};
use crate::traces::{Members, Trace};
use crate::upstream::Transport;

/// Inputs of more bytes than this are encoded on another thread, so that no request waits behind
/// them (CG-3).
const ENCODE_INLINE_BYTES: usize = 64 * 1024;

/// Something to do once the lock is released.
pub(super) enum Work {
    Answer(oneshot::Sender<Answer<Output>>, Answer<Output>),
    Send {
        job: JobId,
        instance: InstanceId,
        input: Arc<Input>,
        withdrawn: oneshot::Receiver<()>,
    },
    Encode {
        group: GroupId,
        row: Row,
        inputs: Vec<Arc<Input>>,
    },
    Reconstruct {
        query: QueryId,
        slot: Slot,
        trace: Option<Trace>,
        predictions: Vec<Option<Arc<Output>>>,
        parity: Vec<Option<Arc<Output>>>,
    },
    Compare(Comparison<Output>),
    Probe(InstanceId),
    Left(InstanceId),
}

/// Turns the pending actions into work; what concerns the tables under the lock is done here.
pub(super) fn take(locked: &mut Locked) -> Vec<Work> {
    let Locked {
        actions,
        waiters,
        running,
        ..
    } = locked;
    let mut work = Vec::with_capacity(actions.len());
    for action in actions.drain(..) {
        match action {
            Action::Answer { query, answer } => {
                work.extend(
                    waiters
                        .remove(&query)
                        .map(|waiter| Work::Answer(waiter.sender, answer)),
                );
            }
            Action::Send {
                job,
                instance,
                input,
            } => {
                let (handle, withdrawn) = oneshot::channel();
                running.insert(job, handle);
                work.push(Work::Send {
                    job,
                    instance,
                    input,
                    withdrawn,
                });
            }
            Action::Abort { job } => {
                running.remove(&job);
            }
            Action::Encode { group, row, inputs } => work.push(Work::Encode { group, row, inputs }),
            Action::Reconstruct {
                query,
                slot,
                predictions,
                parity,
            } => {
                let trace = waiters.get(&query).and_then(|waiter| waiter.trace.clone());
                work.push(Work::Reconstruct {
                    query,
                    slot,
                    trace,
                    predictions,
                    parity,
                });
            }
            Action::Compare(comparison) => work.push(Work::Compare(comparison)),
            Action::Probe { instance } => work.push(Work::Probe(instance)),
            Action::Left { instance } => work.push(Work::Left(instance)),
        }
    }
    work
}

impl<T: Transport> Driver<T> {
    pub(super) fn run(self: &Arc<Self>, work: Vec<Work>) {
        for work in work {
            match work {
                // The client may have gone; then the answer is dropped.
                Work::Answer(waiter, answer) => drop(waiter.send(answer)),
                Work::Send {
                    job,
                    instance,
                    input,
                    withdrawn,
                } => {
                    // On the heap, since the runtime copies a task's future several times.
                    tokio::spawn(Box::pin(
                        Arc::clone(self).send(job, instance, input, withdrawn),
                    ));
                }
                Work::Encode { group, row, inputs } => {
                    let driver = Arc::clone(self);
                    if let Some(line) = self.line(group.class()) {
                        if !line.join(move || driver.encode(group, row, &inputs)) {
                            self.feed_encoded(group, row, None);
                        }
                    } else if inputs.iter().map(|input| input.len()).sum::<usize>()
                        > ENCODE_INLINE_BYTES
                    {
                        tokio::task::spawn_blocking(move || driver.encode(group, row, &inputs));
                    } else {
                        // Behind the member's own request, which waits in the same queue of tasks.
                        tokio::spawn(async move { driver.encode(group, row, &inputs) });
                    }
                }
                Work::Reconstruct {
                    query,
                    slot,
                    trace,
                    predictions,
                    parity,
                } => {
                    let span = trace.map(|trace| trace.decode(slot));
                    let Some(line) = self.line(query.class()) else {
                        self.reconstruct(query, slot, &predictions, &parity);
                        continue;
                    };
                    let driver = Arc::clone(self);
                    let decode = move || {
                        driver.reconstruct(query, slot, &predictions, &parity);
                        drop(span);
                    };
                    if !line.join(decode) {
                        self.feed_reconstructed(query, None);
                    }
                }
                Work::Compare(comparison) => {
                    let class = match &comparison {
                        Comparison::LateTruth { .. } => None,
                        Comparison::Audit { class, .. } => Some(*class),
                    };
                    let Some(line) = class.and_then(|class| self.line(class)) else {
                        self.compare(&comparison);
                        continue;
                    };
                    let driver = Arc::clone(self);
                    // An audit that finds no place is not made.
                    let _made = line.join(move || driver.compare(&comparison));
                }
                Work::Probe(instance) => {
                    if let Some(member) = self.members.lock().get(&instance) {
                        member.asked.notify_one();
                    }
                }
                Work::Left(instance) => self.transport.left(instance),
            }
        }
    }

    async fn send(
        self: Arc<Self>,
        job: JobId,
        instance: InstanceId,
        input: Arc<Input>,
        withdrawn: oneshot::Receiver<()>,
    ) {
        let started = Instant::now();
        let mut spans = input.traces.predict(instance);
        let outcome: AttemptResult<Output> = tokio::select! {
            biased;
            outcome = self.transport.infer(instance, input) => outcome,
            _ = withdrawn => return spans.withdrawn(),
        };
        self.meters
            .upstream(instance, started.elapsed(), outcome.is_err());
        if let Err(failure) = &outcome {
            tracing::debug!(%job, ?instance, %failure, "upstream request failed");
            spans.failed(failure.kind.to_string());
        }
        drop(spans);
        self.feed(|locked, now| {
            locked.running.remove(&job);
            locked
                .engine
                .finished(now, job, outcome, &mut locked.actions);
        });
    }

    fn encode(self: &Arc<Self>, group: GroupId, row: Row, inputs: &[Arc<Input>]) {
        let (mut spans, traces) =
            Members::encode(group, row, inputs.iter().map(|input| &input.traces));
        let parity = self.coder(group.class()).and_then(|coder| {
            coder
                .encode(row, inputs)
                .inspect_err(|error| {
                    tracing::warn!(%group, %error, "a group could not be encoded");
                    spans.failed("encoding failed");
                })
                .map(|parity| parity.traced(traces))
                .ok()
        });
        drop(spans);
        self.feed_encoded(group, row, parity);
    }

    fn feed_encoded(self: &Arc<Self>, group: GroupId, row: Row, parity: Option<Input>) {
        self.feed(|locked, now| {
            locked
                .engine
                .encoded(now, group, row, parity.map(Arc::new), &mut locked.actions);
        });
    }

    /// Where a class's coding waits for its turn, if it takes long.
    fn line(&self, class: ClassId) -> Option<&CodingQueue> {
        self.coder(class).and_then(Coder::line)
    }

    fn reconstruct(
        self: &Arc<Self>,
        query: QueryId,
        slot: Slot,
        predictions: &[Option<Arc<Output>>],
        parity: &[Option<Arc<Output>>],
    ) {
        let output = self.coder(query.class()).and_then(|coder| {
            coder
                .decode(slot, predictions, parity)
                .inspect_err(|error| {
                    tracing::warn!(%query, %error, "a prediction could not be reconstructed")
                })
                .ok()
        });
        self.feed_reconstructed(query, output);
    }

    fn feed_reconstructed(self: &Arc<Self>, query: QueryId, output: Option<Output>) {
        self.feed(|locked, now| {
            locked
                .engine
                .reconstructed(now, query, output, &mut locked.actions)
        });
    }

    /// Counts whether an approximation agrees with the truth; nothing where there is no top
    /// class to compare.
    fn compare(&self, comparison: &Comparison<Output>) {
        let (Comparison::LateTruth { class, .. } | Comparison::Audit { class, .. }) = comparison;
        let Some(judged) = self.judged(*class) else {
            return;
        };
        match comparison {
            Comparison::LateTruth {
                class,
                reconstruction,
                truth,
            } => {
                if let Some(agrees) = judged.agrees(reconstruction, truth) {
                    self.meters.compared(*class, Source::LateTruth, agrees);
                }
            }
            Comparison::Audit {
                class,
                slot,
                predictions,
                parity,
            } => {
                let slot_index = usize::from(slot.0);
                let (Some(coder), Some(truth)) = (self.coder(*class), predictions.get(slot_index))
                else {
                    return;
                };
                let others: Vec<Option<Arc<Output>>> = predictions
                    .iter()
                    .enumerate()
                    .map(|(i, prediction)| (i != slot_index).then(|| Arc::clone(prediction)))
                    .collect();
                // A reconstruction that is not finite agrees with nothing.
                let agrees = coder
                    .decode(*slot, &others, parity)
                    .is_ok_and(|reconstruction| {
                        judged.agrees(&reconstruction, truth) == Some(true)
                    });
                self.meters.compared(*class, Source::Audit, agrees);
            }
        }
    }

    /// Has a query answered within `timeout`. Dropping the future abandons it (CG-8).
    ///
    /// # Errors
    /// [`Rejected`] when the engine does not take it.
    pub async fn infer(
        self: &Arc<Self>,
        mut input: Input,
        key: GroupKey,
        class: ClassId,
        timeout: Duration,
        allow_approximate: bool,
    ) -> Result<Answer<Output>, Rejected> {
        let (sender, receiver) = oneshot::channel();
        let trace = Trace::current();
        input.traces = Members::of_query(trace.as_ref());
        // Its tensors, and the body for instances that is written of them.
        let bytes = 2 * input.len();
        let input = Arc::new(input);
        let query = self.feed(|locked, now| {
            let deadline = now + timeout;
            let arrival = Arrival {
                input,
                bytes,
                key,
                deadline,
                allow_approximate,
                class,
            };
            let query = locked.engine.arrive(now, arrival, &mut locked.actions)?;
            locked.waiters.insert(query, Waiter { sender, trace });
            Ok(query)
        })?;
        let mut waiting = Waiting {
            driver: self,
            query,
            answered: false,
        };
        let answer = receiver.await;
        waiting.answered = true;
        Ok(answer.unwrap_or_else(|_| {
            let reason = "the query was dropped without an answer";
            Answer::Failed(Failure::new(FailureKind::InstanceError, reason))
        }))
    }
}
