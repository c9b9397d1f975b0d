//! One server's part of one shard.

mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::log::Log;
use super::lookup::ShardView;
use super::transfer::Outgoing;
use super::{Action, ServerConfig};
use crate::push_aggregator::set_members;
use crate::{
    ArrayId, Clock, ConsistencyPolicy, Epoch, KeyRange, Keys, Message, NodeId, Operation, Peer,
    Pool, Pull, Push, PushAck, PushAggregator, RangedClocks, Refusal, Refused, Replicate,
    ReplicateAck, Request, Route, Seq, ShardRef, Store, WorkerId,
};

/// Context that a shard is handed with each event.
pub(super) struct Context<'a> {
    pub(super) now: Duration,
    pub(super) node: NodeId,
    pub(super) config: &'a ServerConfig,
    pub(super) policy: &'a dyn ConsistencyPolicy,
    pub(super) pool: &'a mut Pool<f32>,
    pub(super) actions: &'a mut Vec<Action>,
}

impl Context<'_> {
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.actions.push(Action::Send { to, message });
    }
}

/// Rows, clocks and log; and what the head or the tail keeps besides.
pub(super) struct Replica {
    pub(super) route: Route,
    pub(super) store: Store,
    /// Clocks that the rows contain.
    pub(super) clocks: RangedClocks,
    /// The part of it that is in the whole chain.
    pub(super) committed: RangedClocks,
    /// The version of the list of workers.
    pub(super) members: u64,
    pub(super) applied: Seq,
    pub(super) acked: Seq,
    /// The operations after `acked` up to `applied`.
    pub(super) log: Log,
    /// At the head.
    pub(super) aggregator: PushAggregator,
    /// At the head: pushes whose acknowledgement waits for the chain.
    pub(super) unacknowledged: BTreeSet<(WorkerId, Clock, KeyRange)>,
    /// At the tail: pulls that wait for updates.
    pub(super) waiting: Vec<(Peer, Pull)>,
    /// At the tail: who is sent fresh rows, of which keys.
    pub(super) readers: BTreeMap<(WorkerId, KeyRange), Keys>,
    /// At the tail: the copy to a server that joins.
    pub(super) outgoing: Option<Outgoing>,
    /// At the tail: servers that cannot take the copy in this epoch.
    pub(super) refused_by: BTreeSet<NodeId>,
    /// A successor knows a later epoch: this server may no longer act for the shard.
    pub(super) fenced: Option<Epoch>,
    pub(super) sent_at: Duration,
}

impl Replica {
    /// A shard with this content, all of it committed.
    pub(super) fn new(
        route: Route,
        store: Store,
        clocks: RangedClocks,
        members: u64,
        applied: Seq,
    ) -> Self {
        Self {
            aggregator: PushAggregator::new(store.layout().width, clocks.clone()),
            committed: clocks.clone(),
            route,
            store,
            clocks,
            members,
            applied,
            acked: applied,
            log: Log::default(),
            unacknowledged: BTreeSet::new(),
            waiting: Vec::new(),
            readers: BTreeMap::new(),
            outgoing: None,
            refused_by: BTreeSet::new(),
            fenced: None,
            sent_at: Duration::ZERO,
        }
    }

