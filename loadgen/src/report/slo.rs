//! Service level objectives: figures that a report has to keep.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::{RunReport, Summary};
use crate::compare::StrategyReport;

/// One objective, such as `p99.9=30ms`, `failed=0.1%` or `accuracy=85%`. Times and `failed` may not
/// be exceeded; `accuracy` has to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slo {
    figure: Figure,
    /// Milliseconds, or a share.
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    P50,
    P90,
    P99,
    P99_5,
    P99_9,
    Mean,
    Max,
    Failed,
    Accuracy,
}

const FIGURES: [(&str, Figure); 9] = [
    ("p50", Figure::P50),
    ("p90", Figure::P90),
    ("p99", Figure::P99),
    ("p99.5", Figure::P99_5),
    ("p99.9", Figure::P99_9),
    ("mean", Figure::Mean),
    ("max", Figure::Max),
    ("failed", Figure::Failed),
    ("accuracy", Figure::Accuracy),
];

/// A text that is no objective.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// Not of the form `FIGURE=LIMIT`, or of a figure that there is not.
    #[error(
        "{0:?} is no objective; give FIGURE=LIMIT with p50, p90, p99, p99.5, p99.9, mean, max, \
            failed or accuracy"
    )]
    Figure(String),
    /// The limit is no time.
    #[error("{0:?} is no time; give it as, say, 30ms, 1.5s or 800us")]
    Time(String),
    /// The limit is no share.
    #[error("{0:?} is no share from 0 % to 100 %; give it as, say, 0.1%")]
    Share(String),
}

/// Figures that objectives are compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SloFigures {
    latency: Option<Summary>,
    /// Share of requests sent that had no answer.
    failed: Option<f64>,
    accuracy: Option<f64>,
}

/// An objective that was not met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breach {
    /// Objective that is not met.
    pub slo: Slo,
    /// Figure found; `None` if it is not known, which does not meet an objective either.
    pub found: Option<f64>,
}

/// Returns the objectives that the figures do not meet.
pub fn check(slos: &[Slo], figures: SloFigures) -> Vec<Breach> {
    let breach = |slo: &Slo| {
        let found = figures.of(slo.figure);
        let met = found.is_some_and(|found| match slo.figure {
            Figure::Accuracy => found >= slo.limit,
            _ => found <= slo.limit,
        });
        (!met).then_some(Breach { slo: *slo, found })
    };
    slos.iter().filter_map(breach).collect()
}

fn failed_share(counts: super::Counts) -> Option<f64> {
    (counts.sent > 0).then(|| (counts.failed + counts.unanswered) as f64 / counts.sent as f64)
}

impl From<&RunReport> for SloFigures {
    /// The latency is that of all requests that were due.
    fn from(report: &RunReport) -> Self {
        Self {
            latency: report.latency.all,
            failed: failed_share(report.counts),
            accuracy: report.accuracy.map(|accuracy| accuracy.accuracy),
        }
    }
}

impl From<&StrategyReport> for SloFigures {
    fn from(report: &StrategyReport) -> Self {
        Self {
            latency: Some(report.latency),
            failed: failed_share(report.counts),
            accuracy: report.accuracy.map(|accuracy| accuracy.accuracy),
        }
    }
}

impl SloFigures {
    fn of(&self, figure: Figure) -> Option<f64> {
        Some(match figure {
            Figure::P50 => self.latency?.p50,
            Figure::P90 => self.latency?.p90,
            Figure::P99 => self.latency?.p99,
            Figure::P99_5 => self.latency?.p99_5,
            Figure::P99_9 => self.latency?.p99_9,
            Figure::Mean => self.latency?.mean,
            Figure::Max => self.latency?.max,
            Figure::Failed => self.failed?,
            Figure::Accuracy => self.accuracy?,
        })
    }
}

impl Figure {
    fn is_share(self) -> bool {
        matches!(self, Self::Failed | Self::Accuracy)
    }

    fn show(self, value: f64) -> String {
        if self.is_share() {
            format!("{} %", round(100.0 * value))
        } else {
            format!("{} ms", round(value))
        }
    }
}

/// To three decimals, without those that are 0.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let unknown = || SloError::Figure(text.to_owned());
        let (name, limit) = text.split_once('=').ok_or_else(unknown)?;
        let (name, limit) = (name.trim(), limit.trim());
        let (_, figure) = FIGURES
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(unknown)?;
        let limit = if figure.is_share() {
            share(limit)?
        } else {
            milliseconds(limit)?
        };
        Ok(Self { figure, limit })
    }
}

fn share(text: &str) -> Result<f64, SloError> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok());
    let share = number
        .map(|percent| percent / 100.0)
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| SloError::Share(text.to_owned()))
}

fn milliseconds(text: &str) -> Result<f64, SloError> {
    let units = [("ms", 1.0), ("us", 1e-3), ("s", 1e3)];
    let time = units.into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * factor)
    });
    time.filter(|time| time.is_finite() && *time >= 0.0)
        .ok_or_else(|| SloError::Time(text.to_owned()))
}

impl Display for Slo {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let name = FIGURES
            .into_iter()
            .find(|(_, figure)| *figure == self.figure)
            .map_or("", |(name, _)| name);
        write!(out, "{name} {}", self.figure.show(self.limit))
    }
}

impl Display for Breach {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.found {
            Some(found) => write!(
                out,
                "objective {} missed: {}",
                self.slo,
                self.slo.figure.show(found)
            ),
            None => write!(out, "objective {} missed: nothing was measured", self.slo),
        }
    }
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
            .iter()
            .map(Breach::to_string)
            .collect()
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
            found[0].to_string(),
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
