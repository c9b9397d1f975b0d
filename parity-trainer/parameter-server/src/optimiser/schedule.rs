//! The learning rate over a run.

use serde::{Deserialize, Serialize};

/// Part of a cosine run in which the rate grows from nothing.
const WARM_UP: f64 = 0.03;
/// Part of a one-cycle run in which the rate grows.
const RISE: f64 = 0.3;
/// Divisors of a one-cycle run's peak that give its first rate and its last.
const ONE_CYCLE_DIVISORS: (f64, f64) = (25.0, 25e4);

/// Schedule of the learning rate, relative to its peak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Constant rate.
    Constant,
    /// A short linear warm-up, then half a cosine down to zero (Loshchilov and Hutter, SGDR, 2017,
    /// without restarts).
    #[default]
    Cosine,
    /// Half a cosine up from a 25th of the peak in three tenths of the run, then one down to
    /// nothing (Smith and Topin, Super-Convergence, 2018, as PyTorch has it).
    OneCycle,
}

impl Schedule {
    /// The rate at `step` of `steps`, counted from 0.
    pub fn rate(self, peak: f64, step: u64, steps: u64) -> f64 {
        let progress = (step as f64 + 0.5) / steps.max(1) as f64;
        let between = |from: f64, to: f64, part: f64| {
            to + (from - to) * 0.5 * (1.0 + (std::f64::consts::PI * part.min(1.0)).cos())
        };
        match self {
            Self::Constant => peak,
            Self::Cosine if progress < WARM_UP => peak * progress / WARM_UP,
            Self::Cosine => between(peak, 0.0, (progress - WARM_UP) / (1.0 - WARM_UP)),
            Self::OneCycle if progress < RISE => {
                between(peak / ONE_CYCLE_DIVISORS.0, peak, progress / RISE)
            }
            Self::OneCycle => between(
                peak,
                peak / ONE_CYCLE_DIVISORS.1,
                (progress - RISE) / (1.0 - RISE),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule) -> Vec<f64> {
        (0..1000)
            .map(|step| schedule.rate(2.0, step, 1000))
            .collect()
    }

    #[test]
    fn the_rate_rises_then_falls_to_nothing() {
        for (schedule, top) in [(Schedule::Cosine, 30), (Schedule::OneCycle, 300)] {
            let rates = rates(schedule);
            assert!(rates[..top].is_sorted() && rates[top..].iter().rev().is_sorted());
            assert!(rates[0] < 0.1 && (rates[top] - 2.0).abs() < 0.01 && rates[999] < 1e-4);
        }
        assert!(rates(Schedule::Constant).iter().all(|&rate| rate == 2.0));
    }
}
