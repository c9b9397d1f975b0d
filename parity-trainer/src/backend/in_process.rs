//! Parameters on a parameter server inside this process.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parapet_parameter_server::{
    Action, ArrayConfig, ArrayId, Client, ClientAction, ClientArray, ClientConfig, ClientEvent,
    Clock, Consistency, Epoch, Event, Handle, Key, KeyRange, Keys, Layout, Message, NodeId, Peer,
    Route, Routing, Rows, Seq, Server, ServerConfig, ShardRef, Snapshot, SnapshotEnd,
    SnapshotPhase, Task, TaskOutcome, TransferId, Values, Work, WorkerClock, WorkerId,
};

use parapet_parameter_server::optimiser::ServerRule;

use super::parameters::Pushed;
use super::{
    BackendError, BackendState, OptimiserConfig, OptimiserSpec, ParameterBackend, ParameterSet,
    SLOTS, Tick, WEIGHTS,
};

/// Weights in a row of the server's array; the last row is filled up with zeroes,
/// which stay zeroes.
const ROW: usize = 256;
const ARRAY: ArrayId = ArrayId(0);
const SERVER: NodeId = NodeId(1);
/// Sender of a restored state: none that still exists.
const CHECKPOINT: NodeId = NodeId(0);
const WORKER: WorkerId = WorkerId(1);
/// Time is of no use where nothing is ever lost or late.
const NOW: Duration = Duration::ZERO;

/// One server and one worker with nothing between them: the state machines of a cluster, driven by
/// function calls. Gives the very weights of plain training, whatever the
/// consistency model: there are no other workers whose updates it could miss.
pub struct InProcessBackend {
    rule: OptimiserConfig,
    consistency: Consistency,
    server: Server,
    client: Client,
    pushed: Pushed,
    clock: u64,
}

impl fmt::Debug for InProcessBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "InProcessBackend {{ clock: {}, rule: {:?} }}",
            self.clock, self.rule
        )
    }
}

impl InProcessBackend {
    /// Starts from `weights`, bulk synchronous.
    ///
    /// # Errors
    /// If a weight is not finite.
    pub fn new(rule: OptimiserConfig, weights: ParameterSet) -> Result<Self, BackendError> {
        Self::under(Consistency::Bsp, rule, weights)
    }

    /// Starts from `weights` under this consistency model.
    ///
    /// # Errors
    /// If a weight is not finite.
    pub fn under(
        consistency: Consistency,
        rule: OptimiserConfig,
        weights: ParameterSet,
    ) -> Result<Self, BackendError> {
        let none = vec![0.0; weights.values().len() * rule.optimiser.slots()];
        let arrays = state_arrays(rule.optimiser, weights.values(), &none);
        let state = BackendState { clock: 0, arrays };
        let (server, client) = cluster(consistency, rule, &state, weights.values().len())?;
        Ok(Self {
            rule,
            consistency,
            server,
            client,
            pushed: Pushed::none(&weights),
            clock: 0,
        })
    }

    fn range(&self) -> KeyRange {
        range(self.pushed.len())
    }

    /// Has the worker do `work`, and the server what follows from it.
    fn run(&mut self, work: Work, what: &'static str) -> Result<TaskOutcome, BackendError> {
        let step = self.clock + 1;
        let refused = |reason: String| BackendError::Refused { what, step, reason };
        let task = Task {
            work,
            array: ARRAY,
            range: self.range(),
            keys: Keys::All,
            clock: Clock(step),
            after: Vec::new(),
            priority: 0,
        };
        let mut actions = Vec::new();
        let submitted = self.client.submit(NOW, task, &mut actions);
        let own = submitted.map_err(|error| refused(error.to_string()))?;
        match exchange(&mut self.server, &mut self.client, actions, own) {
            Some(TaskOutcome::Refused(reason)) => Err(refused(reason.to_string())),
            Some(outcome) => Ok(outcome),
            None => Err(refused("it gave no answer".to_owned())),
        }
    }
}

