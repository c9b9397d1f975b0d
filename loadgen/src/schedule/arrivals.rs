//! Arrival processes.

use std::fmt;
use std::iter::repeat_with;
use std::str::FromStr;

use rand::Rng;
use rand_distr::Exp1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bursts::Bursts;

/// Distribution of arrivals over time. Reports hold its text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub enum Arrivals {
    /// Evenly spaced: `i / rate`.
    Constant,
    /// Independent of each other, as many users' requests are: gaps are exponential with mean `1 /
    /// rate`.
    Poisson,
    /// Poisson at two rates in turns, as crowds come and go.
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

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => formatter.write_str("constant"),
            Self::Poisson => formatter.write_str("poisson"),
            Self::Bursts(bursts) => bursts.fmt(formatter),
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

impl From<Arrivals> for String {
    fn from(arrivals: Arrivals) -> Self {
        arrivals.to_string()
    }
}

impl TryFrom<String> for Arrivals {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_hold_the_text_form() {
        for text in ["constant", "poisson", "bursts:5:200:800"] {
            let arrivals: Arrivals = text.parse().unwrap();
            let json = serde_json::to_string(&arrivals).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Arrivals>(&json).unwrap(), arrivals);
        }
        assert_eq!(
            "bursts".parse::<Arrivals>().unwrap().to_string(),
            "bursts:5:200:800"
        );
        assert!("Poisson".parse::<Arrivals>().is_err());
    }
}
