//! One suite for every transport, and bad input at a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::future::Future;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::node::transport::{
    Connection, Listener as _, Local, Memory, Reason, SendError, Sockets, Tcp, Transport,
    TransportError,
};
use parapet_cluster::node::wire::{Batch, Frame, HEADER_LEN, HELLO_LEN, Hello, WireError};
use parapet_parameter_server::{
    ArrayId, Clock, Epoch, KeyRange, Keys, Message, NodeId, Peer, Pool, Push, ShardRef, Values,
    WorkerId,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const QUEUE: usize = 64 * 1024;

fn local(peer: Peer) -> Local {
    Local {
        hello: Hello {
            peer,
            cluster: "test".into(),
            max_frame: 8 << 20,
        },
        queue: QUEUE,
        pooled: 1 << 20,
        handshake: Duration::from_secs(5),
    }
}

fn server() -> Local {
    local(Peer::Server(NodeId(1)))
}

fn worker() -> Local {
    local(Peer::Worker(WorkerId(2)))
}

fn push(clock: u64, numbers: usize) -> Frame {
    push_of(clock, Values::from(vec![clock as f32; numbers]))
}

fn push_of(clock: u64, values: Values) -> Frame {
    let range = KeyRange::new(0, values.len() as u64);
    let at = ShardRef {
        array: ArrayId(0),
        range,
        epoch: Epoch(1),
    };
    Message::Push(Push {
        at,
        worker: WorkerId(2),
        clock: Clock(clock),
        keys: Keys::All,
        values,
    })
    .into()
}

async fn soon<R>(future: impl Future<Output = R>) -> R {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("took longer than 20 s")
}

type Ends = (
    Result<Connection, TransportError>,
    Result<Connection, TransportError>,
);

/// Both ends of a connection: the one that connects first.
async fn ends<T: Transport>(transport: &T, address: &str, one: Local, other: Local) -> Ends {
    let mut listener = transport.listen(address, Arc::new(other)).await.unwrap();
    let address = listener.address();
    let accepted = async { listener.accept().await.unwrap().await };
    soon(async { tokio::join!(transport.connect(&address, Arc::new(one)), accepted) }).await
}

async fn pair<T: Transport>(transport: &T, address: &str) -> (Connection, Connection) {
    let (one, other) = ends(transport, address, worker(), server()).await;
    (one.unwrap(), other.unwrap())
}

async fn carries_frames_in_order<T: Transport>(transport: T, address: &str) {
    let (mut one, mut other) = pair(&transport, address).await;
    assert_eq!(
        (one.peer, other.peer),
        (Peer::Server(NodeId(1)), Peer::Worker(WorkerId(2)))
    );
    let sizes = [1, 0, 10, 500_000, 7, 1_500_000, 3];
    let sending = async {
        for (clock, &size) in sizes.iter().enumerate() {
            one.sender.room().await;
            one.sender.try_send(push(clock as u64, size)).unwrap();
        }
        one.sender.try_send(Frame::Heartbeat).unwrap();
    };
    let receiving = async {
        for (clock, &size) in sizes.iter().enumerate() {
            assert!(
                other.receiver.recv().await.unwrap() == push(clock as u64, size),
                "frame {clock}"
            );
        }
        assert_eq!(other.receiver.recv().await.unwrap(), Frame::Heartbeat);
    };
    soon(async { tokio::join!(sending, receiving) }).await;
    other.sender.try_send(push(9, 2)).unwrap();
    assert_eq!(soon(one.receiver.recv()).await.unwrap(), push(9, 2));
}

async fn bounds_its_queue<T: Transport>(transport: T, address: &str) {
    let (one, mut other) = pair(&transport, address).await;
    let (mut sent, mut refused) = (0, false);
    for clock in 0..10_000 {
        match one.sender.try_send(push(clock, 4096)) {
            Ok(()) => sent += 1,
            Err(SendError::Full { bytes }) => {
                assert!(bytes <= 4 * QUEUE);
                refused = true;
                break;
            }
            Err(SendError::Closed) => panic!("closed"),
        }
    }
    assert!(refused && one.sender.is_long());
    let mut room = Box::pin(one.sender.room());
    assert!(
        futures_poll(room.as_mut()).await.is_none(),
        "there is no room before somebody receives"
    );
    let receiving = async {
        for clock in 0..sent {
            assert!(other.receiver.recv().await.unwrap() == push(clock, 4096));
        }
    };
    soon(async { tokio::join!(receiving, room) }).await;
    assert!(!one.sender.is_long());
}

async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = &mut future => Some(output),
        () = std::future::ready(()) => None,
    }
}

