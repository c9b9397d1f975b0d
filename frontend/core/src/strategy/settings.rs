//! Settings as files have them: how single values are read, and the checks of all of them.

use std::time::Duration;

use parapet_encoder::Decoding;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{CodedConfig, HoldBackPolicy, SendParity, StrategyConfig};

/// Default of the wait for an answered query's own prediction.
pub(super) const LATE_TRUTH_WAIT: Duration = Duration::from_secs(2);

/// Instances of the deployed model, as far as the checks of settings need to know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeployedInstances {
    /// Number of instances; `None` where they are discovered.
    pub count: Option<usize>,
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; {fix}")]
pub struct SettingError {
    /// Name of the setting, with dots.
    pub field: String,
    /// Value, and the problem with it.
    pub problem: String,
    /// Remedy.
    pub fix: String,
}

impl SettingError {
    /// A problem with the setting `field`, and its remedy.
    pub fn new(field: &str, problem: impl ToString, fix: impl Into<String>) -> Self {
        let (field, problem, fix) = (field.to_owned(), problem.to_string(), fix.into());
        Self { field, problem, fix }
    }
}

impl StrategyConfig {
    /// Checks every number, and that there are instances for it.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(&self, deployed: DeployedInstances) -> Result<(), SettingError> {
        match self {
            Self::None => Ok(()),
            Self::Replicate(config) => {
                let copies = config.copies;
                let fix = "give at least 2: the query's own request counts";
                ensure(copies >= 2, "copies", copies, fix)?;
                if let Some(count) = deployed.count {
                    let problem = format!("{copies} copies, and the model has {count} instances");
                    let fix = "give at most one copy for each instance";
                    ensure(copies as usize <= count, "copies", problem, fix)?;
                }
                share("share", config.share())?;
                burst("burst", config.burst)?;
                let extra = f64::from(config.extra());
                let fix = format!("give at least copies - 1 = {extra}");
                ensure(config.burst >= extra, "burst", config.burst, fix)
            }
            Self::Hedge(config) => {
                deployed.check_second()?;
                let max_copies = config.max_copies;
                ensure(max_copies >= 1, "max_copies", max_copies, "give at least 1")?;
                if let Some(count) = deployed.count {
                    let problem = format!(
                        "{max_copies} beside the query's own request, and the model has {count} \
                            instances"
                    );
                    let fix = format!("give at most {}", count.saturating_sub(1));
                    ensure((max_copies as usize) < count, "max_copies", problem, fix)?;
                }
                share("share", config.share)?;
                burst("burst", config.burst)?;
                check_late("delay", &config.delay)
            }
            Self::ApproximateBackup(config) => {
                share("share", config.share())?;
                burst("burst", config.burst)?;
                check_late("delay", &config.delay)
            }
            Self::Coded(config) => {
                let problem = "kind = \"coded\" does not hedge";
                ensure(config.hedge.is_none(), "hedge", problem, "use kind = \"coded_hedged\"")?;
                config.check()
            }
            Self::CodedHedged(config) => {
                deployed.check_second()?;
                let hedge = config.hedge.unwrap_or_default();
                share("hedge.share", hedge.share)?;
                burst("hedge.burst", hedge.burst)?;
                config.check()
            }
        }
    }
}

impl CodedConfig {
    fn check(&self) -> Result<(), SettingError> {
        let fix = "give 2 to 64 queries in a group";
        ensure((2..=64).contains(&self.k), "k", self.k, fix)?;
        let fix = "give 1 to 16 parity rows";
        ensure((1..=16).contains(&self.r), "r", self.r, fix)?;
        let has_slots = self.decoding == Decoding::Slots;
        let fits = has_slots || self.send_parity != SendParity::WhenLate;
        let problem = "\"when_late\" with decoding = \"linear\", which needs the other predictions";
        let fix = "use a code with slots, as encoder = \"stack\", or \"in_time\"";
        ensure(fits, "send_parity", problem, fix)?;
        share("redundant_share", self.redundant_share)?;
        burst("redundant_burst", self.redundant_burst)?;
        ensure(self.max_keys >= 1, "max_keys", 0, "give at least 1")?;
        let time = "give a time in milliseconds above 0";
        ensure(!self.flush_after.is_zero(), "flush_after_ms", 0, time)?;
        ensure(!self.parity_timeout.is_zero(), "parity_timeout_ms", 0, time)?;
        check_late("hold_back", &self.hold_back)
    }
}

