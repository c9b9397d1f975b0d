//! Connections within a process.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::connection::{Halves, handshake};
use super::{Connection, Handshake, Listener, Local, Reason, Transport, TransportError};

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// Bytes under way in each direction.
const BUFFER: usize = 64 * 1024;

/// A network of its own within a process; clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    listeners: Arc<Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>>>,
}

impl Transport for Memory {
    type Listener = MemoryListener;

    async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<MemoryListener, TransportError> {
        let mut listeners = self.listeners.lock();
        let earlier = listeners.get(address);
        if earlier.is_some_and(|listener| !listener.is_closed()) {
            return Err(Reason::Listen(ErrorKind::AddrInUse.into()).at(address));
        }
        let (sender, inbox) = mpsc::channel(BACKLOG);
        listeners.insert(address.into(), sender);
        Ok(MemoryListener {
            inbox,
            address: address.into(),
            local,
        })
    }

    async fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Connection, TransportError> {
        let refused = || Reason::Connect(ErrorKind::ConnectionRefused.into()).at(address);
        let listener = self.listeners.lock().get(address).cloned();
        let (own, other) = tokio::io::duplex(BUFFER);
        let sent = listener.ok_or_else(refused)?.send(other).await;
        sent.map_err(|_| refused())?;
        handshake(own, Halves::of_memory, address, &local).await
    }
}

/// Takes connections within the process.
pub struct MemoryListener {
    inbox: mpsc::Receiver<DuplexStream>,
    address: String,
    local: Arc<Local>,
}

impl Listener for MemoryListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<Handshake, TransportError> {
        let stream = self.inbox.recv().await;
        let stream = stream.ok_or_else(|| Reason::Closed.at(&self.address))?;
        let (address, local) = (self.address.clone(), Arc::clone(&self.local));
        let shaking = async move { handshake(stream, Halves::of_memory, &address, &local).await };
        Ok(shaking.boxed())
    }
}
