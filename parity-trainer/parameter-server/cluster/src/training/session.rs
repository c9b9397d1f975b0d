//! One process's part in a training.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{Clock, Route, Shared, WorkerId};
use parapet_parameter_server_node::transport::Transport;
use parapet_parameter_server_node::{Pending, Pulled, TaskSpec, Worker};
use parapet_parameter_server_registry::{Member, Membership, Registry, RegistryError, View};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::changes::{Changes, MembershipChange};
use super::hosts::{Hosts, padded};
use super::job::{Job, hosts_of};
use crate::ClusterError;
use crate::control::Control;

/// How long a step may take, everything included: a process that dies is replaced in seconds, but the others may be
/// slow, or validate.
const PATIENCE: Duration = Duration::from_secs(3600);

/// For how long a server that does not answer may be succeeded by another, before it is an error.
const SUCCESSION: Duration = Duration::from_secs(10);

/// For how long the parameters may be those after different steps, before a process lets others compute. They stay so while a
/// server is succeeded; and if a process died that had handed in a gradient to some servers only, until one computes it again
/// that has the parameters for it.
const APART: Duration = Duration::from_secs(5);

/// The same for the process that leads the training, which would end it.
const APART_LEADING: Duration = Duration::from_secs(120);

/// How long a process waits before it asks again for such parameters.
const AGAIN: Duration = Duration::from_millis(10);

/// How often a process without executors looks how far the others are.
const LOOKS: Duration = Duration::from_millis(200);

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is done: the parameters are those after it.
    Done,
    /// Executors have come here from a process that is gone: compute their parts, too.
    MoreToDo,
}

/// One process's part in a training.
pub struct Training<T: Transport> {
    registry: Registry,
    membership: Arc<Membership>,
    view: watch::Receiver<Arc<View>>,
    host: WorkerId,
    hosts: Hosts<T>,
    job: Job,
    reader: Worker,
    /// Steps done, of this training.
    step: u64,
    weights: Shared<f32>,
    /// Executors that have handed in the next step's gradient.
    handed_in: BTreeSet<usize>,
    /// The pull of the parameters after the next step, and the executor that asks for them.
    next: Option<(usize, Pending<Pulled>)>,
    failures: (mpsc::Sender<String>, mpsc::Receiver<String>),
    changes: Changes,
    since: Instant,
    /// Since when the parameters are those after different steps.
    apart: Option<Instant>,
}

impl<T: Transport> fmt::Debug for Training<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {:?} at {}", self.step, self.job, self.host)
    }
}

impl<T: Transport> Training<T> {
    pub(super) async fn take_part(
        registry: Registry,
        membership: Arc<Membership>,
        host: WorkerId,
        hosts: Hosts<T>,
        job: Job,
    ) -> Result<Self, ClusterError> {
        let reader = hosts.reader(host);
        let view = registry.view();
        let mut training = Self {
            registry,
            membership,
            view,
            host,
            hosts,
            job,
            reader,
            step: 0,
            weights: Shared::default(),
            handed_in: BTreeSet::new(),
            next: None,
            failures: mpsc::channel(1),
            changes: Changes::default(),
            since: Instant::now(),
            apart: None,
        };
        // One that is over before has no servers any longer that would answer.
        let over = over(training.view.clone(), training.job.clone());
        let found = tokio::select! {
            found = training.find() => found,
            () = over => Err(ClusterError::Ended),
        };
        match found {
            Ok(()) => Ok(training),
            Err(error) => {
                // Or others would wait for this process to compute.
                let _ = training.membership.leave().await;
                Err(error)
            }
        }
    }

