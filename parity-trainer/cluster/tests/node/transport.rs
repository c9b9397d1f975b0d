//! One suite for every transport, and bad input at a real socket.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parapet_cluster::node::Transport::{self, Sockets, Tcp};
use parapet_cluster::node::transport::{Connection, Local, Reason, TransportError};
use parapet_cluster::node::wire::{Frame, HEADER_LEN, HELLO_LEN, Hello, VERSION, WireError};
use parapet_parameter_server::{NodeId, Peer, Pool, Values, WorkerId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::handshake::hello;
use crate::harness::soon;
use crate::wire::{encode, push};

const QUEUE: usize = 64 * 1024;
const ANY: &str = "127.0.0.1:0";

fn local(peer: Peer) -> Local {
    Local { hello: hello(peer), queue: QUEUE, pooled: 1 << 20, handshake: Duration::from_secs(5) }
}

fn server() -> Arc<Local> {
    Arc::new(local(Peer::Server(NodeId(1))))
}

fn worker() -> Local {
    local(Peer::Worker(WorkerId(2)))
}

fn of(number: usize, count: usize) -> Frame {
    push(vec![number as f32; count])
}

type End = Result<Connection, TransportError>;

/// Both ends of a connection: the one that connects first.
async fn ends(
    connects: &Transport,
    listens: &Transport,
    address: &str,
    local: Local,
) -> (End, End) {
    let mut listener = listens.listen(address, server()).await.unwrap();
    let address = listener.address().to_owned();
    let accepted = async { listener.accept().await.unwrap().await };
    soon(async { tokio::join!(connects.connect(&address, &local), accepted) }).await
}

async fn pair(transport: &Transport, address: &str) -> (Connection, Connection) {
    let (one, other) = ends(transport, transport, address, worker()).await;
    (one.unwrap(), other.unwrap())
}

async fn frames_are_carried_in_order(transport: Transport, address: &str) {
    let (mut one, mut other) = pair(&transport, address).await;
    assert_eq!(one.peer, Peer::Server(NodeId(1)));
    assert_eq!(other.peer, Peer::Worker(WorkerId(2)));
    let sizes = [1, 0, 10, 500_000, 7, 1_500_000, 3];
    let numbered = || sizes.iter().enumerate();
    let sent = || numbered().map(|(number, &size)| of(number, size));
    let sending = async {
        for frame in sent().chain([Frame::Heartbeat]) {
            one.sender.room().await;
            one.sender.try_send(frame);
        }
    };
    let receiving = async {
        for (number, frame) in sent().chain([Frame::Heartbeat]).enumerate() {
            assert!(other.receiver.recv().await.unwrap() == frame, "frame {number}");
        }
    };
    soon(async { tokio::join!(sending, receiving) }).await;
    other.sender.try_send(of(9, 2));
    assert_eq!(soon(one.receiver.recv()).await.unwrap(), of(9, 2));
}

async fn queue_is_bounded(transport: Transport, address: &str) {
    let (one, mut other) = pair(&transport, address).await;
    let mut sent = 0;
    while one.sender.try_send(of(sent, 4096)) {
        sent += 1;
    }
    assert!(sent * 4096 * size_of::<f32>() <= 4 * QUEUE, "{sent} frames");
    assert!(one.sender.is_long());
    let mut room = Box::pin(one.sender.room());
    assert!(room.as_mut().now_or_never().is_none(), "there is no room before the peer receives");
    let receiving = async {
        for number in 0..sent {
            assert!(other.receiver.recv().await.unwrap() == of(number, 4096));
        }
    };
    soon(async { tokio::join!(receiving, room) }).await;
    assert!(!one.sender.is_long());
}

async fn loss_is_noticed_at_once(transport: Transport, address: &str) {
    let (one, mut other) = pair(&transport, address).await;
    // Stopped in the middle of sending to a peer that does not receive.
    while one.sender.try_send(of(1, 4096)) {}
    while other.sender.try_send(of(1, 4096)) {}
    drop(one);
    let receiving = async { while other.receiver.recv().await.is_ok() {} };
    soon(receiving).await;
    let error = other.receiver.recv().await.unwrap_err();
    assert!(matches!(error.reason, Reason::Closed | Reason::Io(_)), "{error}");
    assert!(error.to_string().starts_with("worker 2 at "), "{error}");
    soon(other.sender.room()).await;
}

async fn strangers_are_refused_at_both_ends(transport: Transport, address: &str) {
    let (mut other_cluster, mut other_limit) = (worker(), worker());
    other_cluster.hello.cluster = "another".into();
    other_limit.hello.max_frame = 1;
    for stranger in [other_cluster, other_limit] {
        let is_cluster = stranger.hello.max_frame > 1;
        let (one, other) = ends(&transport, &transport, address, stranger).await;
        for error in [one.unwrap_err(), other.unwrap_err()] {
            let right = match error.reason {
                Reason::Wire(WireError::Cluster { .. }) => is_cluster,
                Reason::Wire(WireError::FrameLimit { .. }) => !is_cluster,
                _ => false,
            };
            assert!(right, "{error}");
        }
    }
}

async fn free_address_and_taken_address_are_named(transport: Transport, address: &str) {
    let listener = transport.listen(address, server()).await.unwrap();
    let address = listener.address().to_owned();
    let again = transport.listen(&address, server()).await;
    assert!(matches!(again.err().unwrap().reason, Reason::Listen(_)));
    drop(listener);
    let own = worker();
    let error = soon(transport.connect(&address, &own)).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Connect(_)), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
}

