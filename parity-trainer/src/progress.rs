//! Progress on standard error: a bar on a terminal, a line each tenth of the run elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parity_trainer::StepReport;

/// Weight of the newest step in the smoothed figures.
const NEWEST: f64 = 0.05;
const LINES: usize = 10;
/// Shorter phases get no line in the log.
const QUIET: Duration = Duration::from_secs(2);
const TEMPLATE: &str = "{prefix} [{bar:30}] {percent:>3}%  {msg}  {eta} left";

/// Shows a training run's progress.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    rate: &'static str,
    begun: Instant,
    /// Steps that were done before.
    before: u64,
    loss: f64,
    agreement: f64,
}

impl Progress {
    /// For the model `name`; `rate` names what [`StepReport::agreement`] is. `before` steps
    /// were done before.
    pub(crate) fn new(name: &str, rate: &'static str, before: u64) -> Self {
        let bar = ProgressBar::new(0);
        bar.set_style(
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(name.to_owned());
        Self {
            bar,
            rate,
            begun: Instant::now(),
            before,
            loss: f64::NAN,
            agreement: f64::NAN,
        }
    }

    /// Takes one step's figures in.
    pub(crate) fn step(&mut self, report: StepReport) {
        self.loss = smoothed(self.loss, report.loss);
        self.agreement = smoothed(self.agreement, report.agreement);
        let steps = report.step.saturating_sub(self.before as usize).max(1);
        let rows_per_second = (report.rows / report.step.max(1) * steps) as f64
            / self.begun.elapsed().as_secs_f64().max(1e-9);
        let figures = || {
            let percent = 100.0 * self.agreement;
            format!(
                "loss {:.4}  {} {percent:.1} %  {rows_per_second:.0} rows/s",
                self.loss, self.rate
            )
        };
        if self.bar.is_hidden() {
            let tenth = |step: usize| step * LINES / report.steps.max(1);
            if tenth(report.step) > tenth(report.step - 1) {
                let left = self.begun.elapsed().as_secs_f64() * (report.steps - report.step) as f64
                    / steps as f64;
                eprintln!(
                    "{}: step {}/{}  {}  {left:.0} s left",
                    self.bar.prefix(),
                    report.step,
                    report.steps,
                    figures()
                );
            }
            return;
        }
        self.bar.set_length(report.steps as u64);
        self.bar.set_position(report.step as u64);
        self.bar.set_message(figures());
    }

    /// Tells something besides, above the bar if there is one.
    pub(crate) fn tell(&self, line: &str) {
        match self.bar.is_hidden() {
            true => eprintln!("{line}"),
            false => self.bar.println(line),
        }
    }

    /// Tells something besides, where no bar is drawn.
    pub(crate) fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        }
    }

    /// Ends the bar and leaves its last figures on the screen.
    pub(crate) fn finish(self) {
        self.bar.finish();
    }
}

/// Counts something up to a known end.
#[derive(Debug)]
pub(crate) struct Counter {
    bar: ProgressBar,
    tenths: usize,
    what: &'static str,
}

impl Counter {
    pub(crate) fn new(name: &str, what: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        bar.set_style(
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(name.to_owned());
        bar.set_message(what);
        Self {
            bar,
            tenths: 0,
            what,
        }
    }

    pub(crate) fn at(&mut self, done: usize, count: usize) {
        let tenths = done * LINES / count.max(1);
        if self.bar.is_hidden() && tenths > self.tenths && self.bar.elapsed() >= QUIET {
            eprintln!("{}: {done}/{count} {}", self.bar.prefix(), self.what);
        }
        self.tenths = tenths;
        self.bar.set_length(count as u64);
        self.bar.set_position(done as u64);
    }

    /// Ends the bar.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

fn smoothed(before: f64, newest: f64) -> f64 {
    if before.is_nan() {
        newest
    } else {
        before + NEWEST * (newest - before)
    }
}
