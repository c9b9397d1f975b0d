//! Copies a shard to a chain's newcomer: pre-copy, stop, delta (Li et al., OSDI 2014, section 4.4).
//!
//! The tail copies, because all that it has is acknowledged. While it copies, updates go on, and
//! rows that change are put back on the list of what is to be copied. When little is left, the tail
//! stands still: it takes no further log entry, copies the rest with the clocks, and asks the
//! registry to raise the epoch with the newcomer at the end of the chain. Only a raised epoch ends
//! the standstill: were it to end by itself, the registry might still append a newcomer that has
//! missed what came after.
//!
//! A head that is to be the tail copies nothing: it stands still until the whole chain has what it
//! has, and asks for its new place.

use std::time::Duration;

use super::replica::Replica;
use super::shards::Shards;
use super::{Action, ArrayConfig, Context, Resend, ServerConfig};
use crate::range::RangeSet;
use crate::{
    KeyRange, Keys, Message, NodeId, Peer, RangedClocks, Refusal, Request, Route, ShardRef,
    Snapshot, SnapshotEnd, Store, TransferId,
};

/// Ranges on the list; more are joined, which copies keys between them once more.
const MAX_RANGES: usize = 4096;

type Piece = (TransferId, u32);

pub(super) struct Outgoing {
    to: NodeId,
    transfer: TransferId,
    /// The shard stands still; what is left are the last changes.
    pub(super) stopped: bool,
    /// Keys whose rows have changed since they were copied, or were never copied.
    left: RangeSet,
    /// Pieces that pre-copy may still take, so that it ends however fast rows change.
    budget: usize,
    /// The piece that waits for its acknowledgement; `None` once the newcomer has everything.
    piece: Option<Snapshot>,
    next_part: u32,
    pub(super) resend: Resend,
}

impl Outgoing {
    fn waits(&self, from: Peer, asked: Piece) -> bool {
        let piece = self.piece.as_ref();
        let is_asked = piece.is_some_and(|piece| (piece.transfer, piece.part) == asked);
        is_asked && from == Peer::Server(self.to)
    }

    /// Rows that were updated are to be copied again.
    pub(super) fn changed(&mut self, range: KeyRange, keys: &Keys) {
        let Keys::List(keys) = keys else {
            return self.left.insert(range);
        };
        for &key in keys.iter() {
            self.left.insert(KeyRange::new(key, key.saturating_add(1)));
        }
    }

    /// `is_committed` if all that this server has is in the whole chain.
    pub(super) fn tick(&mut self, at: ShardRef, is_committed: bool, context: &mut Context) {
        if !self.resend.is_due(context.now, &context.config) {
            return;
        }
        match &self.piece {
            Some(piece) => context.send(Peer::Server(self.to), Message::Snapshot(piece.clone())),
            None => {
                self.resend.hurry();
                if is_committed {
                    context.actions.push(Action::Propose { at, add: self.to });
                }
            }
        }
    }
}

impl Replica {
    pub(super) fn hand_over(&mut self, to: NodeId, context: &mut Context) {
        let is_tail = self.route.tail() == Some(context.node);
        let steps_back = !is_tail && self.route.head() == Some(to) && to == context.node;
        // Before the standstill, the registry may change its mind and name another server.
        let is_decided = |outgoing: &Outgoing| outgoing.stopped || outgoing.to == to;
        let is_decided = self.outgoing.as_ref().is_some_and(is_decided);
        let cannot = self.route.chain.contains(&to) || self.refused_by.contains(&to);
        if self.fenced.is_some() || is_decided || (!steps_back && (!is_tail || cannot)) {
            return;
        }
        context.transfers += 1;
        let mut left = RangeSet::new(MAX_RANGES);
        left.insert(self.range());
        let mut resend = Resend::default();
        resend.begin(context.now);
        self.outgoing = Some(Outgoing {
            to,
            transfer: TransferId(context.transfers),
            stopped: steps_back,
            left,
            budget: 2 * (self.store.rows() / self.copied_at_once(&context.config)) + 8,
            piece: None,
            next_part: 0,
            resend,
        });
        match steps_back {
            true => self.step_back(context),
            false => self.copy_next(context),
        }
    }

    /// Asks for this head's new place if it is to have one, and nothing is on its way any more.
    pub(super) fn step_back(&self, context: &mut Context) {
        let steps_back = self.outgoing.as_ref().is_some_and(|own| own.to == context.node);
        if steps_back && self.log.is_empty() {
            context.actions.push(Action::Propose { at: self.at(), add: context.node });
        }
    }

    pub(super) fn copied(&mut self, from: Peer, piece: Piece, context: &mut Context) {
        let at = self.at();
        let Some(outgoing) = self.outgoing.as_mut().filter(|own| own.waits(from, piece)) else {
            return;
        };
        let taken = outgoing.piece.take();
        outgoing.resend.answered(context.now);
        if taken.is_some_and(|piece| piece.end.is_some()) {
            outgoing.resend.hurry();
            let add = outgoing.to;
            context.actions.push(Action::Propose { at, add });
        } else {
            self.copy_next(context);
        }
    }

