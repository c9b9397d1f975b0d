//! The records while they are made.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::record::micros;
use super::{Record, Recording, RequestOutcome};
use crate::payload::Body;
use crate::report::{Summary, histogram};
use crate::schedule::Schedule;
use crate::target::Provenance;

/// Collects what happens to requests; can be looked at meanwhile. A lock suffices: it is held for
/// some 50 ns, twice a request.
#[derive(Debug)]
pub struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    records: Vec<Record>,
    latency: Histogram<u64>,
    snapshot: Snapshot,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Snapshot {
    pub planned: usize,
    pub sent: usize,
    pub answered: usize,
    pub without_answer: usize,
    pub reconstructed: usize,
    pub lag_max_us: u64,
    /// Of answered requests.
    pub latency: Option<Summary>,
}

impl Progress {
    pub fn new(schedule: &Schedule) -> Self {
        let record = |&planned_us: &u64| Record {
            planned_us,
            ..Record::default()
        };
        let records: Vec<Record> = schedule.planned_us.iter().map(record).collect();
        let snapshot = Snapshot {
            planned: records.len(),
            ..Snapshot::default()
        };
        Self(Mutex::new(State {
            records,
            latency: histogram(),
            snapshot,
        }))
    }

    pub fn snapshot(&self) -> Snapshot {
        // Copied, so that the lock is not held while percentiles are looked for.
        let (latency, snapshot) = {
            let state = self.0.lock();
            (state.latency.clone(), state.snapshot)
        };
        Snapshot {
            latency: Summary::of(&latency),
            ..snapshot
        }
    }

    pub(super) fn sent(&self, index: usize, body: &Body, at: Duration) {
        let state = &mut *self.0.lock();
        state.snapshot.sent += 1;
        if let Some(record) = state.records.get_mut(index) {
            record.sent_us = Some(micros(at));
            let lag_us = record.lag_us().unwrap_or_default();
            state.snapshot.lag_max_us = state.snapshot.lag_max_us.max(lag_us);
            (record.row, record.label) = (body.row, body.label);
        }
    }

    pub(super) fn done(&self, index: usize, at: Duration, outcome: RequestOutcome) {
        let state = &mut *self.0.lock();
        let Some(record) = state.records.get_mut(index) else {
            return;
        };
        (record.done_us, record.outcome) = (Some(micros(at)), Some(outcome));
        if let RequestOutcome::Answered(answer) = outcome {
            state.snapshot.answered += 1;
            state.snapshot.reconstructed +=
                usize::from(answer.provenance == Provenance::Reconstructed);
            state
                .latency
                .saturating_record(record.latency_us().unwrap_or_default());
        } else {
            state.snapshot.without_answer += 1;
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
