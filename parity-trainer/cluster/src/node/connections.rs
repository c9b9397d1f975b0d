//! A node's connections: made, kept alive, given up and made again.
//!
//! A worker connects to every server, and a server to every server of a higher number, so that
//! there is one connection between any two. A task for each connection receives and hands on to the
//! node's inbox; it also counts the heartbeats that were missed. What is received waits there until
//! there is room for the answers (a peer that reads nothing gets no more work done), and, if it
//! comes from a worker, until the replicas can follow.

mod tasks;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parapet_parameter_server::{
    ArrayFilters, ArrayId, Link, LinkLimits, Message, NodeId, Packed, Peer, UnpackError,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use self::tasks::{accept, dial};
use crate::node::transport::{Listener, Local, Sender, Transport, TransportError};
use crate::node::wire::Frame;
use crate::node::{Counters, Timing};

/// Things in the inbox at once.
const INBOX: usize = 1024;

/// Received bytes are accounted for in these units, above one.
const UNIT: usize = 4096;

/// So many bytes are handled before more are received: they fit a processor's second-level cache.
const TURN: usize = 512 * 1024;

/// Handshakes with those who connect, at once.
const HANDSHAKES: usize = 64;

/// Event from a node's connections.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub(crate) enum Inbound {
    Connected {
        id: u64,
        peer: Peer,
        sender: Sender,
        interest: oneshot::Sender<()>,
    },
    Frame {
        id: u64,
        frame: Frame,
        bytes: Option<OwnedSemaphorePermit>,
    },
    Closed {
        id: u64,
        error: TransportError,
    },
    Unreachable {
        node: NodeId,
        error: TransportError,
    },
}

/// Event for the state machine.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub(crate) enum Happened {
    Message(Peer, Message),
    Up(Peer),
    Down(Peer),
    Unreachable(NodeId),
}

#[derive(Debug)]
struct Live {
    peer: Peer,
    sender: Sender,
    link: Link,
    /// Requests that came before their answers had room. No more come until there is some.
    parked: VecDeque<Parked>,
    /// The connection is closed when this is dropped.
    _interest: oneshot::Sender<()>,
}

/// A frame, and its part of the inbox's bytes.
type Parked = (Frame, Option<OwnedSemaphorePermit>);

