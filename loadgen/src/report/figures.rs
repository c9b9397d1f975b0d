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
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let mut tally = Tally::default();
    for record in &recording.records {
        tally.add(record, charged_us(record, timeout_us, recording));
    }
    let lag = LagReport::of(recording);
    let elapsed_s = recording.ended.as_secs_f64();
    let answered_per_s =
        if elapsed_s > 0.0 { tally.counts.answered as f64 / elapsed_s } else { 0.0 };
    RunReport {
        schema: SCHEMA.to_owned(),
        valid: lag.is_valid(),
        partial: recording.partial,
        settings,
        elapsed_s,
        answered_per_s,
        counts: tally.counts,
        latency: tally.latency(),
        service: tally.service.summary(),
        time_to_failure: tally.failure.summary(),
        provenance: tally.provenance(),
        accuracy: tally.accuracy(),
        errors: tally.errors,
        lag,
    }
}

/// Times in microseconds, in a size that does not grow with their number.
struct Times(Histogram<u64>);

impl Default for Times {
    #[allow(
        clippy::expect_used,
        reason = "the arguments are constants in the range that the library documents"
    )]
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_US, SIGNIFICANT_DIGITS);
        Self(histogram.expect("bounds and digits are allowed"))
    }
}

impl Times {
    fn add(&mut self, time_us: Option<u64>) {
        if let Some(time_us) = time_us {
            self.0.saturating_record(time_us);
        }
    }

    fn summary(&self) -> Option<Summary> {
        let histogram = &self.0;
        let quantile = |(_, quantile)| histogram.value_at_quantile(quantile) as f64 / 1e3;
        let percentiles = Summary::PERCENTILES.map(quantile);
        let (mean, max) = (histogram.mean() / 1e3, histogram.max() as f64 / 1e3);
        (!histogram.is_empty()).then(|| Summary::new(histogram.len(), mean, percentiles, max))
    }
}

/// Figures of requests, which are added one by one.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) errors: BTreeMap<String, usize>,
    answered: Times,
    all: Times,
    service: Times,
    failure: Times,
    kinds: BTreeMap<Provenance, Kind>,
}

#[derive(Default)]
struct Kind {
    latency: Times,
    judged: usize,
    correct: usize,
    confidences: Vec<f64>,
}

impl Tally {
    /// Adds a request, and the latency with which it counts in `latency.all`.
    pub(crate) fn add(&mut self, record: &Record, charged_us: Option<u64>) {
        let (counts, is_sent) = (&mut self.counts, record.sent_us.is_some());
        counts.planned += 1;
        counts.sent += usize::from(is_sent);
        self.all.add(charged_us);
        match record.outcome {
            Some(RequestOutcome::Answered(answer)) => {
                counts.answered += 1;
                self.answered.add(record.latency_us());
                self.service.add(record.service_us());
                let kind = self.kinds.entry(answer.provenance).or_default();
                kind.latency.add(record.latency_us());
                kind.judged += usize::from(record.correct().is_some());
                kind.correct += usize::from(record.correct() == Some(true));
                kind.confidences.extend(answer.confidence.map(f64::from));
            }
            Some(RequestOutcome::Failed(failure)) => {
                counts.failed += 1;
                self.failure.add(record.latency_us());
                *self.errors.entry(failure.to_string()).or_default() += 1;
            }
            Some(RequestOutcome::TimedOut) => counts.unanswered += 1,
            None if is_sent => counts.unanswered += 1,
            None => counts.unsent += 1,
        }
    }

    pub(crate) fn latency(&self) -> Latency {
        Latency { answered: self.answered.summary(), all: self.all.summary() }
    }

    pub(crate) fn provenance(&self) -> BTreeMap<Provenance, Answers> {
        let answers = |(provenance, kind): (&Provenance, &Kind)| {
            let (latency, confidences) = (kind.latency.summary()?, &kind.confidences);
            let mean = confidences.iter().sum::<f64>() / confidences.len() as f64;
            let answers = Answers {
                count: latency.count as usize,
                share: latency.count as f64 / self.counts.answered.max(1) as f64,
                latency,
                accuracy: Accuracy::of(kind.judged, kind.correct),
                mean_confidence: (!confidences.is_empty()).then_some(mean),
            };
            Some((*provenance, answers))
        };
        self.kinds.iter().filter_map(answers).collect()
    }

    pub(crate) fn accuracy(&self) -> Option<Accuracy> {
        let sum = |of: fn(&Kind) -> usize| self.kinds.values().map(of).sum();
        Accuracy::of(sum(|kind| kind.judged), sum(|kind| kind.correct))
    }
}

impl Accuracy {
    fn of(judged: usize, correct: usize) -> Option<Self> {
        (judged > 0).then_some(Self { judged, correct, accuracy: correct as f64 / judged as f64 })
    }
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
    pub(crate) const NAMES: [&str; 7] = ["p50", "mean", "p90", "p99", "p99.5", "p99.9", "max"];

    /// The percentiles by the names of their fields.
    pub(crate) const PERCENTILES: [(&str, f64); 5] =
        [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_5", 0.995), ("p99_9", 0.999)];

    pub(crate) fn new(count: u64, mean: f64, percentiles: [f64; 5], max: f64) -> Self {
        let [p50, p90, p99, p99_5, p99_9] = percentiles;
        Self { count, mean, p50, p90, p99, p99_5, p99_9, max }
    }

    /// Of the answers among `records`, from their planned send.
    pub fn of_answers(records: &[Record]) -> Option<Self> {
        let answers = records.iter().filter(|record| record.answer().is_some());
        Self::of_micros(answers.map(Record::latency_us))
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

    fn of_micros(times_us: impl Iterator<Item = Option<u64>>) -> Option<Self> {
        let mut times = Times::default();
        times_us.for_each(|time_us| times.add(time_us));
        times.summary()
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

/// Largest p99 lag of a valid run whose answers, if there are any, have this median latency.
pub fn lag_limit_ms(median_latency_ms: Option<f64>) -> f64 {
    LEAST_LAG_LIMIT_MS.max(median_latency_ms.unwrap_or_default() * LAG_SHARE_OF_MEDIAN)
}

impl LagReport {
    pub fn of(recording: &Recording) -> Self {
        let lag = Summary::of_micros(recording.records.iter().map(Record::lag_us));
        let of_lag = |figure: fn(Summary) -> f64| lag.map(figure).unwrap_or_default();
        Self {
            p50: of_lag(|lag| lag.p50),
            p99: of_lag(|lag| lag.p99),
            max: of_lag(|lag| lag.max),
            limit: lag_limit_ms(Summary::of_answers(&recording.records).map(|latency| latency.p50)),
        }
    }

    pub fn is_valid(&self) -> bool {
        self.p99 <= self.limit
    }
}

/// Latency with which a request counts in `latency.all`; `None` if not due before sending ended.
pub(crate) fn charged_us(record: &Record, timeout_us: u64, recording: &Recording) -> Option<u64> {
    if record.answer().is_some() {
        return record.latency_us();
    }
    let due = Duration::from_micros(record.planned_us) <= recording.sending_ended;
    let charged = record.latency_us().unwrap_or_default().max(timeout_us);
    (due || record.sent_us.is_some()).then_some(charged)
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
        let lag = |p99| LagReport { p99, limit: 1.0, ..LagReport::default() };
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
            ("/latency/answered", "count max mean p50 p90 p99 p99_5 p99_9"),
            ("/provenance/exact", "accuracy count latency mean_confidence share"),
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
