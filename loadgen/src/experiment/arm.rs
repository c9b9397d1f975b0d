//! Arms of an experiment: a strategy with its settings, and the instances that it uses.

use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use parapet_config::repository::EncoderKind;
use parapet_frontend_core::{DeployedInstances, StrategyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Instances;

/// Name of the arm without redundancy on all instances, the baseline of ParM (section 5).
pub const EQUAL_RESOURCES: &str = "equal_resources";

/// Size of the coding groups of an arm that is written without one.
const USUAL_K: usize = 2;

/// Settings of a strategy that have no part in the engine, and none in a simulation.
const REAL_SETTINGS: [&str; 7] = [
    "encoder",
    "model",
    "version",
    "slots_per_instance",
    "max_queue",
    "max_coding_queue",
    "transform",
];

/// An arm as it is written: made here, from its settings and the instances, or served already by a
/// frontend at its `url`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Arm {
    /// Name in reports, unlike the others'.
    pub name: String,
    /// Description in a line; empty for its kind's own.
    pub description: String,
    /// The frontend's `[models.strategy]`, but for instances and models, which the roles give.
    pub settings: Map<String, Value>,
    /// True if the redundant instances serve the deployed model, though `none` needs none.
    pub all_instances: bool,
    /// For coded strategies, the parity model of each row.
    pub parity_models: Vec<String>,
    pub backup_model: Option<String>,
    /// A frontend that runs already and serves the model under this strategy, in place of all but
    /// name and description: `http://host:port`.
    pub url: Option<String>,
    /// Where that frontend's `/metrics` are, if not at `url`.
    pub metrics_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedArm {
    pub description: String,
    pub config: StrategyConfig,
    /// Models and numbers of instances, in the order of the pools' ids.
    pub pools: Vec<(Role, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    Deployed,
    #[strum(to_string = "parity {0}")]
    Parity(u8),
    Backup,
}

impl Role {
    pub const fn model(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::Parity(_) => "parity",
            Self::Backup => "backup",
        }
    }
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
            StrategyConfig::NAMES.join(", ")
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
        if kind.starts_with("coded") {
            settings.entry("k").or_insert(Value::from(USUAL_K));
        }
        Ok(Self { name: text.to_owned(), settings, all_instances, ..Self::default() })
    }
}

fn insert(settings: &mut Map<String, Value>, name: &str, value: Value) -> Option<()> {
    let Some((table, rest)) = name.split_once('.') else {
        settings.insert(name.to_owned(), value);
        return Some(());
    };
    insert(settings.entry(table).or_insert(Value::Object(Map::new())).as_object_mut()?, rest, value)
}

impl Arm {
    pub fn kind(&self) -> &str {
        self.settings.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn resolve(&self, instances: Instances) -> anyhow::Result<ResolvedArm> {
        let name = &self.name;
        let refused =
            |problem: String| anyhow!("strategy {name:?}: {problem} (docs/strategies.md)");
        let mut settings = self.settings.clone();
        if self.kind().starts_with("coded")
            && let Some(encoder) = settings.get("encoder").cloned()
        {
            let encoder: EncoderKind = serde_json::from_value(encoder)
                .map_err(|error| refused(format!("encoder: {error}")))?;
            let decoding = encoder.usual_decoding().to_string();
            settings.entry("decoding").or_insert(decoding.into());
        }
        for name in REAL_SETTINGS {
            settings.remove(name);
        }
        let config: StrategyConfig = serde_json::from_value(Value::Object(settings))
            .map_err(|error| refused(error.to_string()))?;
        let (deployed, redundant) = (instances.deployed, instances.redundant);
        ensure!(deployed > 0, "instances 0; give at least one instance of the deployed model");
        let deployed = match config {
            StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => deployed + redundant,
            _ if self.all_instances => deployed + redundant,
            _ => deployed,
        };
        let count = Some(deployed);
        config.check(DeployedInstances { count }).map_err(|error| refused(error.to_string()))?;
        let description = match self.description.as_str() {
            "" => description(&config, self.all_instances),
            own => own,
        };
        Ok(ResolvedArm {
            description: description.to_owned(),
            pools: pools(&config, deployed, redundant)?,
            config,
        })
    }
}

/// The pools of a strategy, in the order of their ids:
///
/// | strategy | deployed model | others |
/// |---|---|---|
/// | `none` | `deployed` | |
/// | `none` on all instances, `replicate`, `hedge` | `deployed + redundant` | |
/// | `coded`, `coded_hedged` | `deployed` | `redundant`, shared evenly by a pool for each row |
/// | `approximate_backup` | `deployed` | `redundant` of the backup model |
fn pools(
    config: &StrategyConfig,
    deployed: usize,
    redundant: usize,
) -> anyhow::Result<Vec<(Role, usize)>> {
    let needs = |needed: usize| {
        let strategy = config.name();
        ensure!(
            redundant >= needed,
            "strategy {strategy} needs at least {needed} redundant instances and has {redundant}; \
             add some"
        );
        Ok(())
    };
    let mut pools = vec![(Role::Deployed, deployed)];
    match config {
        StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {}
        StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
            let (k, r) = (config.k, config.r);
            ensure!(
                k <= deployed,
                "k = {k} is more than the {deployed} instances of the deployed model; lower k or \
                 add instances"
            );
            needs(r)?;
            // Rows before the remainder have one more.
            let of_row = |row: usize| redundant / r + usize::from(row < redundant % r);
            pools.extend((0..r).zip(0..).map(|(place, row)| (Role::Parity(row), of_row(place))));
        }
        StrategyConfig::ApproximateBackup(_) => {
            needs(1)?;
            pools.push((Role::Backup, redundant));
        }
    }
    Ok(pools)
}

