//! Status line of `compare`, and its lines where none is drawn.

use std::sync::Arc;

use parapet_loadgen::cluster::Update;
use parapet_loadgen::report::latency_histogram;
use parapet_loadgen::run::Progress;

use super::{Status, milliseconds};

/// State of a comparison.
pub(crate) struct CompareState {
    /// Blocks of each strategy.
    blocks: usize,
    /// Blocks of all strategies that have ended.
    ended: usize,
    names: Vec<String>,
    running: Option<(usize, Option<usize>, Arc<Progress>)>,
    starting: Option<(usize, usize)>,
    /// Blocks that were measured again.
    repeated: usize,
}

impl CompareState {
    pub(crate) fn new(blocks: usize, names: Vec<String>) -> Self {
        Self {
            blocks,
            ended: 0,
            names,
            running: None,
            starting: None,
            repeated: 0,
        }
    }

    fn name(&self, strategy: usize) -> &str {
        self.names.get(strategy).map_or("", String::as_str)
    }

    /// Line for an update, where one is worth it.
    pub(crate) fn line(&self, update: &Update<'_>) -> Option<String> {
        let of = self.blocks;
        match update {
            Update::Starting(ready, of) => (ready == of).then(|| format!("{of} instances run")),
            Update::Begins {
                block: None,
                strategy,
                ..
            } => Some(format!("warm-up  {}", self.name(*strategy))),
            Update::Begins { .. } => None,
            Update::Repeats {
                strategy,
                block,
                stalls,
            } => {
                let reason = match stalls {
                    None => "the generator was late".to_owned(),
                    Some(stalls) => format!(
                        "the machine stood still for {:.0} ms, {:.0} ms at once",
                        stalls.total_ms, stalls.longest_ms
                    ),
                };
                let (block, name) = (block + 1, self.name(*strategy));
                Some(format!(
                    "block {block:>2}/{of}  {name:<24} {reason}; once more"
                ))
            }
            Update::Ended {
                strategy,
                block,
                recording,
            } => {
                let latency = latency_histogram(&recording.records);
                let [p50, p99, p99_9] = [0.5, 0.99, 0.999]
                    .map(|quantile| latency.value_at_quantile(quantile) as f64 / 1e3);
                let (block, name) = (block + 1, self.name(*strategy));
                Some(format!(
                    "block {block:>2}/{of}  {name:<24} answered {:>6}  p50 {p50:>7.2}  p99 \
                     {p99:>7.2}  p99.9 {p99_9:>7.2} ms",
                    latency.len()
                ))
            }
        }
    }

    pub(crate) fn observe(&mut self, update: &Update<'_>) {
        match update {
            Update::Starting(ready, of) => self.starting = Some((*ready, *of)),
            Update::Begins {
                strategy,
                block,
                progress,
            } => {
                self.starting = None;
                self.running = Some((*strategy, *block, Arc::clone(progress)));
            }
            Update::Repeats { .. } => {
                self.running = None;
                self.repeated += 1;
            }
            Update::Ended { .. } => {
                self.running = None;
                self.ended += 1;
            }
        }
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            share: self.ended as f64 / (self.blocks * self.names.len()).max(1) as f64,
            text: self.text(),
        }
    }

    fn text(&self) -> String {
        match (&self.running, self.starting) {
            (Some((strategy, None, _)), _) => format!("{}: warm-up", self.name(*strategy)),
            (Some((strategy, Some(_), progress)), _) => {
                let now = progress.snapshot();
                let again = match self.repeated {
                    0 => String::new(),
                    repeated => format!("; {repeated} blocks measured again"),
                };
                format!(
                    "{}: {}/{} requests of the block sent, p50 {}  p99 {} ms, {} failed{again}",
                    self.name(*strategy),
                    now.sent,
                    now.planned,
                    milliseconds(now.p50),
                    milliseconds(now.p99),
                    now.without_answer,
                )
            }
            (None, Some((ready, of))) => format!("{ready} of {of} instances run"),
            (None, None) => "between blocks".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parapet_loadgen::run::Recording;
    use parapet_loadgen::schedule::{Arrivals, Length, Schedule};

    use super::*;

    #[test]
    fn status_names_the_running_strategy_and_the_share_of_blocks() {
        let mut state = CompareState::new(10, ["none", "coded"].map(str::to_owned).to_vec());
        state.observe(&Update::Starting(3, 8));
        assert_eq!(
            state.status(),
            Status {
                share: 0.0,
                text: "3 of 8 instances run".to_owned()
            }
        );
        let time = Duration::from_secs(1);
        let recording = Recording {
            records: Vec::new(),
            sending_ended: time,
            ended: time,
            partial: false,
        };
        state.observe(&Update::Ended {
            strategy: 0,
            block: 0,
            recording: &recording,
        });
        let schedule = Schedule::plan(Arrivals::Constant, 10.0, Length::Requests(7), 1).unwrap();
        let progress = Arc::new(Progress::new(&schedule));
        state.observe(&Update::Begins {
            strategy: 1,
            block: Some(0),
            progress,
        });
        let text =
            "coded: 0/7 requests of the block sent, p50 0.00  p99 0.00 ms, 0 failed".to_owned();
        assert_eq!(state.status(), Status { share: 0.05, text });
    }
}
