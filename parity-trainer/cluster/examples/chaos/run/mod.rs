//! A cluster of processes, one of which is killed again and again.

#[path = "../../../tests/support/etcd_process.rs"]
pub mod etcd_process;
mod learning;
mod outcome;
mod processes;
mod pushing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use parapet_cluster::node::{Membership, NodeConfig, Pending, TaskError, Transport, Worker};
use parapet_cluster::registry::{Address, Joining, Member, Registry, Report, View};
use parapet_parameter_server::{ArrayId, ClientArray, Clock, LoadPlan, NodeId, Route, ServiceTime};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use learning::Learners;
pub use outcome::{ChaosOutcome, Kill, Stop};
use processes::Processes;
use pushing::Pushing;

/// Longer than anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The disturbed training takes a step this often, so that it lasts as long as the kills, and the
/// others do not.
const PACE: Duration = Duration::from_millis(10);

/// Place of the cluster's registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RegistryChoice {
    /// In a coordinator's memory, which leads, too
    Coordinator,
    /// In an etcd; the servers lead
    Etcd,
}

#[derive(Debug, Clone)]
pub struct Plan {
    /// Has the commands `server` and `coordinator`.
    pub program: PathBuf,
    pub kills: usize,
    pub registry: RegistryChoice,
    /// For how long the registry's process is stopped after half of the kills.
    pub stop_registry: Option<Duration>,
    /// Of the moments and the disturbed training.
    pub seed: u64,
    /// Trainings without any disturbance, for comparison.
    pub undisturbed: u64,
    /// Three servers, one of which is said to be slow, another one each second.
    pub moves: bool,
}

/// Waits for a push or pull, no longer than anything may take.
async fn soon<R>(what: &str, pending: Result<Pending<R>, TaskError>) -> Result<R> {
    let done = timeout(LIMIT, pending.with_context(|| what.to_owned())?).await;
    let done = done.with_context(|| format!("{what} is not done after {LIMIT:?}"))?;
    done.with_context(|| what.to_owned())
}

/// A worker of the cluster whose clock counts from now on.
async fn worker(
    registry: &Registry,
    cluster: &str,
    arrays: Vec<(ArrayId, ClientArray)>,
) -> Result<Worker> {
    let new = registry.add_executors(1, Clock(0)).await?;
    let id = *new.first().context("no worker")?;
    let config = NodeConfig::new(cluster, Transport::Sockets);
    let membership = Membership::silent(registry.view());
    Ok(Worker::start(id, arrays, config, membership))
}

/// Kills and waits as planned. What came of it until then is in `outcome` also after an error.
pub async fn run(plan: &Plan, outcome: &mut ChaosOutcome) -> Result<()> {
    let mut processes = Processes::new(plan.program.clone());
    let address = processes.start_registry(plan.registry).await?;
    let registry = address.open().await?;
    for _ in 0..2 + usize::from(plan.moves) {
        processes.start_server(&address).await?;
    }
    let slow =
        plan.moves.then(|| AbortOnDropHandle::new(tokio::spawn(name_slow(registry.clone()))));
    let pushing = Pushing::start(&registry, address.cluster()).await?;
    let learners = Learners::start(&registry, address.cluster(), plan.undisturbed).await?;
    let pace = Some(PACE);
    let disturbed = learners.begin(&registry, 0, plan.seed, pace, u64::MAX).await?;
    let mut chaos = Chaos { plan, registry, address, processes, pushing, outcome };
    let ended = chaos.kill_all().await;
    disturbed.stop();
    let (steps, loss) = learners.end(disturbed).await?;
    chaos.outcome.acknowledged = chaos.pushing.finish().await?;
    ended?;
    (chaos.outcome.steps, chaos.outcome.loss) = (steps, Some(loss));
    drop(slow);
    for number in 1..=plan.undisturbed {
        let (registry, seed) = (&chaos.registry, plan.seed + number);
        let learning = learners.begin(registry, number as u32, seed, None, steps);
        let (_, loss) = learners.end(learning.await?).await?;
        eprintln!("undisturbed training {number}: loss {loss:.6}");
        chaos.outcome.undisturbed.push(loss);
    }
    Ok(())
}