    pub(super) fn view(&self) -> ShardView<'_> {
        let accepts_pushes = self.fenced.is_none() && !self.stands_still();
        let Self {
            store,
            clocks,
            applied,
            acked,
            ..
        } = self;
        ShardView {
            at: self.at(),
            store,
            clocks,
            applied: *applied,
            committed: *acked,
            accepts_pushes,
        }
    }

    pub(super) const fn array(&self) -> ArrayId {
        self.route.array
    }

    pub(super) const fn range(&self) -> KeyRange {
        self.route.range
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.route.epoch
    }

    pub(super) const fn at(&self) -> ShardRef {
        ShardRef {
            array: self.route.array,
            range: self.route.range,
            epoch: self.route.epoch,
        }
    }

    fn neighbour(&self, node: NodeId, step: isize) -> Option<NodeId> {
        let own = self.route.chain.iter().position(|&other| other == node)?;
        self.route.chain.get(own.checked_add_signed(step)?).copied()
    }

    pub(super) fn successor(&self, node: NodeId) -> Option<NodeId> {
        self.neighbour(node, 1)
    }

    fn predecessor(&self, node: NodeId) -> Option<NodeId> {
        self.neighbour(node, -1)
    }

    fn stands_still(&self) -> bool {
        self.outgoing.as_ref().is_some_and(Outgoing::stands_still)
    }

    /// Takes over a push. Whether it is in the whole chain already, so that it is to be
    /// acknowledged at once.
    pub(super) fn push(&mut self, push: Push, context: &mut Context<'_>) -> Result<bool, Refusal> {
        let Push {
            at,
            worker,
            clock,
            keys,
            values,
        } = push;
        if let Some(current) = self.fenced {
            return Err(Refusal::WrongEpoch { current });
        }
        if self.route.head() != Some(context.node) {
            return Err(Refusal::NotHead);
        }
        if !self.aggregator.knows(worker) {
            return Err(Refusal::UnknownWorker);
        }
        if !keys.are_valid(at.range) || at.range.is_empty() {
            return Err(Refusal::BadKeys);
        }
        let values = values.checked(keys.len(at.range), self.store.layout().width)?;
        if self
            .committed
            .lowest_of(worker, at.range)
            .is_some_and(|finished| finished >= clock)
        {
            return Ok(true);
        }
        if self.stands_still() {
            return Err(Refusal::Stopped);
        }
        let (pending, pending_bytes) = self.aggregator.pending_of(worker);
        let full = self.log.is_full(context.config)
            || pending >= context.config.max_pending
            || pending_bytes >= context.config.max_bytes
            || self.unacknowledged.len() >= context.config.max_log.saturating_mul(4);
        // A resend of what is on its way needs no room.
        if full && !self.unacknowledged.contains(&(worker, clock, at.range)) {
            return Err(Refusal::Busy);
        }
        self.aggregator
            .take(worker, clock, at.range, &keys, &values)?;
        self.unacknowledged.insert((worker, clock, at.range));
        self.sequence_updates(context);
        Ok(false)
    }

    /// Gives places in the log to the updates that are due, as far as there is room.
    pub(super) fn sequence_updates(&mut self, context: &mut Context<'_>) {
        let head = self.route.head() == Some(context.node)
            && self.fenced.is_none()
            && !self.stands_still();
        while head && !self.log.is_full(context.config) {
            let Some(update) = self.aggregator.next_update(context.policy, context.pool) else {
                return;
            };
            match self.apply(&update) {
                Ok(()) => self.append(update, context),
                Err(reason) => self.refuse(&update, reason, context),
            }
        }
    }

    /// At the head: an update overflows. Its pushes count as never received, and their workers hear
    /// why; what they have sent after them comes too early now.
    fn refuse(&mut self, update: &Operation, reason: Refusal, context: &mut Context<'_>) {
        let Operation::Update { range, clocks, .. } = update else {
            return;
        };
        self.aggregator.take_back(clocks, *range, &self.clocks);
        let mut at = self.at();
        self.unacknowledged.retain(|&(worker, clock, pushed)| {
            let of_worker = clocks.iter().find(|(other, _)| *other == worker);
            let Some(&(_, refused)) = of_worker.filter(|_| pushed.intersect(*range).is_some())
            else {
                return true;
            };
            let reason = if clock > refused {
                Refusal::Gap { expected: refused }
            } else {
                reason
            };
            at.range = pushed;
            let request = Request::Push { worker, clock };
            context.send(
                Peer::Worker(worker),
                Message::Refused(Refused {
                    at,
                    request,
                    reason,
                }),
            );
            false
        });
    }

    /// At the head: makes the list of workers known to the chain.
    pub(super) fn set_members(
        &mut self,
        members: &(u64, Vec<(WorkerId, Clock)>),
        context: &mut Context<'_>,
    ) {
        let (version, workers) = members;
        // A new head may know less than the log does.
        if self.route.head() == Some(context.node)
            && self.members < *version
            && !self.stands_still()
            && self.fenced.is_none()
        {
            self.aggregator.set_members(workers);
            self.append(
                Operation::Members {
                    version: *version,
                    workers: workers.clone(),
                },
                context,
            );
            self.sequence_updates(context);
        }
    }

    /// Updates the rows. Every replica decides alike, as all have the same rows (PS-5).
    fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        if let Operation::Update {
            range,
            keys,
            values,
            ..
        } = operation
        {
            self.store.update(*range, keys, &values.to_f32())?;
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.changed(*range, keys);
            }
        }
        Ok(())
    }

    /// Gives an operation that was applied the next place in the log, and sends it on.
    fn append(&mut self, operation: Operation, context: &mut Context<'_>) {
        self.applied = self.applied.next();
        if let Operation::Members { version, .. } = &operation {
            self.members = *version;
        }
        take_note(&mut self.clocks, &operation);
        if let Some(next) = self.successor(context.node) {
            if self.log.is_empty() {
                self.sent_at = context.now;
            }
            let entry = Replicate {
                at: self.at(),
                seq: self.applied,
                operation: operation.clone(),
            };
            context.send(Peer::Server(next), Message::Replicate(entry));
        }
        self.log.push(operation);
        if self.successor(context.node).is_none() {
            self.commit(self.applied, context);
        }
    }

    /// Takes over a log entry from the server before this one.
    pub(super) fn replicate(
        &mut self,
        from: Peer,
        entry: Replicate,
        context: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        if let Some(current) = self.fenced {
            return Err(Refusal::WrongEpoch { current });
        }
        if self.predecessor(context.node).map(Peer::Server) != Some(from) || self.stands_still() {
            return Ok(());
        }
        if entry.seq <= self.acked {
            self.acknowledge_chain(context);
        } else if entry.seq == self.applied.next() && !self.log.is_full(context.config) {
            // The head has made it: rows that cannot take it are not the head's, and are copied
            // anew.
            match self.apply(&entry.operation) {
                Ok(()) => self.append(entry.operation, context),
                Err(_) => context.actions.push(Action::Lost { at: self.at() }),
            }
        }
        // One that comes too early is sent again after the one before it.
        Ok(())
    }

    /// The tail has the log up to `seq`.
    pub(super) fn acknowledged(&mut self, from: Peer, seq: Seq, context: &mut Context<'_>) {
        if self.fenced.is_none() && self.successor(context.node).map(Peer::Server) == Some(from) {
            self.commit(seq, context);
            self.sequence_updates(context);
        }
    }

    /// Drops the log up to `seq`, and answers those that wait for it.
    pub(super) fn commit(&mut self, seq: Seq, context: &mut Context<'_>) {
        let sends_fresh_rows = context.policy.sends_fresh_rows();
        let finished = |replica: &Self| replica.committed.finished(replica.range());
        let before = sends_fresh_rows.then(|| finished(self));
        let seq = seq.min(self.applied);
        if seq > self.acked {
            self.sent_at = context.now;
        }
        let mut news: Option<KeyRange> = None;
        while self.acked < seq
            && let Some(operation) = self.log.pop()
        {
            self.acked = self.acked.next();
            take_note(&mut self.committed, &operation);
            let range = operation.range().unwrap_or(self.range());
            news = Some(news.map_or(range, |news| news.hull(range)));
        }
        self.acknowledge_chain(context);
        let Some(news) = news else { return };
        if self.route.head() == Some(context.node) {
            self.acknowledge_pushes(news, context);
        }
        if self.route.tail() == Some(context.node) {
            self.answer_waiting(news, context);
            if before.is_some_and(|before| finished(self) > before) {
                self.send_fresh_rows(context);
            }
        }
    }

    fn acknowledge_chain(&self, context: &mut Context<'_>) {
        if let Some(previous) = self.predecessor(context.node) {
            let ack = ReplicateAck {
                at: self.at(),
                seq: self.acked,
            };
            context.send(Peer::Server(previous), Message::ReplicateAck(ack));
        }
    }

    /// Acknowledges what the chain has by now, where there is `news`.
    fn acknowledge_pushes(&mut self, news: KeyRange, context: &mut Context<'_>) {
        let (committed, mut at) = (&self.committed, self.at());
        self.unacknowledged.retain(|&(worker, clock, range)| {
            if range.intersect(news).is_none() {
                return true;
            }
            let Some(finished) = committed.lowest_of(worker, range) else {
                return false;
            };
            if finished >= clock {
                at.range = range;
                context.send(
                    Peer::Worker(worker),
                    Message::PushAck(PushAck { at, worker, clock }),
                );
            }
            finished < clock
        });
    }

    /// A successor knows a later epoch.
    pub(super) fn fence(&mut self, from: Peer, current: Epoch) {
        let in_chain = self
            .route
            .chain
            .iter()
            .any(|&node| Peer::Server(node) == from);
        if in_chain && current > self.route.epoch {
            self.fenced = Some(current);
            self.unacknowledged.clear();
        }
    }
}

/// Records the workers' clocks that an operation states.
fn take_note(clocks: &mut RangedClocks, operation: &Operation) {
    match operation {
        Operation::Update {
            range,
            clocks: advanced,
            ..
        } => {
            for &(worker, clock) in advanced {
                clocks.advance(worker, *range, clock);
            }
        }
        Operation::Members { workers, .. } => set_members(clocks, workers),
    }
}
