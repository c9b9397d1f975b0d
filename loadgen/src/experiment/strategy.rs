//! Strategies by name, with their settings.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use parapet_frontend_core::{
    ApproximateBackupConfig, CodedConfig, CodedHedgedConfig, HedgeConfig, HoldBackPolicy, PoolId,
    ReplicateConfig, StrategyConfig,
};

use super::{ExperimentError, Role};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrategyKind {
    /// No redundancy, and no more instances either.
    None,
    /// No redundancy, all instances with the deployed model.
    EqualResources,
    /// Several copies of each query at once.
    Replicate,
    /// A second copy when a query is late.
    Hedge,
    /// A cheaper model's prediction when a query is late.
    ApproximateBackup,
    Coded,
    /// Coded redundancy, and a second copy when a query is late.
    CodedHedged,
}

impl StrategyKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::EqualResources,
        Self::Replicate,
        Self::Hedge,
        Self::ApproximateBackup,
        Self::Coded,
        Self::CodedHedged,
    ];

    /// Its name, the same as in the frontend's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::EqualResources => "equal_resources",
            Self::Replicate => "replicate",
            Self::Hedge => "hedge",
            Self::ApproximateBackup => "approximate_backup",
            Self::Coded => "coded",
            Self::CodedHedged => "coded_hedged",
        }
    }

    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Returns a description, in a line.
    pub const fn description(self) -> &'static str {
        match self {
            Self::None => "one request for each query",
            Self::EqualResources => "one request for each query, on all instances",
            Self::Replicate => "several copies of each query at once",
            Self::Hedge => "a copy of each query that is late",
            Self::ApproximateBackup => "a cheaper model's prediction for each query that is late",
            Self::Coded => "a reconstruction for each query that is late",
            Self::CodedHedged => "a reconstruction or a copy for each query that is late",
        }
    }
}

/// Settings that strategies may have; each takes those that concern it. The defaults
/// are the frontend's.
#[derive(Debug, Clone, PartialEq)]
pub struct StrategySettings {
    /// Queries in a coding group.
    pub k: usize,
    pub r: usize,
    /// Requests for each query, where several are sent at once.
    pub copies: u32,
    /// When a query counts as late.
    pub hold_back: HoldBackPolicy,
    /// Time that a coding group may stay open while a query in it waits.
    pub flush_after: Duration,
    /// True if a backup model is asked for each query on its arrival, and not only when it is late.
    pub eager: bool,
    /// Parity queries, or requests to a backup model, allowed for each query.
    pub redundant_share: f64,
    /// Redundant requests allowed at once beyond that.
    pub redundant_burst: f64,
    /// Late copies allowed for each query.
    pub hedge_share: f64,
    /// No redundant requests while more queries than this wait for a slot; as many as there are
    /// slots if `None`.
    pub shed_above: Option<usize>,
    /// Parity queries only when they are due.
    pub defer_parity: bool,
}

impl Default for StrategySettings {
    fn default() -> Self {
        Self {
            k: 2,
            r: 1,
            copies: 2,
            hold_back: HoldBackPolicy::Learned {
                percentile: 0.97,
                min: Duration::from_millis(1),
                max: Duration::from_millis(200),
                max_over_median: HoldBackPolicy::MAX_OVER_MEDIAN,
            },
            flush_after: Duration::from_millis(10),
            eager: false,
            redundant_share: 1.0,
            redundant_burst: 16.0,
            hedge_share: 0.05,
            shed_above: None,
            defer_parity: true,
        }
    }
}

/// A strategy with its settings, written `name` or `name:k=3:r=1`.
#[derive(Debug, Clone, PartialEq)]
pub struct StrategySpec {
    /// Label in reports: as it was written.
    pub label: String,
    pub kind: StrategyKind,
    pub settings: StrategySettings,
}

impl FromStr for StrategySpec {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        Self::parse(text, &StrategySettings::default())
    }
}

impl fmt::Display for StrategySpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.label)
    }
}

