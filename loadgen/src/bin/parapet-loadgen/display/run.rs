//! What `run` shows on a terminal.

use std::time::Duration;

use parapet_loadgen::run::Snapshot;
use ratatui::text::{Line, Span};

use super::{alarm, emphasis, milliseconds};

pub(crate) const RUN_HEIGHT: u16 = 4;

/// State of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunView {
    pub(crate) snapshot: Snapshot,
    /// Since the first request was due.
    pub(crate) elapsed: Duration,
    /// What else is to be known, such as that the run is ending.
    pub(crate) note: &'static str,
}

/// [`RUN_HEIGHT`] lines that fit `width` columns, 60 or more.
pub(crate) fn run_lines(view: &RunView, width: u16, colours: bool) -> Vec<Line<'static>> {
    let RunView { snapshot, elapsed, note } = view;
    let Snapshot { planned, sent, answered, without_answer, reconstructed, .. } = *snapshot;
    let share = sent as f64 / planned.max(1) as f64;
    let seconds = elapsed.as_secs_f64();
    let text = format!("  {:.0} %  sent {sent}/{planned}  {seconds:.0} s", 100.0 * share);
    let room = usize::from(width).saturating_sub(text.chars().count()).min(60);
    let full = (share * room as f64).round() as usize;
    let bar = "█".repeat(full.min(room)) + &"░".repeat(room.saturating_sub(full));
    let per_s = |count: usize| count as f64 / seconds.max(0.25);
    let failed = format!("failed or timed out {without_answer}");
    let failed_style = if without_answer > 0 { alarm(colours) } else { Default::default() };
    let ms = milliseconds;
    vec![
        Line::from(vec![Span::styled(bar, emphasis(colours)), Span::raw(text)]),
        Line::from(format!(
            "latency ms  p50 {}  p90 {}  p99 {}  p99.9 {}",
            ms(snapshot.p50),
            ms(snapshot.p90),
            ms(snapshot.p99),
            ms(snapshot.p99_9)
        )),
        Line::from(format!(
            "per second  sent {:.0}  answered {:.0}  lag max {} ms",
            per_s(sent),
            per_s(answered),
            ms(snapshot.lag_max)
        )),
        Line::from(if note.is_empty() {
            vec![
                Span::raw(format!("answered {answered}  reconstructed {reconstructed}  ")),
                Span::styled(failed, failed_style),
            ]
        } else {
            vec![Span::styled(*note, alarm(colours))]
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::screen;

    fn view() -> RunView {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        RunView {
            snapshot: Snapshot {
                planned: 10_000_000,
                sent: 5_000_000,
                answered: 4_999_000,
                without_answer: 12,
                reconstructed: 345,
                p50: ms(1.234),
                p90: ms(12.34),
                p99: ms(123.4),
                p99_9: ms(5000.4),
                lag_max: ms(0.25),
            },
            elapsed: Duration::from_secs(2500),
            note: "",
        }
    }

    #[test]
    fn every_width_shows_all() {
        for (width, bar) in [(60, 23), (100, 60), (160, 60)] {
            let (rows, _) = screen(width, run_lines(&view(), width, false));
            let done = bar / 2 + bar % 2;
            let first = format!(
                "{}{}  50 %  sent 5000000/10000000  2500 s",
                "█".repeat(done),
                "░".repeat(bar - done)
            );
            let rest = [
                "latency ms  p50 1.23  p90 12.3  p99 123.4  p99.9 5000",
                "per second  sent 2000  answered 2000  lag max 0.25 ms",
                "answered 4999000  reconstructed 345  failed or timed out 12",
            ];
            assert_eq!(rows[0], first);
            assert_eq!(rows[1..], rest);
        }
    }

    #[test]
    fn notes_are_shown_and_colours_only_where_asked_for() {
        let noted = RunView { note: "ending", ..view() };
        let plain = ratatui::style::Color::Reset;
        let (rows, buffer) = screen(60, run_lines(&noted, 60, false));
        assert!(rows[3] == "ending" && buffer.content.iter().all(|cell| cell.fg == plain));
        let (_, buffer) = screen(60, run_lines(&noted, 60, true));
        assert!(buffer.content.iter().any(|cell| cell.fg != plain));
        let nothing = RunView { snapshot: Snapshot::default(), elapsed: Duration::ZERO, note: "" };
        screen(60, run_lines(&nothing, 60, true));
    }
}
