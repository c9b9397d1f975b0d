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
    BackendError, BackendState, OptimiserConfig, ParameterBackend, ParameterSet, Tick, check_length,
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
const CONSISTENCY: Consistency = Consistency::Bsp;

/// One server and one worker with nothing between them: the state machines of a cluster, driven by
/// function calls. Gives the very weights of plain training.
pub struct InProcessBackend {
    rule: OptimiserConfig,
    server: Server,
    client: Client,
    length: usize,
    clock: u64,
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
    pub fn new(rule: OptimiserConfig, weights: &[f32]) -> Result<Self, BackendError> {
        let state = BackendState {
            clock: 0,
            weights: weights.to_vec(),
            slots: vec![vec![0.0; weights.len()]; rule.optimiser.slots()],
        };
        let (server, client) = cluster(rule, &state)?;
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
        let refused = |reason| refused(what, step, reason);
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
        let weights = pulled
            .as_ref()
            .and_then(|pulled| pulled.values.get(..self.length));
        into.fill(weights.unwrap_or_default())
    }

    fn push_part(&mut self, _part: usize, gradients: &ParameterSet) -> Result<(), BackendError> {
        let gradients = gradients.values.as_slice();
        check_length("the gradients", self.length, gradients.len())?;
        let learning_rate = self.rule.rate(self.clock);
        let (gradient_norm, scale) = self.rule.scale(gradients, 1);
        let scale = scale as f32;
        let values = padded(gradients.iter().map(|gradient| gradient * scale));
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

    fn steps_done(&self) -> u64 {
        self.clock
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let no_weights = || refused("state", self.clock, "it has no weights".to_owned());
        let shard = self.server.shards().next().ok_or_else(no_weights)?;
        let rows = shard.store.extract(shard.at.range, usize::MAX);
        let (weights, slots) = (rows.values.to_f32(), rows.state.to_f32());
        let part = |values: &'_ [f32]| values.get(..self.length).unwrap_or_default().to_vec();
        Ok(BackendState {
            clock: self.clock,
            weights: part(&weights),
            slots: slots.chunks(weights.len().max(1)).map(part).collect(),
        })
    }

    fn restore(&mut self, state: &BackendState, _buffers: &[f32]) -> Result<(), BackendError> {
        state.check(&self.rule, self.length)?;
        (self.server, self.client) = cluster(self.rule, state)?;
        self.clock = state.clock;
        self.made = None;
        Ok(())
    }
}

fn refused(what: &'static str, step: u64, reason: String) -> BackendError {
    BackendError::Refused { what, step, reason }
}

/// A server that holds `state`, as if copied to it from another one, and a worker that has made
/// all steps before.
fn cluster(rule: OptimiserConfig, state: &BackendState) -> Result<(Server, Client), BackendError> {
    let refused = |reason| refused("state", state.clock, reason);
    let (range, clock) = (range(state.weights.len()), Clock(state.clock));
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
        received(Message::Snapshot(snapshot(state))),
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

/// The only part of a copy of the state, at the end of a clock.
fn snapshot(state: &BackendState) -> Snapshot {
    let range = range(state.weights.len());
    let weights = padded(state.weights.iter().copied());
    let slots = state.slots.iter();
    let slots: Vec<f32> = slots
        .flat_map(|slot| padded(slot.iter().copied()))
        .collect();
    let steps = u32::try_from(state.clock).unwrap_or(u32::MAX);
    Snapshot {
        at: ShardRef {
            array: ARRAY,
            range,
            epoch: Epoch(1),
        },
        transfer: TransferId(1),
        part: 0,
        rows: Rows {
            range,
            keys: Keys::All,
            steps: vec![steps; weights.len() / ROW],
            values: Values::F32(weights.into()),
            state: Values::F32(slots.into()),
        },
        end: Some(SnapshotEnd {
            seq: Seq(0),
            members: 0,
            clocks: vec![(WORKER, range, Clock(state.clock))],
        }),
    }
}

fn range(length: usize) -> KeyRange {
    KeyRange::new(0, length.div_ceil(ROW) as Key)
}

/// The values, filled up to whole rows.
fn padded(values: impl ExactSizeIterator<Item = f32>) -> Vec<f32> {
    let length = values.len().next_multiple_of(ROW);
    let mut all: Vec<f32> = Vec::with_capacity(length);
    all.extend(values);
    all.resize(length, 0.0);
    all
}
