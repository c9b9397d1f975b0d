//! The messages between workers and servers (Li et al., OSDI 2014, sections 4.2 to 4.4).
//!
//! All are values without connections or addresses, so that a transport only encodes, carries and
//! decodes them. They may be lost, repeated and reordered: each is resent until it is answered.

use serde::{Deserialize, Serialize};

use crate::{
    ArrayId, Clock, Epoch, KeyRange, Keys, Refusal, RequestId, Routing, Seq, TransferId, Values,
    WorkerId,
};

/// A range of an array, as the sender's routing table knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardRef {
    /// Array of the shard.
    pub array: ArrayId,
    /// The keys: a shard, or a part of one.
    pub range: KeyRange,
    /// Epoch of the shard.
    pub epoch: Epoch,
}

impl ShardRef {
    /// A range of `array` at `epoch`.
    pub const fn new(array: ArrayId, range: KeyRange, epoch: Epoch) -> Self {
        Self {
            array,
            range,
            epoch,
        }
    }

    /// The keys of `range` in the same shard.
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
    /// Worker that sends.
    pub worker: WorkerId,
    /// The worker's iteration, one above that of its last push to the same keys.
    pub clock: Clock,
    /// The rows, in the range; none to only advance the clock.
    pub keys: Keys,
    /// `keys x width` gradients, or whatever the array's update rule takes.
    pub values: Values,
}

impl Push {
    /// The part of it that is about `range`.
    pub(crate) fn part(&self, range: KeyRange, width: usize) -> Self {
        let (keys, values) = self
            .keys
            .cut_rows(&self.values, self.at.range, range, width);
        Self {
            at: self.at.part(range),
            keys,
            values,
            ..*self
        }
    }
}

/// The push is in every replica of the chain; from the head to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAck {
    /// As in the push.
    pub at: ShardRef,
    /// As in the push.
    pub worker: WorkerId,
    /// As in the push.
    pub clock: Clock,
}

/// Asks for rows; from a worker to the tail, which holds only what is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// The range; all of it in one shard.
    pub at: ShardRef,
    /// Worker that sends.
    pub worker: WorkerId,
    /// To find the answer's place.
    pub request: RequestId,
    /// The iteration the values are for. At 0 the rows are read as they are, by a member or not;
    /// above, by members alone.
    pub clock: Clock,
    /// Keys of the rows.
    pub keys: Keys,
}

/// Rows; from the tail to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullReply {
    /// As in the pull.
    pub at: ShardRef,
    /// As in the pull. `None` for rows that the server sends of its own accord (eager SSP).
    pub request: Option<RequestId>,
    /// Every live worker's updates up to this clock are contained.
    pub clock: Clock,
    /// The receiver's own updates up to this clock are contained.
    pub own: Clock,
    /// Keys of the rows.
    pub keys: Keys,
    /// `keys x width` parameters.
    pub values: Values,
}

/// A worker's clock on some keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerClock {
    /// Worker that sent the push or pull.
    pub worker: WorkerId,
    /// Range of the operation.
    pub range: KeyRange,
    /// The last clock whose updates are contained.
    pub clock: Clock,
}

/// One entry of a chain's log. To apply it is deterministic: replicas stay equal (PS-5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// The update rule is applied once to these rows; pushes of several workers are added up first.
    Update {
        /// The part of the shard that the pushes were about.
        range: KeyRange,
        /// Workers and their clocks of the pushes on `range`.
        clocks: Vec<(WorkerId, Clock)>,
        /// Keys of the rows.
        keys: Keys,
        /// `keys x width` gradients.
        values: Values,
    },
    /// The workers from here on. A new one counts as having finished the clock beside it; those
    /// that are not named are waited for no longer.
    Members {
        /// The registry's version of the list: a later head does not go back to an earlier one.
        version: u64,
        /// All workers, with the clocks they joined at.
        workers: Vec<(WorkerId, Clock)>,
    },
}

