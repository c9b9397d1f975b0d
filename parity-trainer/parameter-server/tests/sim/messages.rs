//! Messages between servers and workers: their delays, losses and planted faults.

use super::*;

impl Simulation {
    pub(super) fn delay(&mut self) -> u64 {
        if self.rng.random_bool(0.05) {
            self.rng.random_range(0..30_000)
        } else {
            self.rng.random_range(50..1_000)
        }
    }

    pub(super) fn is_cut_off(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Server(node) if self.cut_off.contains(&node))
    }

    /// Puts a message on the network. A server that is cut off from the others still hears the
    /// workers, so that an old head goes on being asked.
    pub(super) fn post(&mut self, from: Peer, to: Peer, message: Message) {
        let between_servers = matches!((from, to), (Peer::Server(_), Peer::Server(_)));
        if between_servers && (self.is_cut_off(from) || self.is_cut_off(to))
            || self.rng.random_bool(self.loss)
        {
            return;
        }
        let copies = if self.chaos && self.rng.random_bool(0.05) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = self.delay();
            self.at(delay, Due::Deliver(from, to, message.clone()));
        }
    }

    pub(super) fn deliver(&mut self, from: Peer, to: Peer, message: Message) -> Result<(), String> {
        let message = self.plant(from, to, message);
        match to {
            Peer::Server(node) => self.tell_server(node, Event::Received { from, message }),
            Peer::Worker(worker) => {
                if let Message::PullReply(reply) = &message
                    && reply.request.is_none()
                {
                    self.tally.eager_rows += 1;
                }
                self.tell_worker(
                    worker,
                    parapet_parameter_server::ClientEvent::Received(message),
                )
            }
        }
    }

    /// Makes a server behave as if it had the bug, by changing what it hears or says.
    pub(super) fn plant(&mut self, from: Peer, to: Peer, mut message: Message) -> Message {
        let Peer::Server(node) = to else {
            return message;
        };
        match (self.bug, &mut message) {
            (
                Some(Bug::AcknowledgesEarly),
                Message::Push(Push {
                    at, worker, clock, ..
                }),
            ) => {
                let ack = PushAck {
                    at: *at,
                    worker: *worker,
                    clock: *clock,
                };
                let heads = self
                    .registry
                    .routing
                    .route(at.array, at.range.start)
                    .and_then(|route| route.head());
                if heads == Some(node) && self.servers.contains_key(&node) {
                    self.check.acknowledge(node, &ack);
                    self.at(10, Due::Deliver(to, from, Message::PushAck(ack)));
                }
            }
            // It takes the entry, and says so to the sender in the sender's epoch.
            (Some(Bug::IgnoresEpochs), Message::Replicate(entry)) => {
                let at = entry.at;
                let held = self
                    .servers
                    .get(&node)
                    .and_then(|server| server.epoch(at.array, at.range.start));
                if held.is_some_and(|epoch| epoch > at.epoch) {
                    let ack = parapet_parameter_server::ReplicateAck { at, seq: entry.seq };
                    entry.at.epoch.0 += 1_000_000;
                    self.at(10, Due::Deliver(to, from, Message::ReplicateAck(ack)));
                }
            }
            (Some(Bug::AppliesTwice), Message::Replicate(entry)) => {
                if let Some(server) = self.servers.get(&node)
                    && let Some(view) = server.shards().find(|v| v.at == entry.at)
                    && entry.seq == view.applied
                {
                    entry.seq = entry.seq.next();
                }
            }
            (Some(Bug::ForgetsDelta), Message::Snapshot(piece))
                if piece.phase == SnapshotPhase::Delta && piece.part > 0 =>
            {
                piece.rows.range.end = piece.rows.range.start;
                piece.rows.keys = Keys::none();
                if self
                    .arrays
                    .iter()
                    .any(|(id, array)| *id == piece.at.array && !array.layout.sparse)
                {
                    piece.rows.keys = Keys::All;
                }
                piece.rows.values = Values::none();
                piece.rows.state = Values::none();
                piece.rows.steps = Vec::new();
            }
            _ => {}
        }
        message
    }

    pub(super) fn tell_server(&mut self, node: NodeId, event: Event) -> Result<(), String> {
        let Some(server) = self.servers.get_mut(&node) else {
            return Ok(());
        };
        let mut actions = Vec::new();
        let changes_nothing = matches!(
            event,
            Event::Tick
                | Event::Received {
                    message: Message::Pull(_) | Message::SnapshotAck(_),
                    ..
                }
        );
        server.handle(Duration::from_micros(self.now), event, &mut actions);
        let timer = server.next_timer();
        for action in &actions {
            if let Action::Send { to, message } = action {
                self.check
                    .said(node, server, *to, message, &self.registry)?;
            }
        }
        if !changes_nothing {
            self.check
                .holds(server, &self.registry.routing, &self.config)?;
        }
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    if let Message::Refused(refused) = &message {
                        match refused.reason {
                            Refusal::BadValues(_) => self.tally.refused_not_finite += 1,
                            Refusal::Overflow { .. } => self.tally.overflows += 1,
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
        if let Some(timer) = timer {
            let delay = u64::try_from(timer.as_micros())
                .unwrap()
                .saturating_sub(self.now)
                .max(500);
            self.at(delay, Due::ServerTick(node));
        }
        Ok(())
    }

    pub(super) fn worker_actions(
        &mut self,
        worker: WorkerId,
        actions: Vec<ClientAction>,
    ) -> Result<(), String> {
        for action in actions {
            match action {
                ClientAction::Send { to, message } => {
                    self.post(Peer::Worker(worker), Peer::Server(to), message)
                }
                ClientAction::Done { handle, outcome } => {
                    if self.submit_again(worker, handle, &outcome)? {
                        continue;
                    }
                    let Some(state) = self.workers.get_mut(&worker) else {
                        continue;
                    };
                    let pulled = state
                        .pulls
                        .iter()
                        .find(|(pull, _)| *pull == handle)
                        .map(|&(_, array)| array);
                    if let (Some(array), TaskOutcome::Pulled { clock, values, .. }) =
                        (pulled, &outcome)
                    {
                        let members: Vec<WorkerId> =
                            self.registry.members.iter().map(|(id, _)| *id).collect();
                        if *clock < self.model.needed(state.clock) {
                            return Err(format!(
                                "PS-4: {worker} at {} reads rows of {clock}",
                                state.clock
                            ));
                        }
                        if array == COUNTED {
                            self.check.pulled(&members, worker, state.clock, values)?;
                        }
                    }
                    if state.finished(handle, &outcome) {
                        let think = self.rng.random_range(100..20_000);
                        self.at(think, Due::Proceed(worker));
                    }
                }
                ClientAction::FetchRouting => {
                    let table = Message::Routing(self.registry.routing.clone());
                    let delay = self.delay();
                    self.at(
                        delay,
                        Due::Deliver(Peer::Server(NodeId(u64::MAX)), Peer::Worker(worker), table),
                    );
                }
            }
        }
        Ok(())
    }
}