impl ParameterBackend for InProcessBackend {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError> {
        let length = self.pushed.len();
        match self.run(Work::Pull, "pull")? {
            TaskOutcome::Pulled { values, .. } => into.fill(
                "the parameters to pull into",
                values.get(..length).unwrap_or_default(),
            ),
            other => Err(self.unexpected("pull", &other)),
        }
    }

    fn push(&mut self, gradients: &ParameterSet) -> Result<(), BackendError> {
        self.pushed.add(gradients)
    }

    fn clock(&mut self) -> Result<Tick, BackendError> {
        let learning_rate = self.rule.rate(self.clock);
        let Some((sum, count)) = self.pushed.sum() else {
            return Ok(Tick {
                clock: self.clock,
                learning_rate,
                gradient_norm: 0.0,
            });
        };
        let (gradient_norm, scale) = self.rule.scale(sum, count);
        let scale = scale as f32;
        let values = padded(sum.iter().map(|gradient| gradient * scale), sum.len());
        match self.run(Work::Push(Values::F32(values.into())), "gradient")? {
            TaskOutcome::Pushed => {}
            other => return Err(self.unexpected("gradient", &other)),
        }
        self.clock += 1;
        self.pushed.clear();
        Ok(Tick {
            clock: self.clock,
            learning_rate,
            gradient_norm,
        })
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let length = self.pushed.len();
        let lost = || BackendError::State {
            array: WEIGHTS.to_owned(),
        };
        let shard = self.server.shards().next().ok_or_else(lost)?;
        let rows = shard.store.extract(shard.at.range, usize::MAX);
        let (weights, state) = (rows.values.to_f32(), rows.state.to_f32());
        let weights = weights.get(..length).unwrap_or_default();
        let arrays = state_arrays(self.rule.optimiser, weights, &state);
        Ok(BackendState {
            clock: self.clock,
            arrays,
        })
    }

    fn restore(&mut self, state: &BackendState, _buffers: &[f32]) -> Result<(), BackendError> {
        (self.server, self.client) =
            cluster(self.consistency, self.rule, state, self.pushed.len())?;
        self.clock = state.clock;
        self.pushed.clear();
        Ok(())
    }
}

impl InProcessBackend {
    fn unexpected(&self, what: &'static str, outcome: &TaskOutcome) -> BackendError {
        BackendError::Refused {
            what,
            step: self.clock + 1,
            reason: format!("it answers {outcome:?}"),
        }
    }
}

/// A server that holds `state`, as if copied to it from another one, and a worker that has made
/// all steps before.
fn cluster(
    consistency: Consistency,
    rule: OptimiserConfig,
    state: &BackendState,
    length: usize,
) -> Result<(Server, Client), BackendError> {
    let rows = rows(rule.optimiser, state, length)?;
    let (range, clock) = (rows.range, Clock(state.clock));
    let policy = std::sync::Arc::new(consistency);
    let layout = Layout::dense(ROW, ServerRule(rule));
    let mut server = Server::new(
        SERVER,
        ServerConfig::default(),
        [(ARRAY, ArrayConfig { layout, policy })],
    );
    let array = ClientArray {
        width: ROW,
        consistency,
    };
    let mut client = Client::new(WORKER, ClientConfig::default(), [(ARRAY, array)]);

    let refused = |reason: String| BackendError::Refused {
        what: "state",
        step: state.clock,
        reason,
    };
    let route = Route {
        array: ARRAY,
        range,
        epoch: Epoch(2),
        chain: vec![SERVER],
    };
    let routing = Routing::new(1, vec![route]).map_err(|error| refused(error.to_string()))?;
    let from = Peer::Server(CHECKPOINT);
    let received = |message| Event::Received { from, message };
    let members = Event::Members {
        version: 1,
        workers: vec![(WORKER, clock)],
    };
    let mut actions = Vec::new();
    for event in [
        received(Message::Snapshot(snapshot(rows, clock))),
        members,
        received(Message::Routing(routing.clone())),
    ] {
        server.handle(NOW, event, &mut actions);
    }
    let is_lost = |action: &Action| matches!(action, Action::Lost { .. });
    if actions.iter().any(is_lost) {
        return Err(refused("its rows do not fit the model".to_owned()));
    }
    let routing = ClientEvent::Received(Message::Routing(routing));
    client.handle(NOW, routing, &mut Vec::new());
    Ok((server, client))
}

