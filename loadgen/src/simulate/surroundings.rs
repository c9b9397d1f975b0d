//! Settings that a simulation needs, and that a real cluster has by itself.

use anyhow::ensure;
use rand::Rng;
use rand_distr::Exp1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) const LONGEST_MS: f64 = 3_600_000.0;

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
    pub(super) fn sample(self, random: &mut impl Rng) -> u64 {
        let mut ms = self.constant_ms;
        if self.exponential_ms > 0.0 {
            ms += self.exponential_ms * random.sample::<f64, _>(Exp1);
        }
        nanoseconds(ms)
    }
}

pub(super) fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Time of a request beside an instance's own: sockets, codecs, wake-ups of threads, on each way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// From the client to the frontend and back, in all. It shifts latencies; it does not change
    /// the order of arrivals.
    pub client: Delay,
    pub to_instance: Delay,
    pub to_frontend: Delay,
}

impl Default for Network {
    /// Small delays, of the size that one machine's own sockets have.
    fn default() -> Self {
        let delay = |exponential_ms| Delay { constant_ms: 0.1, exponential_ms };
        Self { client: delay(0.05), to_instance: delay(0.0), to_frontend: delay(0.05) }
    }
}

impl Network {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (field, delay) in [
            ("client", self.client),
            ("to_instance", self.to_instance),
            ("to_frontend", self.to_frontend),
        ] {
            let (constant_ms, exponential_ms) = (delay.constant_ms, delay.exponential_ms);
            let possible = |ms| (0.0..=LONGEST_MS).contains(&ms);
            ensure!(
                possible(constant_ms) && possible(exponential_ms),
                "network.{field}: {constant_ms} + {exponential_ms} ms; give two times from 0 to \
                 {LONGEST_MS} ms"
            );
        }
        Ok(())
    }
}

/// Settings that a simulation needs and a real cluster has by itself: `[simulation]` of
/// an experiment's file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    pub allow_approximate: bool,
    pub network: Network,
    pub encode_ms: f64,
    pub decode_ms: f64,
    pub max_batch_size: usize,
    /// Most requests that wait at an instance.
    pub instance_queue: usize,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            allow_approximate: true,
            network: Network::default(),
            encode_ms: 0.05,
            decode_ms: 0.05,
            max_batch_size: 8,
            instance_queue: 128,
        }
    }
}

impl Surroundings {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (name, value) in
            [("max_batch_size", self.max_batch_size), ("instance_queue", self.instance_queue)]
        {
            ensure!(value > 0, "{name}: 0; give at least 1");
        }
        for (name, ms) in [("encode_ms", self.encode_ms), ("decode_ms", self.decode_ms)] {
            ensure!((0.0..=LONGEST_MS).contains(&ms), "{name}: {ms}; give 0 to {LONGEST_MS}");
        }
        self.network.check()
    }
}
