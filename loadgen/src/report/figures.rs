//! Reducing records to figures.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Accuracy, Answers, Counts, Latency, RunReport, SCHEMA, Settings};
use crate::run::{Record, Recording, RequestOutcome};
use crate::target::Provenance;

/// Longest time told apart: an hour; longer ones count as that.
const MAX_US: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
const LEAST_LAG_LIMIT_MS: f64 = 1.0;
const LAG_SHARE_OF_MEDIAN: f64 = 0.05;

pub fn summarise(settings: Settings, recording: &Recording) -> RunReport {
    let records = &recording.records;
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let answers = || records.iter().filter(|record| record.answer().is_some());
    let failed = |record: &&Record| matches!(record.outcome, Some(RequestOutcome::Failed(_)));
    let failures = records.iter().filter(failed);
    let due = records
        .iter()
        .filter_map(|record| charged_us(record, timeout_us, recording));
    let counts = count(records.iter());
    let lag = LagReport::of(recording);
    let elapsed_s = recording.ended.as_secs_f64();
    let answered_per_s = match elapsed_s > 0.0 {
        true => counts.answered as f64 / elapsed_s,
        false => 0.0,
    };
    RunReport {
        schema: SCHEMA.to_owned(),
        valid: lag.is_valid(),
        partial: recording.partial,
        settings,
        elapsed_s,
        answered_per_s,
        counts,
        latency: Latency {
            answered: Summary::of(&latency_histogram(records)),
            all: Summary::of_micros(due),
        },
        service: Summary::of_micros(answers().filter_map(Record::service_us)),
        time_to_failure: Summary::of_micros(failures.filter_map(Record::latency_us)),
        provenance: by_provenance(records.iter(), counts.answered),
        accuracy: accuracy(records.iter()),
        errors: errors(records.iter()),
        lag,
    }
}

#[allow(
    clippy::expect_used,
    reason = "the arguments are constants in the range that the library documents"
)]
pub(crate) fn histogram() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, MAX_US, SIGNIFICANT_DIGITS);
    histogram.expect("bounds and digits are allowed")
}

/// Latency of answered requests from their planned send, in microseconds.
pub fn latency_histogram(records: &[Record]) -> Histogram<u64> {
    let answers = records.iter().filter(|record| record.answer().is_some());
    histogram_of(answers.filter_map(Record::latency_us))
}

fn histogram_of(times: impl Iterator<Item = u64>) -> Histogram<u64> {
    let mut histogram = histogram();
    times.for_each(|time| histogram.saturating_record(time));
    histogram
}

/// A distribution of times, in milliseconds, to three significant digits (`mean` and `max` too).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_5: f64,
    pub p99_9: f64,
    pub max: f64,
}

impl Summary {
    /// Names of [`Self::figures`] for people.
    pub(crate) const NAMES: [&str; 7] = ["p50", "mean", "p90", "p99", "p99.5", "p99.9", "max"];

    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let quantile = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_5: quantile(0.995),
            p99_9: quantile(0.999),
            max: histogram.max() as f64 / 1e3,
        })
    }

    /// Percentiles, mean and maximum by the names of their fields.
    pub(crate) fn figures(&self) -> [(&'static str, f64); 7] {
        [
            ("p50", self.p50),
            ("mean", self.mean),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99_5", self.p99_5),
            ("p99_9", self.p99_9),
            ("max", self.max),
        ]
    }

    fn of_micros(times: impl Iterator<Item = u64>) -> Option<Self> {
        Self::of(&histogram_of(times))
    }
}

/// Time from planned to actual sends, in milliseconds.
///
/// Latency counts from the planned time, so a late send is charged to the server. That is right for
/// lateness which the server caused, and here it causes none (sends wait for nothing); all lag is
/// the generator's own. A run whose 99th percentile of lag exceeds `max(1 ms, 5 % of the median
/// latency)` measures the generator, and is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LagReport {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
    pub limit: f64,
}

/// Largest p99 lag of a valid run whose answers have this median latency; without answers there is
/// none to compare with.
pub fn lag_limit_ms(median_latency_ms: Option<f64>) -> f64 {
    LEAST_LAG_LIMIT_MS.max(median_latency_ms.unwrap_or_default() * LAG_SHARE_OF_MEDIAN)
}

impl LagReport {
    pub fn of(recording: &Recording) -> Self {
        let lag = Summary::of_micros(recording.records.iter().filter_map(Record::lag_us));
        let answered = Summary::of(&latency_histogram(&recording.records));
        let of_lag = |figure: fn(Summary) -> f64| lag.map(figure).unwrap_or_default();
        Self {
            p50: of_lag(|lag| lag.p50),
            p99: of_lag(|lag| lag.p99),
            max: of_lag(|lag| lag.max),
            limit: lag_limit_ms(answered.map(|latency| latency.p50)),
        }
    }

