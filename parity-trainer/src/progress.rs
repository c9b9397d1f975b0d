//! Progress on standard error: a bar on a terminal, a line each tenth of the run elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parity_trainer::StepReport;
use parity_trainer::run::LogRecord;

/// Weight of the newest step in the smoothed figures.
const NEWEST: f64 = 0.05;
const LINES: usize = 10;
/// Shorter phases get no line in the log.
const QUIET: Duration = Duration::from_secs(2);
const TEMPLATE: &str = "{prefix} [{bar:30}] {percent:>3}%  {msg}  {eta} left";

fn bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE);
    ProgressBar::new(0)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(name.to_owned())
}

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Name of [`StepReport::agreement`].
    rate: &'static str,
    begun: Instant,
    /// Steps that an earlier process did.
    before: u64,
    loss: f64,
    agreement: f64,
}

impl Progress {
    pub(crate) fn new(name: &str, rate: &'static str, before: u64) -> Self {
        Self {
            bar: bar(name),
            rate,
            begun: Instant::now(),
            before,
            loss: f64::NAN,
            agreement: f64::NAN,
        }
    }

    /// Shows a step, and returns its record, loss and agreement smoothed.
    pub(crate) fn step(&mut self, report: &StepReport) -> LogRecord {
        self.loss = smoothed(self.loss, report.loss);
        self.agreement = smoothed(self.agreement, report.agreement);
        let steps = report.step.saturating_sub(self.before as usize).max(1);
        let seconds = self.begun.elapsed().as_secs_f64();
        let rows = (report.rows / report.step.max(1) * steps) as f64;
        let record = LogRecord {
            step: report.step as u64,
            epoch: report.epoch,
            loss: self.loss,
            learning_rate: report.learning_rate,
            gradient_norm: report.gradient_norm,
            agreement: self.agreement,
            validation_agreement: report.validation.map(|validation| validation.agreement),
            validation_loss: report.validation.map(|validation| validation.loss),
            rows_per_second: rows / seconds.max(1e-9),
        };
        let message = || {
            let (percent, rows) = (100.0 * record.agreement, record.rows_per_second);
            let (loss, rate) = (record.loss, self.rate);
            format!("loss {loss:.4}  {rate} {percent:.1} %  {rows:.0} rows/s")
        };
        let tenth = |step: usize| step * LINES / report.steps.max(1);
        if !self.bar.is_hidden() {
            self.bar.set_length(report.steps as u64);
            self.bar.set_position(report.step as u64);
            self.bar.set_message(message());
        } else if tenth(report.step) > tenth(report.step - 1) {
            let left = seconds * (report.steps - report.step) as f64 / steps as f64;
            let (name, message) = (self.bar.prefix(), message());
            let (step, steps) = (report.step, report.steps);
            eprintln!("{name}: step {step}/{steps}  {message}  {left:.0} s left");
        }
        record
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
        self.bar.finish();
    }
}

#[derive(Debug)]
pub(crate) struct Counter {
    bar: ProgressBar,
    tenths: usize,
    what: &'static str,
}

impl Counter {
    pub(crate) fn new(name: &str, what: &'static str) -> Self {
        let bar = bar(name).with_message(what);
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
