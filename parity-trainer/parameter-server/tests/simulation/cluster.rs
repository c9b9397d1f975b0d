//! Servers, workers and a registry in virtual time, over a network that loses, repeats, delays and
//! reorders messages and falls apart, with crashes and joins. Everything follows from the seed.

mod check;
mod leader;
mod messages;
mod registry;
mod trained;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parapet_parameter_server::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use check::Checker;
use leader::{Decision, Leading};
use registry::Registry;
use worker::Worker;

/// Each worker counts its clocks in its own column, as bits: exactly what a cell contains can
/// be read off.
const COUNTED: ArrayId = ArrayId(0);
/// Under an optimiser, with gradients of all magnitudes: replicas must agree to the last bit.
const TRAINED: ArrayId = ArrayId(1);
/// The same, with gradients as factors, whose rows workers mirror.
const FACTORED: ArrayId = ArrayId(2);
const WIDE: usize = 32;
const KEYS: u64 = 12;
const ALL: KeyRange = KeyRange::new(0, KEYS);
const COLUMNS: usize = 6;
/// Bits of a clock must fit an f32's 24.
const LAST: Clock = Clock(14);
const CHAOS_MS: u64 = 400;
const LIMIT_MS: u64 = 5_000;
const REGISTRY: Peer = Peer::Server(NodeId(u64::MAX));

/// The error names the invariant.
type Outcome<T> = Result<T, String>;

