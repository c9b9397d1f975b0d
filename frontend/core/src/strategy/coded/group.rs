//! One coding group's state.

use std::sync::Arc;

use parapet_encoder::Decoding;
use smallvec::SmallVec;

use super::CodedConfig;
use crate::query::AntiAffinity;
use crate::strategy::parity::Parity;
use crate::{GroupId, GroupKey, GroupView, MemberView, QueryId, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Its client waits for an answer.
    Waiting,
    /// Answered with a reconstruction; its own prediction is awaited, to compare.
    AwaitingTruth,
    /// Its client got an error or went away, but another member needs its prediction (CG-8).
    Kept,
    Done,
}

#[derive(Debug)]
pub(super) struct Member<I, O> {
    /// `None` for a filler: a query that was answered before, or a repeated one (CG-5).
    pub(super) query: Option<QueryId>,
    pub(super) input: Arc<I>,
    pub(super) prediction: Option<Arc<O>>,
    pub(super) reconstruction: Option<Arc<O>>,
    pub(super) status: Status,
    /// When it counts as late; `None` if its client takes no approximation.
    pub(super) late_at: Option<Time>,
    /// The hold-back is over.
    pub(super) late: bool,
    /// All its attempts failed.
    pub(super) lost: bool,
    pub(super) reconstructing: bool,
    /// A reconstruction was refused (not finite); do not try again.
    pub(super) refused: bool,
    pub(super) reconstructed: bool,
}

impl<I, O> Member<I, O> {
    pub(super) fn waiting(query: QueryId, input: Arc<I>, late_at: Option<Time>) -> Self {
        let status = Status::Waiting;
        Self { query: Some(query), status, late_at, ..Self::filler(input, None) }
    }

    pub(super) fn filler(input: Arc<I>, prediction: Option<Arc<O>>) -> Self {
        Self {
            query: None,
            input,
            prediction,
            reconstruction: None,
            status: Status::Done,
            late_at: None,
            late: false,
            lost: false,
            reconstructing: false,
            refused: false,
            reconstructed: false,
        }
    }

    pub(super) fn allow_approximate(&self) -> bool {
        self.late_at.is_some()
    }

    /// Returns true if a reconstruction may answer it now, if there is one (CG-4).
    pub(super) fn may_be_reconstructed(&self) -> bool {
        self.status == Status::Waiting
            && self.prediction.is_none()
            && self.allow_approximate()
            && (self.late || self.lost)
            && !self.reconstructing
            && !self.refused
    }
}

#[derive(Debug)]
pub(super) struct Group<I, O> {
    pub(super) key: GroupKey,
    pub(super) opened: Time,
    decoding: Decoding,
    /// In slot order; fewer than k while the group is open.
    pub(super) members: SmallVec<[Member<I, O>; 4]>,
    pub(super) rows: SmallVec<[Parity<I, O>; 1]>,
    pub(super) sealed: bool,
    /// While it is open, when it is to be completed with fillers; then, when its parity queries are
    /// due; then, when they are overdue.
    pub(super) timer: Option<Time>,
    /// Compare a reconstruction with the truth even if nothing straggles.
    pub(super) audit: bool,
    /// Parity outputs with which a reconstruction answered.
    pub(super) won: usize,
}

impl<I, O> Group<I, O> {
    pub(super) fn open(key: GroupKey, config: &CodedConfig, now: Time) -> Self {
        Self {
            key,
            opened: now,
            decoding: config.decoding,
            members: SmallVec::new(),
            rows: (0..config.r).map(|_| Parity::Open).collect(),
            sealed: false,
            timer: None,
            audit: false,
            won: 0,
        }
    }

    pub(super) fn view(&self, id: GroupId, k: usize) -> GroupView {
        let member = |member: &Member<I, O>| MemberView {
            status: match (member.query, member.status) {
                (None, _) => "filler",
                (_, Status::Waiting) => "waiting",
                (_, Status::AwaitingTruth) => "awaiting_truth",
                (_, Status::Kept) => "kept",
                (_, Status::Done) => "done",
            },
            predicted: member.prediction.is_some(),
            reconstructed: member.reconstructed,
            late: member.late,
        };
        GroupView {
            id,
            k,
            opened: self.opened,
            closed: None,
            sealed: self.sealed,
            members: self.members.iter().map(member).collect(),
            parity: self.rows.iter().map(Into::into).collect(),
        }
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        self.members.iter().any(|member| member.status == Status::Waiting)
    }

    /// Returns true if a waiting query could be reconstructed with the prediction of `slot`.
    pub(super) fn is_needed_by_others(&self, slot: usize) -> bool {
        let mut others = self.members.iter().enumerate().filter(|&(i, _)| i != slot);
        self.decoding.needs_siblings()
            && self.sealed
            && self.rows.iter().any(Parity::is_alive)
            && others
                .any(|(_, member)| member.status == Status::Waiting && member.allow_approximate())
    }

    /// When the first of those counts as late who wait; who has lost its own prediction is.
    pub(super) fn first_late_at(&self) -> Option<Time> {
        let waiting = self.members.iter().filter(|member| member.status == Status::Waiting);
        waiting
            .filter_map(|member| if member.lost { Some(Time::ZERO) } else { member.late_at })
            .min()
    }

    /// Returns true if it is full, and nothing has been asked of parity models yet.
    pub(super) fn is_deferred(&self) -> bool {
        self.sealed && self.rows.iter().all(|row| matches!(row, Parity::Open))
    }

    pub(super) fn missing(&self) -> usize {
        self.members.iter().filter(|member| member.prediction.is_none()).count()
    }

    /// Returns true if the parity outputs that are there are enough for the missing predictions.
    pub(super) fn is_recoverable(&self) -> bool {
        let outputs = self.outputs();
        self.sealed && outputs > 0 && self.decoding.can_recover(self.missing(), outputs)
    }

    /// Returns true if too many predictions are missing at present for the parity outputs that are
    /// there or may come.
    pub(super) fn lacks_parity(&self) -> bool {
        !self.decoding.can_recover(self.missing(), self.alive())
    }

    /// Parity rows whose output is there or may come.
    fn alive(&self) -> usize {
        self.rows.iter().filter(|row| row.is_alive()).count()
    }

    pub(super) fn outputs(&self) -> usize {
        self.rows.iter().filter_map(Parity::output).count()
    }

    /// Returns true if lost members can still be had back: enough parity rows may answer for the
    /// predictions that will never come.
    pub(super) fn may_become_recoverable(&self) -> bool {
        let is_gone = |member: &&Member<I, O>| {
            member.prediction.is_none() && (member.lost || member.status == Status::Done)
        };
        let gone = self.members.iter().filter(is_gone).count();
        self.decoding.can_recover(gone, self.alive())
    }

    /// Returns true if every member has its exact prediction.
    pub(super) fn is_complete(&self) -> bool {
        self.missing() == 0
    }

    pub(super) fn is_parity_pending(&self) -> bool {
        self.rows.iter().any(Parity::is_pending)
    }

    /// Returns the queries whose instances a parity query at the deployed model avoids.
    pub(super) fn anti_affinity(&self) -> AntiAffinity {
        AntiAffinity {
            queries: self.members.iter().filter_map(|member| member.query).collect(),
            requests: self.rows.iter().filter_map(Parity::job).collect(),
        }
    }

    pub(super) fn predictions(&self) -> Vec<Option<Arc<O>>> {
        self.members.iter().map(|member| member.prediction.clone()).collect()
    }

    pub(super) fn parity_outputs(&self) -> Vec<Option<Arc<O>>> {
        self.rows.iter().map(|row| row.output().cloned()).collect()
    }
}
