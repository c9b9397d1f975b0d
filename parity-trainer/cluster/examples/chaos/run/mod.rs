//! A cluster of processes, one of which is killed again and again.

mod learning;
mod outcome;
mod processes;
mod pushing;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::node::TaskError;
use parapet_cluster::registry::{Address, Registry, RegistryError, View};
use parapet_cluster::roles::ClusterError;
use parapet_parameter_server::NodeId;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep, timeout};

use learning::Learners;
pub use outcome::{ChaosOutcome, Kill, Stop};
use processes::Processes;
use pushing::Pushing;

/// Longer than anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The disturbed training takes a step this often, so that it lasts as long as the kills, and the
/// others do not.
const PACE: Duration = Duration::from_millis(10);

/// Where the cluster's registry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryChoice {
    /// In a coordinator's memory, which leads, too.
    Coordinator,
    /// In an etcd that is started for this run; the servers lead.
    Etcd,
    /// In an etcd that is there.
    At(Address),
}

impl FromStr for RegistryChoice {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        match text {
            "coordinator" => Ok(Self::Coordinator),
            "etcd" => Ok(Self::Etcd),
            address => address.parse().map(Self::At),
        }
    }
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
    pub tell: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A push or pull.
    #[error("clock {clock}: {error}")]
    Task { clock: u64, error: TaskError },
    #[error("{what}: {source}")]
    Process {
        what: String,
        source: std::io::Error,
    },
    /// Something did not come.
    #[error("after {LIMIT:?} still not: {0}")]
    Hangs(String),
    /// The plan cannot be carried out.
    #[error("a registry that was there before is not stopped: use --registry etcd or coordinator")]
    NotOurs,
    /// An acknowledged push is not there, or is there twice.
    #[error("{acknowledged} pushes were acknowledged, the values show {least} to {greatest}")]
    Wrong {
        acknowledged: u64,
        /// Sum that all values should have reached.
        least: f32,
        greatest: f32,
    },
}

/// Kills and waits as planned. What came of it until then is in `outcome` also after an error.
pub async fn run(plan: &Plan, outcome: &mut ChaosOutcome) -> Result<(), ChaosError> {
    let mut processes = Processes::new(plan.program.clone());
    let address = processes.registry(&plan.registry).await?;
    let registry = address.open().await?;
    for _ in 0..2 {
        processes.server(&address).await?;
    }
    let pushing = Pushing::start(&registry, address.cluster()).await?;
    let learners = Learners::start(&registry, address.cluster(), plan.undisturbed).await?;
    let disturbed = learners.learn_until_stopped(plan.seed, PACE);
    let mut chaos = Chaos {
        plan,
        registry,
        address,
        processes,
        pushing,
        outcome,
    };
    let ended = chaos.kill_all().await;
    let (steps, loss) = disturbed.stop().await?;
    let Chaos {
        registry,
        processes: _processes,
        pushing,
        outcome,
        ..
    } = chaos;
    outcome.acknowledged = pushing.finish().await?;
    ended?;
    outcome.steps = steps;
    outcome.loss = Some(loss);
    for seed in 1..=plan.undisturbed {
        let loss = learners.learn(&registry, plan.seed + seed, steps).await?;
        if plan.tell {
            eprintln!(
                "undisturbed training {seed} of {}: loss {loss:.6}",
                plan.undisturbed
            );
        }
        outcome.undisturbed.push(loss);
    }
    Ok(())
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
    async fn kill_all(&mut self) -> Result<(), ChaosError> {
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
        self.settled().await.map(|_| ())
    }

    async fn settled(&self) -> Result<Arc<View>, ChaosError> {
        let settled = |view: &View| {
            view.table.hand_overs.is_empty()
                && view
                    .table
                    .routing
                    .routes()
                    .iter()
                    .all(|route| route.chain.len() == 2)
        };
        until(&self.registry, "two replicas of each range", settled).await
    }

    /// At some moment after all is well again, the head of some range.
    async fn wait_for_a_head(&self, random: &mut ChaCha8Rng) -> Result<NodeId, ChaosError> {
        loop {
            self.settled().await?;
            sleep(Duration::from_millis(random.random_range(50..500))).await;
            let view = Arc::clone(&self.registry.view().borrow());
            let routes = view.table.routing.routes();
            let route = routes.get(random.random_range(0..routes.len().max(1)));
            if let Some(head) = route.and_then(parapet_parameter_server::Route::head) {
                return Ok(head);
            }
        }
    }

    async fn kill(&mut self, kill: usize, head: NodeId) -> Result<(), ChaosError> {
        let led = leader(&self.registry.view().borrow()) == Some(head);
        self.processes.kill(head).await?;
        // Not before it is dead: a push takes less than killing, and would be answered by the old
        // head still.
        let delay = self.pushing.next(Instant::now()).await?;
        if self.plan.tell {
            let led = if led { ", which led" } else { "" };
            let (all, ms) = (self.plan.kills, delay.as_millis());
            eprintln!("kill {kill} of {all}: {head}{led}; the next push took {ms} ms");
        }
        self.outcome.kills.push(Kill {
            server: head.0,
            led,
            delay,
        });
        self.pushing.check().await?;
        self.outcome.acknowledged = self.pushing.acknowledged();
        self.processes.server(&self.address).await
    }

    /// Pushes go on meanwhile, and afterwards, when the registry misses everybody.
    async fn stop_the_registry(&mut self, length: Duration) -> Result<(), ChaosError> {
        self.settled().await?;
        let before = self.pushing.acknowledged();
        self.pushing.forget_waits();
        self.processes.stop_registry()?;
        sleep(length).await;
        let meanwhile = self.pushing.acknowledged() - before;
        self.processes.resume_registry()?;
        until(
            &self.registry,
            "the registry again, with both servers",
            |view| view.reachable && view.servers.len() >= 2 && view.leader.is_some(),
        )
        .await?;
        // As long as leases and absences last: what they set off is over then.
        sleep(length).await;
        self.settled().await?;
        self.pushing.check().await?;
        let stop = Stop {
            length,
            acknowledged: meanwhile,
            longest: self.pushing.longest_wait(),
        };
        if self.plan.tell {
            let ms = stop.longest.as_millis();
            eprintln!(
                "registry stopped for {length:?}: {meanwhile} pushes, the longest took {ms} ms"
            );
        }
        self.outcome.stop = Some(stop);
        Ok(())
    }
}

/// The server that leads, if it is a server.
fn leader(view: &View) -> Option<NodeId> {
    match view.leader?.member {
        parapet_cluster::registry::Member::Server(node) => Some(node),
        _ => None,
    }
}

async fn until(
    registry: &Registry,
    what: &str,
    is_so: impl Fn(&View) -> bool,
) -> Result<Arc<View>, ChaosError> {
    let mut views = registry.view();
    let so = timeout(LIMIT, views.wait_for(|view| is_so(view))).await;
    if let Ok(Ok(view)) = so {
        return Ok(Arc::clone(&view));
    }
    drop(so);
    let view = Arc::clone(&registry.view().borrow());
    let chains: Vec<_> = view
        .table
        .routing
        .routes()
        .iter()
        .map(|route| (route.epoch, &route.chain))
        .collect();
    let (servers, reports) = (
        view.servers.keys().collect::<Vec<_>>(),
        view.reports.values(),
    );
    let (hand_overs, reports) = (&view.table.hand_overs, reports.collect::<Vec<_>>());
    Err(ChaosError::Hangs(format!(
        "{what} (servers {servers:?}, led by {:?}, chains {chains:?}, hand-overs {hand_overs:?}, \
            reports {reports:?})",
        view.leader
    )))
}
