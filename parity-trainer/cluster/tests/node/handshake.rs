//! The handshake that two nodes begin with.

use parapet_cluster::node::wire::{HELLO_LEN, Hello, PREFIX_LEN, VERSION, WireError};
use parapet_parameter_server::{NodeId, Peer, WorkerId};

use crate::wire::MAX_FRAME;

pub(crate) fn hello(peer: Peer) -> Hello {
    Hello { peer, cluster: "test".into(), max_frame: MAX_FRAME }
}

#[test]
fn handshake_survives() {
    for (peer, cluster, kept) in [
        (Peer::Worker(WorkerId(7)), String::new(), String::new()),
        (Peer::Server(NodeId(u64::MAX)), "größe".into(), "größe".into()),
        (Peer::Server(NodeId(u64::MAX)), "ö".repeat(40), "ö".repeat(32)),
    ] {
        let sent = Hello { peer, cluster, max_frame: u64::MAX };
        let received = Hello::decode(&sent.encode()).unwrap();
        assert_eq!(sent.accept(&received), Ok(()));
        assert_eq!((received.peer, received.cluster), (peer, kept));
    }
}

#[test]
fn handshakes_that_do_not_fit_are_told_apart() {
    let own = hello(Peer::Worker(WorkerId(7)));
    let good = own.encode();
    let mut damaged = good;
    damaged[12] = 9;
    assert_eq!(Hello::decode(&damaged), Err(WireError::Handshake));
    let prefix = |at: usize, byte: u8| {
        let mut prefix: [u8; PREFIX_LEN] = good[..PREFIX_LEN].try_into().unwrap();
        prefix[at] = byte;
        Hello::check_prefix(&prefix)
    };
    assert_eq!(prefix(0, b'G'), Err(WireError::NotOurs));
    let other = VERSION as u8 + 1;
    assert_eq!(prefix(8, other), Err(WireError::Version { found: other.into() }));
    assert_eq!(prefix(9, 0), Ok(()));
    assert_eq!(Hello::check_prefix(b"GET / HTTP"), Err(WireError::NotOurs));
    let letters = Hello { cluster: "letters".into(), ..own.clone() };
    let error = WireError::Cluster { found: "letters".into(), own: "test".into() };
    assert_eq!(own.accept(&letters), Err(error));
    let small = Hello { max_frame: 1, ..own.clone() };
    let error = WireError::FrameLimit { found: 1, own: MAX_FRAME };
    assert_eq!(own.accept(&small), Err(error));
    assert_eq!(u16::from_le_bytes([good[8], good[9]]), VERSION);
    assert_eq!(good.len(), HELLO_LEN);
}
