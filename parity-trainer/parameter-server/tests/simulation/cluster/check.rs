//! PS-1 to PS-8, at every event.

use super::*;

#[derive(Default)]
pub struct Checker {
    model: Consistency,
    /// Bit c: the worker has pushed clock c to the key.
    submitted: BTreeMap<(Key, WorkerId), u32>,
    /// Bit c: the worker was told that clock c is safe, whether or not it named the key.
    acknowledged: BTreeMap<(Key, WorkerId), u32>,
    /// Server that has acknowledged pushes to a key in an epoch.
    heads: BTreeMap<(ArrayId, Key, Epoch), NodeId>,
    /// The workers that heads knew of when they answered this iteration's pull of a reader. One
    /// that joins while the answer is on its way may have pushed by when it comes.
    known: BTreeMap<(WorkerId, Key), BTreeSet<WorkerId>>,
    /// The rows after each log entry of a shard, as the first replica had them.
    versions: BTreeMap<(ArrayId, Key, Epoch, Seq), Rows>,
    /// The rows of a clock that a reader was sent the update of.
    updated: BTreeMap<(WorkerId, Clock, Key), Vec<f32>>,
}

/// The clocks in a cell of counts.
fn bits(value: f32) -> Outcome<u32> {
    let whole = value as u32;
    ensure(whole as f32 == value, || format!("PS-7: {value} in a cell of counts"))?;
    Ok(whole)
}

fn is_finite(values: &Values) -> bool {
    values.to_f32().iter().all(|value| value.is_finite())
}

/// The cells of a shard's rows: key, worker, value.
fn cells(range: KeyRange, values: &[f32]) -> impl Iterator<Item = (Key, WorkerId, f32)> + '_ {
    let rows = (range.start..range.end).zip(values.chunks(COLUMNS));
    rows.flat_map(|(key, row)| (0..).map(WorkerId).zip(row).map(move |(id, &v)| (key, id, v)))
}

fn read(view: &ShardView<'_>) -> Vec<f32> {
    let mut values = Vec::new();
    view.store.read(view.at.range, &Keys::All, &mut values);
    values
}

fn of(bits: &BTreeMap<(Key, WorkerId), u32>, key: Key, worker: WorkerId) -> u32 {
    bits.get(&(key, worker)).copied().unwrap_or(0)
}

impl Checker {
    pub fn new(model: Consistency) -> Self {
        Self { model, ..Self::default() }
    }

    pub fn submitted(&mut self, key: Key, worker: WorkerId, clock: Clock) {
        *self.submitted.entry((key, worker)).or_default() |= 1 << clock.0;
    }

    /// Records that a worker learned that a push is safe; returns another server that acknowledged
    /// in the same epoch.
    pub fn acknowledge(
        &mut self,
        node: NodeId,
        at: ShardRef,
        worker: WorkerId,
        clock: Clock,
    ) -> Option<NodeId> {
        let mut other = None;
        for key in at.range.start..at.range.end {
            if at.array == COUNTED {
                *self.acknowledged.entry((key, worker)).or_default() |= 1 << clock.0;
            }
            let slot = (at.array, key, at.epoch);
            let head = *self.heads.entry(slot).or_insert(node);
            other = other.or(Some(head).filter(|&head| head != node));
        }
        other
    }

    /// The reader pulls for its next iteration.
    pub fn pulls(&mut self, reader: WorkerId) {
        self.known.retain(|&(other, _), _| other != reader);
    }

