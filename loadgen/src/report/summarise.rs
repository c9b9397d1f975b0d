//! Reducing records to a report.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::summary::histogram;
use super::{Accuracy, Answers, Counts, LagReport, Latency, RunReport, SCHEMA, Settings, Summary};
use crate::run::{Outcome, Record, Recording};
use crate::target::Provenance;

/// The figures of a run.
pub fn summarise(settings: Settings, recording: &Recording) -> RunReport {
    let records = &recording.records;
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let failed = |record: &&Record| matches!(record.outcome, Some(Outcome::Failed(_)));
    let failures = records.iter().filter(failed).filter_map(Record::latency_us);
    let answers = || records.iter().filter(|record| record.answer().is_some());
    let counts = count(records);
    let latency = Latency {
        answered: Summary::of(&latency_histogram(records)),
        all: Summary::of_micros(
            records.iter().filter_map(|record| charged_us(record, timeout_us, recording)),
        ),
    };
    let lag = Summary::of_micros(records.iter().filter_map(Record::lag_us));
    let lag = LagReport::new(lag, latency.answered);
    let elapsed_s = recording.ended.as_secs_f64();
    RunReport {
        schema: SCHEMA.to_owned(),
        valid: lag.is_valid(),
        partial: recording.partial,
        settings,
        elapsed_s,
        answered_per_s: if elapsed_s > 0.0 { counts.answered as f64 / elapsed_s } else { 0.0 },
        counts,
        latency,
        service: Summary::of_micros(answers().filter_map(Record::service_us)),
        time_to_failure: Summary::of_micros(failures),
        provenance: by_provenance(records, counts.answered),
        accuracy: accuracy(records.iter()),
        errors: errors(records),
        lag,
    }
}

/// Latency of answered requests from their planned send, in microseconds.
pub fn latency_histogram(records: &[Record]) -> Histogram<u64> {
    let mut latency = histogram();
    let answers = records.iter().filter(|record| record.answer().is_some());
    answers.filter_map(Record::latency_us).for_each(|time| latency.saturating_record(time));
    latency
}

fn count(records: &[Record]) -> Counts {
    let mut counts = Counts { planned: records.len(), ..Counts::default() };
    for record in records {
        let sent = record.sent_us.is_some();
        counts.sent += usize::from(sent);
        match record.outcome {
            Some(Outcome::Answered(_)) => counts.answered += 1,
            Some(Outcome::Failed(_)) => counts.failed += 1,
            Some(Outcome::TimedOut) => counts.unanswered += 1,
            None if sent => counts.unanswered += 1,
            None => counts.unsent += 1,
        }
    }
    counts
}

/// What a request counts as in `latency.all`; `None` if it was not due before sending ended.
fn charged_us(record: &Record, timeout_us: u64, recording: &Recording) -> Option<u64> {
    if record.answer().is_some() {
        return record.latency_us();
    }
    let due = Duration::from_micros(record.planned_us) <= recording.sending_ended;
    (due || record.sent_us.is_some()).then(|| record.latency_us().unwrap_or_default().max(timeout_us))
}

fn by_provenance(records: &[Record], answered: usize) -> BTreeMap<Provenance, Answers> {
    let mut groups: BTreeMap<Provenance, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let Some(answer) = record.answer() {
            groups.entry(answer.provenance).or_default().push(record);
        }
    }
    let answers = |records: Vec<&Record>| {
        let confidences: Vec<f64> =
            records.iter().filter_map(|record| record.answer()?.confidence).map(f64::from).collect();
        Some(Answers {
            count: records.len(),
            share: records.len() as f64 / answered.max(1) as f64,
            latency: Summary::of_micros(records.iter().filter_map(|record| record.latency_us()))?,
            accuracy: accuracy(records.iter().copied()),
            mean_confidence: (!confidences.is_empty())
                .then(|| confidences.iter().sum::<f64>() / confidences.len() as f64),
        })
    };
    groups.into_iter().filter_map(|(provenance, records)| Some((provenance, answers(records)?))).collect()
}

fn accuracy<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Accuracy> {
    let (mut judged, mut correct) = (0, 0);
    for agrees in records.filter_map(Record::correct) {
        judged += 1;
        correct += usize::from(agrees);
    }
    (judged > 0).then(|| Accuracy { judged, correct, accuracy: correct as f64 / judged as f64 })
}

fn errors(records: &[Record]) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for record in records {
        if let Some(Outcome::Failed(failure)) = record.outcome {
            *errors.entry(failure.to_string()).or_default() += 1;
        }
    }
    errors
}
