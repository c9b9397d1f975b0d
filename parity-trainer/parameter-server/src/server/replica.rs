//! One server's part of one shard.

mod chain;
mod reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::transfer::Outgoing;
use super::{Context, Resend, ServerConfig, ShardView};
use crate::push_aggregator::set_members;
use crate::{
    Clock, Consistency, Epoch, KeyRange, Keys, NodeId, Operation, Peer, Pull, Push, PushAggregator,
    RangedClocks, Refusal, Request, Route, Seq, ShardRef, Store, Update, Values, ValuesError,
    WorkerId,
};

/// Updates that are remembered at most: those of more ranges are read as rows.
const RECENT: usize = 64;

/// Operations in the order in which they were applied, bounded in number and in bytes (PS-8).
#[derive(Default)]
pub(super) struct Log {
    operations: VecDeque<Operation>,
    bytes: usize,
}

impl Log {
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(super) fn is_full(&self, config: &ServerConfig) -> bool {
        self.operations.len() >= config.max_log || self.bytes >= config.max_bytes
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.bytes += operation.bytes();
        self.operations.push_back(operation);
    }

    pub(super) fn pop(&mut self) -> Option<Operation> {
        let operation = self.operations.pop_front()?;
        self.bytes -= operation.bytes();
        Some(operation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter()
    }

    pub(super) fn map(&self, change: impl Fn(&Operation) -> Operation) -> Self {
        let mut log = Self::default();
        self.iter().for_each(|operation| log.push(change(operation)));
        log
    }
}

/// Rows, clocks and log; and what the head or the tail keeps besides.
pub(super) struct Replica {
    pub(super) route: Route,
    pub(super) consistency: Consistency,
    pub(super) store: Store,
    /// Clocks that the rows contain.
    pub(super) clocks: RangedClocks,
    /// The part of it that is in the whole chain.
    pub(super) committed: RangedClocks,
    pub(super) members: u64,
    pub(super) applied: Seq,
    pub(super) acked: Seq,
    /// The operations after `acked` up to `applied`.
    pub(super) log: Log,
    /// At the head.
    pub(super) aggregator: PushAggregator,
    /// At the head: pushes whose acknowledgement waits for the chain, and when they came.
    pub(super) unacknowledged: BTreeMap<(WorkerId, Clock, KeyRange), Duration>,
    /// At the tail: pulls that wait for updates, and when they came.
    pub(super) waiting: Vec<(Peer, Pull, Duration)>,
    /// At the tail: readers that are sent fresh rows, and their keys.
    pub(super) readers: BTreeMap<(WorkerId, KeyRange), Keys>,
    /// Updates of each range's last clock that came as factors, for readers of the one before.
    pub(super) recent: Vec<Update>,
    /// The first clock whose update alone makes its rows of those of the clock before.
    pub(super) whole_from: Clock,
    /// At the tail: the copy to a server that joins. At the head: its own way to the chain's end.
    pub(super) outgoing: Option<Outgoing>,
    /// At the tail: servers that cannot take the copy in this epoch.
    pub(super) refused_by: BTreeSet<NodeId>,
    /// A successor knows a later epoch: this server may no longer act for the shard.
    pub(super) fenced: Option<Epoch>,
    /// Of the log's oldest entry.
    pub(super) resend: Resend,
}

fn ensure(holds: bool, otherwise: Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl Replica {
    /// A shard with this content, all of it committed.
    pub(super) fn new(
        route: Route,
        consistency: Consistency,
        store: Store,
        clocks: RangedClocks,
        members: u64,
        applied: Seq,
    ) -> Self {
        Self {
            aggregator: PushAggregator::new(store.layout().width, clocks.clone()),
            committed: clocks.clone(),
            recent: Vec::new(),
            // An update that came late may be in the rows.
            whole_from: clocks.finished(clocks.range()).unwrap_or_default().next().next(),
            route,
            consistency,
            store,
            clocks,
            members,
            applied,
            acked: applied,
            log: Log::default(),
            unacknowledged: BTreeMap::new(),
            waiting: Vec::new(),
            readers: BTreeMap::new(),
            outgoing: None,
            refused_by: BTreeSet::new(),
            fenced: None,
            resend: Resend::default(),
        }
    }

    pub(super) fn view(&self) -> ShardView<'_> {
        ShardView {
            at: self.at(),
            store: &self.store,
            clocks: &self.clocks,
            applied: self.applied,
            committed: self.acked,
            accepts_pushes: self.fenced.is_none() && !self.stands_still(),
        }
    }

    pub(super) const fn range(&self) -> KeyRange {
        self.route.range
    }

    pub(super) const fn at(&self) -> ShardRef {
        self.route.at()
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
        self.outgoing.as_ref().is_some_and(|copy| copy.stopped)
    }

    fn ensure_not_fenced(&self) -> Result<(), Refusal> {
        match self.fenced {
            Some(current) => Err(Refusal::WrongEpoch { current }),
            None => Ok(()),
        }
    }

    /// Takes over a push; acknowledges it at once if it is in the whole chain already.
    pub(super) fn push(
        &mut self,
        from: Peer,
        mut push: Push,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let (at, worker, clock) = (push.at, push.worker, push.clock);
        self.ensure_not_fenced()?;
        ensure(self.route.head() == Some(context.node), Refusal::NotHead)?;
        ensure(self.aggregator.knows(worker), Refusal::UnknownWorker)?;
        let is_valid = push.keys.are_valid(at.range) && !at.range.is_empty();
        ensure(is_valid, Refusal::BadKeys)?;
        let (rows, width) = (push.keys.len(at.range), self.store.layout().width);
        push.values = push.values.checked(rows, width)?;
        let finished = self.committed.lowest_of(worker, at.range);
        if finished.is_some_and(|finished| finished >= clock) {
            context.answer(from, at, Request::Push { worker, clock }, None);
            return Ok(());
        }
        ensure(!self.stands_still(), Refusal::Stopped)?;
        // A resend of what is on its way needs no room.
        let is_resend = self.unacknowledged.contains_key(&(worker, clock, at.range));
        let has_room = is_resend || !self.is_full(worker, &context.config);
        ensure(has_room, Refusal::Busy)?;
        self.aggregator.take(&push)?;
        self.unacknowledged.entry((worker, clock, at.range)).or_insert(context.now);
        self.sequence_updates(context);
        Ok(())
    }

    fn is_full(&self, worker: WorkerId, config: &ServerConfig) -> bool {
        let (pending, bytes) = self.aggregator.pending_of(worker);
        self.log.is_full(config)
            || pending >= config.max_pending
            || bytes >= config.max_bytes
            || self.unacknowledged.len() >= config.max_log.saturating_mul(4)
    }

    fn is_acting_head(&self, context: &Context) -> bool {
        let is_head = self.route.head() == Some(context.node);
        is_head && self.fenced.is_none() && !self.stands_still()
    }

    /// Gives places in the log to the updates that are due, as far as there is room.
    pub(super) fn sequence_updates(&mut self, context: &mut Context) {
        while self.is_acting_head(context) && !self.log.is_full(&context.config) {
            let (model, pool) = (self.consistency, &mut context.pool);
            let Some(update) = self.aggregator.next_update(model, pool) else {
                return;
            };
            match self.apply(&update) {
                Ok(()) => self.append(Operation::Update(update), context),
                Err(reason) => self.refuse(&update, reason, context),
            }
        }
    }

    /// At the head: an update overflows. Its pushes count as never received, and their workers hear
    /// why; what they have sent after them comes too early now.
    fn refuse(&mut self, update: &Update, reason: Refusal, context: &mut Context) {
        let (at, range, clocks) = (self.at(), update.range, &update.clocks);
        self.aggregator.take_back(clocks, range, &self.clocks);
        self.unacknowledged.retain(|&(worker, clock, pushed), _| {
            let own = clocks.iter().find(|(other, _)| *other == worker);
            let own = own.filter(|_| pushed.intersect(range).is_some());
            let Some(&(_, expected)) = own else {
                return true;
            };
            let reason = match clock > expected {
                true => Refusal::Gap { expected },
                false => reason,
            };
            let request = Request::Push { worker, clock };
            context.answer(Peer::Worker(worker), at.part(pushed), request, Some(reason));
            false
        });
    }

    /// At the head: makes the list of workers known to the chain.
    pub(super) fn set_members(&mut self, context: &mut Context) {
        // A new head may know less than the log does.
        if self.members < context.members.version && self.is_acting_head(context) {
            let members = context.members.clone();
            self.aggregator.set_members(&members.workers);
            self.append(Operation::Members(members), context);
            self.sequence_updates(context);
        }
    }

    /// Updates the rows. Every replica decides alike, as all have the same rows (PS-5).
    fn apply(&mut self, update: &Update) -> Result<(), Refusal> {
        let (range, keys) = (update.range, &update.keys);
        let expected = keys.len(range).saturating_mul(self.store.layout().width);
        let found = update.values.len();
        ensure(found == expected, ValuesError::Length { expected, found }.into())?;
        self.store.update(range, keys, &update.values.to_f32())?;
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.changed(range, keys);
        }
        Ok(())
    }