    /// Whatever the servers have; the clock tells which step that is.
    async fn find(&mut self) -> Result<(), ClusterError> {
        loop {
            let pull = self.pull(&self.reader, Clock(0)).await?;
            let pulled = timeout(PATIENCE, pull).await;
            let pulled = pulled.map_err(|_| ClusterError::Late { step: 0, waited: PATIENCE })?;
            if self.take(pulled.map_err(|error| self.failed("the pull", &error))?)? {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The training.
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Steps done, those before it included.
    pub const fn steps_done(&self) -> u64 {
        self.job.training.done + self.step
    }

    /// The parameters after those steps.
    pub fn weights(&self) -> &[f32] {
        self.weights.get(..self.job.length).unwrap_or_default()
    }

    /// The executors whose parts of the next step are to be computed here, and were not handed in yet.
    pub fn to_do(&mut self) -> Vec<usize> {
        self.changes.begin(self.since.elapsed());
        let own = self.own();
        self.hosts.keep(&own);
        own.difference(&self.handed_in).copied().collect()
    }

    fn own(&self) -> BTreeSet<usize> {
        self.job.executors_of(self.host, &self.view.borrow())
    }

    /// Hands in the gradient of one executor's part of the next step, scaled so that those of all executors add up to
    /// what is to be applied.
    ///
    /// # Errors
    /// If it is not finite, or the connections were stopped.
    pub async fn push(
        &mut self,
        executor: usize,
        gradient: impl Iterator<Item = f32>,
    ) -> Result<(), ClusterError> {
        self.changes.begin(self.since.elapsed());
        let gradient = padded(gradient, self.job.length.next_multiple_of(super::ROW));
        let parts = self.hosts.filter(executor, gradient);
        let parts = parts.map_err(|error| self.failed("the gradient", &error))?;
        let worker = self.hosts.executor(executor);
        for (range, keys, values) in parts {
            let spec = TaskSpec::new(self.job.array(), range, self.clock()).keys(keys);
            let push = worker.push(spec, values).await;
            let push = push.map_err(|error| self.failed("the gradient", &error))?;
            // It is acknowledged when all executors have handed in theirs.
            let failures = self.failures.0.clone();
            tokio::spawn(async move {
                if let Err(error) = push.await {
                    let _ = failures.try_send(error.to_string());
                }
            });
        }
        self.handed_in.insert(executor);
        Ok(())
    }

    /// Waits until the step is done, or executors come here.
    ///
    /// # Errors
    /// [`ClusterError::Ended`] if the training was ended; if a gradient was refused; if it takes too long.
    pub async fn settle(&mut self) -> Result<Settled, ClusterError> {
        self.changes.begin(self.since.elapsed());
        let step = self.steps_done() + 1;
        let late = tokio::time::sleep(PATIENCE);
        tokio::pin!(late);
        loop {
            if !self.is_under_way() {
                return Err(ClusterError::Ended);
            }
            let own = self.own();
            if !own.is_subset(&self.handed_in) {
                return Ok(Settled::MoreToDo);
            }
            let Some(&asker) = own.first() else {
                // Nothing to do here: only to see how far the others are. Servers let no stranger wait.
                let over = over(self.view.clone(), self.job.clone());
                let looked = tokio::select! {
                    looked = self.look() => looked?,
                    () = over => return Err(ClusterError::Ended),
                };
                if looked {
                    return Ok(Settled::Done);
                }
                let _ = timeout(LOOKS, self.view.changed()).await;
                continue;
            };
            let (asker, mut pull) = match self.next.take().filter(|(asker, _)| own.contains(asker)) {
                Some(next) => next,
                None => {
                    let worker = self.hosts.executor(asker);
                    (asker, self.pull(&worker, self.clock().next()).await?)
                }
            };
            tokio::select! {
                pulled = &mut pull => {
                    if self.take(pulled.map_err(|error| self.failed("the pull", &error))?)? {
                        return Ok(Settled::Done);
                    }
                    let _ = timeout(AGAIN, self.view.changed()).await;
                }
                Some(cause) = self.failures.1.recv() => {
                    return Err(ClusterError::Task { what: "the gradient", step, cause });
                }
                changed = self.view.changed() => {
                    self.next = Some((asker, pull));
                    changed.map_err(|_| RegistryError::Closed)?;
                }
                () = &mut late => return Err(ClusterError::Late { step, waited: PATIENCE }),
            }
        }
    }

    /// What the servers keep for the optimiser, slot by slot, each as long as the parameters.
    ///
    /// # Errors
    /// If a server does not answer, or the state is not that of the last step: whoever has no executor cannot ask.
    pub async fn optimiser_state(&mut self) -> Result<Vec<Vec<f32>>, ClusterError> {
        let slots = self.job.training.rule.optimiser.slots();
        let mut state = vec![vec![0.0; self.job.length]; slots];
        let until = Instant::now() + SUCCESSION;
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            match self.read_all(&view, &mut state).await {
                Ok(()) => return Ok(state),
                Err(error) if Instant::now() >= until => return Err(error),
                // Its successor has it, too.
                Err(error) => tracing::debug!(%error, "asked again"),
            }
            // With the next table, or a little later.
            let _ = timeout(SUCCESSION / 50, self.view.changed()).await;
        }
    }

    async fn read_all(&self, view: &View, state: &mut [Vec<f32>]) -> Result<(), ClusterError> {
        for route in view.table.routing.overlapping(self.job.array(), self.job.keys()) {
            self.read(view, route, state).await?;
        }
        Ok(())
    }

    async fn read(&self, view: &View, route: &Route, state: &mut [Vec<f32>]) -> Result<(), ClusterError> {
        let node = route.head().unwrap_or_default();
        let address = view.servers.get(&node).map(|server| server.control.as_str()).unwrap_or_default();
        let control = Control::new(node, address)?;
        let wanted = Clock(self.job.training.set_up() + self.step);
        let (mut torn, mut held) = (None, 0);
        control
            .rows(route.array, route.range, |rows| {
                if rows.finished != wanted {
                    torn = Some((rows.finished, rows.range));
                }
                held += rows.range.len();
                let start =
                    usize::try_from(rows.range.start).unwrap_or(usize::MAX).saturating_mul(super::ROW);
                let slots = rows.state.chunks_exact(rows.values.len().max(1));
                for (own, slot) in state.iter_mut().zip(slots) {
                    let end = own.len();
                    let own = own.get_mut(start.min(end)..).unwrap_or_default();
                    own.iter_mut().zip(slot).for_each(|(own, value)| *own = *value);
                }
            })
            .await?;
        let step = self.steps_done();
        match torn {
            Some((found, keys)) => {
                let found = (self.job.training.done + found.0).saturating_sub(self.job.training.set_up());
                Err(ClusterError::Torn { step, found, keys })
            }
            None if held < route.range.len() => Err(ClusterError::Torn { step, found: 0, keys: route.range }),
            None => Ok(()),
        }
    }

    /// Leaves the training; the process that leads it also ends it, for all.
    ///
    /// # Errors
    /// If the registry does not answer.
    pub async fn leave(self) -> Result<(), ClusterError> {
        if self.job.driver == self.host.0 && self.is_under_way() {
            self.registry.set_job(None).await?;
            let executors: Vec<WorkerId> = self.job.executors.iter().copied().map(WorkerId).collect();
            self.registry.remove_executors(&executors).await?;
            self.registry.give_up(self.job.array()).await?;
        }
        Ok(self.membership.leave().await?)
    }

    fn is_under_way(&self) -> bool {
        is_under_way(&self.view.borrow(), &self.job)
    }

    /// Of the next step.
    fn clock(&self) -> Clock {
        Clock(self.job.training.set_up() + self.step + 1)
    }

    async fn pull(&self, worker: &Worker, clock: Clock) -> Result<Pending<Pulled>, ClusterError> {
        let spec = TaskSpec::new(self.job.array(), self.job.keys(), clock);
        worker.pull(spec).await.map_err(|error| self.failed("the pull", &error))
    }

    /// Whether the others have made a step.
    async fn look(&mut self) -> Result<bool, ClusterError> {
        let pull = self.pull(&self.reader, Clock(0)).await?;
        let before = self.step;
        let pulled = pull.await.map_err(|error| self.failed("the pull", &error))?;
        Ok(self.take(pulled)? && self.step > before)
    }

    /// Whether these are parameters to compute with: all of them those after one step.
    fn take(&mut self, pulled: Pulled) -> Result<bool, ClusterError> {
        if pulled.clock != pulled.newest {
            let waited = self.apart.get_or_insert_with(Instant::now).elapsed();
            let limit = if self.job.driver == self.host.0 { APART_LEADING } else { APART };
            if waited < limit {
                return Ok(false);
            }
            let step =
                |clock: Clock| (self.job.training.done + clock.0).saturating_sub(self.job.training.set_up());
            let (step, newest) = (step(pulled.clock), step(pulled.newest));
            return Err(ClusterError::Apart { step, newest, waited });
        }
        self.apart = None;
        self.step = pulled.clock.0.saturating_sub(self.job.training.set_up());
        self.weights = pulled.values;
        self.handed_in.clear();
        let (step, members) = (self.steps_done(), self.members());
        self.changes.end(self.since.elapsed(), step, members);
        Ok(true)
    }

    /// The servers that hold the parameters, and the processes that compute.
    fn members(&self) -> BTreeSet<Member> {
        let view = self.view.borrow();
        let routes = view.table.routing.overlapping(self.job.array(), self.job.keys());
        let servers = routes.flat_map(|route| route.chain.iter().copied()).map(Member::Server);
        servers.chain(hosts_of(&self.job, &view).into_iter().map(Member::Worker)).collect()
    }

    /// Changes of who takes part whose cost is known by now, each once.
    pub fn changes(&mut self) -> Vec<MembershipChange> {
        self.changes.take()
    }

    fn failed(&self, what: &'static str, error: &dyn fmt::Display) -> ClusterError {
        ClusterError::Task { what, step: self.steps_done() + 1, cause: error.to_string() }
    }
}

/// Whether the registry still names this training; while it is away, it counts as under way.
fn is_under_way(view: &View, job: &Job) -> bool {
    let named = view.job.as_deref().map(Job::parse);
    !view.reachable || named.is_some_and(|named| named.is_ok_and(|named| named.array == job.array))
}

/// Ends when the training has.
async fn over(mut view: watch::Receiver<Arc<View>>, job: Job) {
    // A registry that is gone for good says nothing any more.
    if view.wait_for(|view| !is_under_way(view, &job)).await.is_err() {
        std::future::pending::<()>().await;
    }
}
