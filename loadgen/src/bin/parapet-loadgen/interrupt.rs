//! Ctrl-C and SIGTERM, which end a command in the same way: with a report of what there is.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for both from when it is made.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen. Within a runtime.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind, name| signal(kind).with_context(|| format!("cannot listen for {name}"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt(), "Ctrl-C")?,
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
        })
    }

    /// Waits for the next of either.
    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.interrupt.recv() => {}, _ = self.terminate.recv() => {} }
    }
}
