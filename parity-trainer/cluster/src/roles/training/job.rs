//! Description of a training, as its processes read it in the registry.

use std::collections::BTreeSet;

use crate::registry::View;
use parapet_parameter_server::optimiser::TrainingRule;
use parapet_parameter_server::{ArrayId, KeyRange, WorkerId};
use serde::{Deserialize, Serialize};

use super::ROW;
use crate::array::{ArraySpec, FilterSpec};
use crate::roles::ClusterError;
use parapet_parameter_server::{Consistency, RuleSpec};

/// A training under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The array that holds the parameters.
    pub array: u32,
    pub length: usize,
    /// The executors, in the order in which their gradients are added up.
    pub executors: Vec<u64>,
    /// The member that leads it.
    pub driver: u64,
    /// Task and data; the computing processes know how to read it.
    pub task: String,
    /// Consistency model of the training.
    #[serde(default)]
    pub consistency: Consistency,
    #[serde(default, skip_serializing_if = "FilterSpec::is_none")]
    pub filters: FilterSpec,
    /// Rule that servers apply to gradients.
    pub training: TrainingRule,
}

impl Job {
    /// As the registry has it.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn parse(text: &str) -> Result<Self, ClusterError> {
        toml::from_str(text).map_err(|error| ClusterError::Job {
            cause: error.message().to_owned(),
        })
    }

    pub(super) fn text(&self) -> Result<String, ClusterError> {
        toml::to_string(self).map_err(|error| ClusterError::Job {
            cause: error.to_string(),
        })
    }

    pub const fn array(&self) -> ArrayId {
        ArrayId(self.array)
    }

    pub const fn keys(&self) -> KeyRange {
        KeyRange::new(0, self.length.div_ceil(ROW) as u64)
    }

    /// Returns the keys that are learned: the first ones.
    pub(super) fn learned_keys(&self) -> KeyRange {
        let all = self.keys();
        KeyRange::new(
            all.start,
            self.training.measured_from.unwrap_or(all.end).min(all.end),
        )
    }

    /// The array, for servers and workers.
    pub const fn spec(&self) -> ArraySpec {
        ArraySpec {
            width: ROW,
            sparse: false,
            rule: RuleSpec::Training(self.training),
            consistency: self.consistency,
            filters: self.filters,
        }
    }

    /// The executors that `host` is to work for, by their place: dealt out in turn, to
    /// the driver first.
    pub fn executors_of(&self, host: WorkerId, view: &View) -> BTreeSet<usize> {
        let hosts = hosts_of(self, view);
        let Some(own) = hosts.iter().position(|&other| other == host) else {
            return BTreeSet::new();
        };
        (own..self.executors.len()).step_by(hosts.len()).collect()
    }
}

/// The processes that executors are dealt out to: the driver, then the others by their numbers.
pub fn hosts_of(job: &Job, view: &View) -> Vec<WorkerId> {
    let listed: BTreeSet<WorkerId> = view
        .workers
        .workers
        .iter()
        .map(|&(worker, _)| worker)
        .collect();
    let mut hosts: Vec<WorkerId> = view
        .present_workers
        .iter()
        .copied()
        .filter(|worker| !listed.contains(worker))
        .collect();
    hosts.sort_by_key(|&host| (host != WorkerId(job.driver), host));
    hosts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::num::NonZeroU64;

    use parapet_parameter_server::Clock;
    use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};

    use super::*;

    fn job() -> Job {
        let rule = OptimiserConfig {
            optimiser: OptimiserSpec::Sgd {
                momentum: 0.9,
                weight_decay: 0.0,
            },
            learning_rate: 0.1,
            schedule: Schedule::Constant,
            steps: 5,
            clip: None,
        };
        let training = TrainingRule {
            rule,
            done: 2,
            measured_from: None,
            updates: NonZeroU64::MIN,
        };
        let executors = vec![20, 21, 22, 23, 24];
        let filters = FilterSpec {
            lz4: true,
            ..FilterSpec::NONE
        };
        let consistency = Consistency::Ssp(2);
        let (length, task) = (3 * ROW + 1, "learn\nthis".into());
        Job {
            array: 1,
            length,
            executors,
            driver: 9,
            training,
            consistency,
            filters,
            task,
        }
    }

    #[test]
    fn a_job_reads_back_and_its_last_row_is_whole() {
        let job = job();
        assert_eq!(Job::parse(&job.text().unwrap()).unwrap(), job);
        assert_eq!(job.keys(), KeyRange::new(0, 4));
        assert!(
            Job::parse("")
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
    }

    #[test]
    fn executors_are_dealt_out_to_all_hosts_the_driver_first() {
        let present_workers = [WorkerId(4), WorkerId(9), WorkerId(30)].into();
        let mut view = View {
            present_workers,
            ..View::default()
        };
        // A worker with a clock of its own is no host.
        view.workers.workers = vec![(WorkerId(30), Clock(0))];
        let job = job();
        let of = |host: u64, view: &View| {
            job.executors_of(WorkerId(host), view)
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!((of(9, &view), of(4, &view)), (vec![0, 2, 4], vec![1, 3]));
        assert!(of(30, &view).is_empty() && of(77, &view).is_empty());
        view.present_workers.remove(&WorkerId(9));
        assert_eq!(of(4, &view), [0, 1, 2, 3, 4]);
    }
}
