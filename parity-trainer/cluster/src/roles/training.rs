//! Trainings on the cluster: one flat array of parameters, and each step's work cut into executors.
//!
//! After Litz (Qiao et al., "Litz: Elastic Framework for High-Performance Distributed Machine
//! Learning", ATC 2018), the work is cut into more executors than there are processes. An executor
//! is a worker to the servers, with a clock of its own, so that no arithmetic depends on where it
//! runs: the gradients of a step are added up at the server in the executors' order, whichever
//! processes they come from. Its state is a part of the batch that follows from the step's number,
//! so that it moves by being named for another process; what was pushed twice counts once. Steps
//! are bulk synchronous unless the job's consistency model says otherwise. The training's leader is
//! the first of the hosts, so it always has an executor, and no step ends without it.

mod changes;
mod deal;
mod executors;
mod mirrored;
mod pulls;
mod service;
mod session;
mod stale;
mod start;
mod state;
mod steps;

pub use changes::MembershipChange;
pub use deal::Deal;
pub use session::{Settled, Training};
pub use start::{NewTraining, next_job};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::optimiser::TrainingRule;
use parapet_parameter_server::{ArrayId, Clock, Consistency, KeyRange, Route, RuleSpec, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::array::{ArraySpec, FilterSpec};
use crate::registry::View;
use crate::roles::{ClusterError, Result};

/// Time that keys may have no server: one that the registry misses may come back with them.
const ORPHANED: Duration = Duration::from_secs(60);

/// Numbers in a row of the array; the last row is filled up with zeroes.
pub const ROW: usize = 256;

/// Description of a training, as its processes read it in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub array: u32,
    pub length: usize,
    /// The executors, in the order in which their gradients are added up.
    pub executors: Vec<u64>,
    pub driver: u64,
    /// Task and data; the computing processes know how to read it.
    pub task: String,
    #[serde(default)]
    pub deal: Deal,
    #[serde(default)]
    pub consistency: Consistency,
    #[serde(default, skip_serializing_if = "FilterSpec::is_none")]
    pub filters: FilterSpec,
    /// Gradients are handed in while those of earlier layers are computed.
    #[serde(default)]
    pub wait_free: bool,
    /// Gradients of fully connected layers are handed in as factors, where these are fewer numbers.
    #[serde(default)]
    pub factors: bool,
    pub training: TrainingRule,
}

fn unreadable(cause: &str) -> ClusterError {
    let fix = "run one version on all nodes";
    ClusterError::Failed(format!("the cluster's job cannot be read ({cause}): {fix}"))
}

