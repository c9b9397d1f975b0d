//! Progress on standard error: a bar on a terminal, a line each tenth of the way elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const LINES: usize = 10;
/// Shorter phases of a command get no line in the log.
const QUIET: Duration = Duration::from_secs(2);
const TEMPLATE: &str = "{prefix} [{bar:30}] {percent:>3}%  {msg}  {eta} left";

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: &'static str,
    tenths: usize,
    quiet: Duration,
}

impl Progress {
    pub(crate) fn of_steps(name: &str) -> Self {
        Self { quiet: Duration::ZERO, ..Self::new(name, "step") }
    }

    pub(crate) fn new(name: &str, unit: &'static str) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE);
        let bar = ProgressBar::new(0)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix(name.to_owned())
            .with_message(unit);
        Self { bar, unit, tenths: 0, quiet: QUIET }
    }

    pub(crate) fn at(&mut self, done: usize, count: usize) {
        let tenths = done * LINES / count.max(1);
        if self.bar.is_hidden() && tenths > self.tenths && self.bar.elapsed() >= self.quiet {
            let (name, unit, message) = (self.bar.prefix(), self.unit, self.bar.message());
            let message = if message == unit { "" } else { &message };
            eprintln!("{name}: {unit} {done}/{count}  {message}");
        }
        self.tenths = tenths;
        self.bar.set_length(count as u64);
        self.bar.set_position(done as u64);
    }

    /// Shows `figures` from the next step on.
    pub(crate) fn figures(&self, figures: String) {
        self.bar.set_message(figures);
    }

    /// Tells something besides, above the bar if there is one.
    pub(crate) fn tell(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Tells something besides, where no bar is drawn.
    pub(crate) fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        }
    }

    pub(crate) fn finish(self) {
        match self.quiet {
            Duration::ZERO => self.bar.finish(),
            _ => self.bar.finish_and_clear(),
        }
    }
}
