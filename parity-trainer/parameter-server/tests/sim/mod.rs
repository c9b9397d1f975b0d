//! Servers, workers and a registry in virtual time, over a network that loses, repeats, delays and
//! reorders messages and falls apart, with crashes and joins. Everything follows from the seed.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod check;
mod leader;
mod messages;
mod registry;
mod trained;
mod worker;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Add, ArrayConfig, ArrayId, ClientAction, Clock, Consistency, ConsistencyPolicy, Event,
    KeyRange, Keys, Layout, Message, NodeId, Peer, Push, PushAck, Refusal, Server, ServerConfig,
    SnapshotPhase, TaskOutcome, UpdateRule, Values, WorkerId,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use check::Checker;
use leader::{Decision, Leading};
use registry::Registry;
use worker::Worker;

/// Each worker counts its clocks in its own column, as bits: exactly what a cell contains can
/// be read off.
pub const COUNTED: ArrayId = ArrayId(0);
/// Under an optimiser, with gradients of all magnitudes: replicas must agree to the last bit.
pub const TRAINED: ArrayId = ArrayId(1);
pub const KEYS: u64 = 12;
pub const COLUMNS: usize = 6;
/// Bits of a clock must fit an f32's 24.
pub const LAST: Clock = Clock(14);
const CHAOS_MS: u64 = 400;
const LIMIT_MS: u64 = 5_000;

/// A mistake that a simulation can be made to contain, so that the checker can show that
/// it finds it.
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

#[derive(Debug)]
struct OffByOne(Consistency);

impl ConsistencyPolicy for OffByOne {
    fn may_read(
        &self,
        clocks: &parapet_parameter_server::RangedClocks,
        worker: WorkerId,
        range: KeyRange,
        clock: Clock,
    ) -> bool {
        self.0.may_read(clocks, worker, range, clock.minus(1))
    }

    fn adds_up_clocks(&self) -> bool {
        self.0.adds_up_clocks()
    }

    fn sends_fresh_rows(&self) -> bool {
        self.0.sends_fresh_rows()
    }
}

enum Due {
    Deliver(Peer, Peer, Message),
    ToServer(NodeId, Event),
    ServerTick(NodeId),
    WorkerTick(WorkerId),
    Proceed(WorkerId),
    Propose(parapet_parameter_server::ShardRef, NodeId),
    Lost(parapet_parameter_server::ShardRef, NodeId),
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

struct Scheduled(u64, u64, Due);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Counts of events, so that a test can tell that a run was not idle.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub crashes: usize,
    pub partitions: usize,
    pub joins: usize,
    pub splits: usize,
    pub worker_changes: usize,
    pub refused_not_finite: usize,
    /// Updates that would have made a number that is not finite.
    pub overflows: usize,
    pub eager_rows: usize,
    pub virtual_ms: u64,
    /// Changes that leaders made, and that came too late.
    pub decisions: usize,
    pub overtaken: usize,
    /// Hand-overs that leaders gave up.
    pub given_up: usize,
    /// Servers that left after they were emptied.
    pub leaves: usize,
    pub new_leaders: usize,
}

pub struct Simulation {
    pub rng: ChaCha8Rng,
    pub model: Consistency,
    pub check: Checker,
    pub tally: Tally,
    bug: Option<Bug>,
    now: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
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

/// The array that counts, sparse or not, and the one that is trained by `rule`.
fn arrays(
    rng: &mut ChaCha8Rng,
    policy: Arc<dyn ConsistencyPolicy>,
    rule: Arc<dyn UpdateRule>,
) -> Vec<(ArrayId, ArrayConfig)> {
    let counted = Layout {
        sparse: rng.random(),
        ..Layout::dense(COLUMNS, Add)
    };
    let trained = Layout {
        rule,
        ..Layout::dense(2, Add)
    };
    let config = |layout| ArrayConfig {
        layout,
        policy: Arc::clone(&policy),
    };
    vec![(COUNTED, config(counted)), (TRAINED, config(trained))]
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
        let model = models[rng.random_range(
            0..if bug == Some(Bug::ReadsTooEarly) {
                4
            } else {
                5
            },
        )];
        let policy: Arc<dyn ConsistencyPolicy> = if bug == Some(Bug::ReadsTooEarly) {
            Arc::new(OffByOne(model))
        } else {
            Arc::new(model)
        };
        let arrays = arrays(
            &mut rng,
            policy,
            trained::rule(seed, bug == Some(Bug::SkipsFiniteCheck)),
        );
        let config = ServerConfig {
            resend: Duration::from_millis(8),
            forget: Duration::from_millis(60),
            max_log: 24,
            max_pending: 6,
            max_waiting: 64,
            copy_rows: 2,
            ..ServerConfig::default()
        };
        let mut simulation = Self {
            registry: Registry::new(&mut rng, 3),
            leading: (bug.is_none() && seed % 2 == 1).then(|| Leading::new(&mut rng)),
            check: Checker::new(model),
            loss: if rng.random_bool(0.3) {
                0.0
            } else {
                rng.random_range(0.0..0.15)
            },
            rng,
            model,
            tally: Tally::default(),
            bug,
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            arrays,
            config,
            cut_off: BTreeSet::new(),
            next_server: 0,
            next_worker: 0,
            chaos: true,
        };
        for _ in 0..4 {
            simulation.start_server();
        }
        for _ in 0..3 {
            simulation.start_worker(Clock(0));
        }
        simulation.begin_to_lead();
        simulation.broadcast(true);
        simulation.at(1, Due::Upkeep);
        simulation.at(1, Due::Chaos);
        simulation
    }

