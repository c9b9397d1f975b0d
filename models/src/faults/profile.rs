//! What faults a profile asks for.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::engine::one_line;

/// The contents of a fault profile; everything but the seed is optional.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultProfile {
    /// Seed of all randomness.
    pub seed: u64,
    /// Added to each batch's time.
    pub service_time: Option<ServiceTime>,
    /// Some batches take much longer.
    pub straggle: Option<Straggling>,
    /// Now and then the instance stands still, whether it is busy or not.
    pub freeze: Option<Freezing>,
    /// Probability that a batch fails.
    #[serde(default)]
    pub error_probability: f64,
}

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub enum ServiceTime {
    /// Always the same.
    Constant {
        /// Milliseconds.
        ms: f64,
    },
    /// Equally likely between two bounds.
    Uniform {
        /// Milliseconds at least.
        min_ms: f64,
        /// Milliseconds at most.
        max_ms: f64,
    },
    /// The logarithm is normally distributed: `median * exp(sigma * N(0, 1))`.
    Lognormal {
        /// Median in milliseconds.
        median_ms: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

/// With a probability, a batch takes a further U(min, max) milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Straggling {
    /// Probability for each batch.
    pub probability: f64,
    /// Milliseconds at least.
    pub min_ms: f64,
    /// Milliseconds at most.
    pub max_ms: f64,
}

/// Freezes begin at random (exponential times between the end of one and the start of the next) and last U(min, max)
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freezing {
    /// Mean time between two freezes in milliseconds.
    pub mean_interval_ms: f64,
    /// Milliseconds at least.
    pub min_ms: f64,
    /// Milliseconds at most.
    pub max_ms: f64,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ProfileError {
    path: PathBuf,
    problem: String,
}

/// An hour: longer faults are a mistake in the unit.
const LONGEST_MS: f64 = 3_600_000.0;

impl FaultProfile {
    /// Reads and validates the profile at `path`.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let failed = |problem: String| ProfileError { path: path.to_owned(), problem };
        let text = fs::read_to_string(path).map_err(|error| failed(format!("cannot read: {error}")))?;
        let profile: Self = toml::from_str(&text).map_err(|error| failed(one_line(&error.message())))?;
        profile.validate().map_err(failed)?;
        Ok(profile)
    }

    fn validate(&self) -> Result<(), String> {
        probability("error_probability", self.error_probability)?;
        match self.service_time {
            Some(ServiceTime::Constant { ms }) => range("service_time.ms", ms, ms)?,
            Some(ServiceTime::Uniform { min_ms, max_ms }) => range("service_time", min_ms, max_ms)?,
            Some(ServiceTime::Lognormal { median_ms, sigma }) => {
                range("service_time.median_ms", median_ms, median_ms)?;
                if !(0.0..=10.0).contains(&sigma) {
                    return Err(format!("service_time.sigma: {sigma}; give a number from 0 to 10"));
                }
            }
            None => {}
        }
        if let Some(straggle) = self.straggle {
            probability("straggle.probability", straggle.probability)?;
            range("straggle", straggle.min_ms, straggle.max_ms)?;
        }
        if let Some(freeze) = self.freeze {
            range("freeze", freeze.min_ms, freeze.max_ms)?;
            if !(1.0..=LONGEST_MS).contains(&freeze.mean_interval_ms) {
                return Err(format!(
                    "freeze.mean_interval_ms: {}; give 1 to {LONGEST_MS}",
                    freeze.mean_interval_ms
                ));
            }
        }
        Ok(())
    }
}

fn probability(field: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(format!("{field}: {value}; give a number from 0 to 1"))
    }
}

fn range(field: &str, min: f64, max: f64) -> Result<(), String> {
    if 0.0 <= min && min <= max && max <= LONGEST_MS {
        return Ok(());
    }
    Err(format!("{field}: {min} to {max} ms; give 0 <= min <= max <= {LONGEST_MS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<FaultProfile, ProfileError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), toml).unwrap();
        FaultProfile::read(file.path())
    }

    #[test]
    fn a_profile_is_read() {
        let profile = read(
            "seed = 7\nerror_probability = 0.1\n\
             service_time = { distribution = \"lognormal\", median_ms = 10.0, sigma = 0.3 }\n\
             straggle = { probability = 0.01, min_ms = 50, max_ms = 200 }\n\
             freeze = { mean_interval_ms = 1000, min_ms = 10, max_ms = 20 }\n",
        )
        .unwrap();
        assert_eq!(profile.service_time, Some(ServiceTime::Lognormal { median_ms: 10.0, sigma: 0.3 }));
        assert!(profile.straggle.is_some() && profile.freeze.is_some());
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (toml, named) in [
            ("", "missing field `seed`"),
            ("seed = 1\nsped = 2", "unknown field `sped`"),
            ("seed = 1\nerror_probability = 2.0", "error_probability: 2"),
            ("seed = 1\nservice_time = { distribution = \"constant\", ms = -1.0 }", "service_time.ms"),
            ("seed = 1\nservice_time = { distribution = \"uniform\", ms = 1.0 }", "ms"),
            ("seed = 1\nstraggle = { probability = 0.1, min_ms = 2.0, max_ms = 1.0 }", "straggle: 2 to 1 ms"),
            (
                "seed = 1\nfreeze = { mean_interval_ms = 0.0, min_ms = 1, max_ms = 2 }",
                "freeze.mean_interval_ms",
            ),
        ] {
            let error = read(toml).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
