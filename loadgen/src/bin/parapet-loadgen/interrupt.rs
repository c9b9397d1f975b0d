//! Ctrl-C and SIGTERM, which end a command in the same way: with a report of what there is.

use anyhow::Context as _;
use parapet_loadgen::run::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::display::Notes;

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

/// Ends sending at the first signal, which `ending` announces, and waiting at the second.
pub(crate) fn stop_on_interrupt(
    stop: &Stop,
    notes: Notes,
    ending: &'static str,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let (stop, mut interrupts) = (stop.clone(), Interrupts::listen()?);
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        interrupts.next().await;
        notes.say(ending);
        stop.sending.cancel();
        interrupts.next().await;
        stop.waiting.cancel();
    })))
}
