//! Parameters on a parameter server inside this process.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parapet_parameter_server::{
    Action, ArrayConfig, ArrayId, Client, ClientAction, ClientArray, ClientConfig, ClientEvent,
    Clock, Consistency, Epoch, Event, Key, KeyRange, Keys, Layout, Members, Message, NodeId, Peer,
    Pulled, Route, Routing, Rows, Seq, Server, ServerConfig, ShardRef, Snapshot, SnapshotEnd, Task,
    TransferId, Values, Work, WorkerId,
};

use super::{
    BackendError, BackendState, OptimiserConfig, ParameterBackend, ParameterSet, SLOTS, Tick,
    WEIGHTS, check_length,
};

/// Weights in a row of the server's array; the last row is filled up with zeroes,
/// which stay zeroes.
pub(super) const ROW: usize = 256;
const ARRAY: ArrayId = ArrayId(0);
const SERVER: NodeId = NodeId(1);
/// Sender of a restored state: none that still exists.
const CHECKPOINT: NodeId = NodeId(0);
const WORKER: WorkerId = WorkerId(1);
/// Time is of no use where nothing is ever lost or late.
const NOW: Duration = Duration::ZERO;
/// There are no other workers whose updates could be missed.
const CONSISTENCY: Consistency = Consistency::Bsp;

/// One server and one worker with nothing between them: the state machines of a cluster, driven by
/// function calls. Gives the very weights of plain training.
pub struct InProcessBackend {
    rule: OptimiserConfig,
    server: Server,
    client: Client,
    length: usize,
    clock: u64,
    /// The step that was made and not settled.
    made: Option<Tick>,
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
    pub fn new(rule: OptimiserConfig, weights: ParameterSet) -> Result<Self, BackendError> {
        let weights = weights.values();
        let zeroes = vec![0.0; weights.len()];
        let slots = std::iter::repeat_n(zeroes.as_slice(), rule.optimiser.slots());
        let state = BackendState {
            clock: 0,
            arrays: arrays(weights, slots),
        };
        let (server, client) = cluster(rule, &state, weights.len())?;
        Ok(Self {
            rule,
            server,
            client,
            length: weights.len(),
            clock: 0,
            made: None,
        })
    }

    /// Has the worker do `work`, and the server what follows from it.
    fn run(&mut self, work: Work, what: &'static str) -> Result<Option<Pulled>, BackendError> {
        let step = self.clock + 1;
        let refused = |reason: String| BackendError::Refused { what, step, reason };
        let task = Task {
            work,
            array: ARRAY,
            range: range(self.length),
            keys: Keys::All,
            clock: Clock(step),
        };
        let mut actions = Vec::new();
        let submitted = self.client.submit(NOW, task, &mut actions);
        let own = submitted.map_err(|error| refused(error.to_string()))?;
        // Messages go to and fro until none is left.
        let mut todo = VecDeque::from(actions);
        let (mut answers, mut replies) = (Vec::new(), Vec::new());
        let mut end = None;
        while let Some(action) = todo.pop_front() {
            match action {
                ClientAction::Send { message, .. } => {
                    let from = Peer::Worker(WORKER);
                    let event = Event::Received { from, message };
                    self.server.handle(NOW, event, &mut answers);
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
                    self.client
                        .handle(NOW, ClientEvent::Received(message), &mut replies);
                    todo.extend(replies.drain(..));
                }
            }
        }
        match end {
            Some(outcome) => outcome.map_err(|reason| refused(reason.to_string())),
            None => Err(refused("it gave no answer".to_owned())),
        }
    }
}

impl ParameterBackend for InProcessBackend {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError> {
        let pulled = self.run(Work::Pull, "pull")?;
        let pulled = pulled.ok_or_else(|| BackendError::State(WEIGHTS.to_owned()))?;
        let weights = pulled.values.get(..self.length).unwrap_or_default();
        into.fill("the parameters to pull into", weights)
    }

