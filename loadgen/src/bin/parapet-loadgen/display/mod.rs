//! Progress on standard error: a line drawn again and again on a terminal, plain lines elsewhere.

mod compare;
mod live;
mod run;
mod simulate;

pub(crate) use compare::CompareState;
pub(crate) use live::{Live, Notes, Status};
pub(crate) use run::run_status;
pub(crate) use simulate::SimulateState;

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use parapet_loadgen::run::Progress;
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_secs(1);

/// Writes a line on `progress` each second, for ever.
pub(crate) async fn plain(progress: &Progress) -> Infallible {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let snapshot = progress.snapshot();
        let p99_ms = milliseconds(snapshot.p99);
        // The reader may be gone; the run goes on.
        let _ = writeln!(
            std::io::stderr(),
            "sent {}/{}  answered {}  failed or timed out {}  p99 {p99_ms} ms",
            snapshot.sent,
            snapshot.planned,
            snapshot.answered,
            snapshot.without_answer
        );
    }
}

/// Three figures or so: what fits a column, and what can be read in passing.
fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}
