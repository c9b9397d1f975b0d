//! Changes between two reports.

use std::fmt::{self, Display, Formatter};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Accuracy, Counts, RunReport, SCHEMA};
use crate::compare::{self, CompareReport, Estimate, Interval, StrategyReport};

/// A normal distribution has 95 % within so many standard deviations.
const DEVIATIONS: f64 = 1.959_964;

/// A report of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyReport {
    /// Report of a run.
    Run(Box<RunReport>),
    /// Report of a comparison.
    Compare(Box<CompareReport>),
}

/// Files that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// No report at all.
    #[error("{file}: is no report ({cause}); give a file that --json wrote")]
    Form {
        /// Path of the report.
        file: String,
        /// Cause, in a line.
        cause: String,
    },
    /// A report of a kind or version that is not known here.
    #[error(
        "{file}: has the schema {schema}, which is not known; give a report of {SCHEMA} or {}",
        compare::SCHEMA
    )]
    Schema {
        /// Path of the report.
        file: String,
        /// Schema that the report names.
        schema: String,
    },
    /// Reports of two kinds.
    #[error("{file}: is a report of another kind than the first; give two of the same schema")]
    Kinds {
        /// Path of the second report.
        file: String,
    },
}

/// Reads a report from the text of `file`.
///
/// # Errors
/// When it is none.
pub fn read_report(file: &str, text: &str) -> Result<AnyReport, DiffError> {
    let form = |cause: String| DiffError::Form {
        file: file.to_owned(),
        cause,
    };
    let value: Value = serde_json::from_str(text).map_err(|cause| form(cause.to_string()))?;
    let schema = value
        .get("schema")
        .and_then(Value::as_str)
        .ok_or_else(|| form("no schema in it".to_owned()))?;
    fn typed<T: DeserializeOwned>(value: &Value) -> Result<Box<T>, String> {
        T::deserialize(value)
            .map(Box::new)
            .map_err(|cause| cause.to_string())
    }
    match schema {
        SCHEMA => typed(&value).map(AnyReport::Run).map_err(form),
        compare::SCHEMA => typed(&value).map(AnyReport::Compare).map_err(form),
        other => Err(DiffError::Schema {
            file: file.to_owned(),
            schema: other.to_owned(),
        }),
    }
}

/// Changes from one report to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Notes to read first: different settings, doubtful reports.
    pub notes: Vec<String>,
    /// The figures, by strategy; a run has one part without a name.
    pub parts: Vec<(String, Vec<Change>)>,
}

/// A figure in two reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its name and unit.
    pub figure: &'static str,
    /// In the first report.
    pub from: f64,
    /// In the second.
    pub to: f64,
    /// True if the 95 % intervals of the two overlap, so that chance may be all there is to the
    /// change; `None` where an interval is missing. (Careful: figures whose intervals just overlap
    /// may differ all the same.)
    pub within: Option<bool>,
}

/// Returns the changes from `from` to `to`, the latter from the file named.
///
/// # Errors
/// When they are of two kinds.
pub fn diff(from: &AnyReport, to: &AnyReport, file: &str) -> Result<Diff, DiffError> {
    match (from, to) {
        (AnyReport::Run(from), AnyReport::Run(to)) => Ok(runs(from, to)),
        (AnyReport::Compare(from), AnyReport::Compare(to)) => Ok(comparisons(from, to)),
        _ => Err(DiffError::Kinds {
            file: file.to_owned(),
        }),
    }
}

fn runs(from: &RunReport, to: &RunReport) -> Diff {
    let mut changes = Changes::default();
    let latency = |report: &RunReport| report.latency.all;
    let (one, other) = (latency(from), latency(to));
    if let (Some(one), Some(other)) = (one, other) {
        for (name, one, other) in [
            ("p50, ms", one.p50, other.p50),
            ("mean, ms", one.mean, other.mean),
            ("p90, ms", one.p90, other.p90),
            ("p99, ms", one.p99, other.p99),
            ("p99.5, ms", one.p99_5, other.p99_5),
            ("p99.9, ms", one.p99_9, other.p99_9),
            ("max, ms", one.max, other.max),
        ] {
            changes.push(name, plain(one), plain(other));
        }
    }
    changes.push(
        "answers/s",
        plain(from.answered_per_s),
        plain(to.answered_per_s),
    );
    changes.push("no answer, %", no_answer(from.counts), no_answer(to.counts));
    changes.optional(
        "accuracy, %",
        from.accuracy.map(accuracy),
        to.accuracy.map(accuracy),
    );
    let mut notes = setting_notes(&from.settings, &to.settings);
    notes.extend(
        state("first", from.valid, from.partial).chain(state("second", to.valid, to.partial)),
    );
    Diff {
        notes,
        parts: vec![(String::new(), changes.0)],
    }
}

fn comparisons(from: &CompareReport, to: &CompareReport) -> Diff {
    let mut notes = setting_notes(&from.settings, &to.settings);
    notes.extend(
        state("first", from.valid, from.partial).chain(state("second", to.valid, to.partial)),
    );
    if from.baseline != to.baseline {
        notes.push(format!(
            "baseline differs: {} and {}; ratios say different things",
            from.baseline, to.baseline
        ));
    }
    let missing = |one: &CompareReport, other: &CompareReport, place: &str| -> Vec<String> {
        let alone = one
            .strategies
            .iter()
            .filter(|strategy| other.strategy(&strategy.name).is_none());
        alone
            .map(|strategy| format!("{} is in the {place} report alone", strategy.name))
            .collect()
    };
    notes.extend(
        missing(from, to, "first")
            .into_iter()
            .chain(missing(to, from, "second")),
    );
    let part =
        |one: &StrategyReport| Some((one.name.clone(), strategies(one, to.strategy(&one.name)?)));
    Diff {
        notes,
        parts: from.strategies.iter().filter_map(part).collect(),
    }
}

