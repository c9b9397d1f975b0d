//! Actions that the core gives to the driver, and the outcomes of upstream requests.

#![allow(missing_docs, reason = "the names say what the fields are")]

use std::sync::Arc;

use thiserror::Error;

use crate::{ClassId, GroupId, InstanceId, JobId, QueryId, Row, Slot, Time};

/// Action for the driver. In order, except that it may start sends first.
#[derive(Debug, Clone)]
pub enum Action<I, O> {
    /// Send `input` to `instance`; report with [`Engine::finished`](crate::Engine::finished).
    Send { job: JobId, instance: InstanceId, input: Arc<I> },
    /// Stop waiting for this request; its end need not be reported.
    Abort { job: JobId },
    /// Find out whether this instance is well; report with
    /// [`Engine::instance_up`](crate::Engine::instance_up).
    Probe { instance: InstanceId },
    /// An instance that was told to leave has nothing in flight any more; its connections can be
    /// closed. Nothing is reported back.
    Left { instance: InstanceId },
    /// Compute the parity query of `row`; report with [`Engine::encoded`](crate::Engine::encoded).
    Encode {
        group: GroupId,
        row: Row,
        /// The k inputs in slot order.
        inputs: Vec<Arc<I>>,
    },
    /// Decode `slot`; report with [`Engine::reconstructed`](crate::Engine::reconstructed).
    Reconstruct {
        query: QueryId,
        slot: Slot,
        /// The k predictions; `None` where missing, `slot` among them.
        predictions: Vec<Option<Arc<O>>>,
        /// The r parity outputs; `None` where missing.
        parity: Vec<Option<Arc<O>>>,
    },
    /// Give the client its answer. Exactly one per accepted query that is not abandoned (CG-1).
    Answer { query: QueryId, answer: Answer<O> },
    /// Measure a reconstruction against the truth; nothing is reported back.
    Compare(Comparison<O>),
}

/// Terminal answer of a query.
#[derive(Debug, Clone)]
pub enum Answer<O> {
    /// The deployed model's own prediction.
    Exact(Arc<O>),
    /// The deployed model's own prediction as well, but from a redundant copy of the query.
    Hedged(Arc<O>),
    /// A backup model's prediction.
    Backup(Arc<O>),
    /// Decoded from the group.
    Reconstructed(Arc<O>),
    /// None could be had.
    Failed(Failure),
}

/// An approximate answer beside the deployed model's own prediction.
#[derive(Debug, Clone)]
pub enum Comparison<O> {
    /// The exact prediction came after a reconstruction, or a backup model's prediction, was sent.
    LateTruth { class: ClassId, reconstruction: Arc<O>, truth: Arc<O> },
    /// A sampled group in which nothing straggled: decode `slot` as though it had, and compare.
    Audit {
        class: ClassId,
        slot: Slot,
        predictions: Vec<Arc<O>>,
        /// The r parity outputs; `None` where missing.
        parity: Vec<Option<Arc<O>>>,
    },
}

/// Result of an upstream request.
pub type AttemptResult<O> = Result<O, Failure>;

/// Reason why a query, or one request for it, failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind}: {detail}")]
pub struct Failure {
    pub kind: FailureKind,
    /// The words of the instance, or the reason; never its address: clients see it.
    pub detail: Arc<str>,
    /// When it was seen, if the core knows.
    pub at: Option<Time>,
    /// Instance at which it was seen, if the core knows.
    pub instance: Option<InstanceId>,
}

impl Failure {
    /// A failure of `kind`.
    pub fn new(kind: FailureKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into(), at: None, instance: None }
    }
}

/// Kinds of failure, with what they say about the instance and about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum FailureKind {
    /// No connection to the instance. The query did not reach it.
    #[error("instance unreachable")]
    Unreachable,
    /// The connection broke while the instance had the query. Inference has no side effects, so it
    /// may be sent again.
    #[error("instance connection lost")]
    ConnectionLost,
    /// The instance said it is overloaded or not ready.
    #[error("instance overloaded")]
    InstanceBusy,
    /// The instance answered with an error of its own.
    #[error("instance error")]
    InstanceError,
    /// The instance refused the query as malformed; another replica would, too.
    #[error("query refused by the instance")]
    Refused,
    /// The instance's answer is no valid prediction: not finite, wrong shape, not the protocol.
    #[error("invalid prediction")]
    InvalidOutput,
    /// The deadline came first.
    #[error("deadline exceeded")]
    DeadlineExceeded,
    /// Taken out of the queue under overload, before an instance had it.
    #[error("too many queries in flight")]
    Shed,
}

impl FailureKind {
    /// Returns true if another instance may do better.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Refused | Self::DeadlineExceeded | Self::Shed)
    }

    /// Counts as a failure of the instance when its answers are judged. A busy instance says no
    /// more than that it has enough to do, and a refused query is its client's fault.
    pub fn counts_as_instance_failure(self) -> bool {
        self.suspects_instance() || self.input_may_cause()
    }

    /// A healthy instance fails in this way on some inputs, so that one such
    /// failure proves nothing.
    pub fn input_may_cause(self) -> bool {
        matches!(self, Self::InstanceError | Self::InvalidOutput)
    }

    /// Returns true if the instance should get no more queries until it has shown that it is well.
    pub fn suspects_instance(self) -> bool {
        matches!(self, Self::Unreachable | Self::ConnectionLost)
    }
}
