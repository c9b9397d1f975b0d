//! Progress on standard error, and Ctrl-C.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use parapet_loadgen::simulate::{Progress, Setup, Simulated, Simulation, Simulator};
use parking_lot::Mutex;

use crate::display::{Live, SimulateState};
use crate::interrupt::Interrupts;
use crate::outcome::{Error, failed};

const PERIOD: Duration = Duration::from_secs(1);
const ENDING: &str = "ending: the report is partial";

/// Shows progress: a bar on a terminal, a line each second elsewhere.
pub(crate) struct Watch {
    stopped: Arc<AtomicBool>,
    state: Arc<Mutex<SimulateState>>,
    live: Live,
    shown: Instant,
}

impl Watch {
    /// Listens for Ctrl-C and SIGTERM, on a thread that ends with the program, and begins
    /// to show progress.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(SimulateState::default()));
        let drawn = Arc::clone(&state);
        let live = Live::start(move || drawn.lock().status());
        let (stop, notes) = (Arc::clone(&stopped), live.notes());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime that listens for Ctrl-C")?;
        let mut interrupts = {
            let _context = runtime.enter();
            Interrupts::listen()?
        };
        let wait = move || {
            runtime.block_on(interrupts.next());
            notes.say(ENDING);
            stop.store(true, Ordering::Relaxed);
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .context("cannot start the thread that listens for Ctrl-C")?;
        Ok(Self {
            stopped,
            state,
            live,
            shown: Instant::now(),
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The simulation of a setup's strategies begins; `title` tells it from others.
    pub(crate) fn restart(&self, title: String, setup: &Setup) {
        let names = setup
            .strategies
            .iter()
            .map(|strategy| strategy.name.clone());
        *self.state.lock() = SimulateState::new(title, names);
    }

    /// Simulates the next strategy. Ctrl-C breaks it off.
    pub(crate) fn simulate(&mut self, simulation: Simulation) -> Result<Simulated, Error> {
        let simulator = Simulator::new(simulation).map_err(failed)?;
        self.state.lock().begin();
        Ok(simulator.run(|progress| self.observe(progress)))
    }

    fn observe(&mut self, progress: Progress) -> ControlFlow<()> {
        let mut state = self.state.lock();
        state.observe(progress);
        if !self.live.is_drawn() && self.shown.elapsed() >= PERIOD {
            self.shown = Instant::now();
            let Progress {
                planned,
                sent,
                elapsed_s,
                p99_ms,
            } = progress;
            let name = state.name();
            // The reader may be gone; the simulation goes on.
            let _ = writeln!(
                std::io::stderr(),
                "{name}: simulated {sent}/{planned}  {elapsed_s:.1} s of virtual time  p99 \
                 {p99_ms:.1} ms"
            );
        }
        drop(state);
        if self.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
