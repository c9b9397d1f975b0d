//! A cluster of processes, one of which is killed again and again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, KeyRange, NodeId, Values};
use parapet_parameter_server_cluster::{
    ArraySpec, ClusterError, ConsistencySpec, RuleSpec, WorkerRole, WorkerSettings, await_array, define,
};
use parapet_parameter_server_node::transport::Sockets;
use parapet_parameter_server_node::{TaskError, TaskSpec};
use parapet_parameter_server_registry::{Address, Registry, RegistryError, View};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

const ARRAY: ArrayId = ArrayId(1);
const KEYS: u64 = 256;
const WIDTH: usize = 64;
const SHARDS: u64 = 8;
/// Longer than anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Has the commands `server` and `coordinator`.
    pub program: PathBuf,
    /// How often.
    pub kills: usize,
    /// A registry in etcd; otherwise a coordinator serves one.
    pub registry: Option<String>,
    /// Of the moments.
    pub seed: u64,
    /// Whether each kill is told.
    pub tell: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From each kill to the acknowledgement of the first push that was begun after it, ascending.
    pub delays: Vec<Duration>,
    /// Pushes acknowledged, all of which are in the final values, once.
    pub acknowledged: u64,
}

impl Outcome {
    /// The delay that so many of all do not exceed: of few, the longest.
    pub fn percentile(&self, part: f64) -> Duration {
        let place = ((self.delays.len() as f64 * part).ceil() as usize).clamp(1, self.delays.len().max(1));
        self.delays.get(place - 1).copied().unwrap_or_default()
    }

