//! Comparisons over a grid of settings.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CompareReport, Estimate, Interval, StrategyReport};

pub type Axes = BTreeMap<String, f64>;

pub const SWEEP_SCHEMA: &str = "parapet-loadgen/sweep/2";
/// The axis that knees are looked for along.
const RATE: &str = "rate";
/// Multiple of its value at the lowest rate that p99.9 stays under before the knee.
const KNEE: f64 = 2.0;

/// Comparisons at several points, such as rates, sizes of coding groups (`k`, `r`) or
/// `straggler_probability`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepReport {
    #[schemars(extend("const" = SWEEP_SCHEMA))]
    pub schema: String,
    pub partial: bool,
    pub baseline: String,
    pub points: Vec<SweepPoint>,
    /// For each strategy and each setting of the axes other than the rate, where its
    /// latency takes off.
    pub knees: Vec<Knee>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepPoint {
    pub axes: Axes,
    pub partial: bool,
    /// The strategies with the lowest p99.9, the lowest first: the first, and those that cannot be
    /// told from it because their intervals overlap with its own. One alone has won.
    pub best: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    pub name: String,
    pub samples: u64,
    pub without_answer: f64,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: Estimate,
    pub quotable: bool,
    pub gap_ms: Estimate,
    pub gap_ratio: Option<Estimate>,
    pub accuracy: Option<f64>,
    /// Redundant requests issued for each accepted one.
    pub extra_work: Option<f64>,
}

/// Where a strategy's latency takes off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    pub strategy: String,
    pub axes: Axes,
    pub lowest_rate: f64,
    pub p99_9_at_lowest: f64,
    /// The lowest rate measured at which p99.9 is more than [`KNEE`] times that; `None` if
    /// there is none.
    pub rate: Option<f64>,
}

impl SweepPoint {
    pub fn new(axes: Axes, report: &CompareReport) -> Self {
        let rows: Vec<Row> = report.strategies.iter().map(Row::new).collect();
        Self {
            axes,
            partial: report.partial,
            best: best(&rows),
            rows,
        }
    }
}

impl Row {
    fn new(strategy: &StrategyReport) -> Self {
        Self {
            name: strategy.name.clone(),
            samples: strategy.latency.count,
            without_answer: strategy.counts.without_answer(),
            p50: strategy.latency.p50,
            p99: strategy.latency.p99,
            p99_9: strategy.p99_9(),
            quotable: strategy.is_tail_quotable(),
            gap_ms: strategy.gap_ms,
            gap_ratio: strategy.gap_ratio,
            accuracy: strategy.accuracy.map(|accuracy| accuracy.accuracy),
            extra_work: strategy.cost.extra_work,
        }
    }

    /// The interval of p99.9. A figure without one, or with too few samples, is not known at all.
    fn range(&self) -> Interval {
        let unknown = Interval {
            low: 0.0,
            high: f64::INFINITY,
        };
        self.p99_9
            .interval
            .filter(|_| self.quotable)
            .unwrap_or(unknown)
    }
}

fn best(rows: &[Row]) -> Vec<String> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|one, other| one.p99_9.value.total_cmp(&other.p99_9.value));
    let Some(first) = rows.first().map(|row| row.range()) else {
        return Vec::new();
    };
    rows.retain(|row| row.range().overlaps(&first));
    rows.iter().map(|row| row.name.clone()).collect()
}

impl SweepReport {
    pub fn new(baseline: String, points: Vec<SweepPoint>, partial: bool) -> Self {
        Self {
            schema: SWEEP_SCHEMA.to_owned(),
            partial,
            baseline,
            knees: knees(&points),
            points,
        }
    }
}

/// The knees of [`SweepReport`]. Points without a rate do not count.
fn knees(points: &[SweepPoint]) -> Vec<Knee> {
    let curves = curves(points);
    let knee = |curve: Curve| {
        let (lowest_rate, lowest) = *curve.points.first()?;
        let limit = KNEE * lowest.value;
        let knee = curve.points.iter().find(|(_, p99_9)| p99_9.value > limit);
        Some(Knee {
            rate: knee.map(|(rate, _)| *rate),
            strategy: curve.strategy,
            axes: curve.axes,
            lowest_rate,
            p99_9_at_lowest: lowest.value,
        })
    };
    curves.into_iter().filter_map(knee).collect()
}

pub(crate) struct Curve {
    pub(crate) strategy: String,
    pub(crate) axes: Axes,
    pub(crate) points: Vec<(f64, Estimate)>,
}

/// Curves of p99.9 against the rate. Points without a rate are on none.
pub(crate) fn curves(points: &[SweepPoint]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for point in points {
        let mut axes = point.axes.clone();
        let Some(value) = axes.remove(RATE) else {
            continue;
        };
        for row in &point.rows {
            let same = |curve: &&mut Curve| curve.strategy == row.name && curve.axes == axes;
            match curves.iter_mut().find(same) {
                Some(curve) => curve.points.push((value, row.p99_9)),
                None => curves.push(Curve {
                    strategy: row.name.clone(),
                    axes: axes.clone(),
                    points: vec![(value, row.p99_9)],
                }),
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, p99_9: f64, spread: f64) -> Row {
        let (low, high) = (p99_9 - spread, p99_9 + spread);
        let estimate = Estimate {
            value: p99_9,
            interval: Some(Interval { low, high }),
        };
        Row {
            name: name.to_owned(),
            samples: 10_000,
            without_answer: 0.0,
            p50: 1.0,
            p99: 2.0,
            p99_9: estimate,
            quotable: true,
            gap_ms: estimate,
            gap_ratio: None,
            accuracy: None,
            extra_work: None,
        }
    }

    fn point(rate: f64, k: f64, rows: Vec<Row>) -> SweepPoint {
        SweepPoint {
            axes: [(RATE.to_owned(), rate), ("k".to_owned(), k)].into(),
            partial: false,
            best: best(&rows),
            rows,
        }
    }

    #[test]
    fn one_wins_only_clear_of_the_others() {
        let of = |rows| point(1.0, 2.0, rows);
        let clear = of(vec![row("a", 30.0, 1.0), row("b", 20.0, 1.0)]);
        assert_eq!(clear.best, ["b"]);
        let close = [("a", 21.0), ("b", 20.0), ("c", 50.0)];
        let tie = of(close.map(|(name, tail)| row(name, tail, 1.0)).into());
        assert_eq!(tie.best, ["b", "a"]);
        let mut unsure = row("b", 20.0, 1.0);
        unsure.p99_9.interval = None;
        assert_eq!(of(vec![row("a", 30.0, 1.0), unsure]).best, ["b", "a"]);
    }

    #[test]
    fn a_knee_is_where_the_tail_doubles() {
        let tails = [(300.0, 25.0), (100.0, 10.0), (200.0, 19.0), (400.0, 90.0)];
        let rows = |p99_9| vec![row("a", p99_9, 1.0), row("b", 10.0, 1.0)];
        let mut points = Vec::from(tails.map(|(rate, p99_9)| point(rate, 2.0, rows(p99_9))));
        let found = knees(&points);
        let rates: Vec<Option<f64>> = found.iter().map(|knee| knee.rate).collect();
        assert_eq!(rates, [Some(300.0), None]);
        let lowest = (found[0].lowest_rate, found[0].p99_9_at_lowest);
        assert_eq!(lowest, (100.0, 10.0));
        points.push(point(100.0, 3.0, vec![row("a", 7.0, 1.0)]));
        assert_eq!(knees(&points).len(), 3, "another k is another curve");
    }
}
