//! The messages between workers and servers (Li et al., OSDI 2014, sections 4.2 to 4.4).
//!
//! All are values without connections or addresses, so that a transport only encodes, carries and
//! decodes them. They may be lost, repeated and reordered: each is resent until it is answered.

use serde::{Deserialize, Serialize};

use crate::{
    ArrayId, Clock, Epoch, Key, KeyRange, Keys, RequestId, Routing, Seq, Shared, TransferId,
    Values, ValuesError, WorkerId,
};

/// A range of an array, as the sender's routing table knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardRef {
    pub array: ArrayId,
    /// The keys: a shard, or a part of one.
    pub range: KeyRange,
    pub epoch: Epoch,
}

impl ShardRef {
    pub const fn new(array: ArrayId, range: KeyRange, epoch: Epoch) -> Self {
        Self { array, range, epoch }
    }

    pub(crate) const fn part(self, range: KeyRange) -> Self {
        Self { range, ..self }
    }
}

/// Adds a worker's update to a range, and ends the worker's clock on all of its keys; from a worker
/// to the head. A clock at or below the worker's is acknowledged and not applied again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// The range; all of it in one shard.
    pub at: ShardRef,
    pub worker: WorkerId,
    /// The worker's iteration, one above that of its last push to the same keys.
    pub clock: Clock,
    /// The rows, in the range; none to only advance the clock.
    pub keys: Keys,
    /// `keys x width` gradients, or whatever the array's update rule takes.
    pub values: Values,
}

impl Push {
    pub(crate) fn part(&self, range: KeyRange, width: usize) -> Self {
        let (at, keys) = (self.at, &self.keys);
        let (keys, values) = keys.cut_rows(&self.values, at.range, range, width);
        Self { at: at.part(range), keys, values, ..*self }
    }
}

/// Asks for rows; from a worker to the tail, which holds only what is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// The range; all of it in one shard.
    pub at: ShardRef,
    pub worker: WorkerId,
    /// To find the answer's place.
    pub request: RequestId,
    /// The iteration the values are for. At 0 the rows are read as they are, by a member or not;
    /// above, by members alone.
    pub clock: Clock,
    /// Clock of the rows that the worker has, all of them, with the optimiser's state; 0 for none.
    pub held: Clock,
    pub keys: Keys,
}

/// Rows; from the tail to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullReply {
    pub at: ShardRef,
    /// As in the pull. `None` for rows that the server sends of its own accord (eager SSP).
    pub request: Option<RequestId>,
    /// Every live worker's updates up to this clock are contained.
    pub clock: Clock,
    /// The receiver's own updates up to this clock are contained.
    pub own: Clock,
    /// Microseconds from the pull's arrival to this.
    pub held_us: u32,
    pub keys: Keys,
    /// `keys x width` parameters; or the factors of the gradient that makes them of those which the
    /// worker holds.
    pub values: Values,
}

/// An application of the update rule to some rows; pushes of several workers are added up first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The part of the shard that the pushes were about.
    pub range: KeyRange,
    /// Workers and their clocks of the pushes on `range`.
    pub clocks: Vec<(WorkerId, Clock)>,
    pub keys: Keys,
    /// `keys x width` gradients.
    pub values: Values,
}

impl Update {
    /// The clock of the pushes; several workers' are of one.
    pub(crate) fn clock(&self) -> Clock {
        self.clocks.first().map(|&(_, clock)| clock).unwrap_or_default()
    }

    /// The part of it that is about `shard`, which may be nothing.
    pub(crate) fn part(&self, shard: KeyRange, width: usize) -> Self {
        let nothing = KeyRange::new(shard.start, shard.start);
        let range = shard.intersect(self.range).unwrap_or(nothing);
        let (keys, values) = self.keys.cut_rows(&self.values, self.range, range, width);
        let mut clocks = self.clocks.clone();
        clocks.retain(|_| !range.is_empty());
        Self { range, clocks, keys, values }
    }
}

/// The workers from here on. A new one counts as having finished the clock beside it; those that
/// are not named are waited for no longer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Members {
    /// The registry's version of the list: a later head does not go back to an earlier one.
    pub version: u64,
    /// All workers, with the clocks they joined at.
    pub workers: Vec<(WorkerId, Clock)>,
}

/// One entry of a chain's log. To apply it is deterministic: replicas stay equal (PS-5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    Update(Update),
    Members(Members),
}

impl Operation {
    /// The keys that it is about; `None` for all of the shard.
    pub(crate) const fn range(&self) -> Option<KeyRange> {
        match self {
            Self::Update(update) => Some(update.range),
            Self::Members(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Update(update) => update.keys.bytes() + update.values.as_bytes().len(),
            Self::Members(_) => 0,
        }
    }
}

/// An entry of the log; from each server of a chain to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replicate {
    /// Shard, whole.
    pub at: ShardRef,
    pub seq: Seq,
    pub operation: Operation,
}

