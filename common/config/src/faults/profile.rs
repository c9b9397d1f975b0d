//! Fault profiles: the service times and faults that an experiment asks for.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{FileError, toml_file};

/// The contents of a fault profile; everything but the seed is optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FaultProfile {
    /// Seed of all randomness.
    pub seed: u64,
    /// Probability that a batch fails.
    #[serde(default)]
    pub error_probability: f64,
    /// Added to each batch's time.
    pub service_time: Option<ServiceTime>,
    /// The same for single models, by name, in place of `service_time`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_service_time: BTreeMap<String, ServiceTime>,
    /// Some batches take much longer, independently of each other.
    pub straggle: Option<Straggling>,
    /// For long times some instances are slower.
    pub slowdown: Option<Slowdown>,
    /// Bulk transfers between pairs of instances delay what either of them answers.
    pub transfers: Option<Transfers>,
    /// Now and then the instance stands still, whether it is busy or not.
    pub freeze: Option<Freezing>,
}

/// A distribution of times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub enum ServiceTime {
    /// Always the same.
    Constant {
        /// Time of each batch, in milliseconds.
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
    /// Measured times, each as likely as the others.
    Empirical {
        /// Measured times in milliseconds, drawn with equal probability.
        values_ms: Vec<f64>,
    },
}

/// Milliseconds, uniformly distributed between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Lower bound, in milliseconds.
    pub min_ms: f64,
    /// Upper bound, in milliseconds.
    pub max_ms: f64,
}

/// With a probability, a batch takes a further U(min, max) milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Straggling {
    /// Probability for each batch.
    pub probability: f64,
    /// Milliseconds at least.
    pub min_ms: f64,
    /// Milliseconds at most.
    pub max_ms: f64,
}

/// Slow periods begin at random (exponential times between the end of one and the start of the
/// next); every batch of an instance that is hit takes longer for as long as one lasts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// Share of the instances hit: in each period others if `correlated`, else always the same.
    pub share: f64,
    /// True if all instances that are hit are slow together; else each has its periods.
    pub correlated: bool,
    /// Mean time between two periods in milliseconds.
    pub mean_interval_ms: f64,
    /// Length of a period.
    pub length: Span,
    /// Time added to each batch of the period.
    pub added: Span,
}

/// So many transfers run between pairs of instances, one after the other, each with other partners;
/// what takes part answers slower (ParM, section 5.2: its evaluation's background traffic).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    /// Instances in the cluster; partners are drawn from them.
    pub instances: u32,
    /// Transfers at a time.
    pub concurrent: u32,
    /// Mean pause between the end of one and the start of the next, in milliseconds.
    pub mean_pause_ms: f64,
    /// Length of a transfer.
    pub length: Span,
    /// Time added to each batch during a transfer.
    pub added: Span,
}

/// Freezes begin at random (exponential times between the end of one and the start of the next) and
/// last U(min, max) milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Freezing {
    /// Mean time between two freezes in milliseconds.
    pub mean_interval_ms: f64,
    /// Milliseconds at least.
    pub min_ms: f64,
    /// Milliseconds at most.
    pub max_ms: f64,
}

/// An hour: longer faults are a mistake in the unit.
const LONGEST_MS: f64 = 3_600_000.0;
/// Every instance looks at all of them for each batch.
const MOST_TRANSFERS: u32 = 64;

impl FaultProfile {
    /// Reads and validates the profile at `path`.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let profile: Self = toml_file::read(path)?;
        profile.validate().map_err(|problem| FileError::new(path, problem))?;
        Ok(profile)
    }

    /// Checks that every number is in its range.
    ///
    /// # Errors
    /// One line that names the field, its value and what to give.
    pub fn validate(&self) -> Result<(), String> {
        probability("error_probability", self.error_probability)?;
        if let Some(time) = &self.service_time {
            service_time("service_time", time)?;
        }
        for (model, time) in &self.model_service_time {
            service_time(&format!("model_service_time.{model}"), time)?;
        }
        if let Some(straggle) = self.straggle {
            probability("straggle.probability", straggle.probability)?;
            range("straggle", straggle.min_ms, straggle.max_ms)?;
        }
        if let Some(slowdown) = self.slowdown {
            probability("slowdown.share", slowdown.share)?;
            interval("slowdown.mean_interval_ms", slowdown.mean_interval_ms)?;
            span("slowdown.length", slowdown.length)?;
            span("slowdown.added", slowdown.added)?;
        }
        if let Some(transfers) = self.transfers {
            let instances = transfers.instances;
            if instances < 2 {
                return Err(format!("transfers.instances: {instances}; give at least 2"));
            }
            number("transfers.concurrent", transfers.concurrent, 1..=MOST_TRANSFERS)?;
            interval("transfers.mean_pause_ms", transfers.mean_pause_ms)?;
            span("transfers.length", transfers.length)?;
            span("transfers.added", transfers.added)?;
        }
        if let Some(freeze) = self.freeze {
            range("freeze", freeze.min_ms, freeze.max_ms)?;
            interval("freeze.mean_interval_ms", freeze.mean_interval_ms)?;
        }
        Ok(())
    }
}

