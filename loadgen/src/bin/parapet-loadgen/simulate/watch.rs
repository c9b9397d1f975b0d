//! Progress on standard error, and Ctrl-C.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use parapet_loadgen::simulate::Progress;
use tokio::signal::unix::{SignalKind, signal};

const PERIOD: Duration = Duration::from_secs(1);
const TEMPLATE: &str = "{prefix} [{bar:30}] {percent:>3}%  {msg}";

/// Shows progress each second: a bar on a terminal, a line elsewhere.
pub(super) struct Watch {
    stopped: Arc<AtomicBool>,
    bar: ProgressBar,
    shown: Instant,
}

impl Watch {
    /// Listens for Ctrl-C and SIGTERM, on a thread that ends with the program.
    pub(super) fn new() -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime that listens for Ctrl-C")?;
        let (mut interrupts, mut terminations) = {
            let _context = runtime.enter();
            let listen = |kind| signal(kind).context("cannot listen for Ctrl-C");
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        let wait = move || {
            runtime.block_on(async {
                tokio::select! { _ = interrupts.recv() => {}, _ = terminations.recv() => {} }
            });
            stop.store(true, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("cannot start the thread that listens for Ctrl-C")?;
        Ok(Self { stopped, bar: ProgressBar::hidden(), shown: Instant::now() })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The simulation of a strategy begins.
    pub(super) fn begin(&mut self, strategy: &str, queries: u64) {
        self.end();
        self.bar = ProgressBar::new(queries).with_prefix(strategy.to_owned());
        let style = ProgressStyle::with_template(TEMPLATE);
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    /// Shows how far it is, and says whether to go on.
    pub(super) fn look(&mut self, progress: &Progress) -> ControlFlow<()> {
        if self.shown.elapsed() >= PERIOD {
            self.shown = Instant::now();
            let Progress { planned, sent, elapsed_s, p99_ms } = *progress;
            let message = format!("{elapsed_s:.1} s of virtual time  p99 {p99_ms:.1} ms");
            if self.bar.is_hidden() {
                let strategy = self.bar.prefix();
                // Nobody may be reading; the simulation goes on.
                let _ = writeln!(std::io::stderr(), "{strategy}: simulated {sent}/{planned}  {message}");
            } else {
                self.bar.set_position(sent);
                self.bar.set_message(message);
            }
        }
        if self.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