    pub fn is_valid(&self) -> bool {
        self.p99 <= self.limit
    }
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
    let charged = record.latency_us().unwrap_or_default().max(timeout_us);
    (due || record.sent_us.is_some()).then_some(charged)
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
        let confidences = records
            .iter()
            .filter_map(|record| record.answer()?.confidence);
        let confidences: Vec<f64> = confidences.map(f64::from).collect();
        let mean = confidences.iter().sum::<f64>() / confidences.len() as f64;
        Some(Answers {
            count: records.len(),
            share: records.len() as f64 / answered.max(1) as f64,
            latency: Summary::of_micros(records.iter().filter_map(|record| record.latency_us()))?,
            accuracy: accuracy(records.iter().copied()),
            mean_confidence: (!confidences.is_empty()).then_some(mean),
        })
    };
    let groups = groups.into_iter();
    let groups = groups.filter_map(|(provenance, records)| Some((provenance, answers(records)?)));
    groups.collect()
}

pub(crate) fn accuracy<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Accuracy> {
    let (mut judged, mut correct) = (0, 0);
    for agrees in records.filter_map(Record::correct) {
        judged += 1;
        correct += usize::from(agrees);
    }
    let accuracy = correct as f64 / judged as f64;
    (judged > 0).then_some(Accuracy {
        judged,
        correct,
        accuracy,
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
    use serde_json::{Value, json};

    use super::*;
    use crate::target::{Answer, Failure};

    fn settings() -> Settings {
        let settings = json!({
            "target": "http://localhost:8000", "model": "digits", "seed": 1, "rate": 10.0,
            "arrivals": "poisson", "timeout_ms": 50, "encoding": "binary", "images": "images",
        });
        serde_json::from_value(settings).unwrap()
    }

    fn report() -> RunReport {
        let answered = |class| {
            Some(RequestOutcome::Answered(Answer {
                provenance: Provenance::Exact,
                confidence: Some(0.5),
                class: Some(class),
            }))
        };
        let failed = Some(RequestOutcome::Failed(Failure::Status(429)));
        let records = [
            (0, Some(4_000), answered(7)),
            (1_000, Some(3_000), failed),
            (2_000, Some(12_000), answered(8)),
            (3_000, None, None),
            (90_000, None, None),
        ];
        let records = records.map(|(planned_us, done_us, outcome)| Record {
            planned_us,
            sent_us: done_us.map(|_| planned_us + 1_000),
            done_us,
            outcome,
            row: 0,
            label: Some(7),
        });
        let recording = Recording {
            records: records.into(),
            sending_ended: Duration::from_millis(10),
            ended: Duration::from_millis(20),
            partial: true,
        };
        summarise(settings(), &recording)
    }

    #[test]
    fn lag_limit_is_a_millisecond_or_a_twentieth_of_the_median() {
        let limits = [None, Some(4.0), Some(100.0)].map(lag_limit_ms);
        assert_eq!(limits, [1.0, 1.0, 5.0]);
        let lag = |p99| LagReport {
            p99,
            limit: 1.0,
            ..LagReport::default()
        };
        assert!(lag(1.0).is_valid() && !lag(1.1).is_valid());
    }

    #[test]
    fn a_fast_failure_is_no_fast_answer() {
        let report = report();
        let (all, counts) = (report.latency.all.unwrap(), report.counts);
        assert_eq!(all.count, 4, "due were all but the one at 90 ms");
        assert!(all.p90 >= 50.0 && report.latency.answered.unwrap().max < 12.1);
        let counts = [counts.planned, counts.sent, counts.failed, counts.unsent];
        assert_eq!(counts, [5, 3, 1, 2]);
        assert_eq!(report.accuracy.unwrap().accuracy, 0.5);
    }

    #[test]
    fn nothing_at_all_makes_a_report() {
        let report = summarise(settings(), &Recording::default());
        assert!(report.latency.all.is_none() && report.provenance.is_empty());
        assert_eq!(report.answered_per_s, 0.0);
    }

    /// Other programs read these names: a change needs a new [`SCHEMA`].
    #[test]
    fn the_schema_is_what_it_says() {
        let value = serde_json::to_value(report()).unwrap();
        assert_eq!(value["schema"], "parapet-loadgen/run/1");
        for (pointer, expected) in [
            (
                "",
                "accuracy answered_per_s counts elapsed_s errors lag latency partial provenance \
                 schema service settings time_to_failure valid",
            ),
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
            let object = value.pointer(pointer).and_then(Value::as_object).unwrap();
            let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
            found.sort();
            assert_eq!(found.join(" "), expected, "{pointer}");
        }
        let read: RunReport = serde_json::from_value(value).unwrap();
        assert_eq!(read, report());
    }
}
