//! Progress of simulations on standard error, and Ctrl-C.

use std::ops::ControlFlow;
use std::sync::Arc;

use parapet_loadgen::run::Stop;
use parapet_loadgen::simulate::{Progress, Simulated, Simulation, Simulator};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio_util::task::AbortOnDropHandle;

use crate::live::{Live, Status, stop_on_interrupt};
use crate::run::runtime;

const ENDING: &str = "ending: the report is partial";

pub(crate) struct Watch {
    stop: Stop,
    shown: Arc<Mutex<(String, Progress)>>,
    _live: Live,
    _interrupts: AbortOnDropHandle<()>,
    _runtime: Runtime,
}

impl Watch {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (stop, shown) = (Stop::default(), Arc::default());
        let drawn: Arc<Mutex<(String, Progress)>> = Arc::clone(&shown);
        let live = Live::start(true, move || status(&drawn.lock()));
        let runtime = runtime(1)?;
        let interrupts = {
            let _context = runtime.enter();
            stop_on_interrupt(&stop, &live.notes, ENDING)?
        };
        Ok(Self {
            stop,
            shown,
            _live: live,
            _interrupts: interrupts,
            _runtime: runtime,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.sending.is_cancelled()
    }

    pub(crate) fn simulate(
        &self,
        name: String,
        simulation: Simulation,
    ) -> anyhow::Result<Simulated> {
        let simulator = Simulator::new(simulation)?;
        *self.shown.lock() = (name, Progress::default());
        Ok(simulator.run(|progress| {
            self.shown.lock().1 = progress;
            match self.is_stopped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }))
    }
}

fn status((name, progress): &(String, Progress)) -> Status {
    let Progress {
        planned,
        sent,
        elapsed_s,
        p99_ms,
    } = *progress;
    let text = format!(
        "{name}: simulated {sent}/{planned}  {elapsed_s:.1} s of virtual time  p99 {p99_ms:.1} ms"
    );
    Status::new(sent, planned, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_the_simulation_and_its_share() {
        let progress = Progress {
            planned: 2000,
            sent: 1000,
            elapsed_s: 98_765.43,
            p99_ms: 1234.5,
        };
        let text = "point 3 of 16: coded: simulated 1000/2000  98765.4 s of virtual time  p99 \
            1234.5 ms";
        let text = text.to_owned();
        let shown = ("point 3 of 16: coded".to_owned(), progress);
        assert_eq!(status(&shown), Status { share: 0.5, text });
    }
}
