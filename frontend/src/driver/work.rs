//! A query's way through the driver: into the engine, and its actions outside the lock.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{
    Action, Answer, Arrival, AttemptResult, ClassId, Comparison, Failure, FailureKind, GroupId,
    GroupKey, InstanceId, JobId, QueryId, Rejected, Row, Slot,
};
use parapet_net::LogLimit;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::waiting::Waiting;
use super::{Driver, Locked, Waiter};
use crate::coding::CodingQueue;
use crate::metrics::Source;
use crate::payload::{Input, Output};
use crate::traces::{Members, Trace};
use crate::upstream::Transport;

/// Bytes above which an input is encoded on another thread, so no request waits behind it (CG-3).
const ENCODE_INLINE_BYTES: usize = 64 * 1024;

static NOT_ENCODED: LogLimit = LogLimit::new();
static NOT_RECONSTRUCTED: LogLimit = LogLimit::new();

pub(super) enum Work {
    Answer(QueryId, oneshot::Sender<Answer<Output>>, Answer<Output>),
    Send(JobId, InstanceId, Arc<Input>, oneshot::Receiver<()>),
    Encode(GroupId, Row, Vec<Arc<Input>>),
    Reconstruct(Reconstruction, Option<Trace>),
    Compare(Comparison<Output>),
    Probe(InstanceId),
    Left(InstanceId),
}

/// Request to an instance, and the work that follows from its end.
pub(super) type Sending = Pin<Box<dyn Future<Output = Vec<Work>> + Send>>;

pub(super) struct Reconstruction {
    query: QueryId,
    slot: Slot,
    predictions: Vec<Option<Arc<Output>>>,
    parity: Vec<Option<Arc<Output>>>,
}

