//! Measurement of a training's steps, for the leader to judge load plans by.

use std::collections::VecDeque;
use std::time::Duration;

use parapet_parameter_server::StepTimes;

use crate::registry::Revision;

/// Steps under a routing table that are known well enough; and those that are compared at most.
const LEAST: u64 = 32;
const MOST: usize = 256;

/// Steps under the present routing table, and under the last one that stood for as many.
#[derive(Debug, Default)]
pub(super) struct StepMeter {
    table: Revision,
    before: VecDeque<Duration>,
    under: VecDeque<Duration>,
    count: u64,
    ended: Duration,
}

impl StepMeter {
    /// A step has ended under this table; none counts while shards move. Returns what is to be told:
    /// after 32 steps, and whenever there are twice as many.
    pub(super) fn end_step(
        &mut self,
        now: Duration,
        (table, is_moving): (Revision, bool),
    ) -> Option<StepTimes> {
        let took = now.saturating_sub(std::mem::replace(&mut self.ended, now));
        if table != std::mem::replace(&mut self.table, table) {
            let under = std::mem::take(&mut self.under);
            if std::mem::take(&mut self.count) >= LEAST {
                self.before = under;
            }
        } else if !is_moving {
            self.count += 1;
            self.under.truncate(MOST - 1);
            self.under.push_front(took);
        }
        let is_due = self.count >= LEAST && self.count.is_power_of_two() && !is_moving;
        let (before, under) = (self.before.make_contiguous(), self.under.make_contiguous());
        (is_due && !before.is_empty()).then(|| StepTimes::compare(before, under))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of these milliseconds under a table, from a moment on; what is told after each.
    fn steps(meter: &mut StepMeter, at: &mut u64, table: (u64, bool), ms: u64) -> Vec<StepTimes> {
        let table = (Revision(table.0), table.1);
        let step = |count| {
            // By chance some take twice as long.
            *at += if count % 5 == 0 { 2 * ms } else { ms };
            meter.end_step(Duration::from_millis(*at), table)
        };
        (0..100).filter_map(step).collect()
    }

    #[test]
    fn steps_under_a_table_are_compared_with_those_before_moves() {
        let (mut meter, mut at) = (StepMeter::default(), 0);
        assert_eq!(steps(&mut meter, &mut at, (1, false), 10), [], "there is nothing to compare");
        assert_eq!(steps(&mut meter, &mut at, (2, true), 90), [], "shards move");
        let told = steps(&mut meter, &mut at, (3, false), 12);
        assert_eq!(told.len(), 2, "after 32 and 64 steps");
        assert!(told.iter().all(|times| (times.before_us, times.after_us) == (10_000, 12_000)));
        assert!(told[0].rank > 300 && told[1].rank > told[0].rank, "{told:?}");
        let told = steps(&mut meter, &mut at, (4, false), 12);
        assert!(told.iter().all(|times| times.rank.abs() < 100), "{told:?}");
    }
}
