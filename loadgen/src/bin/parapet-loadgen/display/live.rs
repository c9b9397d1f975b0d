//! A line on a terminal that is drawn again and again, from a thread of its own: drawing can wait
//! for the terminal, and requests must not wait for drawing.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

const PERIOD: Duration = Duration::from_millis(250);
/// Steps of a bar.
const STEPS: u64 = 1000;

/// State of a program in one line.
#[derive(Debug, PartialEq)]
pub(crate) struct Status {
    /// Share of the work that is done.
    pub(crate) share: f64,
    pub(crate) text: String,
}

/// Draws until dropped, then clears its line.
pub(crate) struct Live {
    notes: Notes,
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Messages beside the status.
#[derive(Clone)]
pub(crate) struct Notes {
    drawn: bool,
    newest: Arc<Mutex<&'static str>>,
}

impl Notes {
    /// Shows a message for good: before the status, or as a line of its own where none is drawn.
    pub(crate) fn say(&self, note: &'static str) {
        *self.newest.lock() = note;
        if !self.drawn {
            eprintln!("{note}");
        }
    }
}

impl Live {
    /// Begins to draw, if standard error is a terminal that can.
    pub(crate) fn start(render: impl FnMut() -> Status + Send + 'static) -> Self {
        let newest = Arc::default();
        let drawing = start(render, Arc::clone(&newest));
        let drawn = drawing.is_some();
        let notes = Notes { drawn, newest };
        Self { notes, drawing }
    }

    pub(crate) fn is_drawn(&self) -> bool {
        self.notes.drawn
    }

    pub(crate) fn notes(&self) -> Notes {
        self.notes.clone()
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

fn start(
    render: impl FnMut() -> Status + Send + 'static,
    note: Arc<Mutex<&'static str>>,
) -> Option<(Sender<()>, JoinHandle<()>)> {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let bar = ProgressBar::new(STEPS);
    if !able || bar.is_hidden() {
        return None;
    }
    bar.set_style(ProgressStyle::with_template("{bar:20} {percent} %  {wide_msg}").ok()?);
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::Builder::new().name("display".to_owned());
    let thread = thread
        .spawn(move || draw(&bar, render, &note, &stopped))
        .ok()?;
    Some((stop, thread))
}

fn draw(
    bar: &ProgressBar,
    mut render: impl FnMut() -> Status,
    note: &Mutex<&'static str>,
    stopped: &Receiver<()>,
) {
    loop {
        let status = render();
        bar.set_position((status.share * STEPS as f64) as u64);
        bar.set_message(with_note(*note.lock(), status.text));
        if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_shown_before_the_status() {
        assert_eq!(with_note("", "sent 3".to_owned()), "sent 3");
        assert_eq!(with_note("ending", "sent 3".to_owned()), "ending  sent 3");
    }
}