    fn push_part(&mut self, _part: usize, gradients: &ParameterSet) -> Result<(), BackendError> {
        let gradients = gradients.values();
        check_length("the gradients", self.length, gradients.len())?;
        let learning_rate = self.rule.rate(self.clock);
        let (gradient_norm, scale) = self.rule.scale(gradients, 1);
        let scale = scale as f32;
        let values = padded(
            gradients.iter().map(|gradient| gradient * scale),
            self.length,
        );
        self.run(Work::Push(Values::F32(values.into())), "gradient")?;
        self.clock += 1;
        self.made = Some(Tick {
            learning_rate,
            gradient_norm,
        });
        Ok(())
    }

    fn settle(&mut self) -> Result<Option<Tick>, BackendError> {
        Ok(self.made.take())
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let shard = self.server.shards().next();
        let shard = shard.ok_or_else(|| BackendError::State(WEIGHTS.to_owned()))?;
        let rows = shard.store.extract(shard.at.range, usize::MAX);
        let (weights, slots) = (rows.values.to_f32(), rows.state.to_f32());
        let part = |values: &'_ [f32]| values.get(..self.length).unwrap_or_default().to_vec();
        let slots: Vec<Vec<f32>> = slots.chunks(weights.len().max(1)).map(part).collect();
        let arrays = arrays(&part(&weights), slots.iter().map(Vec::as_slice));
        Ok(BackendState {
            clock: self.clock,
            arrays,
        })
    }

    fn restore(&mut self, state: &BackendState, _buffers: &[f32]) -> Result<(), BackendError> {
        (self.server, self.client) = cluster(self.rule, state, self.length)?;
        self.clock = state.clock;
        self.made = None;
        Ok(())
    }
}

/// A server that holds `state`, as if copied to it from another one, and a worker that has made
/// all steps before.
fn cluster(
    rule: OptimiserConfig,
    state: &BackendState,
    length: usize,
) -> Result<(Server, Client), BackendError> {
    let refused = |reason: String| BackendError::Refused {
        what: "state",
        step: state.clock,
        reason,
    };
    let (range, clock) = (range(length), Clock(state.clock));
    let layout = Layout::dense(ROW, rule);
    let config = ArrayConfig {
        layout,
        consistency: CONSISTENCY,
    };
    let mut server = Server::new(SERVER, ServerConfig::default(), [(ARRAY, config)]);
    let array = ClientArray {
        width: ROW,
        consistency: CONSISTENCY,
    };
    let mut client = Client::new(WORKER, ClientConfig::default(), [(ARRAY, array)]);
    let route = Route {
        array: ARRAY,
        range,
        epoch: Epoch(2),
        chain: vec![SERVER],
    };
    let routing = Routing::new(1, vec![route]).map_err(|error| refused(error.to_string()))?;
    let received = |message| Event::Received {
        from: Peer::Server(CHECKPOINT),
        message,
    };
    let mut actions = Vec::new();
    for event in [
        received(Message::Snapshot(snapshot(
            rows(rule, state, length)?,
            clock,
        ))),
        Event::Members(Members {
            version: 1,
            workers: vec![(WORKER, clock)],
        }),
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
        rows,
        end: Some(SnapshotEnd {
            seq: Seq(0),
            members: 0,
            clocks: vec![(WORKER, range, clock)],
        }),
    }
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

pub(super) fn arrays<'a>(
    weights: &'a [f32],
    slots: impl Iterator<Item = &'a [f32]>,
) -> Vec<(String, Vec<f32>)> {
    let slots = SLOTS.into_iter().zip(slots);
    let named = std::iter::once((WEIGHTS, weights)).chain(slots);
    named
        .map(|(name, values)| (name.to_owned(), values.to_vec()))
        .collect()
}

/// The state of a model of `length` weights as a server has it.
fn rows(rule: OptimiserConfig, state: &BackendState, length: usize) -> Result<Rows, BackendError> {
    let array = |name: &str| {
        let values = state.array(name, length)?;
        Ok::<_, BackendError>(padded(values.iter().copied(), length))
    };
    let weights = array(WEIGHTS)?;
    let mut slots = Vec::new();
    for name in SLOTS.iter().take(rule.optimiser.slots()) {
        slots.extend(array(name)?);
    }
    let steps = u32::try_from(state.clock).unwrap_or(u32::MAX);
    Ok(Rows {
        range: range(length),
        keys: Keys::All,
        steps: vec![steps; weights.len() / ROW],
        values: Values::F32(weights.into()),
        state: Values::F32(slots.into()),
    })
}
