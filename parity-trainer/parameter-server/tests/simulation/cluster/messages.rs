//! Messages between servers and workers: their delays, losses and planted faults.

use super::*;

fn done(at: ShardRef, request: Request) -> Message {
    Message::Answer(Answer { at, request, held_us: 0, copied_us: 0, refusal: None })
}

impl Simulation {
    pub fn delay(&mut self) -> u64 {
        let is_slow = self.rng.random_bool(0.05);
        self.rng.random_range(if is_slow { 0..30_000 } else { 50..1_000 })
    }

    fn is_cut_off(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Server(node) if self.cut_off.contains(&node))
    }

    /// Puts a message on the network. A server that is cut off from the others still hears the
    /// workers, so that an old head goes on being asked.
    pub fn post(&mut self, from: Peer, to: Peer, message: Message) {
        let between_servers = matches!((from, to), (Peer::Server(_), Peer::Server(_)));
        let is_cut_off = between_servers && (self.is_cut_off(from) || self.is_cut_off(to));
        if is_cut_off || self.rng.random_bool(self.loss) {
            return;
        }
        let is_repeated = self.chaos && self.rng.random_bool(0.05);
        for _ in 0..1 + u32::from(is_repeated) {
            let delay = self.delay();
            self.at(delay, Due::Deliver(from, to, message.clone()));
        }
    }

    pub fn deliver(&mut self, from: Peer, to: Peer, message: Message) -> Outcome<()> {
        match to {
            Peer::Server(node) => {
                let message = self.plant(from, node, message);
                self.tell_server(node, Event::Received { from, message })
            }
            Peer::Worker(worker) => {
                if matches!(&message, Message::PullReply(reply) if reply.request.is_none()) {
                    self.count("eager rows");
                }
                self.tell_worker(worker, ClientEvent::Received(message))
            }
        }
    }

    /// Makes a server behave as if it had the bug, by changing what it hears or says.
    fn plant(&mut self, from: Peer, node: NodeId, mut message: Message) -> Message {
        let to = Peer::Server(node);
        let server = self.servers.get(&node);
        match (self.bug, &mut message) {
            (Some(Bug::AcknowledgesEarly), Message::Push(push)) => {
                let (at, worker, clock) = (push.at, push.worker, push.clock);
                let route = self.registry.routing.route(at.array, at.range.start);
                if route.and_then(Route::head) == Some(node) && server.is_some() {
                    self.check.acknowledge(node, at, worker, clock);
                    let ack = done(at, Request::Push { worker, clock });
                    self.at(10, Due::Deliver(to, from, ack));
                }
            }
            // It takes the entry, and says so to the sender in the sender's epoch.
            (Some(Bug::IgnoresEpochs), Message::Replicate(entry)) => {
                let (at, seq) = (entry.at, entry.seq);
                let is_newer = |view: ShardView<'_>| {
                    let is_it = view.at.array == at.array && view.at.range.contains(at.range.start);
                    is_it && view.at.epoch > at.epoch
                };
                if server.is_some_and(|server| server.shards().any(is_newer)) {
                    let ack = done(at, Request::Replicate { seq });
                    entry.at.epoch.0 += 1_000_000;
                    self.at(10, Due::Deliver(to, from, ack));
                }
            }
            (Some(Bug::AppliesTwice), Message::Replicate(entry)) => {
                let is_last =
                    |view: ShardView<'_>| view.at == entry.at && view.applied == entry.seq;
                if server.is_some_and(|server| server.shards().any(is_last)) {
                    entry.seq = entry.seq.next();
                }
            }
            (Some(Bug::ForgetsDelta), Message::Snapshot(piece))
                if piece.end.is_some() && piece.part > 0 =>
            {
                let rows = &mut piece.rows;
                rows.range.end = rows.range.start;
                if rows.keys != Keys::All {
                    rows.keys = Keys::none();
                }
                (rows.values, rows.state) = (Values::none(), Values::none());
                rows.steps = Shared::default();
            }
            _ => {}
        }
        message
    }

    pub fn tell_server(&mut self, node: NodeId, event: Event) -> Outcome<()> {
        let now = self.time();
        let Some(server) = self.servers.get_mut(&node) else {
            return Ok(());
        };
        let changes_nothing = match &event {
            Event::Tick => true,
            Event::Received { message, .. } => matches!(message, Message::Pull(_)),
            _ => false,
        };
        let mut actions = Vec::new();
        server.handle(now, event, &mut actions);
        let timer = server.next_timer();
        for action in &actions {
            if let Action::Send { to, message } = action {
                self.check.said(server, *to, message)?;
            }
        }
        if !changes_nothing {
            self.check.holds(server, &self.registry.routing, &self.config)?;
        }
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    if let Message::Answer(answer) = &message {
                        match answer.refusal {
                            Some(Refusal::BadValues(_)) => self.count("refused as not finite"),
                            Some(Refusal::Overflow { .. }) => self.count("overflow"),
                            _ => {}
                        }
                    }
                    self.post(Peer::Server(node), to, message);
                }
                Action::Propose { at, add } if !self.cut_off.contains(&node) => {
                    let delay = self.delay();
                    self.at(delay, Due::Propose(at, add));
                }
                Action::Lost { at } => {
                    let delay = self.delay();
                    self.at(delay, Due::Lost(at, node));
                }
                Action::Propose { .. } | Action::CopyRefused { .. } => {}
            }
        }
        self.at_timer(timer, 500, Due::ServerTick(node));
        Ok(())
    }

    pub fn worker_actions(&mut self, worker: WorkerId, actions: Vec<ClientAction>) -> Outcome<()> {
        for action in actions {
            match action {
                ClientAction::Send { to, message } => {
                    self.post(Peer::Worker(worker), Peer::Server(to), message)
                }
                ClientAction::Done { handle, outcome } => {
                    if !self.submit_again(worker, handle, &outcome)? {
                        self.done(worker, handle, &outcome)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A pull of the mirrored rows has ended: with gradients in place of rows, they become the
    /// servers' to the bit (PS-5).
    fn mirrored(&mut self, id: WorkerId, pulled: &Pulled) -> Outcome<()> {
        let Some(worker) = self.workers.get_mut(&id) else {
            return Ok(());
        };
        let empty = Mirror::new(worker::factored());
        let mut mirror = std::mem::replace(&mut worker.mirror, empty);
        let mut pulled = pulled.clone();
        let parts = Vec::from_iter(pulled.updates.iter().map(|&(part, _)| part));
        if !mirror.take(ALL, &mut pulled) {
            self.count("not mirrored");
        } else if !parts.is_empty() {
            for key in parts.into_iter().flat_map(|part| part.start..part.end) {
                self.check.mirrored(id, pulled.clock, key, &pulled.values)?;
            }
            self.count("mirrored");
        }
        if mirror.held() == Clock(0) && self.model == Consistency::Bsp {
            let rows = self.servers_rows(pulled.clock);
            let values = rows.iter().flat_map(|rows| rows.values.to_f32().to_vec());
            if values.eq(pulled.values.iter().copied()) && pulled.clock == pulled.newest {
                mirror.set(pulled.clock, &rows);
            }
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.mirror = mirror;
        }
        Ok(())
    }

    /// The factored array's rows and state in all shards whose tails contain this clock.
    fn servers_rows(&self, clock: Clock) -> Vec<Rows> {
        let routes = self.registry.routing.routes().iter();
        let rows = routes.filter(|route| route.array == FACTORED).filter_map(|route| {
            let tail = self.servers.get(&route.tail()?)?;
            let view = tail.shards().find(|view| view.at == route.at())?;
            let finished = view.clocks.finished(route.range) == Some(clock);
            finished.then(|| view.store.extract(route.range, usize::MAX))
        });
        rows.collect()
    }

    fn done(&mut self, id: WorkerId, handle: Handle, outcome: &TaskOutcome) -> Outcome<()> {
        let Some(worker) = self.workers.get_mut(&id) else {
            return Ok(());
        };
        let pulled = worker.pulls.iter().find(|(pull, _)| *pull == handle);
        if let (Some((_, array)), Ok(Some(pulled))) = (pulled, outcome) {
            let Pulled { clock, values, .. } = pulled;
            let error = || format!("PS-4: {id} at {} reads rows of {clock}", worker.clock);
            ensure(*clock >= self.model.needed(worker.clock), error)?;
            if *array == COUNTED {
                let members = self.registry.members.workers.iter().map(|(id, _)| *id);
                let members: Vec<WorkerId> = members.collect();
                self.check.pulled(&members, id, worker.clock, values)?;
            }
        }
        let mirrored = pulled.is_some_and(|&(_, array)| array == FACTORED);
        let is_done = worker.finished(handle, outcome);
        if let (true, Ok(Some(pulled))) = (mirrored, outcome) {
            self.mirrored(id, pulled)?;
        }
        if is_done {
            let think = self.rng.random_range(100..20_000);
            self.at(think, Due::Proceed(id));
        }
        Ok(())
    }
}
