//! Copying a shard to a server that joins its chain: pre-copy, stop, delta (Li et al., OSDI 2014,
//! section 4.4).
//!
//! The tail copies, because all that it has is acknowledged. While it copies, updates go on, and
//! rows that change are put back on the list of what is to be copied. When little is left, the tail
//! stands still: it takes no further log entry, so nothing is acknowledged that the newcomer lacks.
//! It copies the rest with the clocks, and asks the registry to raise the epoch with the newcomer
//! at the end of the chain. Only a raised epoch ends the standstill: were it to end by itself, the
//! registry might still append a newcomer that has missed what came after.

use std::time::Duration;

use super::replica::{Context, Replica};
use super::{Action, Server, ServerConfig};
use crate::range_set::RangeSet;
use crate::{
    ArrayId, Clock, KeyRange, Keys, Message, NodeId, Peer, RangedClocks, Refusal, Refused, Request,
    Route, ShardRef, Snapshot, SnapshotAck, SnapshotEnd, SnapshotPhase, Store, TransferId,
    WorkerId,
};

/// Ranges on the list; more are joined, which copies keys between them once more.
const MAX_RANGES: usize = 4096;

/// Copying side of a hand-over.
pub(super) struct Outgoing {
    to: NodeId,
    transfer: TransferId,
    phase: SnapshotPhase,
    /// Keys whose rows have changed since they were copied, or were never copied.
    left: RangeSet,
    /// Pieces that pre-copy may still take, so that it ends however fast rows change.
    budget: usize,
    /// The piece that waits for its acknowledgement.
    piece: Option<Snapshot>,
    next_part: u32,
    /// The newcomer has everything.
    complete: bool,
    sent_at: Duration,
}

impl Outgoing {
    pub(super) fn stands_still(&self) -> bool {
        self.phase == SnapshotPhase::Delta
    }

    pub(super) const fn sent_at(&self) -> Duration {
        self.sent_at
    }

    /// Returns true if this piece waits for its answer from this server.
    fn waits(&self, from: Peer, asked: (TransferId, u32)) -> bool {
        let piece = self
            .piece
            .as_ref()
            .map(|piece| (piece.transfer, piece.part));
        from == Peer::Server(self.to) && piece == Some(asked)
    }

    /// Rows that were updated are to be copied again.
    pub(super) fn changed(&mut self, range: KeyRange, keys: &Keys) {
        match keys {
            Keys::All => self.left.insert(range),
            Keys::List(keys) => {
                keys.iter()
                    .for_each(|&key| self.left.insert(KeyRange::new(key, key.saturating_add(1))));
            }
        }
    }

    /// Repeats what has no answer yet.
    pub(super) fn tick(&mut self, at: ShardRef, context: &mut Context<'_>) {
        if context.now < self.sent_at + context.config.resend {
            return;
        }
        self.sent_at = context.now;
        if let Some(piece) = &self.piece {
            context.send(Peer::Server(self.to), Message::Snapshot(piece.clone()));
        } else if self.complete {
            context.actions.push(Action::Propose { at, add: self.to });
        }
    }
}

impl Replica {
    /// Begins to copy the shard to `to`.
    pub(super) fn hand_over(
        &mut self,
        to: NodeId,
        transfer: TransferId,
        context: &mut Context<'_>,
    ) {
        let is_tail = self.route.tail() == Some(context.node);
        // Before the standstill, the registry may change its mind and name another server.
        let decided = self
            .outgoing
            .as_ref()
            .is_some_and(|outgoing| outgoing.stands_still() || outgoing.to == to);
        let cannot = self.route.chain.contains(&to) || self.refused_by.contains(&to);
        if !is_tail || self.fenced.is_some() || cannot || decided {
            return;
        }
        let mut left = RangeSet::new(MAX_RANGES);
        left.insert(self.range());
        self.outgoing = Some(Outgoing {
            to,
            transfer,
            phase: SnapshotPhase::PreCopy,
            left,
            budget: 2 * (self.store.rows() / self.copied_at_once(context.config)) + 8,
            piece: None,
            next_part: 0,
            complete: false,
            sent_at: context.now,
        });
        self.copy_next(context);
    }