impl Operation {
    pub(crate) const fn update(
        range: KeyRange,
        clocks: Vec<(WorkerId, Clock)>,
        keys: Keys,
        values: Values,
    ) -> Self {
        Self::Update {
            range,
            clocks,
            keys,
            values,
        }
    }

    /// The keys that it is about; `None` for all of the shard.
    pub(crate) const fn range(&self) -> Option<KeyRange> {
        match self {
            Self::Update { range, .. } => Some(*range),
            Self::Members { .. } => None,
        }
    }

    /// The bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Update { keys, values, .. } => keys.bytes() + values.as_bytes().len(),
            Self::Members { .. } => 0,
        }
    }
}

/// An entry of the log; from each server of a chain to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replicate {
    /// Shard, whole.
    pub at: ShardRef,
    /// Number of the log entry.
    pub seq: Seq,
    /// Operation of the log entry.
    pub operation: Operation,
}

/// The chain has the log up to `seq`; from each server to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateAck {
    /// Shard, whole.
    pub at: ShardRef,
    /// The last entry that the tail has.
    pub seq: Seq,
}

/// True if a range is still in use while it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotPhase {
    /// Updates go on; rows that change are sent again.
    PreCopy,
    /// The range stands still; these are the last changes.
    Delta,
}

/// Rows with everything that belongs to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Keys that the message is about. In a sparse array, those not named have no row.
    pub range: KeyRange,
    /// Keys of the rows.
    pub keys: Keys,
    /// `keys x width` parameters.
    pub values: Values,
    /// `slots x keys x width` numbers of the optimiser: one slot of all rows after the other.
    pub state: Values,
    /// Number of updates of each row; empty if the rule does not count them.
    #[serde(skip)]
    pub steps: Vec<u32>,
}

/// A piece of a range's state; from the tail to a server that joins the chain (OSDI 2014, section
/// 4.4). Each is sent after the one before was acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The whole shard, under the epoch before the join.
    pub at: ShardRef,
    /// Attempt that the part belongs to.
    pub transfer: TransferId,
    /// Number of the part, from 0.
    pub part: u32,
    /// True if the range is in use.
    pub phase: SnapshotPhase,
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
    /// The clocks of all workers.
    pub clocks: Vec<WorkerClock>,
}

/// The piece was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAck {
    /// As in the piece.
    pub at: ShardRef,
    /// As in the piece.
    pub transfer: TransferId,
    /// As in the piece.
    pub part: u32,
}

/// Request that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A push is refused.
    Push {
        /// Worker that sent it.
        worker: WorkerId,
        /// Of which clock.
        clock: Clock,
    },
    /// A pull is refused.
    Pull {
        /// Id of the pull.
        request: RequestId,
    },
    /// A log entry is refused.
    Replicate {
        /// Number of the log entry.
        seq: Seq,
    },
    /// A piece of a range's state.
    Snapshot {
        /// Of which attempt.
        transfer: TransferId,
        /// Number of the part.
        part: u32,
    },
}

/// A request was not carried out, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// As in the request.
    pub at: ShardRef,
    /// Request that is refused.
    pub request: Request,
    /// Reason of the refusal.
    pub reason: Refusal,
}

/// Everything that workers and servers say to one another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Worker to head.
    Push(Push),
    /// Head to worker.
    PushAck(PushAck),
    /// Worker to tail.
    Pull(Pull),
    /// Tail to worker.
    PullReply(PullReply),
    /// Down the chain.
    Replicate(Replicate),
    /// Up the chain.
    ReplicateAck(ReplicateAck),
    /// Tail to a server that joins.
    Snapshot(Snapshot),
    /// Acknowledges a part of a snapshot.
    SnapshotAck(SnapshotAck),
    /// Registry to everyone.
    Routing(Routing),
    /// Refuses a request of the receiver.
    Refused(Refused),
}
