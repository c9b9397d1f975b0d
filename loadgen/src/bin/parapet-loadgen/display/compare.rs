//! Status line of `compare`, and its lines where no bar is drawn.

use std::sync::Arc;

use parapet_loadgen::cluster::Update;
use parapet_loadgen::report::{Summary, latency_histogram};
use parapet_loadgen::run::Progress;

use super::{Status, milliseconds};

pub(crate) struct CompareState {
    /// Blocks of each strategy.
    blocks: usize,
    /// Blocks of all strategies that have ended.
    ended: usize,
    names: Vec<String>,
    doing: String,
    progress: Option<Arc<Progress>>,
}

impl CompareState {
    pub(crate) fn new(blocks: usize, names: Vec<String>) -> Self {
        Self {
            blocks,
            ended: 0,
            names,
            doing: "starting".to_owned(),
            progress: None,
        }
    }

    fn place(&self, strategy: usize, block: Option<usize>) -> String {
        let name = self.names.get(strategy).map_or("", String::as_str);
        match block {
            None => format!("warm-up  {name}"),
            Some(block) => format!("block {:>2}/{}  {name:<24}", block + 1, self.blocks),
        }
    }

    /// Takes an update in. Returns a line for logs where it is worth one.
    pub(crate) fn observe(&mut self, update: &Update<'_>) -> Option<String> {
        self.progress = None;
        match update {
            Update::Starting(ready, of) => {
                self.doing = format!("{ready} of {of} instances run");
                (ready == of).then(|| self.doing.clone())
            }
            Update::Begins {
                strategy,
                block,
                progress,
            } => {
                self.progress = Some(Arc::clone(progress));
                self.doing = self.place(*strategy, *block);
                block.is_none().then(|| self.doing.clone())
            }
            Update::Repeats {
                strategy,
                block,
                stalls,
            } => {
                let place = self.place(*strategy, Some(*block));
                let reason = match stalls {
                    None => "the generator was late".to_owned(),
                    Some(stalls) => format!(
                        "the machine stood still for {:.0} ms, {:.0} ms at once",
                        stalls.total_ms, stalls.longest_ms
                    ),
                };
                Some(format!("{place} {reason}; once more"))
            }
            Update::Ended {
                strategy,
                block,
                recording,
            } => {
                self.ended += 1;
                let place = self.place(*strategy, Some(*block));
                let latency = Summary::of(&latency_histogram(&recording.records));
                let latency = latency.map_or("no answer".to_owned(), |latency| {
                    let Summary {
                        p50, p99, p99_9, ..
                    } = latency;
                    format!("p50 {p50:>7.2}  p99 {p99:>7.2}  p99.9 {p99_9:>7.2} ms")
                });
                Some(format!("{place} {latency}"))
            }
        }
    }

    pub(crate) fn status(&self) -> Status {
        let mut text = self.doing.clone();
        if let Some(progress) = &self.progress {
            let now = progress.snapshot();
            let [p50, p99] = [now.p50, now.p99].map(milliseconds);
            let (sent, planned, failed) = (now.sent, now.planned, now.without_answer);
            text += &format!("  sent {sent}/{planned}  p50 {p50}  p99 {p99} ms  failed {failed}");
        }
        let planned = self.blocks * self.names.len();
        Status::new(self.ended as u64, planned as u64, text)
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
        assert_eq!(state.observe(&Update::Starting(3, 8)), None);
        let text = "3 of 8 instances run".to_owned();
        assert_eq!(state.status(), Status { share: 0.0, text });
        let time = Duration::from_secs(1);
        let recording = Recording {
            records: Vec::new(),
            sending_ended: time,
            ended: time,
            partial: false,
        };
        let ended = Update::Ended {
            strategy: 0,
            block: 0,
            recording: &recording,
        };
        let line = state.observe(&ended).unwrap();
        assert!(line.starts_with("block  1/10  none"), "{line}");
        let schedule = Schedule::plan(Arrivals::Constant, 10.0, Length::Requests(7), 1).unwrap();
        let begins = Update::Begins {
            strategy: 1,
            block: Some(0),
            progress: Arc::new(Progress::new(&schedule)),
        };
        assert_eq!(state.observe(&begins), None);
        let Status { share, text } = state.status();
        assert_eq!(share, 0.05);
        assert!(text.starts_with("block  1/10  coded"), "{text}");
        assert!(
            text.ends_with("  sent 0/7  p50 0.00  p99 0.00 ms  failed 0"),
            "{text}"
        );
    }
}
