//! Lines on a terminal that are drawn again and again, from a thread of its own: drawing can wait for the terminal, and
//! requests must not wait for drawing.
//!
//! The terminal keeps its mode, and its cursor is shown after each frame: however the program ends, nothing is to be
//! restored but the cursor's place, and Ctrl-C stays a signal.

use std::io::{self, IsTerminal, Stderr};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{Terminal, TerminalOptions, Viewport};

const PERIOD: Duration = Duration::from_millis(250);

/// Lines for a width, with or without colours.
pub(crate) type Render = Box<dyn FnMut(u16, bool) -> Vec<Line<'static>> + Send>;

/// Whether lines can be drawn. Standard output counts as well: the terminal is asked through it where the cursor is, and
/// a file that it goes to must not get that question.
fn is_terminal() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    able && io::stderr().is_terminal() && io::stdout().is_terminal()
}

/// See <https://no-color.org>.
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Draws until dropped, then clears its lines.
pub(crate) struct Live {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Begins to draw `height` lines, if there is a terminal that can.
    pub(crate) fn start(height: u16, render: Render) -> Option<Self> {
        if !is_terminal() {
            return None;
        }
        let options = TerminalOptions { viewport: Viewport::Inline(height) };
        let terminal = Terminal::with_options(CrosstermBackend::new(io::stderr()), options).ok()?;
        let (stop, stopped) = mpsc::channel();
        let draw = move || draw(terminal, render, &stopped);
        let thread = std::thread::Builder::new().name("display".to_owned()).spawn(draw).ok()?;
        Some(Self { stop: Some(stop), thread: Some(thread) })
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

fn draw(mut terminal: Terminal<CrosstermBackend<Stderr>>, mut render: Render, stopped: &mpsc::Receiver<()>) {
    let colours = colours();
    loop {
        let frame = terminal.draw(|frame| {
            let lines = render(frame.area().width, colours);
            frame.render_widget(Paragraph::new(lines), frame.area());
        });
        // A terminal that is gone is drawn on no more; the run goes on.
        if frame.is_err() || terminal.show_cursor().is_err() {
            return;
        }
        if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
            let _ = terminal.clear();
            return;
        }
    }
}
