//! Status line of `simulate` and `sweep`.

use std::time::Duration;

use parapet_loadgen::simulate::Progress;

use super::{Status, milliseconds};

/// State of the simulations of all strategies.
#[derive(Debug, Default)]
pub(crate) struct SimulateState {
    names: Vec<String>,
    running: Option<usize>,
    progress: Option<Progress>,
    /// Name of one simulation of several.
    title: String,
}

impl SimulateState {
    pub(crate) fn new(title: String, names: impl Iterator<Item = String>) -> Self {
        Self {
            names: names.collect(),
            title,
            ..Self::default()
        }
    }

    /// Begins the next strategy.
    pub(crate) fn begin(&mut self) {
        self.running = Some(self.running.map_or(0, |place| place + 1));
        self.progress = None;
    }

    /// Name of the simulation and of the strategy that is simulated; empty between two.
    pub(crate) fn name(&self) -> String {
        let strategy = self.running.and_then(|place| self.names.get(place));
        let strategy = strategy.map_or("", String::as_str);
        match self.title.as_str() {
            "" => strategy.to_owned(),
            title => format!("{title}: {strategy}"),
        }
    }

    pub(crate) fn observe(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    pub(crate) fn status(&self) -> Status {
        let Some(now) = self.progress else {
            let text = self.name();
            return Status { share: 0.0, text };
        };
        let p99 = Duration::try_from_secs_f64(now.p99_ms / 1e3).unwrap_or_default();
        let (sent, elapsed_s, p99) = (now.sent, now.elapsed_s, milliseconds(p99));
        let text = format!(
            "{}  {sent} queries  {elapsed_s:.1} s of virtual time  p99 {p99} ms",
            self.name()
        );
        Status {
            share: sent as f64 / now.planned.max(1) as f64,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_the_simulated_strategy_and_its_share() {
        let names = ["coded", "none"].map(str::to_owned).into_iter();
        let mut state = SimulateState::new("point 3 of 16".to_owned(), names);
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
    }
}
