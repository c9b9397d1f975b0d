//! Arrival processes. Bursty arrivals are a Markov-modulated Poisson process with two states.
//!
//! In the burst state, requests arrive at [`Bursts::ratio`] times the rate of the calm state; the
//! process stays in either for an exponential time. With mean sojourns `b` (burst) and `c` (calm),
//! a share `p = b / (b + c)` of all time is burst, so a mean of `rate` requests/s asks for `rate /
//! (p * ratio + 1 - p)` in the calm state. It begins in the burst state with probability `p`, which
//! makes it stationary.
//!
//! Source: Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook",
//! Performance Evaluation 18(2), 1993. Two states give the index of dispersion of counts a closed
//! form, which the tests hold the process to: over long windows `1 + 2 p (1 - p) (h - l)^2 / (rate
//! (1/b + 1/c))`, with `h` and `l` the rates of the two states; a Poisson process has 1.

use std::fmt;
use std::iter::repeat_with;
use std::str::FromStr;

use anyhow::{Context, bail};
use rand::Rng;
use rand_distr::Exp1;
use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::Display;

/// Distribution of arrivals over time. Reports hold its text form.
#[derive(SerializeDisplay, DeserializeFromStr, JsonSchema)]
#[schemars(with = "String")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced: `i / rate`.
    Constant,
    /// Independent, as many users' requests are: gaps are exponential with mean `1 / rate`.
    Poisson,
    /// Poisson at two rates in turns, as crowds come and go.
    #[strum(transparent)]
    Bursts(Bursts),
}

impl Arrivals {
    pub(super) fn times_s(
        self,
        rate: f64,
        mut random: impl Rng + Send + 'static,
    ) -> Box<dyn Iterator<Item = f64> + Send> {
        match self {
            Self::Constant => Box::new((0_u64..).map(move |count| count as f64 / rate)),
            Self::Poisson => {
                let mut waited = 0.0;
                Box::new(repeat_with(move || {
                    waited += random.sample::<f64, _>(Exp1);
                    waited / rate
                }))
            }
            Self::Bursts(bursts) => {
                let mut process = bursts.begin(rate, &mut random);
                Box::new(repeat_with(move || process.next_s(&mut random)))
            }
        }
    }
}

impl FromStr for Arrivals {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => text.parse().map(Self::Bursts),
        }
    }
}

/// Cycles of burst and calm that may go by for each request: beyond, it is all but Poisson.
const MAX_CYCLES: f64 = 1000.0;

/// Shape of a bursty process; its mean rate is given apart. Written
/// `bursts:RATIO:MEAN_ON_MS:MEAN_OFF_MS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bursts {
    /// Rate in a burst over that between bursts; at least 2.
    ratio: u32,
    mean_on_ms: u32,
    mean_off_ms: u32,
}

impl Default for Bursts {
    fn default() -> Self {
        Self { ratio: 5, mean_on_ms: 200, mean_off_ms: 800 }
    }
}

impl Bursts {
    /// Returns true if a mean of `rate` requests/s shows bursts. Below a request in a thousand
    /// cycles, finding the next one would take for ever.
    pub(super) fn show_at(self, rate: f64) -> bool {
        let cycle_s = (f64::from(self.mean_on_ms) + f64::from(self.mean_off_ms)) / 1e3;
        rate * cycle_s * MAX_CYCLES >= 1.0
    }

    fn share(self) -> f64 {
        f64::from(self.mean_on_ms) / (f64::from(self.mean_on_ms) + f64::from(self.mean_off_ms))
    }

    fn rates(self, mean: f64) -> [f64; 2] {
        let (ratio, share) = (f64::from(self.ratio), self.share());
        let calm = mean / (share * ratio + 1.0 - share);
        [calm, ratio * calm]
    }

    pub(super) fn begin(self, rate: f64, random: &mut impl Rng) -> Modulated {
        let mut begun = Modulated {
            rates: self.rates(rate),
            sojourns_s: [self.mean_off_ms, self.mean_on_ms].map(|ms| f64::from(ms) / 1e3),
            bursting: random.random_bool(self.share()),
            now: 0.0,
            state_ends: 0.0,
        };
        begun.stay(random);
        begun
    }
}

/// A process under way. Arrays hold the calm state's figure, then the burst's; times are seconds.
#[derive(Debug)]
pub(super) struct Modulated {
    rates: [f64; 2],
    sojourns_s: [f64; 2],
    bursting: bool,
    now: f64,
    state_ends: f64,
}

impl Modulated {
    pub(super) fn next_s(&mut self, random: &mut impl Rng) -> f64 {
        // Expected arrivals until it: a unit on average, used up at the rate of the state.
        let mut left: f64 = random.sample(Exp1);
        loop {
            let rate = self.of_state(self.rates);
            let at = self.now + left / rate;
            if at <= self.state_ends {
                self.now = at;
                return at;
            }
            left -= (self.state_ends - self.now) * rate;
            self.now = self.state_ends;
            self.bursting = !self.bursting;
            self.stay(random);
        }
    }

    fn stay(&mut self, random: &mut impl Rng) {
        self.state_ends += self.of_state(self.sojourns_s) * random.sample::<f64, _>(Exp1);
    }

    fn of_state(&self, [calm, burst]: [f64; 2]) -> f64 {
        if self.bursting { burst } else { calm }
    }
}