    /// The newcomer has taken over a piece.
    pub(super) fn copied(
        &mut self,
        from: Peer,
        transfer: TransferId,
        part: u32,
        context: &mut Context<'_>,
    ) {
        let at = self.at();
        let Some(outgoing) = &mut self.outgoing else {
            return;
        };
        let expected = outgoing
            .piece
            .as_ref()
            .map(|piece| (piece.transfer, piece.part));
        if from != Peer::Server(outgoing.to) || expected != Some((transfer, part)) {
            return;
        }
        let was_last = outgoing
            .piece
            .take()
            .is_some_and(|piece| piece.end.is_some());
        if was_last {
            outgoing.complete = true;
            outgoing.sent_at = context.now;
            context.actions.push(Action::Propose {
                at,
                add: outgoing.to,
            });
        } else {
            self.copy_next(context);
        }
    }

    /// The newcomer has dropped the copy that `part` belongs to: it gets all of it again. The
    /// standstill may end by itself here: the registry has not been asked to append the newcomer,
    /// as it is only once that has everything.
    pub(super) fn copy_again(
        &mut self,
        from: Peer,
        refused: (TransferId, u32),
        again: TransferId,
        members: &(u64, Vec<(WorkerId, Clock)>),
        context: &mut Context<'_>,
    ) {
        let Some(outgoing) = self
            .outgoing
            .take_if(|own| refused.1 > 0 && own.waits(from, refused))
        else {
            return;
        };
        self.hand_over(outgoing.to, again, context);
        self.go_on(members, context);
    }

    /// The newcomer cannot hold these rows: the shard does without it until its epoch is raised.
    /// The standstill may end by itself here, too.
    pub(super) fn end_copy(
        &mut self,
        from: Peer,
        refused: (TransferId, u32),
        reason: Refusal,
        members: &(u64, Vec<(WorkerId, Clock)>),
        context: &mut Context<'_>,
    ) {
        let Some(outgoing) = self.outgoing.take_if(|own| own.waits(from, refused)) else {
            return;
        };
        self.refused_by.insert(outgoing.to);
        context.actions.push(Action::CopyRefused {
            at: self.at(),
            to: outgoing.to,
            reason,
        });
        self.go_on(members, context);
    }

    /// Takes up what came during a standstill.
    fn go_on(&mut self, members: &(u64, Vec<(WorkerId, Clock)>), context: &mut Context<'_>) {
        self.set_members(members, context);
        self.sequence_updates(context);
    }

    /// Rows in one piece.
    fn copied_at_once(&self, config: &ServerConfig) -> usize {
        let layout = self.store.layout();
        let numbers = layout.width.saturating_mul(1 + layout.rule.slots());
        let fit = config.copy_bytes / numbers.saturating_mul(size_of::<f32>()).max(1);
        config.copy_rows.min(fit).max(1)
    }

    fn copy_next(&mut self, context: &mut Context<'_>) {
        let (at, store, limit) = (self.at(), &self.store, self.copied_at_once(context.config));
        let Some(outgoing) = &mut self.outgoing else {
            return;
        };
        let few = outgoing.left.len() <= limit as u64;
        if few || outgoing.budget == 0 {
            outgoing.phase = SnapshotPhase::Delta;
        }
        outgoing.budget = outgoing.budget.saturating_sub(1);
        let next = outgoing
            .left
            .first()
            .unwrap_or(KeyRange::new(at.range.start, at.range.start));
        let rows = store.extract(next, limit);
        outgoing.left.remove_first_up_to(rows.range.end);
        let is_last = outgoing.phase == SnapshotPhase::Delta && outgoing.left.is_empty();
        let end = is_last.then(|| SnapshotEnd {
            seq: self.applied,
            members: self.members,
            clocks: self.clocks.to_entries(),
        });
        let piece = Snapshot {
            at,
            transfer: outgoing.transfer,
            part: outgoing.next_part,
            phase: outgoing.phase,
            rows,
            end,
        };
        outgoing.next_part += 1;
        outgoing.sent_at = context.now;
        outgoing.piece = Some(piece.clone());
        let to = Peer::Server(outgoing.to);
        context.send(to, Message::Snapshot(piece));
    }
}

