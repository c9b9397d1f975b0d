//! Changes between two reports.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::table::{Table, or_dash};
use super::{Accuracy, Counts, RunReport, SCHEMA};
use crate::compare::{self, CompareReport, Estimate, Interval, StrategyReport};

/// A normal distribution has 95 % within so many standard deviations.
const DEVIATIONS: f64 = 1.959_964;

#[derive(Debug, Clone, PartialEq)]
pub enum AnyReport {
    Run(Box<RunReport>),
    Compare(Box<CompareReport>),
}

/// Reads a report from the text of `file`.
pub fn read_report(file: &str, text: &str) -> anyhow::Result<AnyReport> {
    fn typed<T: DeserializeOwned>(value: &Value) -> anyhow::Result<Box<T>> {
        Ok(Box::new(T::deserialize(value)?))
    }
    let read = || {
        let value: Value = serde_json::from_str(text)?;
        let schema = value.get("schema").and_then(Value::as_str);
        Ok(match schema.context("no schema in it")? {
            SCHEMA => Ok(AnyReport::Run(typed(&value)?)),
            compare::SCHEMA => Ok(AnyReport::Compare(typed(&value)?)),
            other => Err(other.to_owned()),
        })
    };
    match read() {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(schema)) => bail!(
            "{file}: has the schema {schema}, which is not known; give a report of {SCHEMA} or {}",
            compare::SCHEMA
        ),
        Err::<_, anyhow::Error>(cause) => {
            bail!("{file}: is no report ({cause}); give a file that --json wrote")
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Notes to read first: different settings, doubtful reports.
    pub notes: Vec<String>,
    /// Figures by strategy; a run has one part without a name.
    pub parts: Vec<(String, Vec<Change>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub figure: &'static str,
    pub from: f64,
    pub to: f64,
    /// True if the 95 % intervals of the two overlap, so that chance may be all there is to the
    /// change; `None` where an interval is missing. Figures whose intervals just overlap may differ
    /// all the same.
    pub within: Option<bool>,
}

/// Returns the changes from `from` to `to`, the latter from the file named.
pub fn diff(from: &AnyReport, to: &AnyReport, file: &str) -> anyhow::Result<Diff> {
    match (from, to) {
        (AnyReport::Run(from), AnyReport::Run(to)) => Ok(runs(from, to)),
        (AnyReport::Compare(from), AnyReport::Compare(to)) => Ok(comparisons(from, to)),
        _ => {
            bail!("{file}: is a report of another kind than the first; give two of the same schema")
        }
    }
}

fn runs(from: &RunReport, to: &RunReport) -> Diff {
    let figures = |report: &RunReport| {
        let latency = report.latency.all.map(|latency| latency.figures());
        let times = TIMES.into_iter().enumerate().map(|(place, name)| {
            let time = latency.map(|figures| plain(figures[place].1));
            (name, time)
        });
        let others = [
            ("answers/s", Some(plain(report.answered_per_s))),
            ("no answer, %", Some(no_answer(report.counts))),
            ("accuracy, %", report.accuracy.map(accuracy)),
        ];
        times.chain(others).collect::<Vec<_>>()
    };
    let mut notes = setting_notes(&from.settings, &to.settings);
    notes.extend(state("first", from.valid, from.partial));
    notes.extend(state("second", to.valid, to.partial));
    let parts = vec![(String::new(), changes(&figures(from), &figures(to)))];
    Diff { notes, parts }
}

fn comparisons(from: &CompareReport, to: &CompareReport) -> Diff {
    let mut notes = setting_notes(&from.settings, &to.settings);
    notes.extend(state("first", from.valid, from.partial));
    notes.extend(state("second", to.valid, to.partial));
    if from.baseline != to.baseline {
        let (from, to) = (&from.baseline, &to.baseline);
        notes.push(format!(
            "baseline differs: {from} and {to}; ratios say different things"
        ));
    }
    for (one, other, place) in [(from, to, "first"), (to, from, "second")] {
        let names = one.strategies.iter().map(|strategy| &strategy.name);
        let alone = names.filter(|name| other.strategy(name).is_none());
        notes.extend(alone.map(|name| format!("{name} is in the {place} report alone")));
    }
    let part = |one: &StrategyReport| {
        let other = to.strategy(&one.name)?;
        let changes = changes(&strategy_figures(one), &strategy_figures(other));
        Some((one.name.clone(), changes))
    };
    let parts = from.strategies.iter().filter_map(part).collect();
    Diff { notes, parts }
}

type Figure = (&'static str, Option<Estimate>);

/// Names of [`super::Summary::figures`] with their unit, in its order.
const TIMES: [&str; 7] = [
    "p50, ms",
    "mean, ms",
    "p90, ms",
    "p99, ms",
    "p99.5, ms",
    "p99.9, ms",
    "max, ms",
];

fn strategy_figures(report: &StrategyReport) -> Vec<Figure> {
    let latency = TIMES.into_iter().zip(report.latency.figures());
    // The largest of all depends on the number of requests.
    let latency = latency.filter(|(_, (field, _))| *field != "max");
    let times = latency.map(|(name, (field, value))| {
        let confidence = report.confidence.get(field);
        let interval = confidence.and_then(|confidence| confidence.bootstrap);
        (name, Some(Estimate { value, interval }))
    });
    let extra_work = report.cost.extra_work.map(|share| plain(100.0 * share));
    let others = [
        ("p99.9 - p50, ms", Some(report.gap_ms)),
        ("times narrower", report.gap_ratio),
        ("p50 ratio", report.p50_ratio),
        ("no answer, %", Some(no_answer(report.counts))),
        ("accuracy, %", report.accuracy.map(accuracy)),
        ("extra work, %", extra_work),
    ];
    times.chain(others).collect()
}

fn changes(from: &[Figure], to: &[Figure]) -> Vec<Change> {
    let change = |((figure, from), (_, to)): (&Figure, &Figure)| {
        let (from, to) = (*from).zip(*to)?;
        let intervals = from.interval.zip(to.interval);
        Some(Change {
            figure,
            from: from.value,
            to: to.value,
            within: intervals.map(|(one, other)| one.overlaps(&other)),
        })
    };
    from.iter().zip(to).filter_map(change).collect()
}

fn plain(value: f64) -> Estimate {
    Estimate {
        value,
        interval: None,
    }
}

fn no_answer(counts: Counts) -> Estimate {
    percentage(counts.failed + counts.unanswered, counts.sent)
}

fn accuracy(accuracy: Accuracy) -> Estimate {
    percentage(accuracy.correct, accuracy.judged)
}

/// A share with its 95 % interval by Wilson's score (Journal of the American Statistical
/// Association 22, 1927).
fn percentage(part: usize, whole: usize) -> Estimate {
    if whole == 0 {
        return plain(0.0);
    }
    let (share, whole) = (part as f64 / whole as f64, whole as f64);
    let square = DEVIATIONS * DEVIATIONS;
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
    let [from, to] = [serde_json::to_value(from), serde_json::to_value(to)]
        .map(|settings| settings.unwrap_or_default());
    let fields = from.as_object().into_iter().flatten();
    let differing = fields.filter(|(name, value)| to.get(name) != Some(value));
    let note = |(name, value): (&String, &Value)| {
        let other = to.get(name).unwrap_or(&Value::Null);
        format!("setting {name} differs: {value} and {other}")
    };
    differing.map(note).collect()
}

fn state(place: &str, valid: bool, partial: bool) -> impl Iterator<Item = String> {
    let late = (!valid).then(|| format!("the {place} report is not valid: its generator was late"));
    let ended = partial.then(|| format!("the {place} report is partial"));
    late.into_iter().chain(ended)
}

impl Display for Diff {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        for (name, changes) in &self.parts {
            let header = [name, "first", "second", "change", "ratio", "95 % intervals"];
            let mut table = Table::new(header);
            for change in changes {
                let Change { from, to, .. } = change;
                let ratio = (*from != 0.0).then(|| format!("{:.3}", to / from));
                let within = change
                    .within
                    .map(|within| if within { "overlap" } else { "apart" });
                let cells = [
                    format!("{from:.3}"),
                    format!("{to:.3}"),
                    format!("{:+.3}", to - from),
                    or_dash(ratio),
                    or_dash(within),
                ];
                table.row(format!("  {}", change.figure), cells);
            }
            write!(out, "{table}")?;
        }
        Ok(())
    }
}
