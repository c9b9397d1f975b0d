//! The meters of the server itself.

use metrics::{Counter, Gauge, counter, gauge};
use parapet_net::server::{BodyMemory, Connections};

use super::names::{BODY_BYTES, CONNECTIONS, CONNECTIONS_OPEN, CONNECTIONS_REFUSED, RELOADS};

/// The server's own meters.
#[derive(Debug)]
pub struct ServerMeters {
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    body_bytes: Gauge,
    reloads: [Counter; 2],
}

impl ServerMeters {
    pub(super) fn new() -> Self {
        Self {
            open: gauge!(CONNECTIONS_OPEN),
            accepted: counter!(CONNECTIONS),
            refused: counter!(CONNECTIONS_REFUSED),
            body_bytes: gauge!(BODY_BYTES),
            reloads: ["refused", "taken"].map(|outcome| counter!(RELOADS, "outcome" => outcome)),
        }
    }

    /// The configuration was read again; `taken` if it was sound.
    pub fn reloaded(&self, taken: bool) {
        let [refused, done] = &self.reloads;
        if taken {
            done.increment(1)
        } else {
            refused.increment(1)
        }
    }

    /// Publishes what is open and held.
    pub fn publish(&self, connections: &Connections, bodies: &BodyMemory) {
        self.open.set(connections.open() as f64);
        self.accepted.absolute(connections.accepted());
        self.refused.absolute(connections.refused());
        self.body_bytes.set(bodies.held() as f64);
    }
}