/// Receiving side of a hand-over.
pub(super) struct Incoming {
    at: ShardRef,
    from: Peer,
    transfer: TransferId,
    next_part: u32,
    store: Store,
    end: Option<SnapshotEnd>,
    /// When the last piece came.
    heard_at: Duration,
}

impl Incoming {
    pub(super) const fn at(&self) -> ShardRef {
        self.at
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// When it counts as given up, unless a piece comes before. A complete copy never does: the
    /// registry may have been asked to let this server into the chain, and do so at any time.
    pub(super) fn given_up_at(&self, config: &ServerConfig) -> Option<Duration> {
        (!self.is_complete()).then_some(self.heard_at + config.forget)
    }

    /// The shard, once the registry has said that this server holds it.
    pub(super) fn into_replica(self, route: Route) -> Option<Replica> {
        let end = self.end?;
        let clocks = RangedClocks::from_entries(self.at.range, &end.clocks);
        Some(Replica::new(
            route,
            self.store,
            clocks,
            end.members,
            end.seq,
        ))
    }
}

impl Server {
    pub(super) const fn next_transfer(&mut self) -> TransferId {
        self.transfers += 1;
        TransferId(self.transfers)
    }

    /// Drops copies that their senders have given up, of which no routing table need ever tell.
    pub(super) fn drop_given_up(&mut self, now: Duration) {
        let config = &self.config;
        self.incoming
            .retain(|_, copy| copy.given_up_at(config).is_none_or(|at| now < at));
    }

    /// Takes over a piece of a shard.
    pub(super) fn take_over(
        &mut self,
        now: Duration,
        from: Peer,
        piece: Snapshot,
        actions: &mut Vec<Action>,
    ) {
        let Snapshot {
            at, transfer, part, ..
        } = piece;
        let mut answer = |message| actions.push(Action::Send { to: from, message });
        let refused = |reason| {
            Message::Refused(Refused {
                at,
                request: Request::Snapshot { transfer, part },
                reason,
            })
        };
        let Some(array) = self.arrays.get(&at.array) else {
            return answer(refused(Refusal::UnknownRange));
        };
        if let Refusal::WrongEpoch { current } = self.why_not(at) {
            return answer(refused(Refusal::WrongEpoch { current }));
        }
        let slot: (ArrayId, u64) = (at.array, at.range.start);
        let current = self.incoming.get(&slot);
        let newer = current.is_none_or(|own| (own.at.epoch, own.transfer) < (at.epoch, transfer));
        if newer && part > 0 {
            // Its beginning was dropped, so that there is no use in sending the rest again.
            return answer(refused(Refusal::UnknownRange));
        }
        if newer {
            let store = Store::new(array.layout.clone(), at.range);
            let (next_part, end, heard_at) = (0, None, now);
            self.incoming.insert(
                slot,
                Incoming {
                    at,
                    from,
                    transfer,
                    next_part,
                    store,
                    end,
                    heard_at,
                },
            );
        }
        let Some(own) = self.incoming.get_mut(&slot) else {
            return;
        };
        if (own.at, own.from, own.transfer) != (at, from, transfer) || part > own.next_part {
            return;
        }
        if part == own.next_part {
            if !own.store.fits(&piece.rows) {
                return answer(refused(Refusal::BadRows));
            }
            own.store.insert(&piece.rows);
            own.next_part += 1;
            own.end = piece.end;
        }
        own.heard_at = now;
        answer(Message::SnapshotAck(SnapshotAck { at, transfer, part }));
    }
}
