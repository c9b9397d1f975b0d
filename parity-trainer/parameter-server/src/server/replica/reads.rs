//! Pulls, which the tail answers.

use std::time::Duration;

use super::{Replica, ensure};
use crate::server::Context;
use crate::{
    Clock, KeyRange, Keys, Message, Peer, Pool, Pull, PullReply, Refusal, RequestId, Values,
    WorkerId,
};

impl Replica {
    fn may_answer(&self, pull: &Pull) -> bool {
        self.consistency.may_read(&self.clocks, pull.worker, pull.at.range, pull.clock)
    }

    /// Answers a pull now, or once it may be.
    pub(in crate::server) fn pull(
        &mut self,
        from: Peer,
        pull: Pull,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        ensure(self.route.tail() == Some(context.node), Refusal::NotTail)?;
        ensure(pull.keys.are_valid(pull.at.range), Refusal::BadKeys)?;
        // A tail that was replaced before it heard of the workers would wait for none.
        let knows = pull.clock == Clock::default() || self.clocks.contains(pull.worker);
        ensure(knows, Refusal::UnknownWorker)?;
        let (reader, most) = ((pull.worker, pull.at.range), context.config.max_waiting);
        let has_place = self.readers.contains_key(&reader) || self.readers.len() < most;
        if self.consistency.sends_fresh_rows() && has_place {
            self.readers.insert(reader, pull.keys.clone());
        }
        if self.may_answer(&pull) {
            self.answer(from, &pull, context.now, context);
            return Ok(());
        }
        let is_resend = |(peer, other, _): &(Peer, Pull, Duration)| {
            (*peer, other.request, other.at) == (from, pull.request, pull.at)
        };
        if !self.waiting.iter().any(is_resend) {
            ensure(self.waiting.len() < most, Refusal::Busy)?;
            self.waiting.push((from, pull, context.now));
        }
        Ok(())
    }

    /// Answers pulls that may be answered by now, where there is `news`.
    pub(super) fn answer_waiting(&mut self, news: KeyRange, context: &mut Context) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let is_ready = |(_, pull, _): &mut (Peer, Pull, Duration)| {
            pull.at.range.intersect(news).is_some() && self.may_answer(pull)
        };
        for (from, pull, received) in waiting.extract_if(.., is_ready) {
            self.answer(from, &pull, received, context);
        }
        self.waiting = waiting;
    }

    fn reply(
        &self,
        worker: WorkerId,
        request: Option<RequestId>,
        range: KeyRange,
        keys: &Keys,
        values: Values,
    ) -> PullReply {
        PullReply {
            at: self.at().part(range),
            request,
            clock: self.clocks.finished(range).unwrap_or_default(),
            own: self.clocks.lowest_of(worker, range).unwrap_or_default(),
            held_us: 0,
            keys: keys.clone(),
            values,
        }
    }

    fn rows(&self, range: KeyRange, keys: &Keys, pool: &mut Pool<f32>) -> Values {
        let numbers = keys.len(range).saturating_mul(self.store.layout().width);
        Values::F32(pool.filled(numbers, |values| self.store.read(range, keys, values)))
    }

    /// The update that makes the rows of a pull of those that the worker holds, as factors.
    fn update_since(&self, pull: &Pull) -> Option<Values> {
        let range = pull.at.range;
        let update = self.recent.iter().find(|update| update.range.covers(range))?;
        let clock = update.clock();
        let is_next = pull.held > Clock(0) && pull.held.next() == clock;
        let is_last = self.clocks.finished(range) == Some(clock);
        let wanted = (&pull.keys, &update.keys) == (&Keys::All, &Keys::All);
        (is_next && is_last && wanted).then(|| update.part(range, self.store.layout().width).values)
    }

    fn answer(&self, from: Peer, pull: &Pull, received: Duration, context: &mut Context) {
        let (range, request) = (pull.at.range, Some(pull.request));
        let rows = || self.rows(range, &pull.keys, &mut context.pool);
        let values = self.update_since(pull).unwrap_or_else(rows);
        let mut reply = self.reply(pull.worker, request, range, &pull.keys, values);
        reply.held_us = context.held_us(received);
        context.send(from, Message::PullReply(reply));
    }

    /// Eager SSP: the rows that each reader read last, as soon as a clock is finished.
    pub(super) fn send_fresh_rows(&mut self, context: &mut Context) {
        let (clocks, readers) = (&self.clocks, &mut self.readers);
        readers.retain(|(worker, _), _| clocks.contains(*worker));
        for (&(worker, range), keys) in &self.readers {
            let rows = self.rows(range, keys, &mut context.pool);
            let reply = self.reply(worker, None, range, keys, rows);
            context.send(Peer::Worker(worker), Message::PullReply(reply));
        }
    }
}