/// Rows with everything that belongs to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Keys that the message is about. In a sparse array, those not named have no row.
    pub range: KeyRange,
    pub keys: Keys,
    /// `keys x width` parameters.
    pub values: Values,
    /// `slots x keys x width` numbers of the optimiser: one slot of all rows after the other.
    pub state: Values,
    /// Number of updates of each row; empty if the rule does not count them.
    #[serde(skip)]
    pub steps: Shared<u32>,
}

/// A piece of a range's state; from the tail to a server that joins the chain (OSDI 2014, section
/// 4.4). Each is sent after the one before was acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The whole shard, under the epoch before the join.
    pub at: ShardRef,
    pub transfer: TransferId,
    pub part: u32,
    /// The rows of one part of the range; they replace what the receiver has of that part.
    pub rows: Rows,
    /// With the last piece.
    pub end: Option<SnapshotEnd>,
}

/// State of a range besides its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotEnd {
    /// The last log entry that the rows contain.
    pub seq: Seq,
    /// The version of the list of workers.
    pub members: u64,
    pub clocks: Vec<(WorkerId, KeyRange, Clock)>,
}

/// Request that an [`Answer`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A push, of this clock.
    Push { worker: WorkerId, clock: Clock },
    /// A pull, which is answered by rows unless it is refused.
    Pull { request: RequestId },
    /// An entry of the log, and all before it.
    Replicate { seq: Seq },
    /// A piece of a range's state.
    Snapshot { transfer: TransferId, part: u32 },
}

/// Reason why a server refuses a request. A resend of what is applied is acknowledged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("the range is at {current} here: fetch the routing table and send again")]
    WrongEpoch { current: Epoch },
    #[error("this server does not hold the range: fetch the routing table and send again")]
    UnknownRange,
    #[error("this server is not the head of the range's chain: push to the head")]
    NotHead,
    #[error("this server is not the tail of the range's chain: pull from the tail")]
    NotTail,
    #[error("this worker is not a member here, or not yet: join, and send again")]
    UnknownWorker,
    #[error("{expected} is next for this worker and range: send it first")]
    Gap { expected: Clock },
    #[error(
        "the keys are not ascending within the message's range: sort them and remove duplicates"
    )]
    BadKeys,
    #[error(transparent)]
    BadValues(#[from] ValuesError),
    #[error(
        "the update of key {key} overflows, and was not made: lower the learning rate, or clip \
            gradients"
    )]
    Overflow { key: Key },
    #[error(
        "the copied rows do not fit this server's array, or are not finite: describe it alike on \
            all servers"
    )]
    BadRows,
    #[error("the range is being handed over: send again shortly")]
    Stopped,
    #[error("the server has too much unacknowledged work for this range: send again shortly")]
    Busy,
}

impl Refusal {
    /// Returns true if the same request can succeed later.
    pub const fn is_retryable(self) -> bool {
        use Refusal::{BadKeys, BadRows, BadValues, Overflow};
        !matches!(self, BadKeys | BadValues(_) | Overflow { .. } | BadRows)
    }
}

/// A request was carried out, or not, and why. A push and a log entry are carried out once every
/// replica of the chain has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub at: ShardRef,
    pub request: Request,
    /// Microseconds from a push's arrival to this.
    pub held_us: u32,
    /// Microseconds that its log entry took to the end of the chain and back.
    pub copied_us: u32,
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Worker to head.
    Push(Push),
    /// Worker to tail.
    Pull(Pull),
    /// Tail to worker.
    PullReply(PullReply),
    /// Down the chain.
    Replicate(Replicate),
    /// Tail to a server that joins.
    Snapshot(Snapshot),
    /// To the sender of a request.
    Answer(Answer),
    /// Registry to everyone.
    Routing(Routing),
}

impl Message {
    /// The keys and values of a message of a kind that is filtered. Snapshots are not: their keys
    /// come once, and their sender has a processor that serves pulls meanwhile.
    pub fn rows_mut(&mut self) -> Option<(ArrayId, &mut Keys, Option<&mut Values>)> {
        match self {
            Self::Push(Push { at, keys, values, .. })
            | Self::PullReply(PullReply { at, keys, values, .. })
            | Self::Replicate(Replicate {
                at,
                operation: Operation::Update(Update { keys, values, .. }),
                ..
            }) => Some((at.array, keys, Some(values))),
            Self::Pull(Pull { at, keys, .. }) => Some((at.array, keys, None)),
            _ => None,
        }
    }
}
