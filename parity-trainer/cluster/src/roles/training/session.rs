//! One process's part in a training.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{Clock, ServiceTime, Shared, WorkerId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::changes::{Changes, MembershipChange};
use super::deal::PaceMeter;
use super::executors::Executors;
use super::mirrored::Mirrored;
use super::pulls::Pulls;
use super::service::ServiceMeter;
use super::stale::Stale;
use super::steps::StepMeter;
use super::{Job, hosts_of};
use crate::node::{Pending, Pulled, TaskSpec, Worker};
use crate::registry::{Member, Membership, Registry, RegistryError, Report, View};
use crate::roles::{ClusterError, Result};

/// Time that a step may take, with validation by slow processes.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// Interval at which a process without executors checks the others' progress.
pub(super) const LOOKS: Duration = Duration::from_millis(200);

/// Limit of the time that shards are at different steps: while a server is succeeded, or until a
/// gradient is computed again that a dead process had handed in to some servers only.
const APART: Duration = Duration::from_secs(5);

/// The same for the process that leads the training, which would end it.
const APART_LEADING: Duration = Duration::from_secs(120);

/// Time that a process waits before it asks again for such parameters.
const AGAIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is done: the parameters are those after it.
    Done,
    /// Executors have come here from a process that is gone: compute their parts, too.
    MoreToDo,
}

pub struct Training {
    registry: Registry,
    membership: Arc<Membership>,
    pub(super) view: watch::Receiver<Arc<View>>,
    host: WorkerId,
    pub(super) executors: Executors,
    pub(super) job: Job,
    pub(super) reader: Worker,
    pub(super) step: u64,
    weights: Shared<f32>,
    pub(super) mirrored: Mirrored,
    /// Steps of every executor that the parameters contain.
    contained: u64,
    /// Executors that have handed in the next step's gradient.
    pub(super) handed_in: BTreeSet<usize>,
    pub(super) stale: Stale,
    /// Pulls of the parameters after the next step.
    pub(super) next: Option<Pulls>,
    pub(super) failures: (mpsc::Sender<String>, mpsc::Receiver<String>),
    changes: Changes,
    pub(super) pace: PaceMeter,
    service: ServiceMeter,
    steps: StepMeter,
    pub(super) since: Instant,
    /// It had nothing to do, so that its parameters may be older than the others'.
    is_idle: bool,
    /// Since when the parameters are those after different steps.
    apart: Option<Instant>,
}

impl fmt::Debug for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {:?} at {}", self.step, self.job, self.host)
    }
}

impl Training {
    pub(super) async fn take_part(
        registry: Registry,
        membership: Arc<Membership>,
        host: WorkerId,
        executors: Executors,
        job: Job,
    ) -> Result<Self> {
        let mut training = Self {
            view: registry.view(),
            registry,
            membership,
            host,
            reader: executors.reader(host),
            executors,
            mirrored: Mirrored::new(&job),
            job,
            step: 0,
            weights: Shared::default(),
            contained: 0,
            handed_in: BTreeSet::new(),
            stale: Stale::default(),
            next: None,
            failures: mpsc::channel(1),
            changes: Changes::default(),
            pace: PaceMeter::default(),
            service: ServiceMeter::default(),
            steps: StepMeter::default(),
            since: Instant::now(),
            is_idle: false,
            apart: None,
        };
        // One that is over before has no servers any longer that would answer.
        let over = training.over();
        let found = tokio::select! {
            found = timeout(PATIENCE, training.find()) => found.unwrap_or_else(|_| Err(late(0))),
            () = over => Err(ClusterError::Ended),
        };
        if let Err(error) = found {
            // Or others would wait for this process to compute.
            let _ = training.membership.leave().await;
            return Err(error);
        }
        Ok(training)
    }

    /// Takes whatever the servers have; the clock tells which step that is.
    async fn find(&mut self) -> Result<()> {
        loop {
            let pulled = self.pull_now(&self.reader).await?;
            if !self.adds_up() {
                return self.begin_stale(pulled).await;
            }
            if self.take(pulled)? {
                return Ok(());
            }
            sleep(AGAIN).await;
        }
    }

    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Steps done, those before it included.
    pub const fn steps_done(&self) -> u64 {
        self.job.training.done + self.step
    }

    /// The steps of all executors in the parameters, which may contain later ones of some.
    pub const fn steps_contained(&self) -> u64 {
        self.job.training.done + self.contained
    }

