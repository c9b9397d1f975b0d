//! Ctrl-C and SIGTERM, which end a command in the same way: with a report of what there is.

use anyhow::Context as _;
use parapet_loadgen::run::Stop;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::display::Notes;

/// Ends sending at the first signal, which `ending` announces, and waiting at the second. Called
/// within a runtime.
pub(crate) fn stop_on_interrupt(
    stop: &Stop,
    notes: Notes,
    ending: &'static str,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let stop = stop.clone();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        notes.say(ending);
        stop.sending.cancel();
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        stop.waiting.cancel();
    })))
}