/// Turns the pending actions into work; what concerns the tables under the lock is done here.
pub(super) fn take(locked: &mut Locked) -> Vec<Work> {
    let mut work = Vec::with_capacity(locked.actions.len());
    for action in locked.actions.drain(..) {
        match action {
            Action::Answer { query, answer } => {
                let waiter = locked.waiters.remove(&query);
                work.extend(waiter.map(|waiter| Work::Answer(query, waiter.sender, answer)));
            }
            Action::Send { job, instance, input } => {
                let (handle, withdrawn) = oneshot::channel();
                locked.running.insert(job, handle);
                work.push(Work::Send(job, instance, input, withdrawn));
            }
            Action::Abort { job } => {
                locked.running.remove(&job);
            }
            Action::Encode { group, row, inputs } => work.push(Work::Encode(group, row, inputs)),
            Action::Reconstruct { query, slot, predictions, parity } => {
                let waiter = locked.waiters.get(&query);
                let trace = waiter.and_then(|waiter| waiter.trace.clone());
                let reconstruction = Reconstruction { query, slot, predictions, parity };
                work.push(Work::Reconstruct(reconstruction, trace));
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
                Work::Answer(_, waiter, answer) => drop(waiter.send(answer)),
                Work::Send(job, instance, input, withdrawn) => {
                    // On the heap, since the runtime copies a task's future several times.
                    let sending = Arc::clone(self).send(job, instance, input, withdrawn);
                    Arc::clone(self).spawn(Box::pin(sending));
                }
                Work::Encode(group, row, inputs) => self.start_encoding(group, row, inputs),
                Work::Reconstruct(reconstruction, trace) => {
                    let span = trace.map(|trace| trace.decode(reconstruction.slot));
                    let Some(queue) = self.queue(reconstruction.query.class()) else {
                        self.reconstruct(&reconstruction);
                        continue;
                    };
                    let (driver, query) = (Arc::clone(self), reconstruction.query);
                    let decode = move || {
                        driver.reconstruct(&reconstruction);
                        drop(span);
                    };
                    if !queue.join(decode) {
                        self.feed_reconstructed(query, None);
                    }
                }
                Work::Compare(comparison) => {
                    let queue = match &comparison {
                        Comparison::LateTruth { .. } => None,
                        Comparison::Audit { class, .. } => self.queue(*class),
                    };
                    let Some(queue) = queue else {
                        self.compare(&comparison);
                        continue;
                    };
                    let driver = Arc::clone(self);
                    // An audit that finds no place is not made.
                    let _made = queue.join(move || driver.compare(&comparison));
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

    /// Has a task of its own make a request to an instance.
    pub(super) fn spawn(self: Arc<Self>, sending: Sending) {
        tokio::spawn(async move { self.run(sending.await) });
    }

    /// Makes a request to an instance; returns the work that follows from its end.
    async fn send(
        self: Arc<Self>,
        job: JobId,
        instance: InstanceId,
        input: Arc<Input>,
        withdrawn: oneshot::Receiver<()>,
    ) -> Vec<Work> {
        let started = Instant::now();
        let mut spans = input.traces.predict(instance);
        let outcome: AttemptResult<Output> = tokio::select! {
            biased;
            outcome = self.transport.infer(instance, input) => outcome,
            _ = withdrawn => {
                spans.withdrawn();
                return Vec::new();
            }
        };
        self.meters.upstream(instance, started.elapsed(), outcome.is_err());
        if let Err(failure) = &outcome {
            tracing::debug!(%job, ?instance, %failure, "upstream request failed");
            spans.failed(failure.kind.to_string());
        }
        drop(spans);
        let ((), work) = self.feed_for_work(|locked, now| {
            locked.running.remove(&job);
            locked.engine.finished(now, job, outcome, &mut locked.actions);
        });
        work
    }

    fn start_encoding(self: &Arc<Self>, group: GroupId, row: Row, inputs: Vec<Arc<Input>>) {
        let driver = Arc::clone(self);
        let bytes: usize = inputs.iter().map(|input| input.bytes()).sum();
        let encode = move || driver.encode(group, row, &inputs);
        if let Some(queue) = self.queue(group.class()) {
            if !queue.join(encode) {
                self.feed_encoded(group, row, None);
            }
        } else if bytes > ENCODE_INLINE_BYTES {
            tokio::task::spawn_blocking(encode);
        } else {
            // Behind the member's own request, which waits in the same queue of tasks.
            tokio::spawn(async move { encode() });
        }
    }

    fn encode(self: &Arc<Self>, group: GroupId, row: Row, inputs: &[Arc<Input>]) {
        let of_members = inputs.iter().map(|input| &input.traces);
        let (mut spans, traces) = Members::encode(group, row, of_members);
        let parity = match self.coder(group.class()).map(|coder| coder.encode(row, inputs)) {
            Some(Ok(mut parity)) => {
                parity.traces = traces;
                Some(parity)
            }
            Some(Err(error)) => {
                if let Some(held_back) = NOT_ENCODED.pass() {
                    tracing::warn!(%group, %error, held_back, "a group could not be encoded");
                }
                spans.failed("encoding failed");
                None
            }
            None => None,
        };
        drop(spans);
        self.feed_encoded(group, row, parity);
    }

    fn feed_encoded(self: &Arc<Self>, group: GroupId, row: Row, parity: Option<Input>) {
        let parity = parity.map(Arc::new);
        self.feed(|engine, now, actions| engine.encoded(now, group, row, parity, actions));
    }

    fn queue(&self, class: ClassId) -> Option<&CodingQueue> {
        self.coder(class)?.queue.as_ref()
    }

    fn reconstruct(self: &Arc<Self>, of: &Reconstruction) {
        let query = of.query;
        let decoded = self.coder(query.class()).map(|coder| {
            coder.decode(of.slot, &of.predictions, &of.parity).inspect_err(|error| {
                if let Some(held_back) = NOT_RECONSTRUCTED.pass() {
                    tracing::warn!(%query, %error, held_back,
                            "a prediction could not be reconstructed");
                }
            })
        });
        self.feed_reconstructed(query, decoded.and_then(Result::ok));
    }

    fn feed_reconstructed(self: &Arc<Self>, query: QueryId, output: Option<Output>) {
        self.feed(|engine, now, actions| engine.reconstructed(now, query, output, actions));
    }

    /// Counts whether an approximation agrees with the truth, where they can be compared.
    fn compare(&self, comparison: &Comparison<Output>) {
        let (Comparison::LateTruth { class, .. } | Comparison::Audit { class, .. }) = comparison;
        let Some(judged) = self.judged(*class) else { return };
        match comparison {
            Comparison::LateTruth { reconstruction, truth, .. } => {
                if let Some(agrees) = judged.agrees(reconstruction, truth) {
                    self.meters.compared(*class, Source::LateTruth, agrees);
                }
            }
            Comparison::Audit { slot, predictions, parity, .. } => {
                let audited = usize::from(slot.0);
                let (Some(coder), Some(truth)) = (self.coder(*class), predictions.get(audited))
                else {
                    return;
                };
                let predictions = predictions.iter().enumerate();
                let others: Vec<Option<Arc<Output>>> = predictions
                    .map(|(slot, prediction)| (slot != audited).then(|| Arc::clone(prediction)))
                    .collect();
                // A reconstruction that is not finite agrees with nothing.
                let decoded = coder.decode(*slot, &others, parity);
                let agrees =
                    decoded.is_ok_and(|decoded| judged.agrees(&decoded, truth) == Some(true));
                self.meters.compared(*class, Source::Audit, agrees);
            }
        }
    }

    /// Has a query answered within `timeout`, or rejected by the engine. Dropping the future
    /// abandons it (CG-8).
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
        let bytes = 2 * input.bytes();
        let may_join = input.may_join && !input.has_foreign_parameters();
        let input = Arc::new(input);
        let own_input = Arc::clone(&input);
        let (query, mut work) = self.feed_for_work(|locked, now| {
            let arrival = Arrival {
                input,
                bytes,
                key,
                deadline: now + timeout,
                allow_approximate: allow_approximate && may_join,
                may_join,
                class,
            };
            let query = locked.engine.arrive(now, arrival, &mut locked.actions)?;
            locked.waiters.insert(query, Waiter { sender, trace });
            Ok(query)
        });
        let own = self.take_own(&own_input, &mut work);
        drop(own_input);
        self.run(work);
        let mut waiting = Waiting { driver: self, query: query?, own, answered: false };
        let answer = waiting.answer(receiver).await;
        waiting.answered = true;
        Ok(answer.unwrap_or_else(|| {
            let reason = "the query was dropped without an answer";
            Answer::Failed(Failure::new(FailureKind::InstanceError, reason))
        }))
    }

    /// Takes a query's own request, the first thing that is done for it unless it is queued (CG-3).
    fn take_own(self: &Arc<Self>, query: &Arc<Input>, work: &mut Vec<Work>) -> Option<Sending> {
        let is_own =
            |work: &mut Work| matches!(work, Work::Send(.., input, _) if Arc::ptr_eq(input, query));
        let own = work.extract_if(.., is_own).next()?;
        let Work::Send(job, instance, input, withdrawn) = own else { return None };
        Some(Box::pin(Arc::clone(self).send(job, instance, input, withdrawn)))
    }
}