impl DeployedInstances {
    /// Checks that a copy has an instance other than its query's.
    ///
    /// # Errors
    /// [`SettingError`] of `kind`.
    pub fn check_second(self) -> Result<(), SettingError> {
        let Some(count) = self.count else { return Ok(()) };
        let problem = format!("a second copy needs a second instance, and the model has {count}");
        ensure(count >= 2, "kind", problem, "add an instance, or use kind = \"none\"")
    }
}

fn check_late(field: &str, policy: &HoldBackPolicy) -> Result<(), SettingError> {
    let HoldBackPolicy::Learned { percentile, min, max, max_over_median } = policy else {
        return Ok(());
    };
    let part = |name: &str| format!("{field}.{name}");
    let fix = "give a quantile from 0.5 to below 1, as 0.97";
    ensure((0.5..1.0).contains(percentile), &part("percentile"), percentile, fix)?;
    ensure(max >= min, &part("max_ms"), "less than min_ms", "raise it")?;
    let fix = "give how many medians are late at most, from 1, as 1.5; inf for no bound";
    let (holds, field) = (*max_over_median >= 1.0, part("max_over_median"));
    ensure(holds, &field, max_over_median, fix)
}

fn share(field: &str, value: f64) -> Result<(), SettingError> {
    ensure((0.0..=16.0).contains(&value), field, value, "give a share of the queries, 0 to 16")
}

fn burst(field: &str, value: f64) -> Result<(), SettingError> {
    ensure((0.0..=1e9).contains(&value), field, value, "give a number from 0 to 1000000000")
}

fn ensure(
    good: bool,
    field: &str,
    problem: impl ToString,
    fix: impl Into<String>,
) -> Result<(), SettingError> {
    if good { Ok(()) } else { Err(SettingError::new(field, problem, fix)) }
}

/// Definition of late in a file: `fixed_ms`, or a percentile of recent latency within bounds.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { percentile = 0.95 }")]
struct Late {
    fixed_ms: Option<f64>,
    percentile: Option<f64>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    max_over_median: Option<f64>,
}

impl Serialize for HoldBackPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ms = |time: &Duration| Some(time.as_secs_f64() * 1e3);
        let late = match self {
            Self::Fixed(time) => Late { fixed_ms: ms(time), ..Late::default() },
            Self::Learned { percentile, min, max, max_over_median } => Late {
                fixed_ms: None,
                percentile: Some(*percentile),
                min_ms: ms(min),
                max_ms: ms(max),
                max_over_median: Some(*max_over_median),
            },
        };
        late.serialize(to)
    }
}

/// Reads a policy whose percentile is 0.95 where the file has none.
pub(super) fn late_at_95<'de, D: Deserializer<'de>>(from: D) -> Result<HoldBackPolicy, D::Error> {
    late(from, 0.95)
}

/// Reads a policy whose percentile is 0.97 where the file has none.
pub(super) fn late_at_97<'de, D: Deserializer<'de>>(from: D) -> Result<HoldBackPolicy, D::Error> {
    late(from, 0.97)
}

fn late<'de, D: Deserializer<'de>>(from: D, usual: f64) -> Result<HoldBackPolicy, D::Error> {
    let late = Late::deserialize(from)?;
    let time = |ms: Option<f64>, default| ms.map_or(Ok(default), of_millis::<D::Error>);
    let learned = late.percentile.or(late.min_ms).or(late.max_ms).or(late.max_over_median);
    if let Some(fixed) = late.fixed_ms {
        if learned.is_some() {
            let problem = "hold_back (delay): fixed_ms beside a percentile; give one or the other";
            return Err(D::Error::custom(problem));
        }
        return of_millis(fixed).map(HoldBackPolicy::Fixed);
    }
    Ok(HoldBackPolicy::Learned {
        percentile: late.percentile.unwrap_or(usual),
        min: time(late.min_ms, HoldBackPolicy::MIN)?,
        max: time(late.max_ms, HoldBackPolicy::MAX)?,
        max_over_median: late.max_over_median.unwrap_or(HoldBackPolicy::MAX_OVER_MEDIAN),
    })
}

