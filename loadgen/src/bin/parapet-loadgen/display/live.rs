//! A line on a terminal that is drawn again and again, from a thread of its own: drawing can wait
//! for the terminal, and requests must not wait for drawing.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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

pub(crate) type Render = Box<dyn FnMut() -> Status + Send>;

/// Draws until dropped, then clears its line.
pub(crate) struct Live {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Begins to draw, if standard error is a terminal that can.
    pub(crate) fn start(render: Render) -> Option<Self> {
        let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let bar = ProgressBar::new(STEPS);
        if !able || bar.is_hidden() {
            return None;
        }
        bar.set_style(ProgressStyle::with_template("{bar:20} {percent} %  {wide_msg}").ok()?);
        let (stop, stopped) = mpsc::channel();
        let draw = move || draw(&bar, render, &stopped);
        let thread = std::thread::Builder::new()
            .name("display".to_owned())
            .spawn(draw)
            .ok()?;
        Some(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A display that failed has nothing to clear.
            let _ = thread.join();
        }
    }
}

fn draw(bar: &ProgressBar, mut render: Render, stopped: &mpsc::Receiver<()>) {
    loop {
        let status = render();
        bar.set_position((status.share * STEPS as f64) as u64);
        bar.set_message(status.text);
        if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
            bar.finish_and_clear();
            return;
        }
    }
}