impl StrategySpec {
    /// Reads `name` or `name:k=3:r=1:copies=2:eager=true:flush_ms=6:hold_back=0.97` (or
    /// `hold_back_ms=22`), and further `hold_back_min_ms`, `hold_back_max_ms`, `max_over_median`,
    /// `redundant_share`, `hedge_share`, `burst`, `shed_above`, `defer_parity`; what is not there
    /// is as in `defaults`.
    ///
    /// # Errors
    /// When there is no such strategy or parameter, or a number cannot be.
    pub fn parse(text: &str, defaults: &StrategySettings) -> Result<Self, ExperimentError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let kind = StrategyKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| ExperimentError::UnknownStrategy(name.to_owned()))?;
        let mut settings = defaults.clone();
        for part in parts {
            let wrong = || ExperimentError::Parameter {
                spec: text.to_owned(),
                part: part.to_owned(),
            };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            match name {
                "k" => settings.k = value.parse().map_err(|_| wrong())?,
                "r" => settings.r = value.parse().map_err(|_| wrong())?,
                "eager" => settings.eager = value.parse().map_err(|_| wrong())?,
                "copies" => settings.copies = value.parse().map_err(|_| wrong())?,
                "flush_ms" => settings.flush_after = millis(value).ok_or_else(wrong)?,
                "hold_back_ms" => {
                    settings.hold_back = HoldBackPolicy::Fixed(millis(value).ok_or_else(wrong)?);
                }
                "redundant_share" => {
                    settings.redundant_share = value.parse().map_err(|_| wrong())?
                }
                "hedge_share" => settings.hedge_share = value.parse().map_err(|_| wrong())?,
                "burst" => settings.redundant_burst = value.parse().map_err(|_| wrong())?,
                "defer_parity" => settings.defer_parity = value.parse().map_err(|_| wrong())?,
                "shed_above" => settings.shed_above = Some(value.parse().map_err(|_| wrong())?),
                "hold_back_min_ms" | "hold_back_max_ms" => {
                    let time = millis(value).ok_or_else(wrong)?;
                    match &mut settings.hold_back {
                        HoldBackPolicy::Learned { min, .. } if name == "hold_back_min_ms" => {
                            *min = time
                        }
                        HoldBackPolicy::Learned { max, .. } => *max = time,
                        HoldBackPolicy::Fixed(_) => return Err(wrong()),
                    }
                }
                "max_over_median" => {
                    let given: f64 = value.parse().map_err(|_| wrong())?;
                    match &mut settings.hold_back {
                        HoldBackPolicy::Learned {
                            max_over_median, ..
                        } => *max_over_median = given,
                        HoldBackPolicy::Fixed(_) => return Err(wrong()),
                    }
                }
                "hold_back" => {
                    let given: f64 = value.parse().map_err(|_| wrong())?;
                    match &mut settings.hold_back {
                        HoldBackPolicy::Learned { percentile, .. } => *percentile = given,
                        HoldBackPolicy::Fixed(_) => return Err(wrong()),
                    }
                }
                _ => return Err(wrong()),
            }
        }
        settings.check()?;
        Ok(Self {
            label: text.to_owned(),
            kind,
            settings,
        })
    }

    /// The configuration of the frontend's own strategy, for these pools with `slots`
    /// for each instance.
    pub fn config(&self, pools: &[(Role, usize)], slots: u32) -> StrategyConfig {
        let deployed = pools.first().map_or(0, |(_, instances)| *instances);
        let all_slots = deployed.saturating_mul(slots as usize);
        let settings = &self.settings;
        let shed_above = settings.shed_above.unwrap_or(all_slots);
        let delay = settings.hold_back.clone();
        match self.kind {
            StrategyKind::None => StrategyConfig::None,
            StrategyKind::EqualResources => StrategyConfig::EqualResources,
            StrategyKind::Replicate => StrategyConfig::Replicate(ReplicateConfig {
                copies: settings.copies,
                share: f64::from(settings.copies.saturating_sub(1)),
                burst: settings.redundant_burst.max(f64::from(settings.copies)),
                shed_above,
            }),
            StrategyKind::Hedge => StrategyConfig::Hedge(HedgeConfig {
                delay,
                max_copies: settings.copies.saturating_sub(1),
                share: settings.hedge_share,
                burst: settings.redundant_burst,
                shed_above,
            }),
            StrategyKind::ApproximateBackup => {
                StrategyConfig::ApproximateBackup(ApproximateBackupConfig {
                    pool: PoolId::FIRST_REDUNDANT,
                    delay,
                    eager: settings.eager,
                    late_truth_wait: LATE_TRUTH_WAIT,
                    share: settings.redundant_share,
                    burst: settings.redundant_burst,
                    shed_above,
                })
            }
            StrategyKind::Coded => StrategyConfig::Coded(settings.coded(shed_above)),
            StrategyKind::CodedHedged => StrategyConfig::CodedHedged(CodedHedgedConfig {
                coded: settings.coded(shed_above),
                share: settings.hedge_share,
                burst: settings.redundant_burst,
            }),
        }
    }
}

