//! Reducing records to a report.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::summary::histogram;
use super::{Accuracy, Answers, Counts, LagReport, Latency, RunReport, SCHEMA, Settings, Summary};
use crate::run::{Record, Recording, RequestOutcome};
use crate::target::Provenance;

/// The figures of a run.
pub fn summarise(settings: Settings, recording: &Recording) -> RunReport {
    let records = &recording.records;
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let failed = |record: &&Record| matches!(record.outcome, Some(RequestOutcome::Failed(_)));
    let failures = records.iter().filter(failed).filter_map(Record::latency_us);
    let answers = || records.iter().filter(|record| record.answer().is_some());
    let counts = count(records.iter());
    let latency = Latency {
        answered: Summary::of(&latency_histogram(records)),
        all: Summary::of_micros(
            records
                .iter()
                .filter_map(|record| charged_us(record, timeout_us, recording)),
        ),
    };
    let lag = LagReport::of(recording);
    let elapsed_s = recording.ended.as_secs_f64();
    RunReport {
        schema: SCHEMA.to_owned(),
        valid: lag.is_valid(),
        partial: recording.partial,
        settings,
        elapsed_s,
        answered_per_s: if elapsed_s > 0.0 {
            counts.answered as f64 / elapsed_s
        } else {
            0.0
        },
        counts,
        latency,
        service: Summary::of_micros(answers().filter_map(Record::service_us)),
        time_to_failure: Summary::of_micros(failures),
        provenance: by_provenance(records.iter(), counts.answered),
        accuracy: accuracy(records.iter()),
        errors: errors(records.iter()),
        lag,
    }
}

/// Latency of answered requests from their planned send, in microseconds.
pub fn latency_histogram(records: &[Record]) -> Histogram<u64> {
    let mut latency = histogram();
    let answers = records.iter().filter(|record| record.answer().is_some());
    answers
        .filter_map(Record::latency_us)
        .for_each(|time| latency.saturating_record(time));
    latency
}

pub(crate) fn count<'a>(records: impl Iterator<Item = &'a Record>) -> Counts {
    let mut counts = Counts::default();
    for record in records {
        counts.planned += 1;
        let sent = record.sent_us.is_some();
        counts.sent += usize::from(sent);
        match record.outcome {
            Some(RequestOutcome::Answered(_)) => counts.answered += 1,
            Some(RequestOutcome::Failed(_)) => counts.failed += 1,
            Some(RequestOutcome::TimedOut) => counts.unanswered += 1,
            None if sent => counts.unanswered += 1,
            None => counts.unsent += 1,
        }
    }
    counts
}

/// Returns the latency with which a request counts in `latency.all`; `None` if it was not due
/// before sending ended.
pub(crate) fn charged_us(record: &Record, timeout_us: u64, recording: &Recording) -> Option<u64> {
    if record.answer().is_some() {
        return record.latency_us();
    }
    let due = Duration::from_micros(record.planned_us) <= recording.sending_ended;
    (due || record.sent_us.is_some())
        .then(|| record.latency_us().unwrap_or_default().max(timeout_us))
}

pub(crate) fn by_provenance<'a>(
    records: impl Iterator<Item = &'a Record>,
    answered: usize,
) -> BTreeMap<Provenance, Answers> {
    let mut groups: BTreeMap<Provenance, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let Some(answer) = record.answer() {
            groups.entry(answer.provenance).or_default().push(record);
        }
    }
    let answers = |records: Vec<&Record>| {
        let confidences: Vec<f64> = records
            .iter()
            .filter_map(|record| record.answer()?.confidence)
            .map(f64::from)
            .collect();
        Some(Answers {
            count: records.len(),
            share: records.len() as f64 / answered.max(1) as f64,
            latency: Summary::of_micros(records.iter().filter_map(|record| record.latency_us()))?,
            accuracy: accuracy(records.iter().copied()),
            mean_confidence: (!confidences.is_empty())
                .then(|| confidences.iter().sum::<f64>() / confidences.len() as f64),
        })
    };
    groups
        .into_iter()
        .filter_map(|(provenance, records)| Some((provenance, answers(records)?)))
        .collect()
}

pub(crate) fn accuracy<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Accuracy> {
    let (mut judged, mut correct) = (0, 0);
    for agrees in records.filter_map(Record::correct) {
        judged += 1;
        correct += usize::from(agrees);
    }
    (judged > 0).then(|| Accuracy {
        judged,
        correct,
        accuracy: correct as f64 / judged as f64,
    })
}