async fn notices_a_loss_at_once<T: Transport>(transport: T, address: &str) {
    let (one, mut other) = pair(&transport, address).await;
    // Stopped in the middle of sending to a peer that does not receive.
    while one.sender.try_send(push(1, 4096)).is_ok() {}
    while other.sender.try_send(push(1, 4096)).is_ok() {}
    drop(one);
    let error = soon(async {
        loop {
            if let Err(error) = other.receiver.recv().await {
                break error;
            }
        }
    })
    .await;
    assert!(
        matches!(error.reason, Reason::Closed | Reason::Io(_)),
        "{error}"
    );
    assert!(error.to_string().starts_with("worker 2 at "), "{error}");
    soon(other.sender.room()).await;
}

async fn refuses_strangers_at_both_ends<T: Transport>(transport: T, address: &str) {
    let mut stranger = worker();
    stranger.hello.cluster = "another".into();
    let (one, other) = ends(&transport, address, stranger, server()).await;
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(
            matches!(error.reason, Reason::Wire(WireError::Cluster { .. })),
            "{error}"
        );
    }
    let mut stranger = worker();
    stranger.hello.max_frame = 1;
    let (one, other) = ends(&transport, address, stranger, server()).await;
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(
            matches!(error.reason, Reason::Wire(WireError::FrameLimit { .. })),
            "{error}"
        );
    }
}

async fn says_when_nobody_listens<T: Transport>(transport: T, address: &str) {
    let listener = transport.listen(address, Arc::new(server())).await.unwrap();
    let free = listener.address();
    drop(listener);
    let error = soon(transport.connect(&free, Arc::new(worker())))
        .await
        .unwrap_err();
    assert!(matches!(error.reason, Reason::Connect(_)), "{error}");
    assert!(error.to_string().contains(&free), "{error}");
}

async fn says_when_an_address_is_taken<T: Transport>(transport: T, address: &str) {
    let listener = transport.listen(address, Arc::new(server())).await.unwrap();
    let again = transport
        .listen(&listener.address(), Arc::new(server()))
        .await;
    assert!(matches!(again.err().unwrap().reason, Reason::Listen(_)));
}

macro_rules! suite {
    ($($name:ident)*) => {
        mod tcp {
            $(#[tokio::test] async fn $name() { super::$name(super::Tcp, "127.0.0.1:0").await; })*
        }
        mod sockets {
            $(#[tokio::test] async fn $name() { super::$name(super::Sockets,
                "127.0.0.1:0").await; })*
        }
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(super::Memory::default(),
                "a node").await; })*
        }
    };
}

suite! {
    carries_frames_in_order
    bounds_its_queue
    notices_a_loss_at_once
    refuses_strangers_at_both_ends
    says_when_nobody_listens
    says_when_an_address_is_taken
}

#[tokio::test]
async fn what_waits_to_be_read_is_not_used_again() {
    const NUMBERS: usize = 100_000;
    const FRAMES: u64 = 64;
    let (one, mut other) = pair(&Sockets, "127.0.0.1:0").await;
    let sending = async {
        let mut pool = Pool::new(64 << 20);
        for clock in 0..FRAMES {
            one.sender.room().await;
            let values = pool.filled(NUMBERS, |values| {
                values.extend(std::iter::repeat_n(clock as f32, NUMBERS))
            });
            one.sender
                .try_send(push_of(clock, Values::F32(values)))
                .unwrap();
        }
    };
    let receiving = async {
        for clock in 0..FRAMES {
            // The other end goes first, as far as it can.
            for _ in 0..32 {
                tokio::task::yield_now().await;
            }
            assert!(
                other.receiver.recv().await.unwrap() == push(clock, NUMBERS),
                "frame {clock}"
            );
        }
    };
    soon(async { tokio::join!(sending, receiving) }).await;
}

/// Returns the error that a server reports for these bytes after a good handshake.
async fn after_the_handshake(bytes: &[u8], then_close: bool) -> Result<Frame, Reason> {
    let mut listener = Tcp.listen("127.0.0.1:0", Arc::new(server())).await.unwrap();
    let mut raw = TcpStream::connect(listener.address()).await.unwrap();
    raw.write_all(&worker().hello.encode()).await.unwrap();
    let mut connection = listener.accept().await.unwrap().await.unwrap();
    raw.write_all(bytes).await.unwrap();
    let mut theirs = [0; HELLO_LEN];
    raw.read_exact(&mut theirs).await.unwrap();
    let mut raw = Some(raw);
    if then_close {
        raw.take();
    }
    soon(connection.receiver.recv())
        .await
        .map_err(|error| error.reason)
}

