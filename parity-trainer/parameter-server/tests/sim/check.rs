//! PS-1 to PS-8, at every event.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{
    ArrayId, Clock, Consistency, Epoch, Key, Keys, Message, NodeId, Operation, Peer, PushAck,
    Routing, Rows, Seq, Server, ServerConfig, ShardRef, Values, WorkerId,
};

use super::registry::Registry;
use super::worker::Worker;
use super::{COLUMNS, COUNTED, KEYS};

pub struct Checker {
    model: Consistency,
    /// Bit c: the worker has pushed clock c to the key.
    submitted: BTreeMap<(Key, WorkerId), u32>,
    /// Bit c: the worker was told that clock c is safe, whether or not it named the key.
    acknowledged: BTreeMap<(Key, WorkerId), u32>,
    /// Server that has acknowledged pushes to a key in an epoch.
    heads: BTreeMap<(ArrayId, Key, Epoch), NodeId>,
    joined: BTreeMap<WorkerId, Clock>,
    /// The workers that heads knew of when they answered this iteration's pull of a reader. One
    /// that joins while the answer is on its way may have pushed by when it comes.
    known: BTreeMap<(WorkerId, Key), BTreeSet<WorkerId>>,
    /// The rows after each log entry of a shard, as the first replica had them.
    versions: BTreeMap<(ArrayId, Key, Epoch, Seq), Rows>,
}

fn bits(value: f32) -> Result<u32, String> {
    let whole = value as u32;
    if whole as f32 == value {
        Ok(whole)
    } else {
        Err(format!("PS-7: {value} in a cell of counts"))
    }
}

