//! Count of open connections, in all and for each peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Counts of a server's connections, to look at while it runs.
#[derive(Debug, Default)]
pub struct Connections {
    open: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Peers with open connections; never more than there are connections.
    peers: Mutex<HashMap<IpAddr, usize>>,
}

impl Connections {
    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Accepted since the start, those that were refused not among them.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closed at once, since their peer had its share.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn admit(self: &Arc<Self>, peer: Option<IpAddr>, limit: usize) -> Option<Place> {
        let peer = peer.map(network);
        if let Some(peer) = peer {
            let mut peers = self.peers.lock();
            let count = peers.entry(peer).or_insert(0);
            if *count >= limit.max(1) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            *count += 1;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Place { connections: Arc::clone(self), peer })
    }
}

#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    peer: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        let Some(peer) = self.peer else { return };
        let mut peers = self.connections.peers.lock();
        if let Some(count) = peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&peer);
            }
        }
    }
}

/// Returns the network that counts as one peer. The holder of an IPv6 network has 2^64 addresses.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(connections: &Arc<Connections>, peer: &str) -> Option<Place> {
        connections.admit(Some(peer.parse().unwrap()), 2)
    }

    #[test]
    fn a_peer_has_its_share_and_others_theirs() {
        let connections = Arc::new(Connections::default());
        let first = admit(&connections, "10.0.0.1");
        // The same address, however it is written.
        let second = admit(&connections, "::ffff:10.0.0.1");
        assert!(first.is_some() && second.is_some());
        assert!(admit(&connections, "10.0.0.1").is_none());
        let other = admit(&connections, "10.0.0.2");
        assert!(other.is_some());
        assert_eq!((connections.open(), connections.accepted()), (3, 3));
        assert_eq!(connections.refused(), 1);
        drop(first);
        assert!(admit(&connections, "10.0.0.1").is_some());
        drop((second, other));
        assert_eq!(connections.open(), 0);
        // Nothing is kept of peers that have gone.
        assert!(connections.peers.lock().is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let connections = Arc::new(Connections::default());
        let places = ["2001:db8::1", "2001:db8::2"].map(|peer| admit(&connections, peer));
        assert!(places.iter().all(Option::is_some));
        assert!(admit(&connections, "2001:db8:0:0:ffff::3").is_none());
        assert!(admit(&connections, "2001:db8:0:1::1").is_some());
    }
}