/// Times in files: milliseconds, with a fraction if need be.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::of_millis;

    /// Reads a time.
    ///
    /// # Errors
    /// If it is no number, or below 0.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        of_millis(f64::deserialize(from)?)
    }

    /// Writes a time.
    ///
    /// # Errors
    /// The errors of `to`.
    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(time.as_millis()) {
            Ok(whole) if Duration::from_millis(whole) == *time => to.serialize_u64(whole),
            _ => to.serialize_f64(time.as_secs_f64() * 1e3),
        }
    }
}

fn of_millis<E: serde::de::Error>(ms: f64) -> Result<Duration, E> {
    let wrong = |_| E::custom("expected milliseconds, a number of at least 0");
    Duration::try_from_secs_f64(ms / 1e3).map_err(wrong)
}

pub(super) const fn number<const N: usize>() -> usize {
    N
}

pub(super) const fn whole<const N: u16>() -> f64 {
    N as f64
}

pub(super) const fn ms<const N: u64>() -> Duration {
    Duration::from_millis(N)
}

pub(super) const fn learned_97() -> HoldBackPolicy {
    HoldBackPolicy::learned(0.97)
}
pub(super) const fn late_truth_wait() -> Duration {
    LATE_TRUTH_WAIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use parapet_encoder::Decoding;

    use crate::{HedgeConfig, PoolId, ReplicateConfig};

    fn read(text: &str) -> StrategyConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_kind_has_defaults() {
        for kind in StrategyConfig::NAMES {
            let k = if kind.starts_with("coded") { "k = 2" } else { "" };
            let config = read(&format!("kind = \"{kind}\"\n{k}"));
            assert_eq!(config.name(), *kind);
            assert_eq!(config.check(DeployedInstances { count: Some(4) }), Ok(()), "{kind}");
        }
    }

    #[test]
    fn budgets_that_make_no_sense_are_refused() {
        let at_four = DeployedInstances { count: Some(4) };
        for (text, field) in [
            ("kind = \"replicate\"\nburst = -1", "burst"),
            ("kind = \"replicate\"\nburst = 1e10", "burst"),
            ("kind = \"hedge\"\nshare = 17", "share"),
            ("kind = \"hedge\"\nshare = nan", "share"),
        ] {
            assert_eq!(read(text).check(at_four).unwrap_err().field, field, "{text}");
        }
    }

    #[test]
    fn defaults_of_late_differ_by_strategy() {
        let StrategyConfig::Hedge(hedge) = read("kind = \"hedge\"\ndelay = { min_ms = 2 }") else {
            panic!("a hedge");
        };
        let learned = |percentile| HoldBackPolicy::learned(percentile);
        assert!(matches!(hedge.delay, HoldBackPolicy::Learned { percentile: 0.95, .. }));
        assert_eq!(HedgeConfig::default().delay, learned(0.95));
        let StrategyConfig::Coded(coded) = read("kind = \"coded\"\nk = 3") else {
            panic!("coded");
        };
        assert_eq!(coded.hold_back, learned(0.97));
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = CodedConfig {
            k: 2,
            r: 1,
            decoding: Decoding::Linear,
            first_parity: PoolId::FIRST_REDUNDANT,
            hold_back: HoldBackPolicy::learned(0.97),
            send_parity: SendParity::InTime,
            flush_after: Duration::from_millis(10),
            late_truth_wait: Duration::from_secs(2),
            parity_timeout: Duration::from_secs(1),
            redundant_share: 1.0,
            redundant_burst: 16.0,
            shed_above: None,
            audit_every: 50,
            max_keys: 64,
            max_kept_bytes: 67_108_864,
            hedge: None,
        };
        assert_eq!(read("kind = \"coded\"\nk = 2"), StrategyConfig::Coded(config));
        let config = ReplicateConfig { copies: 2, share: None, burst: 16.0, shed_above: None };
        assert_eq!(read("kind = \"replicate\""), StrategyConfig::Replicate(config));
    }

    #[test]
    fn unknown_and_contradicting_settings_are_refused() {
        for (text, named) in [
            ("kind = \"hedge\"\ncopies = 2", "unknown field `copies`"),
            ("kind = \"hedge\"\ndelay = 3", "expected a table such as { percentile"),
            ("kind = \"hedged\"", "unknown variant `hedged`"),
            ("kind = \"coded\"", "missing field `k`"),
            ("kind = \"hedge\"\ndelay = { fixed_ms = 1, min_ms = 1 }", "one or the other"),
            ("kind = \"hedge\"\ndelay = { fixed_ms = -1 }", "at least 0"),
        ] {
            let error = toml::from_str::<StrategyConfig>(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
