//! Progress on standard error: a bar on a terminal, a line each second elsewhere.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parapet_loadgen::run::{Progress, Snapshot};
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_secs(1);
const TEMPLATE: &str = "[{bar:30}] {percent:>3}%  {msg}";

/// Shows `progress` each second, for ever.
pub(crate) async fn show(progress: &Progress) -> Infallible {
    let bar = ProgressBar::new(progress.snapshot().planned as u64);
    bar.set_style(ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let _clear = ClearOnDrop(&bar);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let snapshot = progress.snapshot();
        if bar.is_hidden() {
            let (sent, planned) = (snapshot.sent, snapshot.planned);
            // Nobody may be reading; the run goes on.
            let _ = writeln!(std::io::stderr(), "sent {sent}/{planned}  {}", message(&snapshot));
        } else {
            bar.set_position(snapshot.sent as u64);
            bar.set_message(message(&snapshot));
        }
    }
}

fn message(snapshot: &Snapshot) -> String {
    let Snapshot { answered, without_answer, p99, .. } = snapshot;
    let p99_ms = p99.as_secs_f64() * 1e3;
    format!("answered {answered}  failed or timed out {without_answer}  p99 {p99_ms:.1} ms")
}

struct ClearOnDrop<'a>(&'a ProgressBar);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