    pub fn weights(&self) -> &[f32] {
        self.weights.get(..self.job.length).unwrap_or_default()
    }

    /// Returns true if servers send this process updates of the layers that are pushed as factors,
    /// in place of their rows.
    pub fn is_mirroring(&self) -> bool {
        self.mirrored.mirror.held() > Clock(0)
    }

    /// The time of a step counts from here, unless it has begun.
    pub(super) fn begin_step(&mut self) {
        self.changes.begin(self.since.elapsed());
    }

    /// Executors whose parts of the next step are still to be computed here.
    pub fn to_do(&mut self) -> Vec<usize> {
        self.begin_step();
        let own = self.own();
        self.keep(&own);
        self.pace.begin(self.since.elapsed());
        if self.adds_up() {
            own.difference(&self.handed_in).copied().collect()
        } else {
            self.stale.to_do(&own, self.step)
        }
    }

    pub(super) fn adds_up(&self) -> bool {
        self.job.consistency.adds_up_clocks()
    }

    pub(super) fn own(&self) -> BTreeSet<usize> {
        self.job.executors_of(self.host, &self.view.borrow())
    }

    /// Lets go of executors that have gone to other processes, which hand in their parts.
    fn keep(&mut self, own: &BTreeSet<usize>) {
        self.executors.keep(own, self.adds_up());
        self.handed_in.retain(|executor| own.contains(executor));
        self.next.take_if(|next| !own.contains(&next.asker));
    }

    /// Waits until the step is done, or executors come here. Under models other than BSP it is done
    /// when the others are near enough; the last step, when all have done it.
    /// [`ClusterError::Ended`] if the training was ended.
    pub async fn settle(&mut self) -> Result<Settled> {
        self.begin_step();
        let step = self.steps_done() + 1;
        let (over, orphaned) = (self.over(), self.orphaned());
        let settle = async {
            if !self.adds_up() {
                return self.settle_stale().await;
            }
            let settled = timeout(PATIENCE, self.settle_all()).await;
            settled.unwrap_or_else(|_| Err(late(step)))
        };
        tokio::select! {
            settled = settle => settled,
            () = over => Err(ClusterError::Ended),
            error = orphaned => Err(error),
        }
    }

    async fn settle_all(&mut self) -> Result<Settled> {
        loop {
            let own = self.own();
            self.keep(&own);
            if own.is_empty() || self.is_idle {
                // Only to see how far the others are. Servers let no stranger wait.
                let before = self.step;
                let pulled = self.pull_now(&self.reader).await?;
                let is_next = self.job.steps_at(pulled.clock) == before;
                let is_taken = self.take(pulled)?;
                self.is_idle = own.is_empty() || !(is_taken || is_next);
                if self.step > before {
                    return Ok(Settled::Done);
                }
                if self.is_idle {
                    let wait = if own.is_empty() { LOOKS } else { AGAIN };
                    let _ = timeout(wait, self.view.changed()).await;
                    continue;
                }
            }
            // The last one to hand in: its requests wait for all others' on their way.
            let Some(&asker) = own.last().filter(|_| own.is_subset(&self.handed_in)) else {
                return Ok(Settled::MoreToDo);
            };
            let keys = self.job.keys();
            let next = self.next.take().filter(|next| own.contains(&next.asker));
            let mut next = match next.filter(|next| next.cover(keys)) {
                Some(next) => next,
                None => self.ask(Pulls::new(asker, keys.end), keys).await?,
            };
            tokio::select! {
                pulled = next.wait() => {
                    let pulled = pulled.map_err(|error| self.failed("the pull", error))?;
                    if self.take(pulled)? {
                        self.mirror_rows().await;
                        return Ok(Settled::Done);
                    }
                    let _ = timeout(AGAIN, self.view.changed()).await;
                }
                Some(cause) = self.failures.1.recv() => {
                    return Err(self.failed("the gradient", cause));
                }
                changed = self.view.changed() => {
                    self.next = Some(next);
                    changed.map_err(|_| RegistryError::Closed)?;
                }
            }
        }
    }

