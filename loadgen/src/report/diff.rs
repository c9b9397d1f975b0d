//! Changes between two reports.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::page::{Cell, Table};
use super::{RunReport, SCHEMA, Summary};
use crate::compare::{self, CompareReport, Estimate, Interval};

/// A normal distribution has 95 % within so many standard deviations.
const DEVIATIONS: f64 = 1.959_964;

type Figure = (String, Option<Estimate>);

/// Reads a report from the text of `file`.
pub fn read_report(file: &str, text: &str) -> anyhow::Result<Value> {
    let wrong = |cause: anyhow::Error| {
        anyhow!("{file}: is no report ({cause}); give a file that --json wrote")
    };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.into()))?;
    let schema = value["schema"].as_str().context("no schema in it");
    let read = match schema.map_err(wrong)? {
        SCHEMA => RunReport::deserialize(&value).map(drop),
        compare::SCHEMA => CompareReport::deserialize(&value).map(drop),
        other => bail!(
            "{file}: has the schema {other}, which is not known; give a report of {SCHEMA} or {}",
            compare::SCHEMA
        ),
    };
    read.map_err(|error| wrong(error.into()))?;
    Ok(value)
}

fn parts(report: &Value) -> Vec<(String, Vec<Figure>)> {
    let Some(strategies) = report["strategies"].as_array() else {
        return vec![(String::new(), figures(report, &report["latency"]["all"]))];
    };
    let part = |strategy: &Value| {
        let name = strategy["name"].as_str().unwrap_or_default();
        (name.to_owned(), figures(strategy, &strategy["latency"]))
    };
    strategies.iter().map(part).collect()
}

fn figures(part: &Value, latency: &Value) -> Vec<Figure> {
    let estimate = |value: &Value, interval: &Value| {
        let value = value.as_f64()?;
        let interval = Interval::deserialize(interval).ok();
        Some(Estimate { value, interval })
    };
    let of_latency = Summary::NAMES.map(|name| {
        let field = name.replace('.', "_");
        let interval = &part["confidence"][&field]["bootstrap"];
        (format!("{name}, ms"), estimate(&latency[&field], interval))
    });
    let ranged = |name: &str| estimate(&part[name]["value"], &part[name]["interval"]);
    let scaled = |value: &Value, scale: f64| {
        let (value, interval) = (scale * value.as_f64()?, None);
        Some(Estimate { value, interval })
    };
    let (counts, accuracy) = (&part["counts"], &part["accuracy"]);
    let count = |counts: &Value, name: &str| counts[name].as_u64().unwrap_or_default();
    let lost = count(counts, "failed") + count(counts, "unanswered");
    let [judged, correct] = ["judged", "correct"].map(|name| count(accuracy, name));
    let others = [
        ("p99.9 - p50, ms", ranged("gap_ms")),
        ("times narrower", ranged("gap_ratio")),
        ("p50 ratio", ranged("p50_ratio")),
        ("answers/s", scaled(&part["answered_per_s"], 1.0)),
        (
            "no answer, %",
            Some(percentage(lost, count(counts, "sent"))),
        ),
        (
            "accuracy, %",
            accuracy.is_object().then(|| percentage(correct, judged)),
        ),
        ("extra work, %", scaled(&part["cost"]["extra_work"], 100.0)),
    ];
    let others = others.map(|(name, estimate)| (name.to_owned(), estimate));
    of_latency.into_iter().chain(others).collect()
}

/// A share with its 95 % interval by Wilson's score (Journal of the American Statistical
/// Association 22, 1927).
fn percentage(part: u64, whole: u64) -> Estimate {
    let whole = whole.max(1) as f64;
    let share = part as f64 / whole;
    let square = DEVIATIONS * DEVIATIONS;
    let centre = (share + square / (2.0 * whole)) / (1.0 + square / whole);
    let spread = (share * (1.0 - share) / whole + square / (4.0 * whole * whole)).sqrt();
    let reach = DEVIATIONS * spread / (1.0 + square / whole);
    let [low, high] = [centre - reach, centre + reach].map(|bound| 100.0 * bound);
    let (value, interval) = (100.0 * share, Some(Interval { low, high }));
    Estimate { value, interval }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    pub notes: Vec<String>,
    pub parts: Vec<(String, Vec<Change>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub figure: String,
    pub from: f64,
    pub to: f64,
    /// True if the 95 % intervals of the two overlap, so that chance may be all there is to the
    /// change; `None` where an interval is missing. Figures whose intervals just overlap may differ
    /// all the same.
    pub within: Option<bool>,
}

pub fn diff(from: &Value, to: &Value, file: &str) -> anyhow::Result<Diff> {
    ensure!(
        from["schema"] == to["schema"],
        "{file}: is a report of another kind than the first; give two of the same schema"
    );
    let mut notes = Vec::new();
    for (name, value) in from["settings"].as_object().into_iter().flatten() {
        let other = &to["settings"][name];
        if other != value {
            notes.push(format!("setting {name} differs: {value} and {other}"));
        }
    }
    for (report, place) in [(from, "first"), (to, "second")] {
        if report["valid"] == false {
            let text = format!("the {place} report is not valid: its generator was late");
            notes.push(text);
        }
        if report["partial"] == true {
            notes.push(format!("the {place} report is partial"));
        }
    }
    let (base, other) = (&from["baseline"], &to["baseline"]);
    if base != other {
        let text = format!("baseline differs: {base} and {other}; ratios say different things");
        notes.push(text);
    }
    let (from, to) = (parts(from), parts(to));
    let named = |parts: &[(String, Vec<Figure>)], name: &str| {
        let mut parts = parts.iter();
        parts.find_map(|(part, figures)| (part == name).then(|| figures.clone()))
    };
    for (one, other, place) in [(&from, &to, "first"), (&to, &from, "second")] {
        let names = one.iter().map(|(name, _)| name);
        let alone = names.filter(|name| named(other, name).is_none());
        notes.extend(alone.map(|name| format!("{name} is in the {place} report alone")));
    }
    let part = |(name, figures): &(String, Vec<Figure>)| {
        Some((name.clone(), changes(figures, &named(&to, name)?)))
    };
    let parts = from.iter().filter_map(part).collect();
    Ok(Diff { notes, parts })
}

fn changes(from: &[Figure], to: &[Figure]) -> Vec<Change> {
    let change = |((figure, from), (_, to)): (&Figure, &Figure)| {
        let (from, to) = (*from).zip(*to)?;
        let intervals = from.interval.zip(to.interval);
        Some(Change {
            figure: figure.clone(),
            from: from.value,
            to: to.value,
            within: intervals.map(|(one, other)| one.overlaps(&other)),
        })
    };
    from.iter().zip(to).filter_map(change).collect()
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
                let (from, to) = (change.from, change.to);
                let ratio = (from != 0.0).then(|| format!("{:.3}", to / from));
                let within = change.within.map(|within| match within {
                    true => "overlap",
                    false => "apart",
                });
                let cells = [
                    Cell::from(format!("{from:.3}")),
                    Cell::from(format!("{to:.3}")),
                    Cell::from(format!("{:+.3}", to - from)),
                    Cell::or_dash(ratio),
                    Cell::or_dash(within),
                ];
                table.row(format!("  {}", change.figure), cells);
            }
            write!(out, "{table}")?;
        }
        Ok(())
    }
}
