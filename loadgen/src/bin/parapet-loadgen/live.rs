//! Progress on standard error, and signals, which end a command with a report of what there is.

use std::cell::Cell;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use parapet_loadgen::run::Stop;
use parapet_loadgen::simulate::{Simulated, Simulation, Simulator};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::runtime;

const PERIOD: Duration = Duration::from_secs(1);
const ENDING: &str = "ending: the report is partial";

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

/// Runs simulations with progress, until a signal stops them.
pub(crate) struct Watch {
    stop: Stop,
    /// When a line of progress was shown, of whatever simulation.
    shown: Cell<Instant>,
    _interrupts: AbortOnDropHandle<()>,
    _runtime: Runtime,
}

impl Watch {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (stop, runtime) = (Stop::default(), runtime(1)?);
        let interrupts = {
            let _context = runtime.enter();
            stop_on_interrupt(&stop, ENDING)?
        };
        Ok(Self {
            stop,
            shown: Cell::new(Instant::now()),
            _interrupts: interrupts,
            _runtime: runtime,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.sending.is_cancelled()
    }

    pub(crate) fn simulate(&self, name: &str, simulation: Simulation) -> anyhow::Result<Simulated> {
        let queries = simulation.experiment.requests;
        let simulator = Simulator::new(simulation)?;
        Ok(simulator.run(|sent| {
            if self.shown.get().elapsed() >= PERIOD {
                self.shown.set(Instant::now());
                log(&format!("{name}: simulated {sent}/{queries}"));
            }
            match self.is_stopped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }))
    }
}