async fn suite(transport: impl Fn() -> Transport, address: &str) {
    frames_are_carried_in_order(transport(), address).await;
    queue_is_bounded(transport(), address).await;
    loss_is_noticed_at_once(transport(), address).await;
    strangers_are_refused_at_both_ends(transport(), address).await;
    free_address_and_taken_address_are_named(transport(), address).await;
}

#[tokio::test]
async fn tcp_carries_connections() {
    suite(|| Tcp, ANY).await;
}

#[tokio::test]
async fn sockets_carry_connections() {
    suite(|| Sockets, ANY).await;
}

#[tokio::test]
async fn memory_carries_connections() {
    suite(Transport::memory, "a node").await;
}

#[tokio::test]
async fn what_waits_to_be_read_is_not_used_again() {
    const NUMBERS: usize = 100_000;
    const FRAMES: usize = 64;
    let (one, mut other) = pair(&Sockets, ANY).await;
    let sending = async {
        let mut pool = Pool::new(64 << 20);
        for number in 0..FRAMES {
            one.sender.room().await;
            let numbers = std::iter::repeat_n(number as f32, NUMBERS);
            let values = pool.filled(NUMBERS, |values| values.extend(numbers));
            one.sender.try_send(push(Values::F32(values)));
        }
    };
    let receiving = async {
        for number in 0..FRAMES {
            // The other end goes first, as far as it can.
            for _ in 0..32 {
                tokio::task::yield_now().await;
            }
            let received = other.receiver.recv().await.unwrap();
            assert!(received == of(number, NUMBERS), "frame {number}");
        }
    };
    soon(async { tokio::join!(sending, receiving) }).await;
}

/// Returns what a server receives when these bytes come after a good handshake.
async fn after_the_handshake(bytes: &[u8], then_close: bool) -> Result<Frame, Reason> {
    let mut listener = Tcp.listen(ANY, server()).await.unwrap();
    let mut raw = TcpStream::connect(listener.address()).await.unwrap();
    raw.write_all(&worker().hello.encode()).await.unwrap();
    let mut connection = listener.accept().await.unwrap().await.unwrap();
    raw.write_all(bytes).await.unwrap();
    let mut theirs = [0; HELLO_LEN];
    raw.read_exact(&mut theirs).await.unwrap();
    let _open = (!then_close).then_some(raw);
    let received = soon(connection.receiver.recv()).await;
    received.map_err(|error| error.reason)
}

#[tokio::test]
async fn bad_frames_end_a_connection_with_a_reason() {
    let good = encode(&[of(1, 100_000)]);
    assert_eq!(after_the_handshake(&good, false).await.unwrap(), of(1, 100_000));
    let cut = after_the_handshake(&good[..good.len() / 2], true).await;
    assert!(matches!(cut, Err(Reason::Closed)), "{cut:?}");

    let mut corrupt = good.clone();
    *corrupt.last_mut().unwrap() ^= 1;
    let mut huge = good[..HEADER_LEN].to_vec();
    huge[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let check = twox_hash::XxHash3_64::oneshot(&huge[4..]) as u32;
    huge[..4].copy_from_slice(&check.to_le_bytes());
    let too_long = WireError::TooLong { length: 1 << 60, limit: worker().hello.max_frame };
    for (bytes, expected) in
        [(corrupt, WireError::Checksum), (huge, too_long), (vec![0xa5; 64], WireError::Header)]
    {
        match after_the_handshake(&bytes, false).await {
            Err(Reason::Wire(error)) => assert_eq!(error, expected),
            other => panic!("{other:?} instead of {expected}"),
        }
    }
}

#[tokio::test]
async fn another_protocol_or_version_is_named() {
    let version = [&worker().hello.encode()[..8], &(VERSION + 1).to_le_bytes()].concat();
    for (first, expected) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), WireError::NotOurs),
        (version, WireError::Version { found: VERSION + 1 }),
    ] {
        let mut listener = Tcp.listen(ANY, server()).await.unwrap();
        let mut raw = TcpStream::connect(listener.address()).await.unwrap();
        raw.write_all(&first).await.unwrap();
        let error = soon(listener.accept().await.unwrap()).await.unwrap_err();
        assert!(error.to_string().ends_with(&expected.to_string()), "{error}");
        // The peer learns this node's version before the connection ends.
        let mut answer = [0; HELLO_LEN];
        soon(raw.read_exact(&mut answer)).await.unwrap();
        assert!(Hello::decode(&answer).is_ok());
    }
}

#[tokio::test]
async fn peer_that_says_nothing_does_not_keep_a_node_waiting() {
    let patience = Local { handshake: Duration::from_millis(50), ..worker() };
    let mut listener = Tcp.listen(ANY, Arc::new(patience)).await.unwrap();
    let _silent = TcpStream::connect(listener.address()).await.unwrap();
    let error = soon(listener.accept().await.unwrap()).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Slow(_)), "{error}");
}

/// Where a connected node is, as its peer says it in errors.
async fn seen_from(connects: Transport, listens: Transport) -> String {
    let (one, other) = ends(&connects, &listens, ANY, worker()).await;
    drop(one.unwrap());
    soon(other.unwrap().receiver.recv()).await.unwrap_err().who
}

#[tokio::test]
async fn nodes_on_one_machine_use_a_unix_socket_if_both_can() {
    assert_eq!(seen_from(Sockets, Sockets).await, "worker 2 at this machine");
    for seen in [seen_from(Tcp, Sockets).await, seen_from(Sockets, Tcp).await] {
        assert!(seen.starts_with("worker 2 at 127.0.0.1:"), "{seen}");
    }
}