pub(crate) fn errors<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for record in records {
        if let Some(RequestOutcome::Failed(failure)) = record.outcome {
            *errors.entry(failure.to_string()).or_default() += 1;
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::WireEncoding;
    use crate::schedule::Arrivals;
    use crate::target::{Answer, Failure};

    fn settings() -> Settings {
        Settings {
            target: "http://localhost:8000".to_owned(),
            model: "digits".to_owned(),
            seed: 1,
            arrivals: Some(Arrivals::Poisson),
            trace: None,
            rate: 10.0,
            timeout_ms: 50,
            encoding: WireEncoding::Binary,
            allow_approximate: None,
            deadline_ms: None,
            images: "images".to_owned(),
            labels: None,
        }
    }

    fn record(planned_us: u64, done_us: Option<u64>, outcome: Option<RequestOutcome>) -> Record {
        let sent_us = done_us.map(|_| planned_us + 1_000);
        Record {
            planned_us,
            sent_us,
            done_us,
            outcome,
            row: 0,
            label: Some(7),
        }
    }

    fn answered(class: usize) -> Option<RequestOutcome> {
        let provenance = Provenance::Exact;
        Some(RequestOutcome::Answered(Answer {
            provenance,
            confidence: Some(0.5),
            class: Some(class),
        }))
    }

    fn report() -> RunReport {
        let records = vec![
            record(0, Some(4_000), answered(7)),
            record(
                1_000,
                Some(3_000),
                Some(RequestOutcome::Failed(Failure::Status(429))),
            ),
            record(2_000, Some(12_000), answered(8)),
            record(3_000, None, None),
            record(90_000, None, None),
        ];
        let (sending_ended, ended) = (Duration::from_millis(10), Duration::from_millis(20));
        summarise(
            settings(),
            &Recording {
                records,
                sending_ended,
                ended,
                partial: true,
            },
        )
    }

    #[test]
    fn a_fast_failure_is_no_fast_answer() {
        let RunReport {
            latency,
            counts,
            accuracy,
            ..
        } = report();
        let all = latency.all.unwrap();
        assert_eq!(all.count, 4, "due were all but the one at 90 ms");
        assert!(all.p90 >= 50.0 && latency.answered.unwrap().max < 12.1);
        assert_eq!(
            (counts.planned, counts.sent, counts.failed, counts.unsent),
            (5, 3, 1, 2)
        );
        assert_eq!(accuracy.unwrap().accuracy, 0.5);
    }

    #[test]
    fn nothing_at_all_makes_a_report() {
        let time = Duration::ZERO;
        let nothing = Recording {
            records: vec![],
            sending_ended: time,
            ended: time,
            partial: true,
        };
        let report = summarise(settings(), &nothing);
        assert!(report.latency.all.is_none() && report.provenance.is_empty());
        assert_eq!(report.answered_per_s, 0.0);
    }

    /// Other programs read these names: a change needs a new [`SCHEMA`].
    #[test]
    fn the_schema_is_what_it_says() {
        let value = serde_json::to_value(report()).unwrap();
        let keys = |pointer: &str| -> Vec<String> {
            value
                .pointer(pointer)
                .unwrap()
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect()
        };
        assert_eq!(value["schema"], "parapet-loadgen/run/1");
        let mut top = keys("");
        top.sort();
        let expected = "accuracy answered_per_s counts elapsed_s errors lag latency partial \
            provenance schema service settings time_to_failure valid";
        assert_eq!(top.join(" "), expected);
        for (pointer, expected) in [
            ("/counts", "answered failed planned sent unanswered unsent"),
            ("/latency", "all answered"),
            (
                "/latency/answered",
                "count max mean p50 p90 p99 p99_5 p99_9",
            ),
            (
                "/provenance/exact",
                "accuracy count latency mean_confidence share",
            ),
            ("/accuracy", "accuracy correct judged"),
            ("/lag", "limit max p50 p99"),
            ("/errors", "http-429"),
        ] {
            let mut found = keys(pointer);
            found.sort();
            assert_eq!(found.join(" "), expected, "{pointer}");
        }
        assert_eq!(
            serde_json::from_value::<RunReport>(value).unwrap(),
            report()
        );
    }
}
