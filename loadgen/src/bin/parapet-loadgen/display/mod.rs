//! Progress on standard error: a few lines drawn again and again on a terminal, plain lines elsewhere.

mod compare;
mod live;
mod run;
mod simulate;

pub(crate) use compare::{CompareState, compare_height, compare_lines};
pub(crate) use live::Live;
pub(crate) use run::{RUN_HEIGHT, RunView, run_lines};

pub(crate) use simulate::{SimulateState, simulate_height, simulate_lines};

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use parapet_loadgen::run::Progress;
use ratatui::style::{Color, Modifier, Style};
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_secs(1);

/// Writes a line on `progress` each second, for ever.
pub(crate) async fn plain(progress: &Progress) -> Infallible {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let snapshot = progress.snapshot();
        let p99_ms = milliseconds(snapshot.p99);
        // Nobody may be reading; the run goes on.
        let _ = writeln!(
            std::io::stderr(),
            "sent {}/{}  answered {}  failed or timed out {}  p99 {p99_ms} ms",
            snapshot.sent,
            snapshot.planned,
            snapshot.answered,
            snapshot.without_answer
        );
    }
}

/// Three figures or so: what fits a column, and what can be read in passing.
fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

const LONGEST_NAME: usize = 32;

/// A name that takes exactly `room` columns.
fn fitted(name: &str, room: usize) -> String {
    if name.chars().count() > room {
        return name.chars().take(room.saturating_sub(1)).chain(['…']).collect();
    }
    format!("{name:<room$}")
}

/// How what matters most is set off; without colours, by weight alone.
fn emphasis(colours: bool) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if colours { bold.fg(Color::Cyan) } else { bold }
}

/// How what is wrong is set off.
fn alarm(colours: bool) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if colours { bold.fg(Color::Red) } else { bold }
}

#[cfg(test)]
fn screen(width: u16, lines: Vec<ratatui::text::Line<'static>>) -> (Vec<String>, ratatui::buffer::Buffer) {
    use ratatui::{Terminal, backend::TestBackend, widgets::Paragraph};
    for line in &lines {
        assert!(line.width() <= usize::from(width), "{line:?} is wider than {width}");
    }
    let mut terminal = Terminal::new(TestBackend::new(width, lines.len() as u16)).unwrap();
    terminal.draw(|frame| frame.render_widget(Paragraph::new(lines), frame.area())).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    (buffer.content.chunks(usize::from(width)).map(row).collect(), buffer)
}