impl fmt::Display for Bursts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ratio, on, off) = (self.ratio, self.mean_on_ms, self.mean_off_ms);
        write!(formatter, "bursts:{ratio}:{on}:{off}")
    }
}

impl FromStr for Bursts {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "bursts" {
            return Ok(Self::default());
        }
        let numbers = text.strip_prefix("bursts:");
        let numbers = numbers.context("unknown arrivals; use constant, poisson or bursts")?;
        let numbers: Result<Vec<u32>, _> = numbers.split(':').map(str::parse).collect();
        match numbers.unwrap_or_default()[..] {
            [ratio @ 2..=1_000_000, mean_on_ms @ (1..), mean_off_ms @ (1..)] => {
                Ok(Self { ratio, mean_on_ms, mean_off_ms })
            }
            _ => bail!(
                "unknown bursts; use bursts or bursts:RATIO:MEAN_ON_MS:MEAN_OFF_MS in whole \
                 numbers, a ratio from 2 to 1000000 and positive times, as in bursts:5:200:800"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    const RATE: f64 = 300.0;

    fn times(arrivals: Arrivals, seed: u64) -> impl Iterator<Item = f64> {
        arrivals.times_s(RATE, ChaCha12Rng::seed_from_u64(seed))
    }

    /// Variance over mean of the counts in windows of `window_s`.
    fn dispersion(times: impl Iterator<Item = f64>, window_s: f64, windows: usize) -> f64 {
        let mut counts = vec![0.0; windows];
        for at in times {
            let Some(count) = counts.get_mut((at / window_s) as usize) else { break };
            *count += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / windows as f64;
        counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows as f64 / mean
    }

    fn expected(bursts: Bursts, rate: f64, window_s: f64) -> f64 {
        let [calm, burst] = bursts.rates(rate);
        let share = bursts.share();
        let turnover = 1e3 / f64::from(bursts.mean_on_ms) + 1e3 / f64::from(bursts.mean_off_ms);
        let settled = 1.0 - (1.0 - (-turnover * window_s).exp()) / (turnover * window_s);
        1.0 + 2.0 * share * (1.0 - share) * (burst - calm).powi(2) / (rate * turnover) * settled
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_mean_rate_holds(
            seed: u64,
            ratio in 2..20_u32,
            mean_on_ms in 20..200_u32,
            mean_off_ms in 20..200_u32,
        ) {
            let bursts = Bursts {
                ratio,
                mean_on_ms,
                mean_off_ms,
            };
            let of_seed = || times(Arrivals::Bursts(bursts), seed).take(60_000);
            let times: Vec<f64> = of_seed().collect();
            prop_assert!(of_seed().eq(times.iter().copied()));
            prop_assert!(times.is_sorted());
            // Counts over a time t have a variance of rate * t * dispersion; 5 sigma.
            let end = times[times.len() - 1];
            let sigma = (expected(bursts, RATE, 1e6) / (RATE * end)).sqrt();
            let error = times.len() as f64 / end / RATE - 1.0;
            prop_assert!(error.abs() < 5.0 * sigma, "{} with sigma {}", error, sigma);
        }

        #[test]
        fn text_goes_round(
            ratio in 2..1_000_000_u32,
            mean_on_ms in 1..u32::MAX,
            mean_off_ms in 1..u32::MAX,
        ) {
            let bursts = Bursts {
                ratio,
                mean_on_ms,
                mean_off_ms,
            };
            prop_assert_eq!(bursts.to_string().parse::<Bursts>().unwrap(), bursts);
        }
    }

    #[test]
    fn counts_are_dispersed_as_theory_has_it() {
        let bursts = Bursts::default();
        for window_s in [0.1, 1.0] {
            let found = dispersion(times(Arrivals::Bursts(bursts), 7), window_s, 4000);
            let expected = expected(bursts, RATE, window_s);
            assert!(
                expected > 5.0 && (found / expected - 1.0).abs() < 0.15,
                "{found}, in theory {expected}"
            );
            let poisson = dispersion(times(Arrivals::Poisson, 7), window_s, 4000);
            assert!((poisson - 1.0).abs() < 0.15, "{poisson}");
        }
    }

    #[test]
    fn senseless_shapes_are_refused() {
        for (text, says) in [
            ("bursts:", "unknown bursts"),
            ("bursts:5", "unknown bursts"),
            ("bursts:5:1:2:3", "unknown bursts"),
            ("bursts:1:10:10", "unknown bursts"),
            ("bursts:5:0:10", "unknown bursts"),
            ("bursts:5:10:0", "unknown bursts"),
            ("burst", "unknown arrivals"),
        ] {
            let refused = text.parse::<Bursts>().unwrap_err().to_string();
            assert!(refused.starts_with(says), "{text}: {refused}");
        }
    }

    #[test]
    fn reports_hold_the_text_form() {
        for text in ["constant", "poisson", "bursts:5:200:800"] {
            let arrivals: Arrivals = text.parse().unwrap();
            let json = serde_json::to_string(&arrivals).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Arrivals>(&json).unwrap(), arrivals);
        }
        assert_eq!("bursts".parse::<Arrivals>().unwrap().to_string(), "bursts:5:200:800");
        assert!("Poisson".parse::<Arrivals>().is_err());
    }
}