const fn description(config: &StrategyConfig, all_instances: bool) -> &'static str {
    match config {
        StrategyConfig::None if all_instances => "one request for each query, on all instances",
        StrategyConfig::None => "one request for each query",
        StrategyConfig::Replicate(_) => "several copies of each query at once",
        StrategyConfig::Hedge(_) => "a copy of each query that is late",
        StrategyConfig::ApproximateBackup(_) => {
            "a cheaper model's prediction for each query that is late"
        }
        StrategyConfig::Coded(_) => "a reconstruction for each query that is late",
        StrategyConfig::CodedHedged(_) => "a reconstruction or a copy for each query that is late",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCES: Instances = Instances { deployed: 12, redundant: 7, slots: 1 };

    fn resolve(text: &str) -> anyhow::Result<ResolvedArm> {
        text.parse::<Arm>()?.resolve(INSTANCES)
    }

    #[test]
    fn arms_are_read_with_their_settings() {
        let text = "coded:k=4:r=2:hold_back.fixed_ms=22";
        let arm = resolve(text).unwrap();
        let StrategyConfig::Coded(coded) = &arm.config else {
            panic!("{arm:?}");
        };
        assert_eq!((coded.k, coded.r), (4, 2));
        let written: Arm = text.parse().unwrap();
        assert_eq!(written.name, text);
        for name in StrategyConfig::NAMES {
            assert_eq!(resolve(name).unwrap().config.name(), *name);
        }
        assert_eq!(resolve(EQUAL_RESOURCES).unwrap().config, StrategyConfig::None);
    }

    #[test]
    fn every_redundant_strategy_has_as_many_instances() {
        let pools = |text| resolve(text).unwrap().pools;
        for text in [
            EQUAL_RESOURCES,
            "replicate",
            "hedge",
            "coded:r=3",
            "coded_hedged",
            "approximate_backup",
        ] {
            let total: usize = pools(text).iter().map(|(_, count)| count).sum();
            assert_eq!(total, 19, "{text}");
        }
        assert_eq!(pools("none"), [(Role::Deployed, 12)]);
        let parity = [(0, 3), (1, 2), (2, 2)].map(|(row, count)| (Role::Parity(row), count));
        assert_eq!(pools("coded:r=3")[1..], parity);
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        let unknown = "unknown strategy \"code\"; choose among equal_resources, none";
        for (text, named) in [
            ("code", unknown),
            ("coded:k", "\"k\" is no parameter"),
            ("coded:k=two", "\"k=two\" is no parameter"),
            ("coded:k=1", "k: 1; give 2 to 64"),
            ("coded:r=0", "r: 0; give 1 to 16"),
            ("coded:copies=2", "unknown field `copies`"),
            ("replicate:copies=1", "copies: 1"),
            ("coded:k=13", "k = 13 is more than the 12 instances"),
            ("coded:r=8", "needs at least 8 redundant instances and has 7"),
        ] {
            let line = resolve(text).unwrap_err().to_string();
            assert!(line.contains(named) && !line.contains('\n'), "{line}");
        }
        let none: Arm = "none".parse().unwrap();
        assert!(none.resolve(Instances::default()).is_err());
    }
}
