//! Counting while a simulation runs: histograms, whose size does not grow with the number of
//! queries.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Answered, Load};
use crate::report::{Counts, Latency, Summary, histogram};
use crate::run::{Record, Recording, RequestOutcome};
use crate::target::{Answer, Failure, Provenance};

#[derive(Debug)]
pub(super) struct Tally {
    answered: Histogram<u64>,
    by_provenance: BTreeMap<Provenance, Histogram<u64>>,
    /// Of queries without an answer; they count as the deadline where they took less.
    charged: Histogram<u64>,
    errors: BTreeMap<Failure, usize>,
    counts: Counts,
    deadline_us: u64,
    records: Option<Vec<Record>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) index: usize,
    pub(super) planned_us: u64,
}

impl Tally {
    pub(super) fn new(load: &Load, deadline: Duration, keep_records: bool) -> Self {
        let planned = usize::try_from(load.queries).unwrap_or(usize::MAX);
        Self {
            answered: histogram(),
            by_provenance: BTreeMap::new(),
            charged: histogram(),
            errors: BTreeMap::new(),
            counts: Counts {
                planned,
                ..Counts::default()
            },
            deadline_us: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX),
            records: keep_records.then(Vec::new),
        }
    }

    pub(super) fn sent(&mut self, planned_us: u64) -> Sent {
        let index = self.counts.sent;
        self.counts.sent += 1;
        if let Some(records) = &mut self.records {
            records.push(Record {
                planned_us,
                sent_us: Some(planned_us),
                ..Record::default()
            });
        }
        Sent { index, planned_us }
    }

    pub(super) fn answered(&mut self, sent: Sent, latency_us: u64, provenance: Provenance) {
        self.counts.answered += 1;
        self.answered.saturating_record(latency_us);
        self.by_provenance
            .entry(provenance)
            .or_insert_with(histogram)
            .saturating_record(latency_us);
        let answer = Answer {
            provenance,
            confidence: None,
            class: None,
        };
        self.done(sent, latency_us, RequestOutcome::Answered(answer));
    }

    pub(super) fn failed(&mut self, sent: Sent, latency_us: u64, failure: Failure) {
        self.counts.failed += 1;
        *self.errors.entry(failure).or_default() += 1;
        self.charged
            .saturating_record(latency_us.max(self.deadline_us));
        self.done(sent, latency_us, RequestOutcome::Failed(failure));
    }

    fn done(&mut self, sent: Sent, latency_us: u64, outcome: RequestOutcome) {
        if let Some(record) = self
            .records
            .as_mut()
            .and_then(|records| records.get_mut(sent.index))
        {
            record.done_us = Some(sent.planned_us + latency_us);
            record.outcome = Some(outcome);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let Counts {
            planned,
            sent,
            answered,
            failed,
            ..
        } = self.counts;
        let unanswered = sent - answered - failed;
        Counts {
            unanswered,
            unsent: planned - sent,
            ..self.counts
        }
    }

    /// A latency's percentile in milliseconds, so far.
    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.answered.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(super) fn latency(&self) -> Latency {
        let mut all = self.answered.clone();
        // Equal bounds: adding cannot fail.
        let _ = all.add(&self.charged);
        Latency {
            answered: Summary::of(&self.answered),
            all: Summary::of(&all),
        }
    }

    pub(super) fn provenance(&self) -> BTreeMap<Provenance, Answered> {
        let answered = |(provenance, times): (&Provenance, &Histogram<u64>)| {
            let share = times.len() as f64 / self.counts.answered.max(1) as f64;
            let latency = Summary::of(times)?;
            Some((
                *provenance,
                Answered {
                    count: times.len(),
                    share,
                    latency,
                },
            ))
        };
        self.by_provenance.iter().filter_map(answered).collect()
    }

    pub(super) fn errors(&self) -> BTreeMap<String, usize> {
        self.errors
            .iter()
            .map(|(failure, count)| (failure.to_string(), *count))
            .collect()
    }

    pub(super) fn into_recording(self, ended: Duration) -> Option<Recording> {
        let partial = self.counts().unsent + self.counts().unanswered > 0;
        let records = self.records?;
        let last = records.last().map_or(0, |record| record.planned_us);
        Some(Recording {
            records,
            sending_ended: Duration::from_micros(last),
            ended,
            partial,
        })
    }
}
