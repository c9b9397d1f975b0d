//! The shards of a server, and the messages that reach them.

use std::collections::BTreeMap;

use super::replica::Replica;
use super::transfer::Incoming;
use super::{ArrayConfig, Context};
use crate::{Answer, ArrayId, Key, Message, Peer, Refusal, Request, Routing, ShardRef};

/// By array and first key.
pub(super) type Held = BTreeMap<(ArrayId, Key), Replica>;

pub(super) struct Shards {
    pub(super) arrays: BTreeMap<ArrayId, ArrayConfig>,
    pub(super) routing: Routing,
    pub(super) held: Held,
    pub(super) incoming: BTreeMap<(ArrayId, Key), Incoming>,
}

/// The shard that holds the first key of `at`, whatever its epoch.
fn holder(held: &mut Held, at: ShardRef) -> Option<&mut Replica> {
    let (_, replica) = held.range_mut(..=(at.array, at.range.start)).next_back()?;
    let holds = replica.route.array == at.array && replica.range().contains(at.range.start);
    holds.then_some(replica)
}

/// The shard that covers the request's range, at its epoch.
fn covering(held: &mut Held, at: ShardRef) -> Result<&mut Replica, Refusal> {
    let replica = holder(held, at).filter(|replica| replica.range().covers(at.range));
    let replica = replica.ok_or(Refusal::UnknownRange)?;
    let current = replica.route.epoch;
    if current == at.epoch {
        Ok(replica)
    } else {
        Err(Refusal::WrongEpoch { current })
    }
}

/// The shard with exactly this range and epoch.
pub(super) fn exact(held: &mut Held, at: ShardRef) -> Option<&mut Replica> {
    let replica = held.get_mut(&(at.array, at.range.start));
    replica.filter(|replica| replica.route.at() == at)
}

impl Shards {
    pub(super) fn new(arrays: BTreeMap<ArrayId, ArrayConfig>) -> Self {
        Self {
            arrays,
            routing: Routing::default(),
            held: Held::new(),
            incoming: BTreeMap::new(),
        }
    }

    pub(super) fn each(&mut self, act: impl FnMut(&mut Replica)) {
        self.held.values_mut().for_each(act);
    }

    /// Reason why this server cannot take a log entry or a copy for this shard.
    pub(super) fn why_not(&mut self, at: ShardRef) -> Refusal {
        // The routing table counts for shards that have left this server, too: their old head is
        // fenced by it.
        let routes = self.routing.overlapping(at.array, at.range);
        let newest = routes.map(|route| route.epoch).max();
        let held = holder(&mut self.held, at).map(|replica| replica.route.epoch);
        match newest.max(held) {
            Some(current) if current > at.epoch => Refusal::WrongEpoch { current },
            _ => Refusal::UnknownRange,
        }
    }

    pub(super) fn receive(&mut self, from: Peer, message: Message, context: &mut Context<'_>) {
        let held = &mut self.held;
        let (at, request, taken) = match message {
            Message::Push(push) => {
                let (at, worker, clock) = (push.at, push.worker, push.clock);
                let replica = covering(held, at);
                let taken = replica.and_then(|replica| replica.push(from, push, context));
                (at, Request::Push { worker, clock }, taken)
            }
            Message::Pull(pull) => {
                let (at, request) = (pull.at, pull.request);
                let replica = covering(held, at);
                let taken = replica.and_then(|replica| replica.pull(from, pull, context));
                (at, Request::Pull { request }, taken)
            }
            Message::Replicate(entry) => {
                let (at, seq) = (entry.at, entry.seq);
                let taken = match exact(held, at) {
                    Some(replica) => replica.replicate(from, entry, context),
                    None => Err(self.why_not(at)),
                };
                (at, Request::Replicate { seq }, taken)
            }
            Message::Snapshot(piece) => {
                let (at, transfer, part) = (piece.at, piece.transfer, piece.part);
                let taken = self.take_over(from, piece, context);
                (at, Request::Snapshot { transfer, part }, taken)
            }
            Message::Answer(answer) => return self.answered(from, answer, context),
            Message::Routing(routing) => return self.set_routing(routing, context),
            // Meant for workers.
            Message::PullReply(_) => return,
        };
        if let Err(reason) = taken {
            context.answer(from, at, request, Some(reason));
        }
    }

    fn answered(&mut self, from: Peer, answer: Answer, context: &mut Context<'_>) {
        let Some(replica) = exact(&mut self.held, answer.at) else {
            return;
        };
        match (answer.request, answer.refusal) {
            (Request::Replicate { seq }, None) => replica.acknowledged(from, seq, context),
            (Request::Replicate { .. }, Some(Refusal::WrongEpoch { current })) => {
                replica.fence(from, current);
            }
            (Request::Snapshot { transfer, part }, None) => {
                replica.copied(from, (transfer, part), context);
            }
            (Request::Snapshot { transfer, part }, Some(reason)) => {
                replica.copy_refused(from, (transfer, part), reason, context);
            }
            _ => {}
        }
    }

    /// Drops copies that their senders have given up, of which no routing table need ever tell.
    pub(super) fn drop_given_up(&mut self, context: &Context<'_>) {
        let is_given_up = |at| context.now >= at;
        let given_up_at = |copy: &Incoming| copy.given_up_at(context.config);
        self.incoming
            .retain(|_, copy| !given_up_at(copy).is_some_and(is_given_up));
    }
}
