//! Outcome of each request.

use std::time::Duration;

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

    /// Returns the lag with which the generator sent it.
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

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