fn service_time(field: &str, time: &ServiceTime) -> Result<(), String> {
    match time {
        ServiceTime::Constant { ms } => range(&format!("{field}.ms"), *ms, *ms),
        ServiceTime::Uniform { min_ms, max_ms } => range(field, *min_ms, *max_ms),
        ServiceTime::Lognormal { median_ms, sigma } => {
            range(&format!("{field}.median_ms"), *median_ms, *median_ms)?;
            number(&format!("{field}.sigma"), *sigma, 0.0..=10.0)
        }
        ServiceTime::Empirical { values_ms } => {
            if values_ms.is_empty() {
                return Err(format!("{field}.values_ms: none; give at least one time"));
            }
            let (field, mut values_ms) = (format!("{field}.values_ms"), values_ms.iter());
            values_ms.try_for_each(|ms| range(&field, *ms, *ms))
        }
    }
}

fn span(field: &str, span: Span) -> Result<(), String> {
    range(field, span.min_ms, span.max_ms)
}

fn interval(field: &str, ms: f64) -> Result<(), String> {
    number(field, ms, 1.0..=LONGEST_MS)
}

fn probability(field: &str, value: f64) -> Result<(), String> {
    number(field, value, 0.0..=1.0)
}

fn number<T: PartialOrd + Display>(
    field: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(format!("{field}: {value}; give a number from {least} to {most}"))
}

fn range(field: &str, min: f64, max: f64) -> Result<(), String> {
    if 0.0 <= min && min <= max && max <= LONGEST_MS {
        return Ok(());
    }
    let wanted = format!("give 0 <= min <= max <= {LONGEST_MS}");
    Err(format!("{field}: {min} to {max} ms; {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<FaultProfile, FileError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), toml).unwrap();
        FaultProfile::read(file.path())
    }

    #[test]
    fn a_profile_is_read() {
        let profile = read(
            "seed = 7\nerror_probability = 0.1\n\
             service_time = { distribution = \"lognormal\", median_ms = 10.0, sigma = 0.3 }\n\
             straggle = { probability = 0.01, min_ms = 50, max_ms = 200 }\n\
             freeze = { mean_interval_ms = 1000, min_ms = 10, max_ms = 20 }\n\
             [model_service_time]\nsmall = { distribution = \"empirical\", values_ms = [1.0, 2.5] }\n\
             [slowdown]\nshare = 0.4\ncorrelated = true\nmean_interval_ms = 5000\n\
             length = { min_ms = 1000, max_ms = 2000 }\nadded = { min_ms = 15, max_ms = 45 }\n\
             [transfers]\ninstances = 18\nconcurrent = 4\nmean_pause_ms = 100\n\
             length = { min_ms = 100, max_ms = 300 }\nadded = { min_ms = 1, max_ms = 20 }\n",
        )
        .unwrap();
        assert_eq!(
            profile.service_time,
            Some(ServiceTime::Lognormal { median_ms: 10.0, sigma: 0.3 })
        );
        assert!(profile.straggle.is_some() && profile.freeze.is_some());
        assert!(profile.slowdown.is_some() && profile.transfers.is_some());
        assert_eq!(read(&toml::to_string(&profile).unwrap()).unwrap(), profile);
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (toml, named) in [
            ("sped = 2", "unknown field `sped`"),
            ("error_probability = 2.0", "error_probability: 2"),
            ("service_time = { distribution = \"constant\", ms = -1.0 }", "service_time.ms"),
            ("service_time = { distribution = \"uniform\", ms = 1.0 }", "ms"),
            ("straggle = { probability = 0.1, min_ms = 2.0, max_ms = 1.0 }", "straggle: 2 to 1 ms"),
            (
                "model_service_time = { a = { distribution = \"empirical\", values_ms = [] } }",
                "model_service_time.a.values_ms: none",
            ),
            (
                "freeze = { mean_interval_ms = 0.0, min_ms = 1, max_ms = 2 }",
                "freeze.mean_interval_ms",
            ),
        ] {
            let error = read(&format!("seed = 1\n{toml}")).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
        let error = read("").unwrap_err().to_string();
        assert!(error.contains("missing field `seed`") && !error.contains('\n'));
    }
}