    /// As Markdown.
    #[allow(dead_code, reason = "the test does without")]
    pub fn table(&self) -> String {
        let ms = |part| format!("{} ms", self.percentile(part).as_millis());
        format!(
            "| kills | next push p50 | p99 | max | acknowledged | lost |\n|---|---|---|---|---|---|\n| {} | {} | {} | {} | {} | 0 |",
            self.delays.len(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            self.acknowledged
        )
    }
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// A role.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A push or pull.
    #[error("clock {clock}: {error}")]
    Task {
        /// Which.
        clock: u64,
        /// How it failed.
        error: TaskError,
    },
    /// A process.
    #[error("{what}: {source}")]
    Process {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// Something did not come.
    #[error("after {LIMIT:?} still not: {0}")]
    Hangs(String),
    /// An acknowledged push is not there, or is there twice.
    #[error("{acknowledged} pushes were acknowledged, the values show {found}")]
    Wrong {
        /// Pushes.
        acknowledged: u64,
        /// What they should have added up to.
        found: f32,
    },
}

/// Kills and waits as planned.
pub async fn run(plan: &Plan) -> Result<Outcome, ChaosError> {
    let mut processes = Processes { plan: plan.clone(), children: BTreeMap::new(), _coordinator: None };
    let address = match &plan.registry {
        Some(address) => address.clone(),
        None => processes.coordinator().await?,
    };
    let address: Address = address.parse()?;
    let registry = address.open().await?;
    for _ in 0..2 {
        processes.server(&address).await?;
    }
    let spec = ArraySpec {
        width: WIDTH,
        sparse: false,
        rule: RuleSpec::Add,
        consistency: ConsistencySpec::Eventual,
    };
    define(&registry, ARRAY, KeyRange::new(0, KEYS), SHARDS, &spec).await?;
    await_array(&registry, ARRAY, LIMIT).await?;
    let settings = WorkerSettings::new(address.cluster(), vec![(ARRAY, spec)]);
    let worker = Arc::new(WorkerRole::join(&registry, settings, Sockets).await?);

    // The log: how many pushes were acknowledged, and when the last of them was begun.
    let (log, acknowledged) = watch::channel((0u64, Instant::now()));
    let stop = Arc::new(AtomicU64::new(u64::MAX));
    let pushing = tokio::spawn(push(Arc::clone(&worker), log, Arc::clone(&stop)));
    let mut outcome = Outcome { delays: Vec::new(), acknowledged: 0 };
    let mut random = plan.seed.max(1);
    let outcome = async {
        for kill in 1..=plan.kills {
            let settled = |view: &View| {
                view.table.hand_overs.is_empty()
                    && view.table.routing.routes().iter().all(|route| route.chain.len() == 2)
            };
            until(&registry, "two replicas of each range", settled).await?;
            sleep(Duration::from_millis(50 + next(&mut random) % 450)).await;
            let view = Arc::clone(&registry.view().borrow());
            let routes = view.table.routing.routes();
            let route = routes.get((next(&mut random) as usize) % routes.len().max(1));
            let Some(head) = route.and_then(parapet_parameter_server::Route::head) else { continue };
            processes.kill(head).await?;
            // Not before it is dead: a push takes less than killing, and would be answered by the old head still.
            let delay = next_push(&acknowledged, Instant::now()).await?;
            if plan.tell {
                eprintln!("kill {kill}: {head}; the next push took {} ms", delay.as_millis());
            }
            outcome.delays.push(delay);
            check(&worker, acknowledged.borrow().0).await?;
            processes.server(&address).await?;
        }
        Ok::<_, ChaosError>(outcome)
    };
    let outcome = outcome.await;
    stop.store(0, Ordering::Relaxed);
    let pushed = timeout(LIMIT, pushing).await.map_err(|_| ChaosError::Hangs("the last push".into()))?;
    let pushed = pushed.map_err(|error| ChaosError::Hangs(error.to_string()))??;
    let mut outcome = outcome?;
    let found = value(&worker, pushed).await?;
    if found != (pushed as f32, pushed as f32) {
        return Err(ChaosError::Wrong { acknowledged: pushed, found: found.0 });
    }
    outcome.acknowledged = pushed;
    outcome.delays.sort_unstable();
    Ok(outcome)
}

/// Pushes ones to all rows, clock after clock, each acknowledged before the next.
async fn push(
    worker: Arc<WorkerRole>,
    log: watch::Sender<(u64, Instant)>,
    stop: Arc<AtomicU64>,
) -> Result<u64, ChaosError> {
    let mut clock = 0;
    while clock < stop.load(Ordering::Relaxed) {
        clock += 1;
        let begun = Instant::now();
        let values = Values::from(vec![1.0; KEYS as usize * WIDTH]);
        let failed = |error| ChaosError::Task { clock, error };
        let push = worker.worker().push(all(clock), values).await.map_err(failed)?;
        timeout(LIMIT, push)
            .await
            .map_err(|_| ChaosError::Hangs(format!("push {clock}")))?
            .map_err(failed)?;
        log.send_replace((clock, begun));
    }
    Ok(clock)
}

fn all(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KeyRange::new(0, KEYS), Clock(clock))
}

/// From the kill to the acknowledgement of the first push that was begun after it.
async fn next_push(
    acknowledged: &watch::Receiver<(u64, Instant)>,
    killed: Instant,
) -> Result<Duration, ChaosError> {
    let mut log = acknowledged.clone();
    let after = timeout(LIMIT, log.wait_for(|(_, begun)| *begun >= killed)).await;
    match after {
        Ok(Ok(_)) => Ok(killed.elapsed()),
        _ => Err(ChaosError::Hangs("the next push".into())),
    }
}

/// The least and the greatest of all values.
async fn value(worker: &WorkerRole, clock: u64) -> Result<(f32, f32), ChaosError> {
    let failed = |error| ChaosError::Task { clock, error };
    let pull = worker.worker().pull(all(0)).await.map_err(failed)?;
    let pulled =
        timeout(LIMIT, pull).await.map_err(|_| ChaosError::Hangs("a pull".into()))?.map_err(failed)?;
    let values = pulled.values.iter().copied();
    Ok((values.clone().fold(f32::INFINITY, f32::min), values.fold(f32::NEG_INFINITY, f32::max)))
}

/// Everything acknowledged must be there, whatever else is.
async fn check(worker: &WorkerRole, acknowledged: u64) -> Result<(), ChaosError> {
    let (least, _) = value(worker, acknowledged).await?;
    match least >= acknowledged as f32 {
        true => Ok(()),
        false => Err(ChaosError::Wrong { acknowledged, found: least }),
    }
}

async fn until(registry: &Registry, what: &str, is_so: impl Fn(&View) -> bool) -> Result<(), ChaosError> {
    let mut views = registry.view();
    let so = timeout(LIMIT, views.wait_for(|view| is_so(view))).await;
    let hangs = || ChaosError::Hangs(what.to_owned());
    so.map_err(|_| hangs())?.map(|_| ()).map_err(|_| hangs())
}

/// xorshift64 (Marsaglia 2003): moments need no better.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The cluster's processes. They end with this.
struct Processes {
    plan: Plan,
    children: BTreeMap<NodeId, Child>,
    _coordinator: Option<Child>,
}

impl Processes {
    /// The word after `before` in what the process says first.
    async fn start(&self, args: &[&str], before: &str) -> Result<(Child, String), ChaosError> {
        let failed = |source| ChaosError::Process { what: args.join(" "), source };
        let mut command = Command::new(&self.plan.program);
        command.args(args).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let mut lines = child.stderr.take().map(|errors| BufReader::new(errors).lines());
        let said = timeout(LIMIT, async {
            let mut said = Vec::new();
            while let Some(lines) = &mut lines
                && let Ok(Some(line)) = lines.next_line().await
            {
                if let Some((_, rest)) = line.split_once(before) {
                    let word = rest.split([' ', ':']).next().unwrap_or_default();
                    let word = if before.ends_with("at ") { rest } else { word };
                    return Ok(word.to_owned());
                }
                said.push(line);
            }
            Err(ChaosError::Hangs(format!("{}: {}", args.join(" "), said.join("; "))))
        });
        let word = said.await.map_err(|_| ChaosError::Hangs(args.join(" ")))??;
        if let Some(mut lines) = lines {
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    eprintln!("{line}");
                }
            });
        }
        Ok((child, word))
    }

    async fn coordinator(&mut self) -> Result<String, ChaosError> {
        let args = ["coordinator", "--serve", "127.0.0.1:0", "--replicas", "2", "--min-servers", "2"];
        let (child, address) = self.start(&args, "registry at ").await?;
        self._coordinator = Some(child);
        Ok(address)
    }

    async fn server(&mut self, registry: &Address) -> Result<(), ChaosError> {
        let registry = registry.to_string();
        let args = ["server", "--registry", &registry, "--replicas", "2", "--min-servers", "2"];
        let (child, number) = self.start(&args, "server ").await?;
        let number = number.parse().map_err(|_| ChaosError::Hangs(format!("a server named {number}")))?;
        self.children.insert(NodeId(number), child);
        Ok(())
    }

    /// Kill -9.
    async fn kill(&mut self, node: NodeId) -> Result<(), ChaosError> {
        let Some(mut child) = self.children.remove(&node) else {
            return Err(ChaosError::Hangs(format!("{node} is none of ours")));
        };
        child.kill().await.map_err(|source| ChaosError::Process { what: node.to_string(), source })
    }
}