fn ensure(holds: bool, error: impl FnOnce() -> String) -> Outcome<()> {
    if holds { Ok(()) } else { Err(error()) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A mistake that a simulation can be made to contain, so that the checker can show that it finds
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The head acknowledges before its successors have the push.
    AcknowledgesEarly,
    /// A successor takes entries of any epoch.
    IgnoresEpochs,
    /// A replica applies a repeated log entry again.
    AppliesTwice,
    /// The delta leaves out the rows.
    ForgetsDelta,
    /// Readers may miss one clock too many.
    ReadsTooEarly,
    /// Updates are not checked for overflow.
    SkipsFiniteCheck,
}

enum Due {
    Deliver(Peer, Peer, Message),
    ToServer(NodeId, Event),
    ServerTick(NodeId),
    WorkerTick(WorkerId),
    Proceed(WorkerId),
    Propose(ShardRef, NodeId),
    Lost(ShardRef, NodeId),
    /// The registry learns of a server that is gone, or believes so.
    Suspect(NodeId),
    SuspectWorker(WorkerId),
    Chaos,
    Upkeep,
    Heal(NodeId),
    /// The leader looks at the registry, and decides.
    Lead,
    /// Its decision reaches the registry.
    Commit(Box<Decision>),
    /// The registry has not heard of a server for too long.
    Lapse(NodeId),
}

pub struct Simulation {
    rng: ChaCha8Rng,
    model: Consistency,
    check: Checker,
    /// Counts of events, so that a test can tell that a run was not idle.
    tally: BTreeMap<&'static str, usize>,
    bug: Option<Bug>,
    now: u64,
    /// By time and order.
    queue: BTreeMap<(u64, u64), Due>,
    scheduled: u64,
    servers: BTreeMap<NodeId, Server>,
    workers: BTreeMap<WorkerId, Worker>,
    registry: Registry,
    /// In half of the runs a leader decides what becomes of the table, in the others chance does.
    leading: Option<Leading>,
    arrays: Vec<(ArrayId, ArrayConfig)>,
    config: ServerConfig,
    cut_off: BTreeSet<NodeId>,
    next_server: u64,
    next_worker: u64,
    loss: f64,
    chaos: bool,
}

impl Simulation {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let models = [
            Consistency::Bsp,
            Consistency::BoundedDelay(rng.random_range(0..3)),
            Consistency::Ssp(rng.random_range(0..3)),
            Consistency::EagerSsp(rng.random_range(0..3)),
            Consistency::Eventual,
        ];
        let reads_early = bug == Some(Bug::ReadsTooEarly);
        let model = models[rng.random_range(0..if reads_early { 4 } else { 5 })];
        let consistency = match model {
            model if !reads_early => model,
            Consistency::BoundedDelay(delay) => Consistency::BoundedDelay(delay + 1),
            Consistency::Ssp(slack) => Consistency::Ssp(slack + 1),
            Consistency::EagerSsp(slack) => Consistency::EagerSsp(slack + 1),
            _ => Consistency::BoundedDelay(1),
        };
        let counted = Layout { sparse: rng.random(), ..Layout::dense(COLUMNS, Add) };
        let rule = trained::rule(seed, bug == Some(Bug::SkipsFiniteCheck));
        let trained = Layout { rule, ..Layout::dense(2, Add) };
        let array = |layout| ArrayConfig { layout, consistency };
        let factored = worker::factored();
        let is_lossless = rng.random_bool(0.3);
        let mut simulation = Self {
            registry: Registry::new(&mut rng, 3),
            leading: (bug.is_none() && seed % 2 == 1).then(|| Leading::new(&mut rng)),
            check: Checker::new(model),
            loss: if is_lossless { 0.0 } else { rng.random_range(0.0..0.15) },
            rng,
            model,
            tally: BTreeMap::new(),
            bug,
            now: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            arrays: [(COUNTED, counted), (TRAINED, trained), (FACTORED, factored)]
                .map(|(number, layout)| (number, array(layout)))
                .into(),
            config: ServerConfig {
                resend: ms(8),
                forget: ms(60),
                max_log: 24,
                max_pending: 6,
                max_waiting: 64,
                copy_rows: 2,
                ..ServerConfig::default()
            },
            cut_off: BTreeSet::new(),
            next_server: 0,
            next_worker: 0,
            chaos: true,
        };
        (0..4).for_each(|_| simulation.start_server());
        (0..3).for_each(|_| simulation.start_worker(Clock(0)));
        simulation.begin_to_lead();
        simulation.broadcast(true);
        simulation.at(1, Due::Upkeep);
        simulation.at(1, Due::Chaos);
        simulation
    }

    fn count(&mut self, event: &'static str) {
        *self.tally.entry(event).or_default() += 1;
    }

    /// Runs until every worker has finished, and checks what is left.
    pub fn run(mut self) -> Outcome<BTreeMap<&'static str, usize>> {
        while let Some(((at, _), due)) = self.queue.pop_first() {
            self.now = at;
            if self.chaos && at > CHAOS_MS * 1000 {
                self.chaos = false;
                self.loss = 0.0;
                self.cut_off.clear();
                self.report(|cluster| cluster.suspicions.clear());
            }
            let stuck = self.workers.iter().filter(|(_, worker)| !worker.has_finished());
            let stuck: Vec<_> = stuck.map(|(id, worker)| (id, worker.clock)).collect();
            let has_finished = stuck.is_empty();
            let error = || format!("liveness: {stuck:?} {:?}", self.registry.routing);
            ensure(at <= LIMIT_MS * 1000, error)?;
            self.act(due)?;
            if !self.chaos && has_finished && self.settled() && self.has_led() {
                break;
            }
        }
        self.check.at_the_end(&self.registry.routing, &self.servers, &self.workers)?;
        Ok(self.tally)
    }

    /// Returns true if every server in a chain has heard of it and has all of the log, and no
    /// server keeps a part of a copy.
    fn settled(&self) -> bool {
        let keeps_part = |server: &Server| server.copies().any(|(_, is_complete)| !is_complete);
        let is_settled = |route: &Route| {
            let view = |node: &NodeId| {
                let mut shards = self.servers.get(node)?.shards();
                let view = shards.find(|view| view.at == route.at())?;
                (view.applied == view.committed).then_some(view.applied)
            };
            let first = route.chain.first().and_then(view);
            first.is_some() && route.chain.iter().all(|node| view(node) == first)
        };
        let mut routes = self.registry.routing.routes().iter();
        !self.servers.values().any(keeps_part) && routes.all(is_settled)
    }

    fn act(&mut self, due: Due) -> Outcome<()> {
        let is_led = self.leading.is_some();
        match due {
            Due::Deliver(from, to, message) => self.deliver(from, to, message)?,
            Due::ToServer(node, event) => self.tell_server(node, event)?,
            Due::ServerTick(node) => self.tell_server(node, Event::Tick)?,
            Due::WorkerTick(worker) => self.tell_worker(worker, ClientEvent::Tick)?,
            Due::Proceed(worker) => self.proceed(worker)?,
            Due::Lead => self.lead(),
            Due::Commit(decision) => self.commit(*decision),
            Due::Lapse(node) => self.lapsed(node),
            Due::Propose(at, to) if is_led => {
                self.report(|cluster| cluster.proposals.insert(HandOver { at, to }));
            }
            Due::Propose(at, add) => {
                let is_there = self.servers.contains_key(&add);
                if is_there && self.registry.change(at, ChainChange::Append(add)) {
                    self.count("join");
                    self.broadcast(false);
                }
            }
            Due::Lost(at, node) if is_led => {
                self.report(|cluster| cluster.lost.insert((node, at)));
            }
            Due::Lost(at, node) => {
                self.registry.change(at, ChainChange::Remove(vec![node]));
            }
            Due::Suspect(node) if is_led => self.suspect(node),
            Due::Suspect(node) => {
                let alive = self.alive();
                self.registry.remove(node, &alive);
                self.broadcast(false);
            }
            Due::SuspectWorker(worker) if is_led => {
                self.report(|cluster| cluster.present_workers.remove(&worker));
            }
            Due::SuspectWorker(worker) => {
                self.registry.members.workers.retain(|(w, _)| *w != worker);
                self.registry.members.version += 1;
                self.broadcast(false);
            }
            Due::Chaos if self.chaos => {
                self.inject_fault();
                let next = self.rng.random_range(1_000..40_000);
                self.at(next, Due::Chaos);
            }
            Due::Chaos => {}
            Due::Upkeep => {
                self.upkeep();
                self.at(20_000, Due::Upkeep);
            }
            Due::Heal(node) => {
                self.cut_off.remove(&node);
                self.healed(node);
            }
        }
        Ok(())
    }

    fn at(&mut self, delay_us: u64, due: Due) {
        self.scheduled += 1;
        self.queue.insert((self.now + delay_us, self.scheduled), due);
    }

    /// Schedules a timer, `least` from now.
    fn at_timer(&mut self, timer: Option<Duration>, least: u64, due: Due) {
        if let Some(timer) = timer {
            let at = u64::try_from(timer.as_micros()).unwrap();
            self.at(at.saturating_sub(self.now).max(least), due);
        }
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }
}