fn strategies(from: &StrategyReport, to: &StrategyReport) -> Vec<Change> {
    let mut changes = Changes::default();
    let percentile = |report: &StrategyReport, name: &str, value: f64| Estimate {
        value,
        interval: report
            .confidence
            .get(name)
            .and_then(|confidence| confidence.bootstrap),
    };
    let (one, other) = (from.latency, to.latency);
    changes.push("mean, ms", plain(one.mean), plain(other.mean));
    for (figure, name, one, other) in [
        ("p50, ms", "p50", one.p50, other.p50),
        ("p90, ms", "p90", one.p90, other.p90),
        ("p99, ms", "p99", one.p99, other.p99),
        ("p99.5, ms", "p99_5", one.p99_5, other.p99_5),
        ("p99.9, ms", "p99_9", one.p99_9, other.p99_9),
    ] {
        changes.push(
            figure,
            percentile(from, name, one),
            percentile(to, name, other),
        );
    }
    changes.push("p99.9 - p50, ms", from.gap_ms, to.gap_ms);
    changes.optional("times narrower", from.gap_ratio, to.gap_ratio);
    changes.optional("p50 ratio", from.p50_ratio, to.p50_ratio);
    changes.push("no answer, %", no_answer(from.counts), no_answer(to.counts));
    changes.optional(
        "accuracy, %",
        from.accuracy.map(accuracy),
        to.accuracy.map(accuracy),
    );
    let work = |report: &StrategyReport| report.cost.extra_work.map(|share| plain(100.0 * share));
    changes.optional("extra work, %", work(from), work(to));
    changes.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, figure: &'static str, from: Estimate, to: Estimate) {
        let within = from
            .interval
            .zip(to.interval)
            .map(|(one, other)| one.overlaps(&other));
        self.0.push(Change {
            figure,
            from: from.value,
            to: to.value,
            within,
        });
    }

    fn optional(&mut self, figure: &'static str, from: Option<Estimate>, to: Option<Estimate>) {
        if let Some((from, to)) = from.zip(to) {
            self.push(figure, from, to);
        }
    }
}

fn plain(value: f64) -> Estimate {
    Estimate {
        value,
        interval: None,
    }
}

fn no_answer(counts: Counts) -> Estimate {
    percentage(
        (counts.failed + counts.unanswered) as f64,
        counts.sent as f64,
    )
}

fn accuracy(accuracy: Accuracy) -> Estimate {
    percentage(accuracy.correct as f64, accuracy.judged as f64)
}

/// A share with its 95 % interval by Wilson's score (Journal of the American Statistical
/// Association 22, 1927).
fn percentage(part: f64, whole: f64) -> Estimate {
    if whole <= 0.0 {
        return plain(0.0);
    }
    let (share, square) = (part / whole, DEVIATIONS * DEVIATIONS);
    let centre = (share + square / (2.0 * whole)) / (1.0 + square / whole);
    let spread = (share * (1.0 - share) / whole + square / (4.0 * whole * whole)).sqrt();
    let reach = DEVIATIONS * spread / (1.0 + square / whole);
    let interval = Interval {
        low: 100.0 * (centre - reach),
        high: 100.0 * (centre + reach),
    };
    Estimate {
        value: 100.0 * share,
        interval: Some(interval),
    }
}

fn setting_notes(from: &impl serde::Serialize, to: &impl serde::Serialize) -> Vec<String> {
    let object = |settings: Result<Value, _>| match settings {
        Ok(Value::Object(object)) => object,
        Ok(_) | Err::<_, serde_json::Error>(_) => serde_json::Map::new(),
    };
    let (from, to) = (
        object(serde_json::to_value(from)),
        object(serde_json::to_value(to)),
    );
    let differing = from
        .iter()
        .filter(|(name, value)| to.get(*name) != Some(value));
    let none = Value::Null;
    differing
        .map(|(name, value)| {
            format!(
                "setting {name} differs: {value} and {}",
                to.get(name).unwrap_or(&none)
            )
        })
        .collect()
}

fn state(place: &str, valid: bool, partial: bool) -> impl Iterator<Item = String> {
    let late = (!valid).then(|| format!("the {place} report is not valid: its generator was late"));
    let ended = partial.then(|| format!("the {place} report is partial"));
    late.into_iter().chain(ended)
}

impl Display for Diff {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.notes
            .iter()
            .try_for_each(|note| writeln!(out, "note: {note}"))?;
        for (name, changes) in &self.parts {
            writeln!(
                out,
                "{name:<18}{:>12}{:>12}{:>12}{:>9}  95 % intervals",
                "first", "second", "change", "ratio"
            )?;
            for Change {
                figure,
                from,
                to,
                within,
            } in changes
            {
                let ratio = if *from == 0.0 {
                    "-".to_owned()
                } else {
                    format!("{:.3}", to / from)
                };
                let within = match within {
                    Some(true) => "overlap",
                    Some(false) => "apart",
                    None => "-",
                };
                let change = to - from;
                writeln!(
                    out,
                    "  {figure:<16}{from:>12.3}{to:>12.3}{change:>+12.3}{ratio:>9}  {within}"
                )?;
            }
        }
        Ok(())
    }
}
