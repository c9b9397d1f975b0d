//! Roles of instances.

use std::fmt;

use anyhow::ensure;
use parapet_frontend_core::StrategyConfig;

use super::ResolvedArm;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Deployed,
    /// The parity model of this row.
    Parity(u8),
    Backup,
}

impl Role {
    /// The name of its model in fault profiles: `deployed`, `parity` (of all rows) or `backup`.
    pub const fn model(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::Parity(_) => "parity",
            Self::Backup => "backup",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parity(row) => write!(formatter, "parity {row}"),
            other => formatter.write_str(other.model()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Instances of the deployed model without redundancy.
    pub instances: usize,
    /// Instances on top, for redundancy.
    pub redundant: usize,
}

impl Roles {
    pub const fn deployed(&self, arm: &ResolvedArm) -> usize {
        let Self {
            instances,
            redundant,
        } = *self;
        match arm.config {
            StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => instances + redundant,
            _ if arm.all_instances => instances + redundant,
            _ => instances,
        }
    }

    /// The pools of a strategy, in the order of its pools' ids:
    ///
    /// | strategy | deployed | others |
    /// |---|---|---|
    /// | `none` | `instances` | |
    /// | `none` on all instances, `replicate`, `hedge` | `instances + redundant` | |
    /// | `coded`, `coded_hedged` | `instances` | `redundant`, shared evenly by a pool for each row |
    /// | `approximate_backup` | `instances` | `redundant` of the backup model |
    pub fn pools(&self, arm: &ResolvedArm) -> anyhow::Result<Vec<(Role, usize)>> {
        let Self {
            instances,
            redundant,
        } = *self;
        ensure!(
            instances > 0,
            "instances 0; give at least one instance of the deployed model"
        );
        let needs = |needed: usize| {
            let strategy = arm.config.name();
            ensure!(
                redundant >= needed,
                "strategy {strategy} needs at least {needed} redundant instances and has \
                 {redundant}; add some"
            );
            Ok(())
        };
        let deployed = (Role::Deployed, self.deployed(arm));
        match &arm.config {
            StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {
                Ok(vec![deployed])
            }
            StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
                let (k, r) = (config.k, config.r);
                ensure!(
                    k <= instances,
                    "k = {k} is more than the {instances} instances of the deployed model; lower k \
                     or add instances"
                );
                needs(r)?;
                // Rows before the remainder have one more.
                let of_row = |row: usize| redundant / r + usize::from(row < redundant % r);
                let rows = (0u8..).zip(0..r);
                let rows = rows.map(|(row, place)| (Role::Parity(row), of_row(place)));
                Ok(std::iter::once(deployed).chain(rows).collect())
            }
            StrategyConfig::ApproximateBackup(_) => {
                needs(1)?;
                Ok(vec![deployed, (Role::Backup, redundant)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Arm;

    fn pools(spec: &str) -> anyhow::Result<Vec<(Role, usize)>> {
        let roles = Roles {
            instances: 12,
            redundant: 7,
        };
        let arm: Arm = spec.parse().unwrap();
        roles.pools(&arm.resolve(2, 1, roles).unwrap())
    }

    #[test]
    fn every_redundant_strategy_has_as_many_instances() {
        for spec in [
            "equal_resources",
            "replicate",
            "hedge",
            "coded:r=3",
            "coded_hedged",
            "approximate_backup",
        ] {
            let total: usize = pools(spec).unwrap().iter().map(|(_, count)| count).sum();
            assert_eq!(total, 19, "{spec}");
        }
        assert_eq!(pools("none").unwrap(), [(Role::Deployed, 12)]);
        let parity = [
            (Role::Parity(0), 3),
            (Role::Parity(1), 2),
            (Role::Parity(2), 2),
        ];
        assert_eq!(pools("coded:r=3").unwrap()[1..], parity);
    }

    #[test]
    fn too_few_instances_are_refused() {
        for (spec, says) in [
            ("coded:k=13", "k = 13 is more than the 12 instances"),
            (
                "coded:r=8",
                "needs at least 8 redundant instances and has 7",
            ),
        ] {
            let error = pools(spec).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let none = Roles {
            instances: 0,
            redundant: 1,
        };
        let arm = ResolvedArm {
            label: "none".to_owned(),
            config: StrategyConfig::None,
            all_instances: false,
        };
        assert!(none.pools(&arm).is_err());
    }
}