    /// Records a message of a server.
    pub fn said(&mut self, server: &Server, to: Peer, message: &Message) -> Outcome<()> {
        match (message, to) {
            (
                &Message::Answer(Answer {
                    at,
                    request: Request::Push { worker, clock },
                    refusal: None,
                    ..
                }),
                _,
            ) => {
                let node = server.node();
                let other = self.acknowledge(node, at, worker, clock);
                let error = || format!("PS-6: {node} and {other:?} both acknowledge {at:?}");
                ensure(other.is_none(), error)
            }
            (Message::PullReply(reply), Peer::Worker(reader))
                if reply.at.array == COUNTED && reply.request.is_some() =>
            {
                let at = reply.at;
                let holds = |view: &ShardView<'_>| {
                    view.at.array == COUNTED && view.at.range.covers(at.range)
                };
                let view = server.shards().find(holds).ok_or("it holds the shard")?;
                let workers: BTreeSet<WorkerId> = view.clocks.workers().collect();
                let values = reply.values.to_f32();
                for (key, row) in reply.keys.iter(at.range).zip(values.chunks(COLUMNS)) {
                    for &worker in &workers {
                        self.contains(key, worker, row, reply.clock, "the reply's clock")?;
                    }
                    self.contains(key, reader, row, reply.own, "the reply's own clock")?;
                    let known = self.known.entry((reader, key));
                    let known = known.or_insert_with(|| workers.clone());
                    known.retain(|known| workers.contains(known));
                }
                Ok(())
            }
            (Message::PullReply(reply), Peer::Worker(reader))
                if matches!(reply.values, Values::Factors(_)) =>
            {
                self.updates(server, reader, reply)
            }
            (Message::Replicate(entry), _) => {
                let is_good = match &entry.operation {
                    Operation::Update(update) => is_finite(&update.values),
                    Operation::Members(_) => true,
                };
                ensure(is_good, || "PS-7: an update that is not finite is replicated".into())
            }
            _ => Ok(()),
        }
    }

    /// A reader is sent the update that makes these rows of those that it has.
    fn updates(&mut self, server: &Server, reader: WorkerId, reply: &PullReply) -> Outcome<()> {
        let range = reply.at.range;
        let mut shards = server.shards();
        let view = shards.find(|view| view.at.array == FACTORED && view.at.range.covers(range));
        let mut rows = Vec::new();
        view.ok_or("it holds the shard")?.store.read(range, &Keys::All, &mut rows);
        for (key, row) in (range.start..range.end).zip(rows.chunks(WIDE)) {
            self.updated.insert((reader, reply.clock, key), row.to_vec());
        }
        Ok(())
    }

    /// A reader has these values of all keys after an update of its own.
    pub fn mirrored(
        &self,
        reader: WorkerId,
        clock: Clock,
        key: Key,
        values: &[f32],
    ) -> Outcome<()> {
        let own = values.chunks(WIDE).nth(usize::try_from(key).unwrap());
        let servers = self.updated.get(&(reader, clock, key));
        let error = || format!("PS-5: key {key} is {servers:?}, {reader} has {own:?} at {clock}");
        ensure(servers.map(Vec::as_slice) == own, error)
    }

    /// A pull of iteration `clock` was answered with these rows (PS-4).
    pub fn pulled(
        &self,
        workers: &[WorkerId],
        reader: WorkerId,
        clock: Clock,
        values: &[f32],
    ) -> Outcome<()> {
        let sees_itself = matches!(self.model, Consistency::Ssp(_) | Consistency::EagerSsp(_));
        for (key, row) in (0..KEYS).zip(values.chunks(COLUMNS)) {
            let known = self.known.get(&(reader, key));
            let is_known = |worker: &&WorkerId| known.is_none_or(|known| known.contains(worker));
            for &worker in workers.iter().filter(is_known) {
                self.contains(key, worker, row, self.model.needed(clock), "the reader's needs")?;
            }
            if sees_itself {
                self.contains(key, reader, row, clock.minus(1), "the reader's own clock")?;
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
    ) -> Outcome<()> {
        let found = bits(row[usize::try_from(worker.0).unwrap()])?;
        let needed = of(&self.submitted, key, worker) & ((2u32 << up_to.0.min(30)) - 1);
        let error = || format!("PS-4: key {key} has {found:#b} of {worker}, {what} is {up_to}");
        ensure(found & needed == needed, error)
    }

    /// Records the state of a server.
    pub fn holds(
        &mut self,
        server: &Server,
        routing: &Routing,
        config: &ServerConfig,
    ) -> Outcome<()> {
        let node = server.node();
        for view in server.shards() {
            let (at, range, applied) = (view.at, view.at.range, view.applied);
            let logged = applied.0 - view.committed.0;
            let is_bounded = logged <= config.max_log as u64 + 8;
            ensure(is_bounded, || format!("PS-8: {logged} entries in the log"))?;
            let rows = view.store.extract(range, usize::MAX);
            let is_good = is_finite(&rows.values) && is_finite(&rows.state);
            ensure(is_good, || format!("PS-7: {node} holds a number that is not finite, {range}"))?;
            let slot = (at.array, range.start, at.epoch, applied);
            let first = self.versions.entry(slot).or_insert_with(|| rows.clone());
            ensure(*first == rows, || format!("PS-5: {node} differs at {applied}, {range}"))?;
            let route = routing.route(at.array, range.start);
            let is_current = |r: &Route| r.epoch == at.epoch && r.chain.contains(&node);
            let is_current = route.is_some_and(is_current);
            if at.array != COUNTED {
                continue;
            }
            for (key, worker, value) in cells(range, &read(&view)) {
                let found = bits(value)?;
                let submitted = of(&self.submitted, key, worker);
                let error = || {
                    format!("PS-2: key {key} has {found:#b} of {worker}, who sent {submitted:#b}")
                };
                ensure(found & !submitted == 0, error)?;
                let safe = submitted & of(&self.acknowledged, key, worker);
                let lost = safe & !found;
                let error = || {
                    format!("PS-1: {node} at {} lacks {lost:#b} of {worker}, key {key}", at.epoch)
                };
                ensure(!is_current || lost == 0, error)?;
            }
        }
        Ok(())
    }

    /// Every worker that is still there has been told that all of its pushes are safe: every cell
    /// has all of its clocks.
    pub fn at_the_end(
        &self,
        routing: &Routing,
        servers: &BTreeMap<NodeId, Server>,
        workers: &BTreeMap<WorkerId, Worker>,
    ) -> Outcome<()> {
        let is_there = |id: &WorkerId| workers.get(id).is_some_and(|worker| !worker.gone);
        for route in routing.routes().iter().filter(|route| route.array == COUNTED) {
            for node in &route.chain {
                let is_it = |v: &ShardView<'_>| v.at.array == COUNTED && v.at.range == route.range;
                let view = servers.get(node).and_then(|server| server.shards().find(is_it));
                let view = view.ok_or_else(|| format!("{node} does not hold {}", route.range))?;
                let values = read(&view);
                let cells = cells(route.range, &values).filter(|(_, id, _)| is_there(id));
                for (key, worker, value) in cells {
                    let (found, sent) = (bits(value)?, of(&self.submitted, key, worker));
                    let error = || {
                        format!(
                            "PS-2: at the end {node} has {found:#b} of {worker}, key {key}: {sent:#b} is right"
                        )
                    };
                    ensure(found == sent, error)?;
                }
            }
        }
        Ok(())
    }
}
