//! A node's connections: made, kept alive, given up and made again, as the registry's views say.
//! The registry is told of servers whose connection is lost.
//!
//! A worker connects to every server, and a server to every server of a higher number, so that
//! there is one connection between any two. A task for each connection receives and hands on to the
//! node's inbox; it also counts the heartbeats that were missed. What is received waits there until
//! there is room for the answers (a peer that reads nothing gets no more work done), and, if it
//! comes from a worker, until the replicas can follow.

mod tasks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parapet_parameter_server::{
    ArrayFilters, ArrayId, Link, LinkLimits, Message, NodeId, Peer, UnpackError,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

pub(super) use self::tasks::Inbound;
use self::tasks::Shared;
use super::transport::{Local, Sender, TransportError};
use super::wire::{Frame, Hello};
use super::{AT_ONCE, Counters, Membership, NodeConfig};
use crate::array::ArraySpec;
use crate::registry::View;

const INBOX: usize = 1024;

/// Received bytes are accounted for in these units, above one.
const UNIT: usize = 4096;

/// Bytes of messages that are received or handled before other tasks get their turn: they fit a
/// processor's second-level cache, and answers leave while further messages are handled.
pub(super) const TURN: usize = 512 * 1024;

#[derive(Debug)]
pub(super) enum Happened {
    Message(Peer, Message),
    /// A connection was made, or what was sent over it was lost.
    Up(Peer),
}

#[derive(Debug)]
struct Live {
    peer: Peer,
    sender: Sender,
    link: Link,
    /// Requests that came before their answers had room. No more come until there is some.
    parked: VecDeque<(Frame, Option<OwnedSemaphorePermit>)>,
    /// The connection is closed when this is dropped.
    _interest: oneshot::Sender<()>,
}

#[derive(Debug)]
pub(super) struct Connections {
    membership: Membership,
    /// Arrays that views have described: a description never changes.
    arrays: BTreeSet<ArrayId>,
    /// Addresses at which servers take messages.
    addresses: BTreeMap<NodeId, String>,
    filters: BTreeMap<ArrayId, ArrayFilters>,
    shared: Shared,
    /// Holds back workers' messages while it is true.
    gate: watch::Sender<bool>,
    inbox: mpsc::Receiver<Inbound>,
    live: BTreeMap<u64, Live>,
    by_peer: BTreeMap<Peer, u64>,
    dialers: BTreeMap<NodeId, (String, AbortOnDropHandle<()>)>,
    acceptor: Option<AbortOnDropHandle<()>>,
    /// Without the links of connections that are there.
    counters: Counters,
}

fn add(counters: &mut Counters, link: &Link) {
    counters.filtered.add(link.traffic());
    counters.unfiltered.add(link.received());
}

impl Connections {
    /// None yet. Received messages that wait take up to `bounds.inbox`, and a frame per connection.
    pub(super) fn new(own: Peer, config: NodeConfig, membership: Membership) -> Self {
        let (timing, bounds) = (config.timing, config.bounds);
        let units = (bounds.inbox / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        let (sender, inbox) = mpsc::channel(INBOX);
        let gate = watch::Sender::new(false);
        let local = Local {
            hello: Hello { peer: own, cluster: config.cluster, max_frame: bounds.max_frame },
            queue: bounds.queue,
            pooled: bounds.pooled,
            handshake: timing.silence(),
        };
        let shared = Shared {
            transport: config.transport,
            local: Arc::new(local),
            inbox: sender,
            budget: Arc::new(Semaphore::new(units)),
            units: u32::try_from(units).unwrap_or(u32::MAX),
            gate: gate.subscribe(),
            timing,
            next_id: Arc::default(),
        };
        Self {
            membership,
            arrays: BTreeSet::new(),
            addresses: BTreeMap::new(),
            filters: config.filters.into_iter().collect(),
            shared,
            gate,
            inbox,
            live: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            dialers: BTreeMap::new(),
            acceptor: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        let live = self.live.values();
        live.for_each(|live| add(&mut counters, &live.link));
        counters
    }

    /// Takes over a view: the addresses of servers and the filters of arrays. Returns the arrays
    /// that are new. A server that the registry misses, but the table still names, keeps its
    /// address: the registry may have been away, and whether it is dead shows in its connections.
    pub(super) fn follow(&mut self, view: &View) -> Vec<(ArrayId, ArraySpec)> {
        self.addresses.retain(|&server, _| view.table.holds(server));
        let servers = view.servers.iter();
        let reachable = servers.filter(|(_, info)| !info.address.is_empty());
        let reachable = reachable.map(|(&server, info)| (server, info.address.clone()));
        self.addresses.extend(reachable);
        let mut new = Vec::new();
        for (&array, info) in &view.arrays {
            if self.arrays.insert(array) && !info.description.is_empty() {
                match ArraySpec::parse(array, &info.description) {
                    Ok(spec) => new.push((array, spec)),
                    Err(error) => tracing::error!(%error, "this node cannot hold the array"),
                }
            }
        }
        for (array, spec) in &new {
            self.define(*array, spec.filters.into());
        }
        self.keep_connections();
        new
    }

    /// Makes an array's filters known, on the connections that are there, too.
    fn define(&mut self, array: ArrayId, filters: ArrayFilters) {
        if filters != ArrayFilters::default() && !self.filters.contains_key(&array) {
            self.filters.insert(array, filters);
            for live in self.live.values_mut() {
                live.link.define(array, filters);
            }
        }
    }

    pub(super) async fn listen(&mut self, address: &str) -> Result<String, TransportError> {
        let local = Arc::clone(&self.shared.local);
        let listener = self.shared.transport.listen(address, local).await?;
        let address = listener.address().to_owned();
        let task = tokio::spawn(self.shared.clone().accept(listener));
        self.acceptor = Some(AbortOnDropHandle::new(task));
        Ok(address)
    }

    /// Keeps connections to the known servers, and no others of those that this node connects to.
    fn keep_connections(&mut self) {
        let own = self.shared.local.hello.peer;
        // Of two servers, the one of the lower number connects.
        let dials = |node: NodeId| matches!(own, Peer::Worker(_)) || own < Peer::Server(node);
        let wanted = &self.addresses;
        self.dialers.retain(|node, (address, _)| wanted.get(node) == Some(address));
        let is_gone = |peer: &Peer| match peer {
            Peer::Server(node) => dials(*node) && !wanted.contains_key(node),
            Peer::Worker(_) => false,
        };
        let gone = self.by_peer.iter().filter(|(peer, _)| is_gone(peer));
        for id in gone.map(|(_, &id)| id).collect::<Vec<_>>() {
            self.forget(id);
        }
        for (&node, address) in self.addresses.iter().filter(|&(&node, _)| dials(node)) {
            self.dialers.entry(node).or_insert_with(|| {
                let dialing = self.shared.clone().dial(address.clone(), node);
                let dialing = AbortOnDropHandle::new(tokio::spawn(dialing));
                (address.clone(), dialing)
            });
        }
    }

    /// Waits until something comes, and appends it and what else is there. Safe to cancel.
    pub(super) async fn recv(&mut self, inbound: &mut Vec<Inbound>) {
        self.inbox.recv_many(inbound, AT_ONCE).await;
    }

    /// Turns it into an event for the state machine. The bytes are accounted for as received until
    /// the result is returned.
    pub(super) fn take(&mut self, inbound: Inbound) -> Option<Happened> {
        match inbound {
            Inbound::Connected { id, peer, sender, interest } => {
                let limits = LinkLimits {
                    bytes: usize::try_from(self.shared.local.hello.max_frame).unwrap_or(usize::MAX),
                    ..LinkLimits::default()
                };
                let live = Live {
                    peer,
                    sender,
                    link: Link::new(limits, self.filters.clone()),
                    parked: VecDeque::new(),
                    _interest: interest,
                };
                // A peer that connects again has given up the old connection.
                if let Some(old) = self.by_peer.insert(peer, id) {
                    self.forget(old);
                }
                self.live.insert(id, live);
                self.counters.connected += 1;
                Some(self.up(peer))
            }
            Inbound::Frame { id, frame, bytes, .. } => {
                let live = self.live.get_mut(&id)?;
                let must_wait = live.sender.is_long() || !live.parked.is_empty();
                if matches!(live.peer, Peer::Worker(_)) && must_wait {
                    live.parked.push_back((frame, bytes));
                    return None;
                }
                self.frame(id, frame)
            }
            Inbound::Closed(id) => {
                let peer = self.forget(id)?;
                self.counters.lost += 1;
                self.membership.tell(peer, false);
                None
            }
            Inbound::Unreachable(node) => {
                self.membership.tell(Peer::Server(node), false);
                None
            }
        }
    }

    /// The next request whose answer has room by now.
    pub(super) fn take_parked(&mut self) -> Option<Happened> {
        loop {
            let ready = |live: &Live| !live.parked.is_empty() && !live.sender.is_long();
            let (&id, live) = self.live.iter_mut().find(|(_, live)| ready(live))?;
            let (frame, _bytes) = live.parked.pop_front()?;
            if let Some(happened) = self.frame(id, frame) {
                return Some(happened);
            }
        }
    }

    /// Returns the queue of a peer whose requests wait, to be asked for room.
    pub(super) fn parked(&self) -> Option<Sender> {
        let found = self.live.values().find(|live| !live.parked.is_empty());
        found.map(|live| live.sender.clone())
    }

    fn up(&self, peer: Peer) -> Happened {
        self.membership.tell(peer, true);
        Happened::Up(peer)
    }

    fn forget(&mut self, id: u64) -> Option<Peer> {
        let Live { peer, link, .. } = self.live.remove(&id)?;
        add(&mut self.counters, &link);
        if self.by_peer.get(&peer) == Some(&id) {
            self.by_peer.remove(&peer);
        }
        Some(peer)
    }

    fn frame(&mut self, id: u64, frame: Frame) -> Option<Happened> {
        let live = self.live.get_mut(&id)?;
        match frame {
            Frame::Heartbeat => None,
            Frame::Forget(digest) => {
                live.link.forget(digest);
                // A message of ours was lost.
                let peer = live.peer;
                Some(self.up(peer))
            }
            Frame::Message(packed) => {
                self.counters.received += 1;
                match live.link.unpack(packed) {
                    Ok(message) => Some(Happened::Message(live.peer, message)),
                    Err(UnpackError::UnknownKeys { digest }) => {
                        live.sender.try_send(Frame::Forget(digest));
                        None
                    }
                    Err(error) => {
                        let peer = live.peer;
                        tracing::error!(?peer, %error, "connection closed");
                        self.forget(id);
                        self.membership.tell(peer, false);
                        None
                    }
                }
            }
        }
    }

    /// Puts a message into the peer's queue; without a connection or room it counts as lost.
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        let live = self.by_peer.get(&to).and_then(|id| self.live.get_mut(id));
        let sent = live.is_some_and(|live| {
            let frame = match self.filters.is_empty() {
                true => Frame::from(message),
                false => Frame::Message(live.link.pack(message)),
            };
            live.sender.try_send(frame)
        });
        match sent {
            true => self.counters.sent += 1,
            false => self.counters.dropped += 1,
        }
    }

    pub(super) fn heartbeat(&self) {
        for live in self.live.values() {
            live.sender.try_send(Frame::Heartbeat);
        }
    }

    /// Lets workers wait while a server's queue is long.
    pub(super) fn update_gate(&self) {
        let is_closed = self.long_server().is_some();
        self.gate.send_if_modified(|closed| std::mem::replace(closed, is_closed) != is_closed);
    }

    /// Bytes that each connected server's queue takes until it is long.
    pub(super) fn send_room(&self) -> BTreeMap<NodeId, usize> {
        let server = |live: &Live| match live.peer {
            Peer::Server(node) => Some((node, live.sender.free()?)),
            Peer::Worker(_) => None,
        };
        self.live.values().filter_map(server).collect()
    }

    pub(super) fn sender(&self, node: NodeId) -> Option<Sender> {
        let id = self.by_peer.get(&Peer::Server(node))?;
        Some(self.live.get(id)?.sender.clone())
    }

    pub(super) fn long_server(&self) -> Option<Sender> {
        let is_long = |live: &&Live| matches!(live.peer, Peer::Server(_)) && live.sender.is_long();
        let found = self.live.values().find(is_long);
        found.map(|live| live.sender.clone())
    }
}
