//! The records while they are made.

use std::time::Duration;

use parking_lot::Mutex;

use super::record::micros;
use super::{Record, Recording, RequestOutcome};
use crate::payload::Body;
use crate::schedule::Schedule;

/// Collects what happens to requests; can be looked at meanwhile. A lock suffices: it is held for
/// some 50 ns, twice a request.
#[derive(Debug)]
pub struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    records: Vec<Record>,
    sent: usize,
    answered: usize,
    without_answer: usize,
}

impl Progress {
    pub fn new(schedule: &Schedule) -> Self {
        let record = |&planned_us: &u64| Record {
            planned_us,
            ..Record::default()
        };
        let records: Vec<Record> = schedule.planned_us.iter().map(record).collect();
        Self(Mutex::new(State {
            records,
            sent: 0,
            answered: 0,
            without_answer: 0,
        }))
    }

    /// A line with what there is so far.
    pub fn status(&self) -> String {
        let state = self.0.lock();
        format!(
            "sent {}/{}  answered {}  failed or timed out {}",
            state.sent,
            state.records.len(),
            state.answered,
            state.without_answer
        )
    }

    pub(super) fn sent(&self, index: usize, body: &Body, at: Duration) {
        let state = &mut *self.0.lock();
        state.sent += 1;
        if let Some(record) = state.records.get_mut(index) {
            record.sent_us = Some(micros(at));
            (record.row, record.label) = (body.row, body.label);
        }
    }

    pub(super) fn done(&self, index: usize, at: Duration, outcome: RequestOutcome) {
        let state = &mut *self.0.lock();
        let Some(record) = state.records.get_mut(index) else {
            return;
        };
        (record.done_us, record.outcome) = (Some(micros(at)), Some(outcome));
        match outcome {
            RequestOutcome::Answered(_) => state.answered += 1,
            _ => state.without_answer += 1,
        }
    }

    /// The records; requests that end from here on are not in them.
    pub(super) fn finish(&self, sending_ended: Duration, ended: Duration) -> Recording {
        let records = std::mem::take(&mut self.0.lock().records);
        let partial = records.iter().any(|record| record.outcome.is_none());
        Recording {
            records,
            sending_ended,
            ended,
            partial,
        }
    }
}
