//! What `compare` shows on a terminal: a row for each strategy.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use parapet_loadgen::cluster::Update;
use parapet_loadgen::report::latency_histogram;
use parapet_loadgen::run::{Progress, Snapshot};
use parapet_loadgen::target::Provenance;
use ratatui::text::{Line, Span};

use super::{LONGEST_NAME, alarm, emphasis, fitted, milliseconds};

/// Columns beside the name.
const FIGURES: usize = 47;

/// State of a comparison.
pub(crate) struct CompareState {
    blocks: usize,
    rows: Vec<Row>,
    running: Option<(usize, Option<usize>, Arc<Progress>)>,
    starting: Option<(usize, usize)>,
    /// Blocks measured again because the generator had been late.
    repeated: usize,
    /// What else is to be known.
    pub(crate) note: &'static str,
}

/// One strategy's ended blocks.
struct Row {
    name: String,
    blocks: usize,
    latency: Histogram<u64>,
    reconstructed: usize,
    failed: usize,
}

pub(crate) fn compare_height(strategies: usize) -> u16 {
    u16::try_from(strategies.saturating_add(2)).unwrap_or(u16::MAX)
}

impl CompareState {
    pub(crate) fn new(blocks: usize, names: impl Iterator<Item = String>) -> Self {
        let latency = latency_histogram(&[]);
        let row = |name| Row { name, blocks: 0, latency: latency.clone(), reconstructed: 0, failed: 0 };
        Self { blocks, rows: names.map(row).collect(), running: None, starting: None, repeated: 0, note: "" }
    }

    pub(crate) fn observe(&mut self, update: &Update<'_>) {
        match update {
            Update::Starting(ready, of) => self.starting = Some((*ready, *of)),
            Update::Begins { strategy, block, progress } => {
                self.starting = None;
                self.running = Some((*strategy, *block, Arc::clone(progress)));
            }
            Update::Repeats { .. } => {
                self.running = None;
                self.repeated += 1;
            }
            Update::Ended { strategy, recording, .. } => {
                self.running = None;
                let Some(row) = self.rows.get_mut(*strategy) else { return };
                row.blocks += 1;
                for record in &recording.records {
                    match (record.answer(), record.outcome) {
                        (Some(answer), _) => {
                            row.reconstructed += usize::from(answer.provenance == Provenance::Reconstructed);
                            row.latency.saturating_record(record.latency_us().unwrap_or_default());
                        }
                        (None, Some(_)) => row.failed += 1,
                        (None, None) => {}
                    }
                }
            }
        }
    }
}

/// Lines that fit `width` columns, 60 or more: a header, the strategies, what is going on.
pub(crate) fn compare_lines(state: &CompareState, width: u16, colours: bool) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(FIGURES).min(LONGEST_NAME);
    let cells = |name: &str, figures: [String; 7]| {
        let [blocks, requests, p50, p99, p99_9, reconstructed, failed] = figures;
        let name = fitted(name, room);
        format!("{name}{blocks:>6}{requests:>9}{p50:>6}{p99:>6}{p99_9:>7}{reconstructed:>6}{failed:>7}")
    };
    let header = ["block", "requests", "p50", "p99", "p99.9", "rec %", "failed"].map(str::to_owned);
    let mut lines = vec![Line::from(cells("latency in ms", header))];
    for (place, row) in state.rows.iter().enumerate() {
        let running = state.running.as_ref().filter(|(strategy, ..)| *strategy == place);
        // The warm-up counts for nothing.
        let measured = running.filter(|(_, block, _)| block.is_some());
        let mut latency = row.latency.clone();
        let mut now = Snapshot::default();
        if let Some((_, _, progress)) = measured {
            now = progress.snapshot();
            let _ = latency.add(progress.latency());
        }
        let ms = |quantile| milliseconds(Duration::from_micros(latency.value_at_quantile(quantile)));
        let answered = latency.len();
        let failed = row.failed + now.without_answer;
        let figures = [
            format!("{}/{}", row.blocks + usize::from(measured.is_some()), state.blocks),
            (answered + failed as u64).to_string(),
            ms(0.5),
            ms(0.99),
            ms(0.999),
            format!("{:.1}", 100.0 * (row.reconstructed + now.reconstructed) as f64 / answered.max(1) as f64),
            failed.to_string(),
        ];
        let style = if running.is_some() { emphasis(colours) } else { Default::default() };
        lines.push(Line::from(Span::styled(cells(&row.name, figures), style)));
    }
    lines.push(Line::from(match (&state.running, state.starting) {
        _ if !state.note.is_empty() => Span::styled(state.note, alarm(colours)),
        (Some((_, None, _)), _) => Span::raw("warm-up"),
        (Some((_, Some(_), progress)), _) => {
            let Snapshot { sent, planned, .. } = progress.snapshot();
            let again = match state.repeated {
                0 => String::new(),
                repeated => format!("; {repeated} blocks measured again"),
            };
            Span::raw(format!("running: {sent}/{planned} requests of the block sent{again}"))
        }
        (None, Some((ready, of))) => Span::raw(format!("{ready} of {of} instances run")),
        (None, None) => Span::raw("between blocks"),
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::screen;
    use parapet_loadgen::run::{Outcome, Record, Recording};
    use parapet_loadgen::schedule::{Arrivals, Length, Schedule};
    use parapet_loadgen::target::Answer;

    fn state() -> CompareState {
        let names = ["none", "equal_resources_with_a_long_name"].map(str::to_owned);
        let mut state = CompareState::new(10, names.into_iter());
        let answer = Answer { provenance: Provenance::Reconstructed, confidence: None, class: None };
        let record = |done_us, outcome| Record {
            sent_us: Some(0),
            done_us: Some(done_us),
            outcome: Some(outcome),
            ..Record::default()
        };
        let records = vec![record(1_000_000, Outcome::Answered(answer)), record(5_000, Outcome::TimedOut)];
        let time = Duration::from_secs(1);
        let recording = Recording { records, sending_ended: time, ended: time, partial: false };
        state.observe(&Update::Ended { strategy: 1, block: 0, recording: &recording });
        let schedule = Schedule::plan(Arrivals::Constant, 10.0, Length::Requests(7), 1).unwrap();
        let progress = Arc::new(Progress::new(&schedule));
        state.observe(&Update::Begins { strategy: 0, block: Some(0), progress });
        state
    }

    #[test]
    fn every_width_shows_all() {
        for (width, second) in [
            (60, "equal_resour…"),
            (100, "equal_resources_with_a_long_name"),
            (160, "equal_resources_with_a_long_name"),
        ] {
            let (rows, buffer) = screen(width, compare_lines(&state(), width, false));
            let pad = second.chars().count();
            let expected = [
                format!("{:<pad$} block requests   p50   p99  p99.9 rec % failed", "latency in ms"),
                format!("{:<pad$}  1/10        0  0.00  0.00   0.00   0.0      0", "none"),
                format!("{second}  1/10        2  1000  1000   1000 100.0      1"),
                "running: 0/7 requests of the block sent".to_owned(),
            ];
            assert_eq!(rows, expected);
            assert!(buffer.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
        }
        assert_eq!(compare_lines(&state(), 60, true).len(), usize::from(compare_height(2)));
    }
}
