//! Roles of instances.

use std::fmt;

use parapet_frontend_core::StrategyConfig;

use super::{ExperimentError, ResolvedArm};

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

/// Numbers of instances of each strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Instances of the deployed model without redundancy.
    pub instances: usize,
    /// Instances on top, for redundancy.
    pub redundant: usize,
}

impl Roles {
    /// Number of instances of the deployed model.
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
    /// | `coded`, `coded_hedged` | `instances` | a parity pool for each row; they share `redundant` evenly |
    /// | `approximate_backup` | `instances` | `redundant` of the backup model |
    ///
    /// # Errors
    /// When there are too few instances of either sort.
    pub fn pools(&self, arm: &ResolvedArm) -> Result<Vec<(Role, usize)>, ExperimentError> {
        let Self {
            instances,
            redundant,
        } = *self;
        if instances == 0 {
            let fix = "give at least one instance of the deployed model";
            return Err(ExperimentError::Number {
                what: "instances",
                value: "0".to_owned(),
                fix,
            });
        }
        let needs = |needed: usize| {
            let strategy = arm.config.name();
            if redundant < needed {
                return Err(ExperimentError::TooFewRedundant {
                    strategy,
                    needed,
                    redundant,
                });
            }
            Ok(())
        };
        match &arm.config {
            StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {
                Ok(vec![(Role::Deployed, self.deployed(arm))])
            }
            StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
                let (k, r) = (config.k, config.r);
                if k > instances {
                    return Err(ExperimentError::TooFewForGroup { k, instances });
                }
                needs(r)?;
                // Rows before the remainder have one more.
                let of_row = |row: usize| redundant / r + usize::from(row < redundant % r);
                let rows = (0u8..)
                    .zip(0..r)
                    .map(|(row, place)| (Role::Parity(row), of_row(place)));
                Ok(std::iter::once((Role::Deployed, instances))
                    .chain(rows)
                    .collect())
            }
            StrategyConfig::ApproximateBackup(_) => {
                needs(1)?;
                Ok(vec![(Role::Deployed, instances), (Role::Backup, redundant)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Arm;

    fn pools(spec: &str) -> Result<Vec<(Role, usize)>, ExperimentError> {
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
        assert_eq!(pools("none"), Ok(vec![(Role::Deployed, 12)]));
        let parity = [
            (Role::Parity(0), 3),
            (Role::Parity(1), 2),
            (Role::Parity(2), 2),
        ];
        assert_eq!(pools("coded:r=3").unwrap()[1..], parity);
    }

    #[test]
    fn too_few_instances_are_refused() {
        assert_eq!(
            pools("coded:k=13"),
            Err(ExperimentError::TooFewForGroup {
                k: 13,
                instances: 12
            })
        );
        assert!(matches!(
            pools("coded:r=8"),
            Err(ExperimentError::TooFewRedundant { needed: 8, .. })
        ));
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
