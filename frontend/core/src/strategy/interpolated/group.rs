//! One group's state.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::strategy::parity::Parity;
use crate::{GroupId, GroupKey, GroupView, JobId, MemberView, QueryId, Time};

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Its client waits for an answer.
    Waiting,
    /// Answered with a reconstruction; its own prediction comes, to compare.
    AwaitingTruth,
    /// Nothing more will happen.
    Done,
}

#[derive(Debug)]
pub(super) struct Member<I, O> {
    pub(super) query: QueryId,
    pub(super) input: Arc<I>,
    pub(super) status: Status,
    /// When k outputs will do, and when it is sent as it is; set when the group is coded.
    pub(super) late_at: Time,
    pub(super) plain_at: Time,
    pub(super) late: bool,
    /// It was sent as it is.
    pub(super) plain: bool,
    /// It was sent as it is, and all attempts failed.
    pub(super) lost: bool,
    /// A reconstruction is being computed.
    pub(super) reconstructing: bool,
    /// A reconstruction was refused (not finite); do not try again.
    pub(super) refused: bool,
    pub(super) reconstruction: Option<Arc<O>>,
    /// A reconstruction answered it.
    pub(super) reconstructed: bool,
}

impl<I, O> Member<I, O> {
    pub(super) fn new(query: QueryId, input: Arc<I>) -> Self {
        Self {
            query,
            input,
            status: Status::Waiting,
            late_at: Time::ZERO,
            plain_at: Time::ZERO,
            late: false,
            plain: false,
            lost: false,
            reconstructing: false,
            refused: false,
            reconstruction: None,
            reconstructed: false,
        }
    }

    pub(super) fn may_be_reconstructed(&self) -> bool {
        self.status == Status::Waiting && !self.reconstructing && !self.refused
    }
}

#[derive(Debug)]
pub(super) struct Group<I, O> {
    pub(super) key: GroupKey,
    pub(super) opened: Time,
    /// In slot order; fewer than k while the group is open.
    pub(super) members: SmallVec<[Member<I, O>; 8]>,
    /// The coded queries.
    pub(super) rows: SmallVec<[Parity<I, O>; 9]>,
    /// While it is open, when it is dissolved.
    pub(super) flush_at: Option<Time>,
    /// When it was coded.
    pub(super) sealed_at: Option<Time>,
    /// The slot whose own prediction is asked for once it is answered.
    pub(super) audited: Option<usize>,
    /// Outputs that went into reconstructions, and those of them with which one answered.
    pub(super) used: usize,
    pub(super) won: usize,
}

impl<I, O> Group<I, O> {
    pub(super) fn open(key: GroupKey, workers: usize, now: Time, flush_at: Time) -> Self {
        Self {
            key,
            opened: now,
            members: SmallVec::new(),
            rows: (0..workers).map(|_| Parity::Open).collect(),
            flush_at: Some(flush_at),
            sealed_at: None,
            audited: None,
            used: 0,
            won: 0,
        }
    }

    pub(super) fn view(&self, id: GroupId, k: usize) -> GroupView {
        let member = |member: &Member<I, O>| MemberView {
            status: match member.status {
                Status::Waiting => "waiting",
                Status::AwaitingTruth => "awaiting_truth",
                Status::Done => "done",
            },
            predicted: false,
            reconstructed: member.reconstructed,
            late: member.late,
        };
        GroupView {
            id,
            k,
            opened: self.opened,
            closed: None,
            sealed: self.sealed_at.is_some(),
            members: self.members.iter().map(member).collect(),
            parity: self.rows.iter().map(Parity::name).collect(),
        }
    }

    /// Outputs that are there.
    pub(super) fn outputs(&self) -> usize {
        self.rows.iter().filter_map(Parity::output).count()
    }

    /// Outputs that are there or may come.
    pub(super) fn alive(&self) -> usize {
        self.rows.iter().filter(|row| row.is_alive()).count()
    }

    /// Whether an output may still come.
    pub(super) fn is_any_pending(&self) -> bool {
        self.rows.iter().any(Parity::is_pending)
    }

    /// Its coded queries that are queued or in flight.
    pub(super) fn jobs(&self) -> SmallVec<[JobId; 4]> {
        self.rows.iter().filter_map(Parity::job).collect()
    }
}
