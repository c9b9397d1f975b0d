//! Arrival processes.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use rand_distr::Exp1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How requests are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced: `i / rate`.
    Constant,
    /// Independent of each other, as many users' requests are: gaps are exponential with mean `1 / rate`.
    Poisson,
}

/// The name is no arrival process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown arrivals; use constant or poisson")]
pub struct UnknownArrivals;

impl Arrivals {
    /// Endless ascending times in seconds.
    pub(super) fn times_s(self, rate: f64, mut random: impl Rng) -> impl Iterator<Item = f64> {
        let mut count = 0.0;
        let mut waited = 0.0;
        std::iter::from_fn(move || {
            let at = match self {
                Self::Constant => count / rate,
                Self::Poisson => {
                    waited += random.sample::<f64, _>(Exp1);
                    waited / rate
                }
            };
            count += 1.0;
            Some(at)
        })
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        })
    }
}

impl FromStr for Arrivals {
    type Err = UnknownArrivals;

    fn from_str(name: &str) -> Result<Self, UnknownArrivals> {
        match name {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err(UnknownArrivals),
        }
    }
}
