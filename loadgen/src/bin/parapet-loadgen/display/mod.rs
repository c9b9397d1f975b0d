//! Progress on standard error: a line drawn again and again on a terminal, plain lines elsewhere.

mod compare;
mod live;
mod run;

pub(crate) use compare::CompareState;
pub(crate) use live::{Live, Notes, Status};
pub(crate) use run::run_status;

use std::time::Duration;

/// Three figures or so: what fits a column, and what can be read in passing.
fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}
