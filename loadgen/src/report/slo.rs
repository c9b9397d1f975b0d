//! Service level objectives: figures that a report has to keep.

use std::str::FromStr;

use anyhow::{Context, bail};

use super::{Accuracy, Counts, RunReport, Summary};
use crate::compare::StrategyReport;

/// One objective, such as `p99.9=30ms`, `failed=0.1%` or `accuracy=85%`. Times and `failed` may not
/// exceed it; `accuracy` has to reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slo {
    figure: &'static str,
    /// Milliseconds, or a share.
    limit: f64,
}

const FIGURES: [&str; 9] = [
    "p50", "p90", "p99", "p99.5", "p99.9", "mean", "max", "failed", "accuracy",
];

/// Figures that objectives are compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SloFigures {
    latency: Option<Summary>,
    /// Share of requests sent that had no answer.
    failed: Option<f64>,
    accuracy: Option<f64>,
}

/// Returns a line for each objective that is not met. A figure that was not measured meets none.
pub fn check(slos: &[Slo], figures: SloFigures) -> Vec<String> {
    let breach = |slo: &Slo| {
        let (name, limit) = (slo.figure, slo.show(slo.limit));
        match figures.of(name) {
            None => Some(format!(
                "objective {name} {limit} missed: nothing was measured"
            )),
            Some(found) if slo.is_met(found) => None,
            Some(found) => Some(format!(
                "objective {name} {limit} missed: {}",
                slo.show(found)
            )),
        }
    };
    slos.iter().filter_map(breach).collect()
}

impl SloFigures {
    fn new(latency: Option<Summary>, counts: Counts, accuracy: Option<Accuracy>) -> Self {
        Self {
            latency,
            failed: (counts.sent > 0).then(|| counts.without_answer()),
            accuracy: accuracy.map(|accuracy| accuracy.accuracy),
        }
    }

    fn of(&self, figure: &str) -> Option<f64> {
        match figure {
            "failed" => self.failed,
            "accuracy" => self.accuracy,
            time => {
                let figures = self.latency?.figures().into_iter();
                let mut named = figures.filter(|(name, _)| name.replace('_', ".") == time);
                Some(named.next()?.1)
            }
        }
    }
}

impl From<&RunReport> for SloFigures {
    /// Takes the latency of all requests that were due.
    fn from(report: &RunReport) -> Self {
        Self::new(report.latency.all, report.counts, report.accuracy)
    }
}

impl From<&StrategyReport> for SloFigures {
    fn from(report: &StrategyReport) -> Self {
        Self::new(Some(report.latency), report.counts, report.accuracy)
    }
}

impl Slo {
    fn is_share(self) -> bool {
        matches!(self.figure, "failed" | "accuracy")
    }

    fn is_met(self, found: f64) -> bool {
        match self.figure {
            "accuracy" => found >= self.limit,
            _ => found <= self.limit,
        }
    }

    /// A value with its unit, to three decimals at most.
    fn show(self, value: f64) -> String {
        let round = |value: f64| (value * 1e3).round() / 1e3;
        if self.is_share() {
            format!("{} %", round(100.0 * value))
        } else {
            format!("{} ms", round(value))
        }
    }
}

impl FromStr for Slo {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts = text
            .split_once('=')
            .map(|(name, limit)| (name.trim(), limit.trim()));
        let known = parts.and_then(|(name, limit)| {
            let figure = FIGURES.into_iter().find(|known| *known == name)?;
            Some((figure, limit))
        });
        let Some((figure, text)) = known else {
            bail!(
                "{text:?} is no objective; give FIGURE=LIMIT with {}",
                FIGURES.join(", ")
            );
        };
        let slo = |limit| Self { figure, limit };
        if slo(0.0).is_share() {
            share(text).map(slo).with_context(|| {
                format!("{text:?} is no share from 0 % to 100 %; give it as, say, 0.1%")
            })
        } else {
            milliseconds(text).map(slo).with_context(|| {
                format!("{text:?} is no time; give it as, say, 30ms, 1.5s or 800us")
            })
        }
    }
}

fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn milliseconds(text: &str) -> Option<f64> {
    let units = [("ms", 1.0), ("us", 1e-3), ("s", 1e3)];
    let time = units.into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * factor)
    });
    time.filter(|time| time.is_finite() && *time >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> SloFigures {
        let latency = Summary {
            count: 9,
            mean: 4.0,
            p50: 3.0,
            p90: 6.0,
            p99: 12.0,
            p99_5: 20.0,
            p99_9: 31.25,
            max: 50.0,
        };
        SloFigures {
            latency: Some(latency),
            failed: Some(0.002),
            accuracy: Some(0.9),
        }
    }

    fn missed(texts: &[&str]) -> Vec<String> {
        let slos: Vec<Slo> = texts.iter().map(|text| text.parse().unwrap()).collect();
        check(&slos, figures())
    }

    #[test]
    fn objectives_are_met_up_to_their_limit() {
        assert!(
            missed(&[
                "p50=3ms",
                "p99.9=0.03125s",
                "mean = 4000us",
                "failed=0.2%",
                "accuracy=90 %",
                "max=50ms"
            ])
            .is_empty()
        );
        assert_eq!(
            missed(&["p99.9=30ms", "p99=12ms", "failed=0.1%", "accuracy=90.1%"]),
            [
                "objective p99.9 30 ms missed: 31.25 ms",
                "objective failed 0.1 % missed: 0.2 %",
                "objective accuracy 90.1 % missed: 90 %"
            ]
        );
    }

    #[test]
    fn what_was_not_measured_does_not_meet_an_objective() {
        let slos = ["accuracy=1%".parse().unwrap()];
        let found = check(
            &slos,
            SloFigures {
                accuracy: None,
                ..figures()
            },
        );
        assert_eq!(
            found[0],
            "objective accuracy 1 % missed: nothing was measured"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, start) in [
            ("p98=3ms", "\"p98=3ms\" is no objective"),
            ("p99", "\"p99\" is no objective"),
            ("p99=30", "\"30\" is no time"),
            ("p99=-1ms", "\"-1ms\" is no time"),
            ("failed=0.1", "\"0.1\" is no share"),
            ("accuracy=101%", "\"101%\" is no share"),
        ] {
            assert!(
                text.parse::<Slo>()
                    .unwrap_err()
                    .to_string()
                    .starts_with(start),
                "{text}"
            );
        }
    }
}
