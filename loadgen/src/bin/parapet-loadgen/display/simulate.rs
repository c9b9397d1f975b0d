//! Status line of `simulate` and `sweep`.

use std::time::Duration;

use parapet_loadgen::simulate::Progress;

use super::{Status, milliseconds};

/// State of a simulation.
#[derive(Debug, Default)]
pub(crate) struct SimulateState {
    names: Vec<String>,
    running: Option<usize>,
    progress: Option<Progress>,
    /// Name of one simulation of several.
    pub(crate) title: String,
    /// Message that stands for all else.
    pub(crate) note: &'static str,
}

impl SimulateState {
    /// Begins the next simulation of all strategies.
    pub(crate) fn restart(&mut self, title: String, names: impl Iterator<Item = String>) {
        *self = Self {
            names: names.collect(),
            title,
            note: self.note,
            ..Self::default()
        };
    }

    /// Begins the next strategy.
    pub(crate) fn begin(&mut self) {
        self.running = Some(self.running.map_or(0, |place| place + 1));
        self.progress = None;
    }

    /// Name of the strategy that is simulated; empty between two.
    pub(crate) fn name(&self) -> &str {
        self.running
            .and_then(|place| self.names.get(place))
            .map_or("", String::as_str)
    }

    pub(crate) fn observe(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    pub(crate) fn status(&self) -> Status {
        let share = self
            .progress
            .map_or(0.0, |now| now.sent as f64 / now.planned.max(1) as f64);
        if !self.note.is_empty() {
            return Status {
                share,
                text: self.note.to_owned(),
            };
        }
        let title = if self.title.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.title)
        };
        let figures = self.progress.map_or_else(String::new, |now| {
            let p99 = Duration::try_from_secs_f64(now.p99_ms / 1e3).unwrap_or_default();
            let (sent, elapsed_s) = (now.sent, now.elapsed_s);
            format!(
                "  {sent} queries  {elapsed_s:.1} s of virtual time  p99 {} ms",
                milliseconds(p99)
            )
        });
        Status {
            share,
            text: format!("{title}{}{figures}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_the_simulated_strategy_and_its_share() {
        let mut state = SimulateState::default();
        state.restart(
            "point 3 of 16".to_owned(),
            ["coded", "none"].map(str::to_owned).into_iter(),
        );
        state.begin();
        state.observe(Progress {
            planned: 2000,
            sent: 1000,
            elapsed_s: 98_765.43,
            p99_ms: 1234.5,
        });
        let text =
            "point 3 of 16: coded  1000 queries  98765.4 s of virtual time  p99 1234 ms".to_owned();
        assert_eq!(state.status(), Status { share: 0.5, text });
        state.begin();
        assert_eq!(
            state.status(),
            Status {
                share: 0.0,
                text: "point 3 of 16: none".to_owned()
            }
        );
        state.note = "ending";
        assert_eq!(state.status().text, "ending");
    }
}
