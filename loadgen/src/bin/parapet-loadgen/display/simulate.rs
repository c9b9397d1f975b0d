//! What `simulate` and `sweep` show on a terminal: a row for each strategy.

use std::time::Duration;

use parapet_loadgen::simulate::Progress;
use ratatui::text::{Line, Span};

use super::{LONGEST_NAME, alarm, emphasis, fitted, milliseconds};

/// Columns beside the name.
const FIGURES: usize = 36;

/// State of a simulation.
#[derive(Debug, Default)]
pub(crate) struct SimulateState {
    rows: Vec<(String, Option<Progress>)>,
    running: Option<usize>,
    /// Which simulation of several.
    pub(crate) title: String,
    /// What else is to be known.
    pub(crate) note: &'static str,
}

pub(crate) fn simulate_height(strategies: usize) -> u16 {
    u16::try_from(strategies.saturating_add(2)).unwrap_or(u16::MAX)
}

impl SimulateState {
    /// The next simulation of all strategies.
    pub(crate) fn restart(&mut self, title: String, names: impl Iterator<Item = String>) {
        (self.title, self.running) = (title, None);
        self.rows = names.map(|name| (name, None)).collect();
    }

    /// The next strategy begins. Its name.
    pub(crate) fn begin(&mut self) {
        self.running = Some(self.running.map_or(0, |place| place + 1));
    }

    /// The strategy that is simulated; empty between two.
    pub(crate) fn name(&self) -> &str {
        self.running.and_then(|place| self.rows.get(place)).map_or("", |(name, _)| name)
    }

    pub(crate) fn observe(&mut self, progress: Progress) {
        if let Some((_, row)) = self.running.and_then(|place| self.rows.get_mut(place)) {
            *row = Some(progress);
        }
    }
}

/// Lines that fit `width` columns, 60 or more: a header, the strategies, what is going on.
pub(crate) fn simulate_lines(state: &SimulateState, width: u16, colours: bool) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(FIGURES).min(LONGEST_NAME);
    let cells = |name: &str, [done, sent, virtual_s, p99]: [String; 4]| {
        format!("{}{done:>6}{sent:>12}{virtual_s:>10}{p99:>8}", fitted(name, room))
    };
    let header = ["done", "queries", "virtual s", "p99 ms"].map(str::to_owned);
    let mut lines = vec![Line::from(cells("simulated", header))];
    for (place, (name, progress)) in state.rows.iter().enumerate() {
        let figures = progress.map_or_else(Default::default, |progress| {
            let Progress { planned, sent, elapsed_s, p99_ms } = progress;
            let share = 100.0 * sent as f64 / planned.max(1) as f64;
            let p99 = Duration::try_from_secs_f64(p99_ms / 1e3).unwrap_or_default();
            [format!("{share:.0} %"), sent.to_string(), format!("{elapsed_s:.1}"), milliseconds(p99)]
        });
        let style = if state.running == Some(place) { emphasis(colours) } else { Default::default() };
        lines.push(Line::from(Span::styled(cells(name, figures), style)));
    }
    lines.push(Line::from(match state.note {
        "" => Span::raw(state.title.clone()),
        note => Span::styled(note, alarm(colours)),
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::screen;

    fn state() -> SimulateState {
        let mut state = SimulateState::default();
        let names = ["coded", "equal_resources_with_a_long_name"].map(str::to_owned);
        state.restart("point 3 of 16".to_owned(), names.into_iter());
        state.begin();
        state.observe(Progress {
            planned: 1_000_000_000,
            sent: 999_990_000,
            elapsed_s: 98_765.43,
            p99_ms: 1234.5,
        });
        state.begin();
        state
    }

    #[test]
    fn every_width_shows_all() {
        for (width, second) in [
            (60, "equal_resources_with_a_…"),
            (100, "equal_resources_with_a_long_name"),
            (160, "equal_resources_with_a_long_name"),
        ] {
            let (rows, buffer) = screen(width, simulate_lines(&state(), width, false));
            let pad = second.chars().count();
            let expected = [
                format!("{:<pad$}  done     queries virtual s  p99 ms", "simulated"),
                format!("{:<pad$} 100 %   999990000   98765.4    1234", "coded"),
                second.to_owned(),
                "point 3 of 16".to_owned(),
            ];
            assert_eq!(rows, expected);
            assert!(buffer.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
        }
        assert_eq!(simulate_lines(&state(), 60, true).len(), usize::from(simulate_height(2)));
        assert_eq!(state().name(), "equal_resources_with_a_long_name");
    }
}
