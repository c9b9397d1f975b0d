//! Progress on standard error, and signals, which end a command with a report of what there is.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::Context;
use parapet_loadgen::run::Stop;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

const PERIOD: Duration = Duration::from_secs(1);

pub(crate) fn log(line: &str) {
    // The reader may be gone; the work goes on.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Shows `status` as a line each second, until what is returned is dropped. A thread of its own:
/// writing can wait for the terminal, and requests must not wait for it.
#[must_use]
pub(crate) fn show_progress(mut status: impl FnMut() -> String + Send + 'static) -> Sender<()> {
    let (shown, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("progress".to_owned());
    // Without the thread nothing is shown; the work goes on.
    let _ = thread.spawn(move || {
        while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            log(&status());
        }
    });
    shown
}

/// Ends sending at the first Ctrl-C or SIGTERM, which `ending` announces, and waiting at the
/// second. Called within a runtime.
pub(crate) fn stop_on_interrupt(
    stop: &Stop,
    ending: &'static str,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let stop = stop.clone();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        log(ending);
        stop.sending.cancel();
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        stop.waiting.cancel();
    })))
}
