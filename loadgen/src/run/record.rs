//! Outcome of each request, and the records while they are made.

use std::time::Duration;

use parking_lot::Mutex;

use crate::payload::Body;
use crate::schedule::Schedule;
use crate::target::{Answer, Failure};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RequestOutcome {
    Answered(Answer),
    Failed(Failure),
    TimedOut,
}

/// One request. Times are microseconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Record {
    pub planned_us: u64,
    /// `None` if the run ended first.
    pub sent_us: Option<u64>,
    /// `None` if the run ended first.
    pub done_us: Option<u64>,
    pub outcome: Option<RequestOutcome>,
    pub row: usize,
    pub label: Option<usize>,
}

impl Record {
    pub(crate) fn shifted(&self, shift: impl Fn(u64) -> u64) -> Self {
        Self {
            planned_us: shift(self.planned_us),
            sent_us: self.sent_us.map(&shift),
            done_us: self.done_us.map(&shift),
            ..*self
        }
    }

    /// Time from the planned send, which is the latency that an open-loop client sees.
    pub fn latency_us(&self) -> Option<u64> {
        Some(self.done_us?.saturating_sub(self.planned_us))
    }

    pub fn service_us(&self) -> Option<u64> {
        Some(self.done_us?.saturating_sub(self.sent_us?))
    }

    pub fn lag_us(&self) -> Option<u64> {
        Some(self.sent_us?.saturating_sub(self.planned_us))
    }

    pub fn answer(&self) -> Option<Answer> {
        match self.outcome {
            Some(RequestOutcome::Answered(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Returns true if the answer names the row's class; `None` where one of them is unknown.
    pub fn correct(&self) -> Option<bool> {
        Some(self.answer()?.class? == self.label?)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub records: Vec<Record>,
    /// When the last request had been sent, or sending was ended.
    pub sending_ended: Duration,
    /// When the last answer had come, or waiting was ended.
    pub ended: Duration,
    /// True if the run was ended before all requests were sent and done.
    pub partial: bool,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

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
        let record = |&planned_us: &u64| Record { planned_us, ..Record::default() };
        let records: Vec<Record> = schedule.planned_us.iter().map(record).collect();
        Self(Mutex::new(State { records, sent: 0, answered: 0, without_answer: 0 }))
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
        let Some(record) = state.records.get_mut(index) else { return };
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
        Recording { records, sending_ended, ended, partial }
    }
}
