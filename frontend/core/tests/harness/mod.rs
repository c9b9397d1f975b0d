//! A driver in virtual time for the engine: linear "models", every invariant checked at every
//! action.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test harness"
)]

mod check;
mod config;
mod members;

pub use config::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parapet_decoder::{Decoder, LinearDecoder};
use parapet_encoder::{Code, CodeSpec, EncoderKind};
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
    pub value: f32,
    /// For a parity query, whose.
    pub group: Option<GroupId>,
}

pub type Output = f32;

/// The deployed model, and for the sum code its own parity model.
pub fn model(value: f32) -> f32 {
    3.0 * value
}

/// A cheaper model, a little off.
pub fn backup_model(value: f32) -> f32 {
    model(value) + 0.5
}

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
    decoder: Option<LinearDecoder>,
    code: Option<Code>,
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
        let strategy = match others {
            [] => default.build(),
            others => Box::new(ByClass::new(
                default.build(),
                others.iter().map(StrategyConfig::build).collect(),
            )),
        };
        let code = coded.as_ref().map(|coded| {
            let spec = CodeSpec::new(EncoderKind::Sum, coded.k, coded.r);
            Code::try_from(&spec).unwrap()
        });
        Self {
            engine: Engine::new(&config, strategy),
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
            decoder: code
                .clone()
                .map(|code| LinearDecoder::new(code, 1).unwrap()),
            code,
        }
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
        let key = GroupKey {
            domain: DomainId(0),
            kind: key as u32,
        };
        let value = (number % 17) as f32 - 8.0 + key.kind as f32 * 100.0;
        let input = Arc::new(Input {
            number: Some(number),
            key,
            value,
            group: None,
        });
        let held = Arc::downgrade(&input);
        let deadline = self.now + deadline;
        let free = self
            .engine
            .core()
            .pool(PoolId::DEPLOYED)
            .unwrap()
            .has_free_slot();
        let mut actions = Vec::new();
        let id = self.engine.arrive(
            self.now,
            Arrival {
                input,
                bytes: 1,
                key,
                deadline,
                allow_approximate,
                class,
            },
            &mut actions,
        )?;
        let is_own = |action: &Action<Input, Output>| matches!(action, Action::Send { input, .. } if input.number == Some(number));
        let (plain, hold_back) = (!self.engine.switches().redundancy, self.hold_back());
        if free {
            // CG-3: its own dispatch is the very first thing.
            let first = actions.first();
            assert!(
                first.is_some_and(is_own),
                "CG-3: a slot was free, and the first action is {first:?}"
            );
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

    /// Ends the request at `index` (modulo what is in flight) as its model would, or
    /// with a failure.
    pub fn complete(&mut self, index: usize, failure: Option<FailureKind>) {
        if self.sent.is_empty() {
            return;
        }
        let sent = self.sent.remove(index % self.sent.len());
        let from_backup = self.backup == Some(sent.instance.pool);
        let outcome = match failure {
            None if from_backup => Ok(backup_model(sent.input.value)),
            None => Ok(model(sent.input.value)),
            Some(kind) => Err(Failure::new(kind, "injected")),
        };
        let others = sent
            .input
            .number
            .is_some_and(|number| self.is_in_flight(number));
        if let Some(client) = sent
            .input
            .number
            .and_then(|number| self.clients.get_mut(number))
            && !from_backup
        {
            client.exact_seen |= outcome.is_ok();
            client.lost = outcome.is_err() && !others;
        }
        if failure.is_some_and(FailureKind::suspects_instance) {
            self.down.insert(sent.instance);
        }
        let mut actions = Vec::new();
        self.engine
            .finished(self.now, sent.job, outcome, &mut actions);
        self.apply(actions);
    }

    /// Ends the oldest request of this client, if there is one in flight.
    pub fn complete_client(&mut self, number: usize, failure: Option<FailureKind>) {
        let position = self.sent.iter().position(|sent| {
            sent.input.number == Some(number) && sent.instance.pool == PoolId::DEPLOYED
        });
        self.complete(
            position.expect("a request of this client is in flight"),
            failure,
        );
    }

    /// Ends the oldest parity request.
    pub fn complete_parity(&mut self, failure: Option<FailureKind>) {
        let position = self
            .sent
            .iter()
            .position(|sent| sent.input.number.is_none());
        self.complete(position.expect("a parity request is in flight"), failure);
    }

    /// Ends the request of this client at the deployed model's instance `index`.
    pub fn complete_at(&mut self, number: usize, index: u32, failure: Option<FailureKind>) {
        let instance = InstanceId {
            pool: PoolId::DEPLOYED,
            index,
        };
        let position = self
            .sent
            .iter()
            .position(|sent| sent.input.number == Some(number) && sent.instance == instance);
        self.complete(position.expect("this client has a request there"), failure);
    }

    /// Ends the oldest request to the backup model.
    pub fn complete_backup(&mut self, failure: Option<FailureKind>) {
        let position = self
            .sent
            .iter()
            .position(|sent| Some(sent.instance.pool) == self.backup);
        self.complete(
            position.expect("a request to the backup model is in flight"),
            failure,
        );
    }

    /// Where this client's requests to the deployed model are, in the order in which
    /// they were sent.
    pub fn places(&self, number: usize) -> Vec<u32> {
        let sent = self
            .sent
            .iter()
            .filter(|sent| sent.input.number == Some(number));
        sent.filter(|sent| sent.instance.pool == PoolId::DEPLOYED)
            .map(|sent| sent.instance.index)
            .collect()
    }

    pub fn encode(&mut self, index: usize, works: bool) {
        if self.encodes.is_empty() {
            return;
        }
        let index = index % self.encodes.len();
        let PendingEncode { group, row, inputs } = self.encodes.swap_remove(index);
        let code = self
            .code
            .as_ref()
            .expect("only the coded strategies encode");
        let terms = inputs.iter().enumerate();
        let value = terms
            .map(|(slot, input)| code.coefficient(usize::from(row.0), slot) * input.value)
            .sum();
        let parity = works.then(|| {
            Arc::new(Input {
                number: None,
                key: inputs[0].key,
                value,
                group: Some(group),
            })
        });
        let mut actions = Vec::new();
        self.engine
            .encoded(self.now, group, row, parity, &mut actions);
        self.apply(actions);
    }

    pub fn decode(&mut self, index: usize, works: bool) {
        if self.decodes.is_empty() {
            return;
        }
        let index = index % self.decodes.len();
        let PendingDecode {
            query,
            slot,
            predictions,
            parity,
        } = self.decodes.swap_remove(index);
        let mut out = [0.0];
        let views = |outputs: &[Option<Arc<f32>>]| -> Vec<Option<[f32; 1]>> {
            outputs
                .iter()
                .map(|output| output.as_ref().map(|value| [**value]))
                .collect()
        };
        let (predictions, parity) = (views(&predictions), views(&parity));
        let slices = |outputs: &'_ [Option<[f32; 1]>]| -> Vec<Option<Vec<f32>>> {
            outputs
                .iter()
                .map(|output| output.map(|value| value.to_vec()))
                .collect()
        };
        let (predictions, parity) = (slices(&predictions), slices(&parity));
        let predictions: Vec<Option<&[f32]>> = predictions.iter().map(Option::as_deref).collect();
        let parity: Vec<Option<&[f32]>> = parity.iter().map(Option::as_deref).collect();
        let decoder = self
            .decoder
            .as_ref()
            .expect("only the coded strategies decode");
        decoder
            .decode(&predictions, &parity, usize::from(slot.0), &mut out)
            .expect("the engine asked for a reconstruction that cannot be decoded");
        let mut actions = Vec::new();
        self.engine
            .reconstructed(self.now, query, works.then_some(out[0]), &mut actions);
        self.apply(actions);
    }

    pub fn abandon(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else {
            return;
        };
        if client.fate != Fate::Waiting {
            return;
        }
        client.fate = Fate::Abandoned;
        let mut actions = Vec::new();
        self.engine.abandoned(self.now, client.id, &mut actions);
        self.apply(actions);
        self.check_cg8(number);
    }

    pub fn set_up(&mut self, instance: InstanceId, up: bool) {
        if up {
            self.down.remove(&instance);
        } else {
            self.down.insert(instance);
        }
        let mut actions = Vec::new();
        self.engine
            .instance_up(self.now, instance, up, &mut actions);
        self.apply(actions);
    }

    /// Moves time on, stopping at every timer on the way.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(next) = self.engine.next_timer().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            let mut actions = Vec::new();
            self.engine.tick(self.now, &mut actions);
            self.apply(actions);
            let next_after = self.engine.next_timer();
            assert!(
                next_after.is_none_or(|after| after > self.now),
                "a due timer was left pending"
            );
        }
        self.now = until;
    }

    /// Does all pure work that is pending, in order.
    pub fn compute(&mut self) {
        while !self.encodes.is_empty() || !self.decodes.is_empty() {
            self.encode(0, true);
            self.decode(0, true);
        }
    }

    pub fn classes(&self) -> u8 {
        self.strategies.len() as u8
    }

    pub fn fate(&self, number: usize) -> &Fate {
        &self.clients[number].fate
    }

    pub fn is_in_flight(&self, number: usize) -> bool {
        !self.places(number).is_empty()
    }

    pub fn apply(&mut self, actions: Vec<Action<Input, Output>>) {
        for action in actions {
            match action {
                Action::Send {
                    job,
                    instance,
                    input,
                } => {
                    assert!(
                        !self.down.contains(&instance),
                        "sent to {instance:?}, which is down"
                    );
                    let here = !self.leaving.contains(&instance) && !self.gone.contains(&instance);
                    assert!(here, "sent to {instance:?}, which has left");
                    let slots = self.config.pools[usize::from(instance.pool.0)].slots as usize;
                    let load = self
                        .sent
                        .iter()
                        .filter(|sent| sent.instance == instance)
                        .count();
                    assert!(load < slots, "{instance:?} has no free slot");
                    let to_model = instance.pool == PoolId::DEPLOYED;
                    if let (Some(group), true) = (input.group, to_model) {
                        let coded = self.coded.as_ref();
                        let unmodified =
                            coded.is_some_and(|coded| coded.first_parity == PoolId::DEPLOYED);
                        assert!(
                            unmodified,
                            "a parity query for parity models was sent to the deployed one"
                        );
                        let shares = |sent: &Sent| {
                            let number = sent.input.number;
                            let is_member =
                                number.is_some_and(|number| self.groups[&group].contains(&number));
                            sent.instance == instance
                                && (is_member || sent.input.group == Some(group))
                        };
                        assert!(
                            !self.sent.iter().any(shares),
                            "a parity query where a member is in flight"
                        );
                    } else {
                        assert_eq!(
                            input.number.is_some(),
                            to_model || Some(instance.pool) == self.backup
                        );
                    }
                    if let Some(number) = input.number.filter(|_| to_model) {
                        let here = self.places(number).contains(&instance.index);
                        assert!(
                            !here,
                            "a copy of query {number} where it is in flight already"
                        );
                        // It is not in the table yet when this is its first send.
                        if let Some(client) = self.clients.get_mut(number) {
                            client.lost = false;
                        }
                    }
                    self.sent.push(Sent {
                        job,
                        instance,
                        input,
                    });
                }
                Action::Abort { job } => {
                    let before = self.sent.len();
                    self.sent.retain(|sent| sent.job != job);
                    assert_eq!(
                        self.sent.len() + 1,
                        before,
                        "aborted a request that is not in flight"
                    );
                }
                Action::Probe { instance } => {
                    self.down.insert(instance);
                    self.probes.push(instance);
                }
                Action::Left { instance } => self.check_left(instance),
                Action::Encode { group, row, inputs } => self.check_encode(group, row, inputs),
                Action::Reconstruct {
                    query,
                    slot,
                    predictions,
                    parity,
                } => {
                    assert!(
                        predictions[usize::from(slot.0)].is_none(),
                        "CG-2: its prediction is in hand"
                    );
                    self.decodes.push(PendingDecode {
                        query,
                        slot,
                        predictions,
                        parity,
                    });
                }
                Action::Answer { query, answer } => self.check_answer(query, &answer),
                Action::Compare(comparison) => self.comparisons.push(comparison),
            }
        }
        self.check_budget();
    }

    /// Lets everything end and checks what must hold then.
    pub fn finish(mut self) {
        for _ in 0..20 {
            self.advance(Duration::from_millis(200));
            self.compute();
        }
        self.advance(Duration::from_secs(120));
        for (number, client) in self.clients.iter().enumerate() {
            assert_ne!(
                client.fate,
                Fate::Waiting,
                "CG-1: query {number} was never answered"
            );
        }
        while !self.sent.is_empty() {
            self.complete(0, None);
            self.compute();
        }
        self.advance(Duration::from_secs(5));
        let stats = self.engine.stats();
        assert_eq!(stats.cg1_violations, 0);
        assert_eq!(stats.queries_tracked, 0, "queries are left over");
        let (max_keys, max_kept) = self
            .coded
            .as_ref()
            .map_or((0, 0), |coded| (coded.max_keys, coded.max_kept_bytes));
        assert!(
            stats.kept_bytes as usize <= max_kept,
            "{} inputs are kept",
            stats.kept_bytes
        );
        if self.coded.is_some() {
            let held = self
                .clients
                .iter()
                .filter(|client| client.input.strong_count() > 0)
                .count();
            assert_eq!(
                held as u64, stats.kept_bytes,
                "inputs are held that nobody counts"
            );
        }
        self.check_all_left();
        assert!(
            stats.groups_tracked as usize <= max_keys,
            "groups are left over: {}",
            stats.groups_tracked
        );
        let predicted = stats.exact + stats.hedged + stats.backup + stats.reconstructed;
        let answered = predicted + stats.failed + stats.abandoned;
        assert_eq!(
            stats.accepted, answered,
            "CG-1: accepted = answered + abandoned"
        );
        assert_eq!(stats.accepted as usize, self.clients.len());
        let ended = stats.redundant_won + stats.redundant_wasted + stats.redundant_failed;
        assert_eq!(
            stats.redundant_issued, ended,
            "every redundant request ends one way: {stats:?}"
        );
    }
}
