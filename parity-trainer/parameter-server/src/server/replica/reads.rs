//! Pulls, which the tail answers.

use super::{Context, Replica};
use crate::{
    Clock, KeyRange, Keys, Message, Peer, Pool, Pull, PullReply, Refusal, ShardRef, Values,
    WorkerId,
};

impl Replica {
    /// Answers a pull now, or once it may be.
    pub(in crate::server) fn pull(
        &mut self,
        from: Peer,
        pull: Pull,
        context: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        if self.route.tail() != Some(context.node) {
            return Err(Refusal::NotTail);
        }
        if !pull.keys.are_valid(pull.at.range) {
            return Err(Refusal::BadKeys);
        }
        // A tail that was replaced before it heard of the workers would wait for none.
        if pull.clock > Clock::default() && !self.clocks.contains(pull.worker) {
            return Err(Refusal::UnknownWorker);
        }
        let known = self.readers.contains_key(&(pull.worker, pull.at.range));
        if context.policy.sends_fresh_rows()
            && (known || self.readers.len() < context.config.max_waiting)
        {
            self.readers
                .insert((pull.worker, pull.at.range), pull.keys.clone());
        }
        if context
            .policy
            .may_read(&self.clocks, pull.worker, pull.at.range, pull.clock)
        {
            self.answer(from, &pull, context);
            return Ok(());
        }
        if self.waiting.iter().any(|(peer, other)| {
            *peer == from && other.request == pull.request && other.at == pull.at
        }) {
            return Ok(());
        }
        if self.waiting.len() >= context.config.max_waiting {
            return Err(Refusal::Busy);
        }
        self.waiting.push((from, pull));
        Ok(())
    }

    /// Answers pulls that may be answered by now, where there is `news`.
    pub(super) fn answer_waiting(&mut self, news: KeyRange, context: &mut Context<'_>) {
        let may_read = |(_, pull): &mut (Peer, Pull)| {
            pull.at.range.intersect(news).is_some()
                && context
                    .policy
                    .may_read(&self.clocks, pull.worker, pull.at.range, pull.clock)
        };
        let ready: Vec<(Peer, Pull)> = self.waiting.extract_if(.., may_read).collect();
        for (from, pull) in ready {
            self.answer(from, &pull, context);
        }
    }

    pub(super) fn reply(
        &self,
        worker: WorkerId,
        range: KeyRange,
        keys: &Keys,
        pool: &mut Pool<f32>,
    ) -> PullReply {
        let numbers = keys.len(range).saturating_mul(self.store.layout().width);
        let values = pool.filled(numbers, |values| self.store.read(range, keys, values));
        PullReply {
            at: ShardRef { range, ..self.at() },
            request: None,
            clock: self.clocks.finished(range).unwrap_or_default(),
            own: self.clocks.lowest_of(worker, range).unwrap_or_default(),
            keys: keys.clone(),
            values: Values::F32(values),
        }
    }

    pub(super) fn answer(&self, from: Peer, pull: &Pull, context: &mut Context<'_>) {
        let reply = self.reply(pull.worker, pull.at.range, &pull.keys, context.pool);
        context.send(
            from,
            Message::PullReply(PullReply {
                request: Some(pull.request),
                ..reply
            }),
        );
    }

    /// Eager SSP: the rows that each reader read last, as soon as a clock is finished.
    pub(super) fn send_fresh_rows(&mut self, context: &mut Context<'_>) {
        self.readers
            .retain(|(worker, _), _| self.clocks.contains(*worker));
        for (&(worker, range), keys) in &self.readers {
            let reply = self.reply(worker, range, keys, context.pool);
            context.send(Peer::Worker(worker), Message::PullReply(reply));
        }
    }
}