/// The only part of a copy of these rows, at the end of a clock.
fn snapshot(rows: Rows, clock: Clock) -> Snapshot {
    let range = rows.range;
    Snapshot {
        at: ShardRef {
            array: ARRAY,
            range,
            epoch: Epoch(1),
        },
        transfer: TransferId(1),
        part: 0,
        phase: SnapshotPhase::Delta,
        rows,
        end: Some(SnapshotEnd {
            seq: Seq(0),
            members: 0,
            clocks: vec![WorkerClock {
                worker: WORKER,
                range,
                clock,
            }],
        }),
    }
}

/// Carries messages to and fro until none is left; how the task `own` ended.
fn exchange(
    server: &mut Server,
    client: &mut Client,
    actions: Vec<ClientAction>,
    own: Handle,
) -> Option<TaskOutcome> {
    let mut todo: VecDeque<ClientAction> = actions.into();
    let (mut answers, mut end) = (Vec::new(), None);
    while let Some(action) = todo.pop_front() {
        match action {
            ClientAction::Send { message, .. } => {
                server.handle(
                    NOW,
                    Event::Received {
                        from: Peer::Worker(WORKER),
                        message,
                    },
                    &mut answers,
                );
            }
            ClientAction::Done { handle, outcome } if handle == own => end = Some(outcome),
            _ => {}
        }
        for answer in answers.drain(..) {
            if let Action::Send {
                to: Peer::Worker(_),
                message,
            } = answer
            {
                let mut more = Vec::new();
                client.handle(NOW, ClientEvent::Received(message), &mut more);
                todo.extend(more);
            }
        }
    }
    end
}

fn range(length: usize) -> KeyRange {
    KeyRange::new(0, length.div_ceil(ROW) as Key)
}

fn padded(values: impl Iterator<Item = f32>, length: usize) -> Vec<f32> {
    let mut all: Vec<f32> = Vec::with_capacity(length.next_multiple_of(ROW));
    all.extend(values);
    all.resize(length.next_multiple_of(ROW), 0.0);
    all
}

/// The state as a checkpoint has it; `slots` may be padded.
fn state_arrays(
    optimiser: OptimiserSpec,
    weights: &[f32],
    slots: &[f32],
) -> Vec<(String, Vec<f32>)> {
    let length = weights.len();
    let of_slot = |(name, values): (&&str, &[f32])| {
        (
            (*name).to_owned(),
            values.get(..length).unwrap_or_default().to_vec(),
        )
    };
    let each = (slots.len() / optimiser.slots()).max(1);
    let slots = SLOTS.iter().zip(slots.chunks(each)).take(optimiser.slots());
    [(WEIGHTS.to_owned(), weights.to_vec())]
        .into_iter()
        .chain(slots.map(of_slot))
        .collect()
}

/// The state of a model of `length` weights as a server has it.
fn rows(
    optimiser: OptimiserSpec,
    state: &BackendState,
    length: usize,
) -> Result<Rows, BackendError> {
    let array = |name: &str| {
        let values = state.array_of(name, length)?;
        Ok::<_, BackendError>(padded(values.iter().copied(), length))
    };
    let weights = array(WEIGHTS)?;
    let mut slots = Vec::new();
    for name in SLOTS.iter().take(optimiser.slots()) {
        slots.extend(array(name)?);
    }
    let range = range(weights.len());
    let steps = u32::try_from(state.clock).unwrap_or(u32::MAX);
    Ok(Rows {
        range,
        keys: Keys::All,
        steps: vec![steps; weights.len() / ROW],
        values: Values::F32(weights.into()),
        state: Values::F32(slots.into()),
    })
}

#[cfg(test)]
mod tests;