    /// Runs until every worker has finished, and checks what is left. The error
    /// names the invariant.
    pub fn run(mut self) -> Result<Tally, String> {
        while let Some(Reverse(Scheduled(at, _, due))) = self.queue.pop() {
            self.now = at;
            if self.chaos && at > CHAOS_MS * 1000 {
                self.chaos = false;
                self.loss = 0.0;
                self.cut_off.clear();
                self.calm_down();
            }
            if at > LIMIT_MS * 1000 {
                let stuck: Vec<_> = self
                    .workers
                    .values()
                    .filter(|w| !w.has_finished())
                    .map(|w| (w.id, w.clock, w.client.unfinished()))
                    .collect();
                return Err(format!(
                    "liveness: stuck at the limit: {stuck:?}, {:?}",
                    self.registry.routing
                ));
            }
            self.act(due)?;
            if !self.chaos
                && self.workers.values().all(Worker::has_finished)
                && self.settled()
                && self.has_led()
            {
                break;
            }
        }
        self.tally.virtual_ms = self.now / 1000;
        self.check
            .at_the_end(&self.registry.routing, &self.servers, self.workers.values())?;
        Ok(self.tally)
    }

    /// Returns true if every server in a chain has heard of it and has all of the log, and no
    /// server keeps a part of a copy.
    fn settled(&self) -> bool {
        let keeps_part = |server: &Server| server.copies().any(|(_, is_complete)| !is_complete);
        if self.servers.values().any(keeps_part) {
            return false;
        }
        self.registry.routing.routes().iter().all(|route| {
            let views: Vec<_> = route
                .chain
                .iter()
                .filter_map(|node| {
                    self.servers.get(node)?.shards().find(|v| {
                        (v.at.array, v.at.range, v.at.epoch)
                            == (route.array, route.range, route.epoch)
                    })
                })
                .map(|view| (view.applied, view.committed))
                .collect();
            views.len() == route.chain.len()
                && views
                    .iter()
                    .all(|view| view.0 == views[0].0 && view.0 == view.1)
        })
    }

    fn act(&mut self, due: Due) -> Result<(), String> {
        match due {
            Due::Deliver(from, to, message) => self.deliver(from, to, message),
            Due::ToServer(node, event) => self.tell_server(node, event),
            Due::ServerTick(node) => self.tell_server(node, Event::Tick),
            Due::WorkerTick(worker) => {
                self.tell_worker(worker, parapet_parameter_server::ClientEvent::Tick)
            }
            Due::Proceed(worker) => self.proceed(worker),
            Due::Propose(at, add) if self.leading.is_some() => {
                self.report(|leading| leading.proposed(at, add));
                Ok(())
            }
            Due::Lost(at, node) if self.leading.is_some() => {
                self.report(|leading| leading.lost(node, at));
                Ok(())
            }
            Due::Suspect(node) if self.leading.is_some() => {
                self.suspect(node);
                Ok(())
            }
            Due::SuspectWorker(worker) if self.leading.is_some() => {
                self.report(|leading| leading.misses(worker));
                Ok(())
            }
            Due::Lead => {
                self.lead();
                Ok(())
            }
            Due::Commit(decision) => {
                self.commit(*decision);
                Ok(())
            }
            Due::Lapse(node) => {
                self.report(|leading| leading.lapsed(node));
                Ok(())
            }
            Due::Propose(at, add) => {
                if self.servers.contains_key(&add) && self.registry.append(at, add) {
                    self.tally.joins += 1;
                    self.broadcast(false);
                }
                Ok(())
            }
            Due::Lost(at, node) => {
                self.registry
                    .remove_from(at.array, at.range, at.epoch, node);
                Ok(())
            }
            Due::Suspect(node) => {
                let alive: BTreeSet<NodeId> = self.servers.keys().copied().collect();
                self.registry.remove(node, &alive);
                self.broadcast(false);
                Ok(())
            }
            Due::SuspectWorker(worker) => {
                self.registry.members.retain(|(w, _)| *w != worker);
                self.registry.members_version += 1;
                self.broadcast(false);
                Ok(())
            }
            Due::Chaos => {
                if self.chaos {
                    self.inject_fault();
                    let next = self.rng.random_range(1_000..40_000);
                    self.at(next, Due::Chaos);
                }
                Ok(())
            }
            Due::Upkeep => {
                self.upkeep();
                self.at(20_000, Due::Upkeep);
                Ok(())
            }
            Due::Heal(node) => {
                self.cut_off.remove(&node);
                self.report(|leading| leading.healed(node));
                Ok(())
            }
        }
    }

    fn at(&mut self, delay_us: u64, due: Due) {
        self.scheduled += 1;
        self.queue
            .push(Reverse(Scheduled(self.now + delay_us, self.scheduled, due)));
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }
}