    /// The newcomer refuses a piece. If it has dropped the copy, it gets all again; if it cannot
    /// hold these rows, the shard does without it until its epoch is raised. The standstill may end
    /// by itself here: the registry is asked to append the newcomer only once that has all.
    pub(super) fn copy_refused(
        &mut self,
        from: Peer,
        refused: Piece,
        reason: Refusal,
        context: &mut Context,
    ) {
        let is_dropped = reason == Refusal::UnknownRange && refused.1 > 0;
        let ends =
            |own: &mut Outgoing| own.waits(from, refused) && (is_dropped || !reason.is_retryable());
        let Some(Outgoing { to, .. }) = self.outgoing.take_if(ends) else {
            return self.outgoing.iter_mut().for_each(|copy| copy.resend.hurry());
        };
        if is_dropped {
            self.hand_over(to, context);
        } else {
            let at = self.at();
            self.refused_by.insert(to);
            context.actions.push(Action::CopyRefused { at, to, reason });
        }
        self.set_members(context);
        self.sequence_updates(context);
    }

    fn copied_at_once(&self, config: &ServerConfig) -> usize {
        let layout = self.store.layout();
        let numbers = layout.width.saturating_mul(1 + layout.rule.slots());
        let fit = config.copy_bytes / numbers.saturating_mul(size_of::<f32>()).max(1);
        config.copy_rows.min(fit).max(1)
    }

    fn copy_next(&mut self, context: &mut Context) {
        let (at, store, limit) = (self.at(), &self.store, self.copied_at_once(&context.config));
        let Some(outgoing) = &mut self.outgoing else {
            return;
        };
        if outgoing.left.len() <= limit as u64 || outgoing.budget == 0 {
            outgoing.stopped = true;
        }
        outgoing.budget = outgoing.budget.saturating_sub(1);
        let nothing = KeyRange::new(at.range.start, at.range.start);
        let rows = store.extract(outgoing.left.first().unwrap_or(nothing), limit);
        outgoing.left.remove_first_up_to(rows.range.end);
        let is_last = outgoing.stopped && outgoing.left.is_empty();
        let end = is_last.then(|| SnapshotEnd {
            seq: self.applied,
            members: self.members,
            clocks: self.clocks.to_entries(),
        });
        let piece =
            Snapshot { at, transfer: outgoing.transfer, part: outgoing.next_part, rows, end };
        outgoing.next_part += 1;
        outgoing.resend.begin(context.now);
        outgoing.piece = Some(piece.clone());
        context.send(Peer::Server(outgoing.to), Message::Snapshot(piece));
    }
}

pub(super) struct Incoming {
    pub(super) at: ShardRef,
    from: Peer,
    transfer: TransferId,
    next_part: u32,
    store: Store,
    end: Option<SnapshotEnd>,
    heard_at: Duration,
}

impl Incoming {
    pub(super) const fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// When it counts as given up, unless a piece comes before. A complete copy never does: the
    /// registry may have been asked to let this server into the chain, and do so at any time.
    pub(super) fn given_up_at(&self, config: &ServerConfig) -> Option<Duration> {
        (!self.is_complete()).then_some(self.heard_at + config.forget)
    }

    /// The shard, once the registry has said that this server holds it.
    pub(super) fn into_replica(self, array: &ArrayConfig) -> Option<Replica> {
        let end = self.end?;
        let clocks = RangedClocks::from_entries(self.at.range, &end.clocks);
        let route = Route::new(self.at, Vec::new());
        let (members, seq) = (end.members, end.seq);
        let consistency = array.consistency;
        let replica = Replica::new(route, consistency, self.store, clocks, members, seq);
        Some(replica)
    }

    /// Takes over a piece. Returns false if it is not of this copy, or comes too early.
    fn take(&mut self, from: Peer, piece: Snapshot, now: Duration) -> Result<bool, Refusal> {
        let is_own = (self.at, self.from, self.transfer) == (piece.at, from, piece.transfer);
        if !is_own || piece.part > self.next_part {
            return Ok(false);
        }
        if piece.part == self.next_part {
            if !self.store.fits(&piece.rows) {
                return Err(Refusal::BadRows);
            }
            self.store.insert(&piece.rows);
            self.next_part += 1;
            self.end = piece.end;
        }
        self.heard_at = now;
        Ok(true)
    }
}

impl Shards {
    pub(super) fn take_over(
        &mut self,
        from: Peer,
        piece: Snapshot,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let (at, transfer, part) = (piece.at, piece.transfer, piece.part);
        let array = self.arrays.get(&at.array).ok_or(Refusal::UnknownRange)?;
        let layout = array.layout.clone();
        if let reason @ Refusal::WrongEpoch { .. } = self.why_not(at) {
            return Err(reason);
        }
        let slot = (at.array, at.range.start);
        let is_older = |own: &Incoming| (own.at.epoch, own.transfer) < (at.epoch, transfer);
        if self.incoming.get(&slot).is_none_or(is_older) {
            if part > 0 {
                // Its beginning was dropped, so that there is no use in sending the rest again.
                return Err(Refusal::UnknownRange);
            }
            let copy = Incoming {
                at,
                from,
                transfer,
                next_part: 0,
                store: Store::new(layout, at.range),
                end: None,
                heard_at: context.now,
            };
            self.incoming.insert(slot, copy);
        }
        if let Some(own) = self.incoming.get_mut(&slot)
            && own.take(from, piece, context.now)?
        {
            context.answer(from, at, Request::Snapshot { transfer, part }, None);
        }
        Ok(())
    }
}