fn encoded(frame: Frame) -> Vec<u8> {
    let mut batch = Batch::new(8 << 20);
    batch.push(frame).unwrap();
    let mut bytes = Vec::new();
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = batch.slices(&mut slices);
        let before = bytes.len();
        slices[..filled]
            .iter()
            .for_each(|slice| bytes.extend_from_slice(slice));
        batch.advance(bytes.len() - before);
    }
    bytes
}

#[tokio::test]
async fn bad_frames_end_a_connection_with_a_reason() {
    let good = encoded(push(1, 100_000));
    assert_eq!(
        after_the_handshake(&good, false).await.unwrap(),
        push(1, 100_000)
    );

    let cut = after_the_handshake(&good[..good.len() / 2], true).await;
    assert!(matches!(cut, Err(Reason::Closed)), "{cut:?}");

    let mut corrupt = good.clone();
    *corrupt.last_mut().unwrap() ^= 1;
    let corrupt = after_the_handshake(&corrupt, false).await;
    assert!(
        matches!(corrupt, Err(Reason::Wire(WireError::Checksum))),
        "{corrupt:?}"
    );

    let mut huge = good[..HEADER_LEN].to_vec();
    huge[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let check = twox_hash::XxHash3_64::oneshot(&huge[4..]) as u32;
    huge[..4].copy_from_slice(&check.to_le_bytes());
    let huge = after_the_handshake(&huge, false).await;
    assert!(
        matches!(huge, Err(Reason::Wire(WireError::TooLong { length, .. })) if length == 1 << 60),
        "{huge:?}"
    );

    let garbage = after_the_handshake(&[0xa5; 64], false).await;
    assert!(
        matches!(garbage, Err(Reason::Wire(WireError::Header))),
        "{garbage:?}"
    );
}

#[tokio::test]
async fn another_protocol_or_version_is_named() {
    for (first, check) in [
        (
            b"GET / HTTP/1.1\r\n".to_vec(),
            (|e| matches!(e, WireError::NotOurs)) as fn(&WireError) -> bool,
        ),
        ([&worker().hello.encode()[..8], &[7, 0]].concat(), |e| {
            matches!(e, WireError::Version { found: 7 })
        }),
    ] {
        let mut listener = Tcp.listen("127.0.0.1:0", Arc::new(server())).await.unwrap();
        let mut raw = TcpStream::connect(listener.address()).await.unwrap();
        raw.write_all(&first).await.unwrap();
        let error = soon(listener.accept().await.unwrap()).await.unwrap_err();
        assert!(
            matches!(&error.reason, Reason::Wire(wire) if check(wire)),
            "{error}"
        );
        // The peer learns this node's version before the connection ends.
        let mut answer = [0; HELLO_LEN];
        soon(raw.read_exact(&mut answer)).await.unwrap();
        assert!(Hello::decode(&answer).is_ok());
    }
}

#[tokio::test]
async fn a_peer_that_says_nothing_does_not_wait_forever() {
    let patience = Local {
        handshake: Duration::from_millis(50),
        ..server()
    };
    let mut listener = Tcp.listen("127.0.0.1:0", Arc::new(patience)).await.unwrap();
    let silent = TcpStream::connect(listener.address()).await.unwrap();
    let waiting = listener.accept().await.unwrap();
    let error = soon(waiting).await.unwrap_err();
    assert!(matches!(error.reason, Reason::Slow(_)), "{error}");
    drop(silent);
}

/// Where a connected node is, as its peer says it in errors.
async fn seen_from<A: Transport, B: Transport>(connects: A, listens: B) -> String {
    let mut listener = listens
        .listen("127.0.0.1:0", Arc::new(server()))
        .await
        .unwrap();
    let address = listener.address();
    let accepted = async { listener.accept().await.unwrap().await };
    let (one, other) =
        soon(async { tokio::join!(connects.connect(&address, Arc::new(worker())), accepted) })
            .await;
    drop(one.unwrap());
    soon(other.unwrap().receiver.recv())
        .await
        .unwrap_err()
        .who
        .to_string()
}

#[tokio::test]
async fn nodes_on_one_machine_use_a_unix_socket_if_both_can() {
    assert_eq!(
        seen_from(Sockets, Sockets).await,
        "worker 2 at this machine"
    );
    for seen in [seen_from(Tcp, Sockets).await, seen_from(Sockets, Tcp).await] {
        assert!(seen.starts_with("worker 2 at 127.0.0.1:"), "{seen}");
    }
}
