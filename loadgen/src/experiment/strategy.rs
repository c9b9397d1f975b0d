//! Arms of an experiment: a strategy with its settings, and the instances that it uses.

use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use parapet_frontend_core::{DeployedInstances, StrategyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Roles, strategy_names};

/// Name of the arm without redundancy on all instances, the baseline of ParM (section 5).
pub const EQUAL_RESOURCES: &str = "equal_resources";

/// An arm as it is written: settings in the form of the frontend's `[models.strategy]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Name in reports.
    pub name: String,
    /// Description in a line; empty for its kind's own.
    pub description: String,
    /// Kind and settings of the strategy.
    pub settings: Map<String, Value>,
    /// True if the redundant instances serve the deployed model, though the strategy needs none.
    pub all_instances: bool,
    /// True if it was written on a command line: its settings win over the flags for all arms.
    #[serde(skip)]
    pub written: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedArm {
    pub label: String,
    pub config: StrategyConfig,
    pub all_instances: bool,
}

impl FromStr for Arm {
    type Err = anyhow::Error;

    /// Reads `name` or `name:k=3:hold_back.fixed_ms=22`, with the settings of the frontend's
    /// configuration; `equal_resources` is `none` on all instances.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let all_instances = name == EQUAL_RESOURCES;
        let kind = if all_instances { "none" } else { name };
        ensure!(
            StrategyConfig::NAMES.contains(&kind),
            "unknown strategy {name:?}; choose among {EQUAL_RESOURCES}, {}",
            strategy_names()
        );
        let mut settings = Map::new();
        settings.insert("kind".to_owned(), Value::from(kind));
        for part in parts {
            let setting = part.split_once('=').and_then(|(name, value)| {
                insert(&mut settings, name, serde_json::from_str(value).ok()?)
            });
            setting.with_context(|| {
                format!(
                    "strategy {text:?}: {part:?} is no parameter; write it as, say, \
                     coded:k=3:r=1:flush_after_ms=6"
                )
            })?;
        }
        Ok(Self {
            name: text.to_owned(),
            description: String::new(),
            settings,
            all_instances,
            written: true,
        })
    }
}

/// Sets the value at a name with dots; `None` if a part of it is no table.
fn insert(settings: &mut Map<String, Value>, name: &str, value: Value) -> Option<()> {
    match name.split_once('.') {
        None => settings.insert(name.to_owned(), value),
        Some((table, rest)) => {
            let table = settings
                .entry(table)
                .or_insert_with(|| Value::Object(Map::new()));
            return insert(table.as_object_mut()?, rest, value);
        }
    };
    Some(())
}

impl Arm {
    pub fn kind(&self) -> &str {
        let kind = self.settings.get("kind").and_then(Value::as_str);
        kind.unwrap_or_default()
    }

    /// The arm with its settings checked; `k` and `r` are for codes that have none of their own.
    pub fn resolve(&self, k: usize, r: usize, roles: Roles) -> anyhow::Result<ResolvedArm> {
        let mut settings = self.settings.clone();
        if self.kind().starts_with("coded") {
            settings.entry("k").or_insert(Value::from(k));
            settings.entry("r").or_insert(Value::from(r));
        }
        let name = &self.name;
        let refused =
            |problem: String| anyhow!("strategy {name:?}: {problem} (docs/strategies.md)");
        let config: StrategyConfig = serde_json::from_value(Value::Object(settings))
            .map_err(|error| refused(error.to_string()))?;
        let arm = ResolvedArm {
            label: name.clone(),
            config,
            all_instances: self.all_instances,
        };
        let deployed = DeployedInstances {
            count: Some(roles.deployed(&arm)),
        };
        let checked = arm.config.check(deployed);
        checked.map_err(|error| refused(error.to_string()))?;
        Ok(arm)
    }
}

impl ResolvedArm {
    pub const fn description(&self) -> &'static str {
        match self.config {
            StrategyConfig::None if self.all_instances => {
                "one request for each query, on all instances"
            }
            StrategyConfig::None => "one request for each query",
            StrategyConfig::Replicate(_) => "several copies of each query at once",
            StrategyConfig::Hedge(_) => "a copy of each query that is late",
            StrategyConfig::ApproximateBackup(_) => {
                "a cheaper model's prediction for each query that is late"
            }
            StrategyConfig::Coded(_) => "a reconstruction for each query that is late",
            StrategyConfig::CodedHedged(_) => {
                "a reconstruction or a copy for each query that is late"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: Roles = Roles {
        instances: 12,
        redundant: 6,
    };

    fn resolve(text: &str) -> anyhow::Result<ResolvedArm> {
        text.parse::<Arm>()?.resolve(2, 1, ROLES)
    }

    #[test]
    fn arms_are_read_with_their_settings() {
        let arm = resolve("coded:k=4:r=2:hold_back.fixed_ms=22").unwrap();
        let StrategyConfig::Coded(coded) = &arm.config else {
            panic!("{arm:?}");
        };
        assert_eq!((coded.k, coded.r), (4, 2));
        assert_eq!(arm.label, "coded:k=4:r=2:hold_back.fixed_ms=22");
        for name in StrategyConfig::NAMES {
            assert_eq!(resolve(name).unwrap().config.name(), name);
        }
        let equal = resolve(EQUAL_RESOURCES).unwrap();
        assert_eq!(
            (equal.config, equal.all_instances),
            (StrategyConfig::None, true)
        );
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (text, named) in [
            (
                "code",
                "unknown strategy \"code\"; choose among equal_resources, none",
            ),
            ("coded:k", "\"k\" is no parameter"),
            ("coded:k=two", "\"k=two\" is no parameter"),
            ("coded:k=1", "k: 1; give 2 to 64"),
            ("coded:r=0", "r: 0; give 1 to 16"),
            ("coded:copies=2", "unknown field `copies`"),
            ("replicate:copies=1", "copies: 1"),
        ] {
            let line = resolve(text).unwrap_err().to_string();
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
        }
    }
}
