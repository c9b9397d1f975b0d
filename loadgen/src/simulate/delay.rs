//! Delays outside the instances.

use std::time::Duration;

use anyhow::ensure;
use rand::Rng;
use rand_distr::Exp1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A shifted exponential: never less than `constant_ms`, and `exponential_ms` more on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    pub constant_ms: f64,
    /// Mean of what comes on top, in milliseconds.
    #[serde(default)]
    pub exponential_ms: f64,
}

impl Delay {
    /// Draws one, in nanoseconds.
    pub(super) fn sample(self, random: &mut impl Rng) -> u64 {
        let mut ms = self.constant_ms;
        if self.exponential_ms > 0.0 {
            ms += self.exponential_ms * random.sample::<f64, _>(Exp1);
        }
        nanoseconds(ms)
    }

    fn check(self, field: &str) -> anyhow::Result<()> {
        let Self {
            constant_ms,
            exponential_ms,
        } = self;
        let possible = |ms| (0.0..=LONGEST_MS).contains(&ms);
        ensure!(
            possible(constant_ms) && possible(exponential_ms),
            "{field}: {constant_ms} + {exponential_ms} ms; give two times from 0 to {LONGEST_MS} ms"
        );
        Ok(())
    }
}

pub(super) const LONGEST_MS: f64 = 3_600_000.0;

pub(super) fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

pub(super) fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time of a request beside an instance's own: sockets, codecs, wake-ups of threads, on each way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// From the client to the frontend and back, in all. It shifts latencies; it does not change
    /// the order of arrivals.
    pub client: Delay,
    /// From the frontend to an instance.
    pub to_instance: Delay,
    /// From an instance to the frontend.
    pub to_frontend: Delay,
}

impl Default for Network {
    /// Small delays, of the size that one machine's own sockets have.
    /// [`calibrated`](Self::calibrated) does better.
    fn default() -> Self {
        Self {
            client: delay(0.1, 0.05),
            to_instance: delay(0.1, 0.0),
            to_frontend: delay(0.1, 0.05),
        }
    }
}

const fn delay(constant_ms: f64, exponential_ms: f64) -> Delay {
    Delay {
        constant_ms,
        exponential_ms,
    }
}

const LEAST_SAMPLES: usize = 100;

impl Network {
    pub const NONE: Self = Self {
        client: delay(0.0, 0.0),
        to_instance: delay(0.0, 0.0),
        to_frontend: delay(0.0, 0.0),
    };

    /// The delays that a real run shows: `latencies_ms` of a run without redundancy, faults and
    /// queueing (a constant service time of `service_ms`, and a rate far below capacity).
    ///
    /// The latency beyond the service time is taken for a shifted exponential. It has its tenth
    /// percentile at `c + 0.105 m` and its median at `c + 0.693 m`, which give its shift `c` and
    /// mean `m`; a fit by the mean would follow the few requests that the machine itself delayed.
    /// Half of the shift goes to the client's side, which the latencies cannot tell apart from the
    /// instance's, a quarter to each way to the instance, and the random part is on the way back.
    pub fn calibrated(latencies_ms: &[f64], service_ms: f64) -> anyhow::Result<Self> {
        let samples = latencies_ms.len();
        ensure!(
            samples >= LEAST_SAMPLES,
            "{samples} latencies are too few to calibrate with; measure at least {LEAST_SAMPLES}"
        );
        let mut beyond: Vec<f64> = latencies_ms
            .iter()
            .map(|latency| latency - service_ms)
            .collect();
        beyond.sort_by(f64::total_cmp);
        let quantile = |percent: usize| {
            beyond
                .get(beyond.len() * percent / 100)
                .copied()
                .unwrap_or_default()
        };
        let (tenth, median) = (quantile(10), quantile(50));
        ensure!(
            median >= 0.0,
            "the median latency is below the service time; measure at a low rate, with that \
             constant service time"
        );
        let at_tenth = -(0.9_f64.ln());
        let mean = (median - tenth) / (std::f64::consts::LN_2 - at_tenth);
        let shift = (tenth - at_tenth * mean).max(0.0);
        Ok(Self {
            client: delay(shift / 2.0, 0.0),
            to_instance: delay(shift / 4.0, 0.0),
            to_frontend: delay(shift / 4.0, mean),
        })
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.client.check("network.client")?;
        self.to_instance.check("network.to_instance")?;
        self.to_frontend.check("network.to_frontend")
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn calibration_finds_the_delay_that_made_the_latencies() {
        let delay = Delay {
            constant_ms: 0.8,
            exponential_ms: 0.2,
        };
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut latencies: Vec<f64> = (0..20_000)
            .map(|_| 18.0 + delay.sample(&mut random) as f64 / 1e6)
            .collect();
        // Now and then the machine has something else to do.
        latencies
            .iter_mut()
            .step_by(1000)
            .for_each(|latency| *latency += 50.0);
        let network = Network::calibrated(&latencies, 18.0).unwrap();
        let shift = network.client.constant_ms
            + network.to_instance.constant_ms
            + network.to_frontend.constant_ms;
        assert!((shift - 0.8).abs() < 0.01, "{network:?}");
        assert!(
            (network.to_frontend.exponential_ms - 0.2).abs() < 0.01,
            "{network:?}"
        );
    }

    #[test]
    fn a_measurement_of_something_else_is_refused() {
        for (latencies, service_ms, says) in [
            (&[1.0; 9][..], 0.5, "9 latencies are too few"),
            (&[1.0; 900], 18.0, "below the service time"),
        ] {
            let error = Network::calibrated(latencies, service_ms).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