    /// Gives an operation that was applied the next place in the log, and sends it on.
    fn append(&mut self, operation: Operation, context: &mut Context) {
        self.applied = self.applied.next();
        if let Operation::Members(members) = &operation {
            self.members = members.version;
        }
        self.record(&operation);
        let successor = self.successor(context.node);
        if let Some(next) = successor {
            if self.log.is_empty() {
                self.resend.begin(context.now);
            }
            self.replicate_to(next, self.applied, operation.clone(), context);
        }
        self.log.push(operation);
        if successor.is_none() {
            self.commit(self.applied, context);
        }
    }

    /// Counts the operation, and remembers it if it came as factors.
    fn record(&mut self, operation: &Operation) {
        let update = match operation {
            Operation::Update(update) if self.consistency.adds_up_clocks() => update,
            _ => return advance(&mut self.clocks, operation),
        };
        let (range, clock) = (update.range, update.clock());
        let is_of = |worker| update.clocks.iter().any(|&(other, _)| other == worker);
        let is_whole = self.clocks.workers().all(is_of)
            && self.clocks.parts_finished(range, clock).is_empty()
            && self.clocks.finished(range) == Some(clock.minus(1));
        advance(&mut self.clocks, operation);
        self.recent.retain(|other| other.range.intersect(range).is_none());
        if !is_whole {
            // It changes rows that readers may have.
            self.whole_from = self.whole_from.max(clock.next().next());
            self.recent.clear();
        } else if clock >= self.whole_from
            && self.recent.len() < RECENT
            && matches!(update.values, Values::Factors(_))
        {
            self.recent.push(update.clone());
        }
    }

