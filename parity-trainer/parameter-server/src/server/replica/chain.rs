//! Log entries, on their way along the chain and back.

use super::{Replica, advance};
use crate::server::{Action, Context, Resend};
use crate::{Answer, KeyRange, Message, NodeId, Operation, Peer, Refusal, Replicate, Request, Seq};

/// Log entries in one resend: enough to fill a gap, few enough not to drown a slow successor.
const RESENT_AT_ONCE: usize = 64;

impl Replica {
    pub(super) fn replicate_to(
        &self,
        next: NodeId,
        seq: Seq,
        operation: Operation,
        context: &mut Context,
    ) {
        let entry = Replicate { at: self.at(), seq, operation };
        context.send(Peer::Server(next), Message::Replicate(entry));
    }

    pub(in crate::server) fn replicate(
        &mut self,
        from: Peer,
        entry: Replicate,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        self.ensure_not_fenced()?;
        if self.predecessor(context.node).map(Peer::Server) != Some(from) || self.stands_still() {
            return Ok(());
        }
        if entry.seq <= self.acked {
            self.acknowledge_chain(context);
        } else if entry.seq == self.applied.next() && !self.log.is_full(&context.config) {
            // Rows that cannot take the head's update are not the head's, and are copied anew.
            let applied = match &entry.operation {
                Operation::Update(update) => self.apply(update),
                Operation::Members(_) => Ok(()),
            };
            match applied {
                Ok(()) => self.append(entry.operation, context),
                Err(_) => context.actions.push(Action::Lost { at: self.at() }),
            }
        } else if entry.seq > self.applied {
            // It comes too early, or there is no room: to be sent again after the one before it.
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    pub(in crate::server) fn acknowledged(&mut self, from: Peer, seq: Seq, context: &mut Context) {
        if self.fenced.is_none() && self.successor(context.node).map(Peer::Server) == Some(from) {
            self.commit(seq, context);
            self.sequence_updates(context);
        }
    }

    /// Drops the log up to `seq`, and answers those that wait for it.
    pub(in crate::server) fn commit(&mut self, seq: Seq, context: &mut Context) {
        let sends_fresh_rows = self.consistency.sends_fresh_rows();
        let finished = |replica: &Self| replica.committed.finished(replica.range());
        let before = sends_fresh_rows.then(|| finished(self));
        let seq = seq.min(self.applied);
        // For the oldest entry: since it was sent, or the one before it was acknowledged.
        let copied_us = context.held_us(self.resend.since);
        if seq > self.acked {
            self.resend.answered(context.now);
        }
        let mut news: Option<KeyRange> = None;
        while self.acked < seq
            && let Some(operation) = self.log.pop()
        {
            self.acked = self.acked.next();
            advance(&mut self.committed, &operation);
            let range = operation.range().unwrap_or(self.range());
            news = Some(news.map_or(range, |news| news.hull(range)));
        }
        self.acknowledge_chain(context);
        self.step_back(context);
        let Some(news) = news else { return };
        if self.route.head() == Some(context.node) {
            self.acknowledge_pushes(news, copied_us, context);
        }
        if self.route.tail() == Some(context.node) {
            self.answer_waiting(news, context);
            if before.is_some_and(|before| finished(self) > before) {
                self.send_fresh_rows(context);
            }
        }
    }

    fn acknowledge_chain(&self, context: &mut Context) {
        if let Some(previous) = self.predecessor(context.node) {
            let request = Request::Replicate { seq: self.acked };
            context.answer(Peer::Server(previous), self.at(), request, None);
        }
    }

    /// Acknowledges what the chain has by now, where there is `news`.
    fn acknowledge_pushes(&mut self, news: KeyRange, copied_us: u32, context: &mut Context) {
        let (committed, shard) = (&self.committed, self.route.at());
        self.unacknowledged.retain(|&(worker, clock, range), received| {
            if range.intersect(news).is_none() {
                return true;
            }
            let finished = committed.lowest_of(worker, range);
            let is_safe = finished.is_some_and(|finished| finished >= clock);
            if is_safe {
                context.send(
                    Peer::Worker(worker),
                    Message::Answer(Answer {
                        at: shard.part(range),
                        request: Request::Push { worker, clock },
                        held_us: context.held_us(*received),
                        copied_us,
                        refusal: None,
                    }),
                );
            }
            finished.is_some() && !is_safe
        });
    }

    /// Sends again what may have been lost on the way to this server.
    pub(in crate::server) fn connected(&mut self, node: NodeId, context: &mut Context) {
        if self.successor(context.node) == Some(node) {
            self.send_log(context);
        }
        self.outgoing.iter_mut().for_each(|copy| copy.resend.hurry());
    }

    /// Sends all of the log, as if for the first time.
    pub(in crate::server) fn send_log(&mut self, context: &mut Context) {
        self.resend = Resend::default();
        self.resend.begin(context.now);
        self.resend_log(context);
    }

    /// Sends the oldest entries that are not acknowledged to the successor.
    pub(super) fn resend_log(&mut self, context: &mut Context) {
        let Some(next) = self.successor(context.node) else {
            return;
        };
        let mut seq = self.acked;
        for operation in self.log.iter().take(RESENT_AT_ONCE) {
            seq = seq.next();
            self.replicate_to(next, seq, operation.clone(), context);
        }
    }
}