/// Says that one server is slow, another one each second, so that the leader moves ranges.
async fn name_slow(registry: Registry) -> Result<()> {
    let member = registry.join(Joining::Coordinator).await?;
    let (mut random, mut plan) = (ChaCha8Rng::seed_from_u64(1), LoadPlan::default());
    loop {
        let view = Arc::clone(&registry.view().borrow());
        for &node in view.servers.keys() {
            let row_ns = 1 << random.random_range(20..29);
            // One that has just died is no server any more.
            let _ = member
                .report(Report::Service(node, ServiceTime { push_ns: row_ns, read_ns: row_ns }));
        }
        if view.table.plan != plan {
            plan = view.table.plan.clone();
            eprintln!("{} ranges move away from a slow server", plan.moved);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

struct Chaos<'a> {
    plan: &'a Plan,
    registry: Registry,
    address: Address,
    processes: Processes,
    pushing: Pushing,
    outcome: &'a mut ChaosOutcome,
}

impl Chaos<'_> {
    async fn kill_all(&mut self) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(self.plan.seed);
        let middle = self.plan.kills / 2;
        for kill in 1..=self.plan.kills {
            let head = self.wait_for_a_head(&mut random).await?;
            self.kill(kill, head).await?;
            if kill == middle.max(1)
                && let Some(length) = self.plan.stop_registry
            {
                self.stop_the_registry(length).await?;
            }
        }
        if self.plan.moves {
            let moves = |view: &View| view.table.plan.moved > 0;
            until(&self.registry, "a move of ranges", moves).await?;
        }
        self.settled().await
    }

    async fn settled(&self) -> Result<()> {
        let settled = |view: &View| {
            let routes = view.table.routing.routes();
            let is_whole = routes.iter().all(|route| route.chain.len() == 2);
            view.table.hand_overs.is_empty() && is_whole
        };
        until(&self.registry, "two replicas of each range", settled).await
    }

    /// At some moment after all is well again, the head of some range.
    async fn wait_for_a_head(&self, random: &mut ChaCha8Rng) -> Result<NodeId> {
        loop {
            self.settled().await?;
            sleep(Duration::from_millis(random.random_range(50..500))).await;
            let view = Arc::clone(&self.registry.view().borrow());
            let routes = view.table.routing.routes();
            let route = routes.get(random.random_range(0..routes.len().max(1)));
            if let Some(head) = route.and_then(Route::head) {
                return Ok(head);
            }
        }
    }

    async fn kill(&mut self, kill: usize, head: NodeId) -> Result<()> {
        let leader = self.registry.view().borrow().leader;
        let led = leader.is_some_and(|leader| leader.member == Member::Server(head));
        self.processes.kill(head).await?;
        // Not before it is dead: a push takes less than killing, and would be answered by the old
        // head still.
        let delay = self.pushing.next(Instant::now()).await?;
        let (all, ms) = (self.plan.kills, delay.as_millis());
        let leading = if led { ", which led" } else { "" };
        eprintln!("kill {kill} of {all}: {head}{leading}; the next push took {ms} ms");
        self.outcome.kills.push(Kill { led, delay });
        self.pushing.check().await?;
        self.outcome.acknowledged = self.pushing.acknowledged();
        self.processes.start_server(&self.address).await
    }

    /// Pushes go on meanwhile, and afterwards, when the registry misses all members.
    async fn stop_the_registry(&mut self, length: Duration) -> Result<()> {
        self.settled().await?;
        let before = self.pushing.acknowledged();
        self.pushing.forget_waits();
        self.processes.signal_registry(Signal::SIGSTOP)?;
        sleep(length).await;
        let acknowledged = self.pushing.acknowledged() - before;
        self.processes.signal_registry(Signal::SIGCONT)?;
        let back = |view: &View| view.reachable && view.servers.len() >= 2 && view.leader.is_some();
        let what = "the registry again, with both servers";
        until(&self.registry, what, back).await?;
        // As long as leases and absences last: what they set off is over then.
        sleep(length).await;
        self.settled().await?;
        self.pushing.check().await?;
        let longest = self.pushing.longest_wait();
        let ms = longest.as_millis();
        eprintln!("registry stopped for {length:?}: {acknowledged} pushes, longest {ms} ms");
        self.outcome.stop = Some(Stop { length, acknowledged, longest });
        Ok(())
    }
}

async fn until(registry: &Registry, what: &str, is_so: impl Fn(&View) -> bool) -> Result<()> {
    if timeout(LIMIT, registry.until(is_so)).await.is_ok() {
        return Ok(());
    }
    let view = Arc::clone(&registry.view().borrow());
    let (servers, table, leader, reports) =
        (&view.servers, &view.table, view.leader, &view.reports);
    bail!("{what} is not there: {servers:?}, led by {leader:?}, {table:?}, reports {reports:?}")
}