impl Job {
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| unreadable(error.message()))
    }

    fn text(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| unreadable(&error.to_string()))
    }

    pub const fn array(&self) -> ArrayId {
        ArrayId(self.array)
    }

    pub const fn keys(&self) -> KeyRange {
        KeyRange::new(0, self.length.div_ceil(ROW) as u64)
    }

    fn routes<'a>(&self, view: &'a View) -> impl Iterator<Item = &'a Route> + use<'a> {
        view.table.routing.overlapping(self.array(), self.keys())
    }

    /// Returns the keys that are learned: the first ones.
    fn learned_keys(&self) -> KeyRange {
        let end = self.keys().end;
        KeyRange::new(0, self.training.measured_from.unwrap_or(end).min(end))
    }

    /// Returns the steps of every executor that parameters of this clock contain, of this training.
    fn steps_at(&self, clock: Clock) -> u64 {
        clock.0.saturating_sub(self.training.set_up())
    }

    fn clock_of(&self, step: u64) -> Clock {
        Clock(self.training.set_up() + step)
    }

    pub const fn spec(&self) -> ArraySpec {
        ArraySpec {
            width: ROW,
            sparse: false,
            rule: RuleSpec::Training(self.training),
            consistency: self.consistency,
            filters: self.filters,
        }
    }

    /// Places of the executors that `host` works for, as the job's [`Deal`] says.
    pub fn executors_of(&self, host: WorkerId, view: &View) -> BTreeSet<usize> {
        let hosts = hosts_of(self, view);
        let is_told = self.deal == Deal::ByPace;
        let pace = |&host: &WorkerId| view.pace(host).filter(|_| is_told);
        let paces = Vec::from_iter(hosts.iter().map(pace));
        let own = hosts.iter().position(|&other| other == host);
        let dealt = deal::deal(self.executors.len(), &paces).into_iter().enumerate();
        dealt.filter(|&(_, at)| Some(at) == own).map(|(place, _)| place).collect()
    }

    /// Returns keys whose servers the registry misses, all of them.
    fn orphan(&self, view: &View) -> Option<KeyRange> {
        let is_held =
            |route: &&Route| route.chain.iter().any(|node| view.servers.contains_key(node));
        let orphan = self.routes(view).find(|route| !is_held(route))?;
        view.reachable.then_some(orphan.range)
    }

    /// Waits until keys have had no server for too long.
    async fn orphaned(self, mut view: watch::Receiver<Arc<View>>) -> ClusterError {
        loop {
            let found = view.wait_for(|view| self.orphan(view).is_some()).await;
            let Ok(Some(keys)) = found.map(|view| self.orphan(&view)) else { break };
            let back = view.wait_for(|view| self.orphan(view).is_none());
            if timeout(ORPHANED, back).await.is_err() {
                return ClusterError::Orphaned { keys, waited: ORPHANED };
            }
        }
        // A registry that is gone for good says nothing any more.
        std::future::pending().await
    }

    /// Returns true if the registry still names this training, or is away.
    fn is_under_way(&self, view: &View) -> bool {
        let named = view.job.as_deref().map(Self::parse);
        !view.reachable || named.is_some_and(|job| job.is_ok_and(|job| job.array == self.array))
    }

    async fn over(self, mut view: watch::Receiver<Arc<View>>) {
        let is_over = |view: &Arc<View>| !self.is_under_way(view);
        let is_closed = view.wait_for(is_over).await.is_err();
        // A registry that is gone for good says nothing any more.
        if is_closed {
            std::future::pending::<()>().await;
        }
    }
}

/// The processes that executors are dealt out to: the driver, then the others by their numbers.
pub fn hosts_of(job: &Job, view: &View) -> Vec<WorkerId> {
    let mut hosts = Vec::from_iter(view.present_workers.iter().copied());
    hosts.sort_by_key(|&host| (host != WorkerId(job.driver), host));
    hosts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::num::NonZeroU64;

    use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};

    use super::*;

    fn job() -> Job {
        let (momentum, weight_decay) = (0.9, 0.0);
        let rule = OptimiserConfig {
            optimiser: OptimiserSpec::Sgd { momentum, weight_decay },
            learning_rate: 0.1,
            schedule: Schedule::Constant,
            steps: 5,
            clip: None,
        };
        Job {
            array: 1,
            length: 3 * ROW + 1,
            executors: vec![20, 21, 22, 23, 24],
            driver: 9,
            training: TrainingRule { rule, done: 2, measured_from: None, updates: NonZeroU64::MIN },
            consistency: Consistency::Ssp(2),
            deal: Deal::Evenly,
            filters: "lz4".parse().unwrap(),
            wait_free: true,
            factors: true,
            task: "learn\nthis".into(),
        }
    }

    #[test]
    fn job_reads_back_and_its_last_row_is_whole() {
        let job = job();
        assert_eq!(Job::parse(&job.text().unwrap()).unwrap(), job);
        assert_eq!(job.keys(), KeyRange::new(0, 4));
        let error = Job::parse("").unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn executors_are_dealt_out_to_all_hosts_the_driver_first() {
        let mut view = View { present_workers: [4, 9].map(WorkerId).into(), ..View::default() };
        let job = job();
        let of = |host, view: &View| Vec::from_iter(job.executors_of(WorkerId(host), view));
        assert_eq!((of(9, &view), of(4, &view)), (vec![0, 2, 4], vec![1, 3]));
        assert!(of(77, &view).is_empty());
        view.present_workers.remove(&WorkerId(9));
        assert_eq!(of(4, &view), [0, 1, 2, 3, 4]);
    }
}
