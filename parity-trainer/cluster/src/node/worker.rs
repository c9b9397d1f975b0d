//! Interface for the computing side: tasks are submitted, and their results awaited.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parapet_parameter_server::{
    ArrayId, ClientArray, Clock, KeyRange, Keys, Pulled, Refusal, SubmitError, Task, Values, Work,
};
use tokio::sync::{mpsc, oneshot};

use super::wire::{HEADER_LEN, SUM_LEN};

/// Tasks on their way to the node.
const COMMANDS: usize = 1024;

/// Bytes of a message beside its keys and values, at most.
const HEADS: u64 = 256 + (HEADER_LEN + SUM_LEN) as u64;

pub(super) type Answer = oneshot::Sender<Result<Option<Pulled>, TaskError>>;

/// A task on its way to the node.
pub(super) type Command = (Task, Answer);

/// Rows and iteration of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    pub array: ArrayId,
    /// The keys that it is about.
    pub range: KeyRange,
    /// The iteration, from 1. A pull of clock c sees what the consistency model promises
    /// for iteration c.
    pub clock: Clock,
    /// The rows among the keys.
    pub keys: Keys,
}

impl TaskSpec {
    /// All rows of a range.
    pub const fn new(array: ArrayId, range: KeyRange, clock: Clock) -> Self {
        Self {
            array,
            range,
            clock,
            keys: Keys::All,
        }
    }

    /// Only these rows.
    #[must_use]
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }
}

/// Reason why a task did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("{0}")]
    Submit(#[from] SubmitError),
    #[error(
        "the task takes a message of {bytes} bytes, and {limit} are the limit: cut its range, or \
            raise the limit on all nodes"
    )]
    TooLong { bytes: u64, limit: u64 },
    #[error("a server refused the task: {0}")]
    Refused(Refusal),
    #[error("the worker's connection to the cluster has been stopped: start another")]
    Stopped,
}

/// Submits tasks. Clones submit to the same node; the node ends when all are gone.
#[derive(Debug, Clone)]
pub struct Worker {
    commands: mpsc::Sender<Command>,
    arrays: Arc<[(ArrayId, ClientArray)]>,
    max_frame: u64,
}

impl Worker {
    pub(super) fn new(
        arrays: Vec<(ArrayId, ClientArray)>,
        max_frame: u64,
    ) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let worker = Self {
            commands,
            arrays: arrays.into(),
            max_frame,
        };
        (worker, receiver)
    }

    /// Adds gradients: `keys x width` numbers. Waits for room, not for the push: the result is done
    /// when every replica has it.
    ///
    /// # Errors
    /// If the message would be too long, or the node has stopped.
    pub async fn push(&self, spec: TaskSpec, values: Values) -> Result<Pending<()>, TaskError> {
        let bytes = values.as_bytes().len() as u64;
        self.submit(spec, Work::Push(values), bytes, |_| ()).await
    }

    /// Asks for rows.
    ///
    /// # Errors
    /// As for a push.
    pub async fn pull(&self, spec: TaskSpec) -> Result<Pending<Pulled>, TaskError> {
        let array = self.arrays.iter().find(|(id, _)| *id == spec.array);
        let width = array.map_or(1, |(_, array)| array.width) as u64;
        let rows = spec.keys.len(spec.range) as u64;
        let bytes = rows.saturating_mul(width).saturating_mul(4);
        let finish = Option::unwrap_or_default;
        self.submit(spec, Work::Pull, bytes, finish).await
    }

    async fn submit<R>(
        &self,
        spec: TaskSpec,
        work: Work,
        bytes: u64,
        finish: fn(Option<Pulled>) -> R,
    ) -> Result<Pending<R>, TaskError> {
        let listed = match &spec.keys {
            Keys::List(keys) => keys.as_bytes().len() as u64,
            Keys::All => 0,
        };
        let (bytes, limit) = (bytes.saturating_add(listed + HEADS), self.max_frame);
        if bytes > limit {
            return Err(TaskError::TooLong { bytes, limit });
        }
        let task = Task {
            work,
            array: spec.array,
            range: spec.range,
            keys: spec.keys,
            clock: spec.clock,
        };
        let (answer, receiver) = oneshot::channel();
        let sent = self.commands.send((task, answer)).await;
        sent.map_err(|_| TaskError::Stopped)?;
        Ok(Pending { receiver, finish })
    }
}

/// A task under way; await it for what it gives. Dropping it does not end the task.
#[derive(Debug)]
#[must_use = "a task may fail"]
pub struct Pending<R> {
    receiver: oneshot::Receiver<Result<Option<Pulled>, TaskError>>,
    finish: fn(Option<Pulled>) -> R,
}

impl<R> Future for Pending<R> {
    type Output = Result<R, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.receiver).poll(context);
        answer.map(|answer| answer.unwrap_or(Err(TaskError::Stopped)).map(self.finish))
    }
}