/// Holds back workers' messages.
#[derive(Debug, Default)]
struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    fn set(&self, closed: bool) {
        if self.closed.swap(closed, Ordering::Relaxed) && !closed {
            self.opened.notify_waiters();
        }
    }

    async fn pass(&self) {
        while self.closed.load(Ordering::Relaxed) {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            if self.closed.load(Ordering::Relaxed) {
                opened.await;
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Shared {
    inbox: mpsc::Sender<Inbound>,
    budget: Arc<Semaphore>,
    /// Units in `budget`.
    units: u32,
    workers: Arc<Gate>,
    timing: Timing,
    next_id: Arc<AtomicU64>,
}

/// All connections of a node.
#[derive(Debug)]
pub(crate) struct Connections<T: Transport> {
    transport: T,
    local: Arc<Local>,
    filters: BTreeMap<ArrayId, ArrayFilters>,
    shared: Shared,
    inbox: mpsc::Receiver<Inbound>,
    live: BTreeMap<u64, Live>,
    by_peer: BTreeMap<Peer, u64>,
    dialers: BTreeMap<NodeId, (String, AbortOnDropHandle<()>)>,
    acceptor: Option<AbortOnDropHandle<()>>,
    /// Without the links of connections that are there.
    counters: Counters,
}

impl<T: Transport> Connections<T> {
    /// None yet. Received messages that wait take up to `inbox` bytes, beside one frame
    /// for each connection.
    pub(crate) fn new(
        transport: T,
        local: Arc<Local>,
        timing: Timing,
        inbox: usize,
        filters: Vec<(ArrayId, ArrayFilters)>,
    ) -> Self {
        let units = u32::try_from((inbox / UNIT).max(1)).unwrap_or(u32::MAX);
        let (sender, receiver) = mpsc::channel(INBOX);
        let shared = Shared {
            inbox: sender,
            budget: Arc::new(Semaphore::new(
                usize::try_from(units)
                    .unwrap_or(usize::MAX)
                    .min(Semaphore::MAX_PERMITS),
            )),
            units,
            workers: Arc::default(),
            timing,
            next_id: Arc::default(),
        };
        Self {
            transport,
            local,
            filters: filters.into_iter().collect(),
            shared,
            inbox: receiver,
            live: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            dialers: BTreeMap::new(),
            acceptor: None,
            counters: Counters::default(),
        }
    }

    /// Returns the counts of messages so far.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        self.live.values().for_each(|live| counters.add(&live.link));
        counters
    }

    /// Makes an array's filters known, on the connections that are there, too.
    pub(crate) fn define(&mut self, array: ArrayId, filters: ArrayFilters) {
        if filters != ArrayFilters::default() && !self.filters.contains_key(&array) {
            self.filters.insert(array, filters);
            self.live
                .values_mut()
                .for_each(|live| live.link.define(array, filters));
        }
    }

    /// Takes connections at `address`; where that is.
    pub(crate) async fn listen(&mut self, address: &str) -> Result<String, TransportError> {
        let listener = self
            .transport
            .listen(address, Arc::clone(&self.local))
            .await?;
        let address = listener.address();
        self.acceptor = Some(AbortOnDropHandle::new(tokio::spawn(accept(
            listener,
            self.shared.clone(),
        ))));
        Ok(address)
    }

    /// Keeps connections to these servers, and no others.
    pub(crate) fn keep(&mut self, servers: impl IntoIterator<Item = (NodeId, String)>) {
        let wanted: BTreeMap<NodeId, String> = servers.into_iter().collect();
        self.dialers
            .retain(|node, (address, _)| wanted.get(node) == Some(address));
        let gone = |peer: &Peer| {
            // Those that are kept by a dialer end with it.
            matches!(peer, Peer::Server(node) if self.is_dialled(*node) && !wanted.contains_key(node))
        };
        let gone: Vec<u64> = self
            .by_peer
            .iter()
            .filter(|(peer, _)| gone(peer))
            .map(|(_, &id)| id)
            .collect();
        for id in gone {
            self.forget(id);
        }
        for (node, address) in wanted {
            if !self.dialers.contains_key(&node) {
                let dialing = dial(
                    self.transport.clone(),
                    address.clone(),
                    node,
                    Arc::clone(&self.local),
                    self.shared.clone(),
                );
                self.dialers.insert(
                    node,
                    (address, AbortOnDropHandle::new(tokio::spawn(dialing))),
                );
            }
        }
    }

    /// Returns true if this node connects to that server, rather than it to this one.
    pub(crate) fn is_dialled(&self, node: NodeId) -> bool {
        match self.local.hello.peer {
            Peer::Worker(_) => true,
            Peer::Server(own) => own < node,
        }
    }

    /// Waits until something comes, and appends it and what else is there. Safe to cancel.
    pub(crate) async fn recv(&mut self, inbound: &mut Vec<Inbound>, most: usize) {
        self.inbox.recv_many(inbound, most).await;
    }

    /// Turns it into an event for the state machine. The bytes are accounted for as received until
    /// the result is dropped.
    pub(crate) fn take(&mut self, inbound: Inbound) -> Option<Happened> {
        match inbound {
            Inbound::Connected {
                id,
                peer,
                sender,
                interest,
            } => {
                let link = Link::new(
                    LinkLimits {
                        bytes: usize::try_from(self.local.hello.max_frame).unwrap_or(usize::MAX),
                        ..LinkLimits::default()
                    },
                    self.filters
                        .iter()
                        .map(|(&array, &filters)| (array, filters)),
                );
                // A peer that connects again has given up the old connection.
                let old = self.by_peer.insert(peer, id);
                if let Some(old) = old {
                    self.end(old);
                }
                self.live.insert(
                    id,
                    Live {
                        peer,
                        sender,
                        link,
                        parked: VecDeque::new(),
                        _interest: interest,
                    },
                );
                self.counters.connected += 1;
                Some(Happened::Up(peer))
            }
            Inbound::Frame { id, frame, bytes } => {
                if let Some(live) = self.live.get_mut(&id)
                    && matches!(live.peer, Peer::Worker(_))
                    && (live.sender.is_long() || !live.parked.is_empty())
                {
                    live.parked.push_back((frame, bytes));
                    return None;
                }
                let happened = self.frame(id, frame);
                drop(bytes);
                happened
            }
            Inbound::Closed { id, error } => {
                let peer = self.forget(id)?;
                self.counters.lost += 1;
                tracing::info!(%error, "connection lost");
                Some(Happened::Down(peer))
            }
            Inbound::Unreachable { node, error } => {
                tracing::debug!(%error, %node, "not reached");
                Some(Happened::Unreachable(node))
            }
        }
    }

    /// The next request whose answer has room by now.
    pub(crate) fn take_parked(&mut self) -> Option<Happened> {
        loop {
            let ready = |live: &Live| !live.parked.is_empty() && !live.sender.is_long();
            let (id, (frame, _bytes)) = {
                let (&id, live) = self.live.iter_mut().find(|(_, live)| ready(live))?;
                (id, live.parked.pop_front()?)
            };
            if let Some(happened) = self.frame(id, frame) {
                return Some(happened);
            }
        }
    }

    /// Returns the queues of peers whose requests wait, to be asked for room.
    pub(crate) fn parked(&self) -> Option<Sender> {
        self.live
            .values()
            .find(|live| !live.parked.is_empty())
            .map(|live| live.sender.clone())
    }

    fn end(&mut self, id: u64) -> Option<Live> {
        let live = self.live.remove(&id)?;
        self.counters.add(&live.link);
        Some(live)
    }

    fn forget(&mut self, id: u64) -> Option<Peer> {
        let live = self.end(id)?;
        if self.by_peer.get(&live.peer) == Some(&id) {
            self.by_peer.remove(&live.peer);
        }
        Some(live.peer)
    }

    fn frame(&mut self, id: u64, frame: Frame) -> Option<Happened> {
        let live = self.live.get_mut(&id)?;
        match frame {
            Frame::Heartbeat => None,
            Frame::Forget(digest) => {
                live.link.forget(digest);
                // A message of ours was lost.
                Some(Happened::Up(live.peer))
            }
            Frame::Message(packed) => {
                self.counters.received += 1;
                match live.link.unpack(packed) {
                    Ok(message) => Some(Happened::Message(live.peer, message)),
                    Err(UnpackError::UnknownKeys { digest }) => {
                        let _ = live.sender.try_send(Frame::Forget(digest));
                        None
                    }
                    Err(error) => {
                        let peer = live.peer;
                        tracing::error!(?peer, %error, "connection closed");
                        self.forget(id);
                        Some(Happened::Down(peer))
                    }
                }
            }
        }
    }

    /// Puts a message into the peer's queue; without a connection or room it counts as lost.
    pub(crate) fn send(&mut self, to: Peer, message: Message) {
        let live = self.by_peer.get(&to).and_then(|id| self.live.get_mut(id));
        let sent = live.is_some_and(|live| {
            let packed = if self.filters.is_empty() {
                Packed {
                    message,
                    keys: None,
                    values: None,
                }
            } else {
                live.link.pack(message)
            };
            live.sender.try_send(Frame::Message(packed)).is_ok()
        });
        let counter = if sent {
            &mut self.counters.sent
        } else {
            &mut self.counters.dropped
        };
        *counter += 1;
    }

    /// Gives a sign of life on every connection.
    pub(crate) fn heartbeat(&self) {
        for live in self.live.values() {
            let _ = live.sender.try_send(Frame::Heartbeat);
        }
    }

    /// Lets workers wait while a server's queue is long.
    pub(crate) fn update_gate(&self) {
        self.shared.workers.set(self.long_server().is_some());
    }

    /// Bytes that each connected server's queue takes until it is long.
    pub(crate) fn send_room(&self) -> BTreeMap<NodeId, usize> {
        let server = |live: &Live| match live.peer {
            Peer::Server(node) => Some((node, live.sender.free()?)),
            Peer::Worker(_) => None,
        };
        self.live.values().filter_map(server).collect()
    }

    /// The way to a server, if there is one.
    pub(crate) fn sender(&self, node: NodeId) -> Option<Sender> {
        self.by_peer
            .get(&Peer::Server(node))
            .and_then(|id| self.live.get(id))
            .map(|live| live.sender.clone())
    }

    /// A server whose queue is long.
    pub(crate) fn long_server(&self) -> Option<Sender> {
        let is_long = |live: &&Live| matches!(live.peer, Peer::Server(_)) && live.sender.is_long();
        let found = self.live.values().find(is_long);
        found.map(|live| live.sender.clone())
    }
}
