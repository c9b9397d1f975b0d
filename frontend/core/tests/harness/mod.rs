//! A driver in virtual time for the engine: linear "models", every invariant checked at every
//! action, and again when the harness is dropped, after everything has ended.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test harness")]

mod check;
mod config;
mod events;
mod members;
pub mod ops;

pub use config::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parapet_decoder::{Decoder, build_decoder};
use parapet_encoder::{CodeSpec, Decoding, Encoder, EncoderKind, build_encoder};
use parapet_frontend_core::{
    Action, Arrival, ByClass, ClassId, CodedConfig, Comparison, CoreConfig, DomainId, Engine,
    Failure, FailureKind, GroupId, GroupKey, HoldBackOverride, HoldBackPolicy, InstanceId, JobId,
    PoolId, QueryId, Rejected, Row, Slot, StrategyConfig, Time,
};

/// Input of a client; a parity query has no number.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub number: Option<usize>,
    pub key: GroupKey,
    /// One, or with slots one for each member of the parity query's group.
    pub values: Vec<f32>,
    /// For a parity query, whose.
    pub group: Option<GroupId>,
}

pub type Output = Vec<f32>;

type Actions = Vec<Action<Input, Output>>;

pub fn instance(pool: u8, index: u32) -> InstanceId {
    let pool = PoolId(pool);
    InstanceId { pool, index }
}

/// The deployed model, and for the sum code its own parity model.
pub fn model(value: f32) -> f32 {
    3.0 * value
}

fn predictions(values: &[f32]) -> Output {
    values.iter().copied().map(model).collect()
}

/// A cheaper model, a little off.
pub fn backup_model(value: f32) -> f32 {
    model(value) + 0.5
}

/// Kind of queries that no group may have.
pub const UNSHARED: u32 = 99;

/// Result of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    Waiting,
    Exact,
    Hedged,
    Backup,
    Reconstructed,
    Failed(FailureKind),
    Abandoned,
}

#[derive(Debug)]
pub struct Client {
    pub id: QueryId,
    pub arrived: Time,
    pub deadline: Time,
    pub allow_approximate: bool,
    pub key: GroupKey,
    pub value: f32,
    pub fate: Fate,
    pub answered_at: Option<Time>,
    /// An exact prediction was handed to the engine.
    pub exact_seen: bool,
    /// The last attempt failed and no other is known to be under way.
    pub lost: bool,
    /// Redundancy was switched off when it arrived.
    pub plain: bool,
    /// Hold-back at its arrival.
    pub hold_back: Duration,
    /// True if the engine has its input still.
    input: Weak<Input>,
}

#[derive(Debug, Clone)]
pub struct Sent {
    pub job: JobId,
    pub instance: InstanceId,
    pub input: Arc<Input>,
}

#[derive(Debug)]
pub struct PendingEncode {
    pub group: GroupId,
    pub row: Row,
    pub inputs: Vec<Arc<Input>>,
}

#[derive(Debug)]
pub struct PendingDecode {
    pub query: QueryId,
    pub slot: Slot,
    pub predictions: Vec<Option<Arc<Output>>>,
    pub parity: Vec<Option<Arc<Output>>>,
}

pub struct Harness {
    pub engine: Engine<Input, Output>,
    pub now: Time,
    pub clients: Vec<Client>,
    pub sent: Vec<Sent>,
    pub encodes: Vec<PendingEncode>,
    pub decodes: Vec<PendingDecode>,
    pub probes: Vec<InstanceId>,
    pub comparisons: Vec<Comparison<Output>>,
    pub down: BTreeSet<InstanceId>,
    /// Told to leave, and still at work.
    pub leaving: BTreeSet<InstanceId>,
    /// Instances that the engine has released.
    pub gone: BTreeSet<InstanceId>,
    /// Groups that were encoded: their members' numbers.
    pub groups: BTreeMap<GroupId, Vec<usize>>,
    pub encoded_total: usize,
    config: CoreConfig,
    /// Strategies by class.
    strategies: Vec<StrategyConfig>,
    coded: Option<CodedConfig>,
    backup: Option<PoolId>,
    coders: Option<(Box<dyn Encoder>, Box<dyn Decoder>)>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

impl Harness {
    /// Returns the shortest hold-back of queries that arrive now.
    fn hold_back(&self) -> Duration {
        let configured = self.coded.as_ref().map(|coded| &coded.hold_back);
        match (self.engine.switches().hold_back, configured) {
            (Some(HoldBackOverride::Fixed(delay)), _) => delay,
            (Some(HoldBackOverride::Percentile(_)), Some(HoldBackPolicy::Learned { min, .. })) => {
                *min
            }
            (Some(HoldBackOverride::Percentile(_)), _) => HoldBackPolicy::MIN,
            (None, Some(HoldBackPolicy::Fixed(delay))) => *delay,
            (None, _) => HOLD_BACK,
        }
    }