impl StrategySettings {
    /// Returns true if every number is one that it can be.
    ///
    /// # Errors
    /// One line that names the setting, its value and what to give.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let number = |good: bool, what: &'static str, value: String, fix: &'static str| {
            if good {
                Ok(())
            } else {
                Err(ExperimentError::Number { what, value, fix })
            }
        };
        number(
            (2..=64).contains(&self.k),
            "k",
            self.k.to_string(),
            "give 2 to 64 queries in a group",
        )?;
        number(
            (1..=16).contains(&self.r),
            "r",
            self.r.to_string(),
            "give 1 to 16 parity rows",
        )?;
        number(
            (2..=8).contains(&self.copies),
            "copies",
            self.copies.to_string(),
            "give 2 to 8",
        )?;
        if let HoldBackPolicy::Learned {
            percentile,
            max_over_median,
            ..
        } = self.hold_back
        {
            let good = (0.5..1.0).contains(&percentile);
            let fix = "give a quantile from 0.5 to below 1, as 0.97";
            number(good, "hold-back percentile", percentile.to_string(), fix)?;
            let good = max_over_median >= 1.0;
            number(
                good,
                "max_over_median",
                max_over_median.to_string(),
                "give a number from 1, as 1.5",
            )?;
        }
        for (what, share) in [
            ("redundant share", self.redundant_share),
            ("hedge share", self.hedge_share),
        ] {
            number(
                (0.0..=16.0).contains(&share),
                what,
                share.to_string(),
                "give a number from 0 to 16",
            )?;
        }
        let burst = self.redundant_burst;
        let good = (0.0..=1e9).contains(&burst);
        number(
            good,
            "redundant burst",
            burst.to_string(),
            "give a number from 0 to 1000000000",
        )
    }

    fn coded(&self, shed_above: usize) -> CodedConfig {
        CodedConfig {
            k: self.k,
            r: self.r,
            first_parity: PoolId::FIRST_REDUNDANT,
            hold_back: self.hold_back.clone(),
            defer_parity: self.defer_parity,
            flush_after: self.flush_after,
            late_truth_wait: LATE_TRUTH_WAIT,
            parity_timeout: PARITY_TIMEOUT,
            redundant_share: self.redundant_share,
            redundant_burst: self.redundant_burst,
            shed_above,
            audit_every: 50,
            max_keys: 64,
            max_kept_bytes: 0,
        }
    }
}

fn millis(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / 1e3).ok()
}

const LATE_TRUTH_WAIT: Duration = Duration::from_secs(2);
const PARITY_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_read_with_their_parameters() {
        let spec: StrategySpec = "coded:k=4:r=2".parse().unwrap();
        assert_eq!(
            (spec.kind, spec.settings.k, spec.settings.r),
            (StrategyKind::Coded, 4, 2)
        );
        assert_eq!(spec.to_string(), "coded:k=4:r=2");
        for kind in StrategyKind::ALL {
            assert_eq!(kind.name().parse::<StrategySpec>().unwrap().kind, kind);
        }
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (text, named) in [
            (
                "code",
                "unknown strategy \"code\"; choose among none, equal_resources",
            ),
            ("coded:k", "\"k\" is no parameter"),
            ("coded:k=two", "\"k=two\" is no parameter"),
            ("coded:k=1", "k 1; give 2 to 64"),
            ("coded:r=0", "r 0; give 1 to 16"),
            ("replicate:copies=1", "copies 1"),
        ] {
            let line = text.parse::<StrategySpec>().unwrap_err().to_string();
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
        }
    }
}