    /// Leaves the training; the process that leads it also ends it, for all.
    pub async fn leave(self) -> Result<()> {
        let is_under_way = self.job.is_under_way(&self.view.borrow());
        if self.leads() && is_under_way {
            self.registry.set_job(None).await?;
            let executors = self.job.executors.iter().copied().map(WorkerId);
            let executors = Vec::from_iter(executors);
            self.registry.drop_executors(&executors).await?;
            self.registry.give_up(self.job.array()).await?;
        }
        Ok(self.membership.leave().await?)
    }

    const fn leads(&self) -> bool {
        self.job.driver == self.host.0
    }

    fn over(&self) -> impl Future<Output = ()> + use<> {
        self.job.clone().over(self.view.clone())
    }

    pub(super) fn orphaned(&self) -> impl Future<Output = ClusterError> + use<> {
        self.job.clone().orphaned(self.view.clone())
    }

    pub(super) fn clock(&self) -> Clock {
        self.job.clock_of(self.step + 1)
    }

    pub(super) async fn pull(&self, worker: &Worker, clock: Clock) -> Result<Pending<Pulled>> {
        let spec = TaskSpec::new(self.job.array(), self.job.keys(), clock);
        let pull = worker.pull(spec).await;
        pull.map_err(|error| self.failed("the pull", error))
    }

    pub(super) async fn pull_now(&self, worker: &Worker) -> Result<Pulled> {
        let pulled = self.pull(worker, Clock(0)).await?.await;
        pulled.map_err(|error| self.failed("the pull", error))
    }

    /// Returns true if these are parameters to compute with: all of them those after one step.
    fn take(&mut self, mut pulled: Pulled) -> Result<bool> {
        if pulled.clock != pulled.newest {
            let waited = self.apart.get_or_insert_with(Instant::now).elapsed();
            if waited < if self.leads() { APART_LEADING } else { APART } {
                return Ok(false);
            }
            let step = |clock| self.job.training.done + self.job.steps_at(clock);
            return Err(ClusterError::Apart {
                step: step(pulled.clock),
                newest: step(pulled.newest),
                waited,
            });
        }
        self.apart = None;
        if !self.mirrored.mirror.take(self.job.keys(), &mut pulled) {
            return Ok(false);
        }
        self.handed_in.clear();
        let step = self.job.steps_at(pulled.clock);
        self.go_on(pulled, step);
        Ok(true)
    }

    /// These are the parameters after this step.
    pub(super) fn go_on(&mut self, pulled: Pulled, step: u64) {
        self.contained = self.job.steps_at(pulled.clock);
        let served = pulled.served;
        self.step = step;
        self.weights = pulled.values;
        let (step, members) = (self.steps_done(), self.members());
        let now = self.since.elapsed();
        self.changes.end(now, step, members);
        let mut reports = Vec::from_iter(self.pace.end_step(now).map(Report::Pace));
        let view = self.view.borrow().clone();
        let table = (view.table.revision, !view.table.hand_overs.is_empty());
        let executors = [view.workers.workers.len(), self.own().len()];
        let (news, is_changed) = self.service.observe(now, table, executors, &served);
        let steps = self.steps.end_step(now, table, is_changed).filter(|_| self.leads());
        reports.extend(steps.map(|steps| Report::Steps(table.0, steps)));
        for (node, time) in news {
            match time {
                Some(time) => reports.push(Report::Service(node, time)),
                None => self.membership.retract(Report::Service(node, ServiceTime::default())),
            }
        }
        for report in reports {
            if let Err(error) = self.membership.report(report) {
                tracing::warn!(%error, "the others are not told {report:?}");
            }
        }
    }

    fn members(&self) -> BTreeSet<Member> {
        let view = self.view.borrow();
        let routes = self.job.routes(&view);
        let servers = routes.flat_map(|route| route.chain.iter().copied());
        let hosts = hosts_of(&self.job, &view).into_iter();
        let (servers, hosts) = (servers.map(Member::Server), hosts.map(Member::Worker));
        servers.chain(hosts).collect()
    }

    /// Changes of the members that take part whose cost is known by now, each once.
    pub fn changes(&mut self) -> Vec<MembershipChange> {
        self.changes.take()
    }

    pub(super) fn failed(&self, what: &'static str, error: impl fmt::Display) -> ClusterError {
        ClusterError::Task { what, step: self.steps_done() + 1, cause: error.to_string() }
    }
}

pub(super) fn late(step: u64) -> ClusterError {
    ClusterError::Failed(format!(
        "step {step} is not done after {PATIENCE:?}: see `top` for servers and workers that are \
            missing"
    ))
}