    /// Throws both switches.
    pub fn switch(&mut self, redundancy: bool, hold_back: Option<HoldBackOverride>) {
        self.engine.set_redundancy(redundancy);
        self.engine.set_hold_back(hold_back);
    }

    pub fn plain(instances: usize, slots: u32) -> Self {
        Self::of(instances, slots, StrategyConfig::None)
    }

    /// With pools as the strategy needs them.
    pub fn of(instances: usize, slots: u32, strategy: StrategyConfig) -> Self {
        let redundant = match &strategy {
            StrategyConfig::ApproximateBackup(_) => 1,
            other => coded_part(other).map_or(0, |coded| coded.r),
        };
        Self::build(core_config(instances, slots, redundant), vec![strategy])
    }

    pub fn coded(instances: usize, slots: u32, coded: CodedConfig) -> Self {
        Self::of(instances, slots, StrategyConfig::Coded(coded))
    }

    /// With a strategy for each class; at most one of them coded, at most one with a backup model.
    pub fn build(config: CoreConfig, strategies: Vec<StrategyConfig>) -> Self {
        let coded = strategies.iter().find_map(coded_part);
        let backup = strategies.iter().find_map(|strategy| match strategy {
            StrategyConfig::ApproximateBackup(config) => Some(config.pool),
            _ => None,
        });
        let (default, others) = strategies.split_first().unwrap();
        let others = others.iter().map(StrategyConfig::build).collect();
        let by_class = ByClass::new(default.build(), others);
        let coders = coded.as_ref().map(|coded| {
            let encoder = match coded.decoding {
                Decoding::Linear => EncoderKind::Sum,
                Decoding::Slots => EncoderKind::Stack,
            };
            let spec =
                CodeSpec { decoding: coded.decoding, ..CodeSpec::new(encoder, coded.k, coded.r) };
            let encoder = build_encoder(&spec, &[1]).unwrap();
            (encoder, build_decoder(&spec, 1).unwrap())
        });
        Self {
            engine: Engine::new(&config, by_class),
            now: Time::from_nanos(1),
            clients: Vec::new(),
            sent: Vec::new(),
            encodes: Vec::new(),
            decodes: Vec::new(),
            probes: Vec::new(),
            comparisons: Vec::new(),
            down: BTreeSet::new(),
            leaving: BTreeSet::new(),
            gone: BTreeSet::new(),
            groups: BTreeMap::new(),
            encoded_total: 0,
            config,
            strategies,
            coded,
            backup,
            coders,
        }
    }

    /// A query with time enough that takes an approximation.
    pub fn query(&mut self) -> usize {
        self.arrive(0, true, Duration::from_secs(60)).unwrap()
    }

    pub fn pair(&mut self) -> [usize; 2] {
        [self.query(), self.query()]
    }

    pub fn arrive(
        &mut self,
        key: u64,
        allow_approximate: bool,
        deadline: Duration,
    ) -> Result<usize, Rejected> {
        self.arrive_in(ClassId::DEFAULT, key, allow_approximate, deadline)
    }

    pub fn arrive_in(
        &mut self,
        class: ClassId,
        key: u64,
        allow_approximate: bool,
        deadline: Duration,
    ) -> Result<usize, Rejected> {
        let number = self.clients.len();
        let key = GroupKey { domain: DomainId(0), kind: key as u32 };
        let value = (number % 17) as f32 - 8.0 + key.kind as f32 * 100.0;
        let input = Arc::new(Input { number: Some(number), key, values: vec![value], group: None });
        let held = Arc::downgrade(&input);
        let deadline = self.now + deadline;
        let deployed = self.engine.core().pool(PoolId::DEPLOYED);
        let free = deployed.unwrap().has_free_slot();
        let is_down = !deployed.unwrap().is_any_up();
        let arrival = Arrival {
            input,
            bytes: 1,
            key,
            deadline,
            allow_approximate,
            may_join: key.kind != UNSHARED,
            class,
        };
        let mut actions = Vec::new();
        let id = self.engine.arrive(self.now, arrival, &mut actions)?;
        let is_own = |action: &Action<Input, Output>| match action {
            Action::Send { input, .. } => input.number == Some(number),
            _ => false,
        };
        let plain = !self.engine.switches().redundancy;
        let hold_back = match is_down {
            true => Duration::ZERO,
            false => self.hold_back(),
        };
        if free {
            let first = actions.first();
            assert!(first.is_some_and(is_own), "CG-3: {first:?} before its dispatch");
        }
        self.clients.push(Client {
            id,
            arrived: self.now,
            deadline,
            allow_approximate,
            key,
            value,
            fate: Fate::Waiting,
            answered_at: None,
            exact_seen: false,
            lost: false,
            plain,
            hold_back,
            input: held,
        });
        self.apply(actions);
        Ok(number)
    }