    pub(super) fn fence(&mut self, from: Peer, current: Epoch) {
        let mut chain = self.route.chain.iter().copied().map(Peer::Server);
        if chain.any(|node| node == from) && current > self.route.epoch {
            self.fenced = Some(current);
            self.unacknowledged.clear();
        }
    }

    pub(super) fn next_timer(&self, config: &ServerConfig) -> Option<Duration> {
        let waits = !self.log.is_empty() && self.fenced.is_none();
        let copy = self.outgoing.as_ref().map(|copy| copy.resend.due(config));
        waits.then(|| self.resend.due(config)).into_iter().chain(copy).min()
    }

    pub(super) fn tick(&mut self, context: &mut Context) {
        let waits = !self.log.is_empty() && self.fenced.is_none();
        if waits && self.resend.is_due(context.now, &context.config) {
            self.resend_log(context);
        }
        let (at, is_committed) = (self.at(), self.log.is_empty());
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.tick(at, is_committed, context);
        }
    }
}

fn advance(clocks: &mut RangedClocks, operation: &Operation) {
    match operation {
        Operation::Members(members) => set_members(clocks, &members.workers),
        Operation::Update(update) => {
            for &(worker, clock) in &update.clocks {
                clocks.advance(worker, update.range, clock);
            }
        }
    }
}
