//! Progress on standard error, from a thread of its own: writing can wait for the terminal, and
//! requests must not wait for it. And signals, which end a command with a report of what there is.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use parapet_loadgen::run::Stop;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

const BAR_PERIOD: Duration = Duration::from_millis(250);
const LINE_PERIOD: Duration = Duration::from_secs(1);
const STEPS: u64 = 1000;

#[derive(Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) share: f64,
    pub(crate) text: String,
}

impl Status {
    pub(crate) fn new(done: u64, planned: u64, text: String) -> Self {
        let share = done as f64 / planned.max(1) as f64;
        Self { share, text }
    }
}

/// Shows the status until dropped: as a bar on a terminal, otherwise as a line each second.
pub(crate) struct Live {
    pub(crate) notes: Notes,
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Clone)]
pub(crate) struct Notes {
    bar: Option<ProgressBar>,
    newest: Arc<Mutex<&'static str>>,
}

impl Notes {
    /// Shows a message for good: before the status, or as a line of its own where no bar is drawn.
    fn say(&self, note: &'static str) {
        *self.newest.lock() = note;
        self.log(note);
    }

    pub(crate) fn log(&self, line: &str) {
        if self.bar.is_none() {
            // The reader may be gone; the work goes on.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

impl Live {
    /// Shows `status` as a bar, or as `lines`; without these the caller logs lines itself.
    pub(crate) fn start(lines: bool, status: impl FnMut() -> Status + Send + 'static) -> Self {
        let (bar, newest) = (terminal_bar(), Arc::default());
        let notes = Notes { bar, newest };
        let mut drawing = None;
        if lines || notes.bar.is_some() {
            let (stop, stopped) = mpsc::channel();
            let shown = notes.clone();
            let thread = std::thread::Builder::new().name("display".to_owned());
            let thread = thread.spawn(move || draw(&shown, status, &stopped));
            drawing = thread.ok().map(|thread| (stop, thread));
        }
        Self { notes, drawing }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            // A display that failed has nothing to clear.
            let _ = thread.join();
        }
    }
}

fn terminal_bar() -> Option<ProgressBar> {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let bar = ProgressBar::new(STEPS);
    if !able || bar.is_hidden() {
        return None;
    }
    bar.set_style(ProgressStyle::with_template("{bar:20} {percent} %  {wide_msg}").ok()?);
    Some(bar)
}

fn draw(notes: &Notes, mut status: impl FnMut() -> Status, stopped: &Receiver<()>) {
    let is_over = |period| stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout);
    let Some(bar) = &notes.bar else {
        while !is_over(LINE_PERIOD) {
            notes.log(&status().text);
        }
        return;
    };
    loop {
        let Status { share, text } = status();
        bar.set_position((share * STEPS as f64) as u64);
        bar.set_message(with_note(*notes.newest.lock(), text));
        if is_over(BAR_PERIOD) {
            bar.finish_and_clear();
            return;
        }
    }
}

fn with_note(note: &str, text: String) -> String {
    match note {
        "" => text,
        note => format!("{note}  {text}"),
    }
}

/// Three figures or so: what fits a column, and what can be read in passing.
pub(crate) fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Ends sending at the first Ctrl-C or SIGTERM, which `ending` announces, and waiting at the
/// second. Called within a runtime.
pub(crate) fn stop_on_interrupt(
    stop: &Stop,
    notes: &Notes,
    ending: &'static str,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let (stop, notes) = (stop.clone(), notes.clone());
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        notes.say(ending);
        stop.sending.cancel();
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        stop.waiting.cancel();
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_shown_before_the_status() {
        let text = || "sent 3".to_owned();
        assert_eq!(with_note("", text()), "sent 3");
        assert_eq!(with_note("ending", text()), "ending  sent 3");
    }
}