    /// Where this client's requests to the deployed model are, in the order in which
    /// they were sent.
    pub fn places(&self, number: usize) -> Vec<u32> {
        let sent = self.sent.iter().filter(|sent| sent.input.number == Some(number));
        let instances = sent.map(|sent| sent.instance);
        let deployed = instances.filter(|instance| instance.pool == PoolId::DEPLOYED);
        deployed.map(|instance| instance.index).collect()
    }

    pub fn fate(&self, number: usize) -> &Fate {
        &self.clients[number].fate
    }

    pub fn is_in_flight(&self, number: usize) -> bool {
        !self.places(number).is_empty()
    }

    /// Checks what became of a query.
    #[track_caller]
    pub fn expect(&self, number: usize, fate: Fate) {
        assert_eq!(self.fate(number), &fate, "query {number}");
    }

    /// Time that the answer to a query took.
    pub fn took(&self, number: usize) -> Duration {
        let client = &self.clients[number];
        client.answered_at.unwrap().since(client.arrived)
    }

    /// Tells the engine of an event, and does what it asks for.
    fn act(&mut self, event: impl FnOnce(&mut Engine<Input, Output>, Time, &mut Actions)) {
        let mut actions = Vec::new();
        event(&mut self.engine, self.now, &mut actions);
        self.apply(actions);
    }

    fn apply(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Send { job, instance, input } => {
                    self.check_send(instance, &input);
                    self.sent.push(Sent { job, instance, input });
                }
                Action::Abort { job } => {
                    let position = self.sent.iter().position(|sent| sent.job == job);
                    self.sent.remove(position.expect("the aborted request is in flight"));
                }
                Action::Probe { instance } => {
                    self.down.insert(instance);
                    self.probes.push(instance);
                }
                Action::Left { instance } => self.check_left(instance),
                Action::Encode { group, row, inputs } => self.check_encode(group, row, inputs),
                Action::Reconstruct { query, slot, predictions, parity } => {
                    let missing = predictions[usize::from(slot.0)].is_none();
                    assert!(missing, "CG-2: its prediction is in hand");
                    self.decodes.push(PendingDecode { query, slot, predictions, parity });
                }
                Action::Answer { query, answer } => self.check_answer(query, &answer),
                Action::Compare(comparison) => self.comparisons.push(comparison),
            }
        }
        self.check_budget();
    }

    /// Lets everything end and checks what must hold then.
    fn finish(&mut self) {
        for _ in 0..20 {
            self.advance(Duration::from_millis(200));
            self.compute();
        }
        self.advance(Duration::from_secs(120));
        for (number, client) in self.clients.iter().enumerate() {
            assert_ne!(client.fate, Fate::Waiting, "CG-1: query {number}");
        }
        while !self.sent.is_empty() {
            self.complete(0, None);
            self.compute();
        }
        self.advance(Duration::from_secs(5));
        let stats = self.engine.stats();
        assert_eq!(stats.cg1_violations, 0);
        assert_eq!(stats.queries_tracked, 0, "queries are left over");
        let (coded, kept) = (self.coded.as_ref(), stats.kept_bytes as usize);
        let (max_keys, max_kept) =
            coded.map_or((0, 0), |coded| (coded.max_keys, coded.max_kept_bytes));
        assert!(kept <= max_kept, "{kept} inputs are kept");
        if coded.is_some() {
            let clients = self.clients.iter();
            let held = clients.filter(|client| client.input.strong_count() > 0);
            assert_eq!(held.count(), kept, "inputs are held uncounted");
        }
        assert!(self.leaving.is_empty(), "not left: {:?}", self.leaving);
        let groups = stats.groups_tracked as usize;
        assert!(groups <= max_keys, "groups are left over: {groups}");
        let predicted = stats.exact + stats.hedged + stats.backup + stats.reconstructed;
        let answered = predicted + stats.failed + stats.abandoned;
        assert_eq!(stats.accepted, answered, "CG-1");
        assert_eq!(stats.accepted as usize, self.clients.len());
        let ended = stats.redundant.won + stats.redundant.wasted + stats.redundant.failed;
        // Every redundant request ends one way.
        assert_eq!(stats.redundant.issued, ended, "{stats:?}");
    }
}