impl Checker {
    pub fn new(model: Consistency) -> Self {
        let (submitted, acknowledged, heads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (joined, known, versions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            model,
            submitted,
            acknowledged,
            heads,
            joined,
            known,
            versions,
        }
    }

    pub fn submitted(&mut self, key: Key, worker: WorkerId, clock: Clock) {
        *self.submitted.entry((key, worker)).or_default() |= 1 << clock.0;
    }

    /// Records that a worker learned that a push is safe; returns another server that acknowledged
    /// in the same epoch.
    pub fn acknowledge(&mut self, node: NodeId, ack: &PushAck) -> Option<NodeId> {
        let mut other = None;
        for key in ack.at.range.start..ack.at.range.end {
            if ack.at.array == COUNTED {
                *self.acknowledged.entry((key, ack.worker)).or_default() |= 1 << ack.clock.0;
            }
            let head = *self
                .heads
                .entry((ack.at.array, key, ack.at.epoch))
                .or_insert(node);
            other = other.or(Some(head).filter(|&head| head != node));
        }
        other
    }

    /// The reader pulls for its next iteration.
    pub fn pulls(&mut self, reader: WorkerId) {
        self.known.retain(|&(other, _), _| other != reader);
    }

    /// Records a message of a server.
    pub fn said(
        &mut self,
        node: NodeId,
        server: &Server,
        to: Peer,
        message: &Message,
        registry: &Registry,
    ) -> Result<(), String> {
        for &(worker, clock) in &registry.members {
            self.joined.insert(worker, clock);
        }
        match message {
            Message::PushAck(ack) => {
                if let Some(other) = self.acknowledge(node, ack) {
                    return Err(format!(
                        "PS-6: {node} and {other} both acknowledge at {}",
                        ack.at.epoch
                    ));
                }
            }
            Message::PullReply(reply) if reply.at.array == COUNTED && reply.request.is_some() => {
                let Peer::Worker(reader) = to else {
                    return Ok(());
                };
                let view = server
                    .shards()
                    .find(|view| view.at.array == COUNTED && view.at.range.covers(reply.at.range));
                let workers: Vec<WorkerId> = view
                    .map(|view| view.clocks.workers().collect())
                    .unwrap_or_default();
                let values = reply.values.to_f32();
                for (key, row) in reply.keys.iter(reply.at.range).zip(values.chunks(COLUMNS)) {
                    for &worker in &workers {
                        self.contains(key, worker, row, reply.clock, "what the reply says")?;
                    }
                    self.contains(
                        key,
                        reader,
                        row,
                        reply.own,
                        "what the reply says of the reader itself",
                    )?;
                    let all = || workers.iter().copied().collect();
                    self.known
                        .entry((reader, key))
                        .or_insert_with(all)
                        .retain(|known| workers.contains(known));
                }
            }
            Message::Replicate(entry) => {
                if let Operation::Update { values, .. } = &entry.operation
                    && values.to_f32().iter().any(|value| !value.is_finite())
                {
                    return Err("PS-7: an update that is not finite is replicated".into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A pull of iteration `clock` was answered with these rows (PS-4).
    pub fn pulled(
        &self,
        workers: &[WorkerId],
        reader: WorkerId,
        clock: Clock,
        values: &[f32],
    ) -> Result<(), String> {
        for (key, row) in (0..KEYS).zip(values.chunks(COLUMNS)) {
            let known = self.known.get(&(reader, key));
            for &worker in workers
                .iter()
                .filter(|worker| known.is_none_or(|known| known.contains(worker)))
            {
                self.contains(
                    key,
                    worker,
                    row,
                    self.model.needed(clock),
                    "what a reader must see",
                )?;
            }
            if matches!(self.model, Consistency::Ssp(_) | Consistency::EagerSsp(_)) {
                self.contains(key, reader, row, clock.minus(1), "a reader's own")?;
            }
        }
        Ok(())
    }

    fn contains(
        &self,
        key: Key,
        worker: WorkerId,
        row: &[f32],
        up_to: Clock,
        what: &str,
    ) -> Result<(), String> {
        let found = bits(row[usize::try_from(worker.0).unwrap()])?;
        let submitted = self.submitted.get(&(key, worker)).copied().unwrap_or(0);
        let needed = submitted & ((2u32 << up_to.0.min(30)) - 1);
        if found & needed == needed {
            return Ok(());
        }
        Err(format!(
            "PS-4: key {key} lacks clocks {:#b} of {worker}, {what} (up to {up_to})",
            needed & !found
        ))
    }

    /// Records the state of a server.
    pub fn holds(
        &mut self,
        server: &Server,
        routing: &Routing,
        config: &ServerConfig,
    ) -> Result<(), String> {
        for view in server.shards() {
            if view.applied.0 - view.committed.0 > config.max_log as u64 + 8 {
                return Err(format!(
                    "PS-8: {} entries in the log",
                    view.applied.0 - view.committed.0
                ));
            }
            let ShardRef {
                array,
                range,
                epoch,
            } = view.at;
            let rows = view.store.extract(range, usize::MAX);
            let is_finite = |values: &Values| values.to_f32().iter().all(|value| value.is_finite());
            if !is_finite(&rows.values) || !is_finite(&rows.state) {
                return Err(format!(
                    "PS-7: {} holds a number that is not finite, {range}",
                    server.node()
                ));
            }
            if let Some(first) = self
                .versions
                .get(&(array, range.start, epoch, view.applied))
            {
                if *first != rows {
                    return Err(format!(
                        "PS-5: {} differs from another replica at {}, {range}",
                        server.node(),
                        view.applied
                    ));
                }
            } else {
                self.versions
                    .insert((array, range.start, epoch, view.applied), rows);
            }
            let current = routing
                .route(array, range.start)
                .is_some_and(|route| route.epoch == epoch && route.chain.contains(&server.node()));
            if array != COUNTED {
                continue;
            }
            let mut values = Vec::new();
            view.store.read(range, &Keys::All, &mut values);
            for (key, row) in (range.start..range.end).zip(values.chunks(COLUMNS)) {
                for (worker, &value) in (0..).map(WorkerId).zip(row) {
                    let found = bits(value)?;
                    let submitted = self.submitted.get(&(key, worker)).copied().unwrap_or(0);
                    if found & !submitted != 0 {
                        return Err(format!(
                            "PS-2: key {key} has {found:#b} of {worker}, who sent {submitted:#b}"
                        ));
                    }
                    let safe =
                        submitted & self.acknowledged.get(&(key, worker)).copied().unwrap_or(0);
                    if current && found & safe != safe {
                        return Err(format!(
                            "PS-1: {} at {epoch} lacks {:#b} of {worker}, key {key}",
                            server.node(),
                            safe & !found
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Every worker that is still there has been told that all of its pushes are safe: every cell
    /// has all of its clocks.
    pub fn at_the_end<'a>(
        &self,
        routing: &Routing,
        servers: &BTreeMap<NodeId, Server>,
        workers: impl Iterator<Item = &'a Worker>,
    ) -> Result<(), String> {
        let present: Vec<WorkerId> = workers
            .filter(|worker| !worker.gone)
            .map(|worker| worker.id)
            .collect();
        for route in routing
            .routes()
            .iter()
            .filter(|route| route.array == COUNTED)
        {
            for node in &route.chain {
                let view = servers.get(node).and_then(|s| {
                    s.shards()
                        .find(|v| v.at.array == COUNTED && v.at.range == route.range)
                });
                let view = view.ok_or_else(|| format!("{node} does not hold {}", route.range))?;
                let mut values = Vec::new();
                view.store.read(route.range, &Keys::All, &mut values);
                for (key, row) in (route.range.start..route.range.end).zip(values.chunks(COLUMNS)) {
                    for &worker in &present {
                        let found = bits(row[usize::try_from(worker.0).unwrap()])?;
                        let sent = self.submitted.get(&(key, worker)).copied().unwrap_or(0);
                        if found != sent {
                            return Err(format!(
                                "PS-2: at the end {node} has {found:#b} of {worker}, key {key}: \
                                    {sent:#b} is right"
                            ));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
