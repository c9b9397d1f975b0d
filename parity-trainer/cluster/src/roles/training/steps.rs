//! Measurement of a training's steps, for the leader to judge load plans by.

use std::collections::VecDeque;
use std::time::Duration;

use parapet_parameter_server::StepTimes;

use crate::registry::Revision;

/// Steps that are compared with those under a load plan at least; of these at least; and of both at
/// most.
const BEFORE: usize = 8;
const UNDER: u64 = 32;
const MOST: usize = 64;

/// Steps under the present routing table, and under the last one that stood for a while.
#[derive(Debug, Default)]
pub(super) struct StepMeter {
    table: Revision,
    before: VecDeque<Duration>,
    under: VecDeque<Duration>,
    count: u64,
    /// A server has changed under this table: steps before that are not as those after it.
    is_cut: bool,
    ended: Duration,
}

impl StepMeter {
    /// A step has ended under this table, in which no server has changed or one has; none counts
    /// while shards move. Returns what is to be told: after 32 steps, and whenever there are twice as
    /// many.
    pub(super) fn end_step(
        &mut self,
        now: Duration,
        (table, is_moving): (Revision, bool),
        is_changed: bool,
    ) -> Option<StepTimes> {
        let took = now.saturating_sub(std::mem::replace(&mut self.ended, now));
        let is_other_table = table != std::mem::replace(&mut self.table, table);
        if is_other_table && (self.is_cut || self.under.len() >= BEFORE) {
            let under = std::mem::take(&mut self.under);
            self.before = if under.len() < BEFORE { VecDeque::new() } else { under };
        }
        if is_other_table || is_changed {
            self.under.clear();
            self.count = 0;
            self.is_cut = !is_other_table;
        } else if !is_moving {
            self.count += 1;
            self.under.truncate(MOST - 1);
            self.under.push_front(took);
        }
        let is_due = self.count >= UNDER && self.count.is_power_of_two() && !is_moving;
        let (before, under) = (self.before.make_contiguous(), self.under.make_contiguous());
        (is_due && !before.is_empty()).then(|| StepTimes::compare(before, under))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that times steps, and the moment, in milliseconds.
    #[derive(Default)]
    struct Told(StepMeter, u64);

    impl Told {
        /// So many steps of these milliseconds under a table; what is told of them.
        fn steps(&mut self, count: u32, ms: u64, table: (u64, bool)) -> Vec<StepTimes> {
            let step = |count| {
                // By chance some take twice as long.
                self.1 += if count % 5 == 0 { 2 * ms } else { ms };
                self.0.end_step(Duration::from_millis(self.1), (Revision(table.0), table.1), false)
            };
            (0..count).filter_map(step).collect()
        }

        fn change(&mut self, table: u64) {
            let table = (Revision(table), false);
            assert_eq!(self.0.end_step(Duration::from_millis(self.1), table, true), None);
        }
    }

    #[test]
    fn steps_under_a_table_are_compared_with_those_before_moves() {
        let mut told = Told::default();
        assert_eq!(told.steps(100, 10, (1, false)), [], "there is nothing to compare");
        assert_eq!(told.steps(100, 90, (2, true)), [], "shards move");
        assert_eq!(told.steps(7, 90, (3, false)), [], "between two moves");
        let found = told.steps(100, 12, (4, false));
        assert_eq!(found.len(), 2, "after 32 and 64 steps");
        assert!(found.iter().all(|times| (times.before_us, times.after_us) == (10_000, 12_000)));
        assert!(found[0].rank > 300 && found[1].rank > found[0].rank, "{found:?}");
        let found = told.steps(100, 12, (5, false));
        assert!(found.iter().all(|times| times.rank.abs() < 100), "{found:?}");
    }

    #[test]
    fn steps_of_before_a_server_has_changed_do_not_count() {
        for (slow, expected) in [(5, vec![]), (20, vec![90_000; 2])] {
            let mut told = Told::default();
            told.steps(100, 10, (1, false));
            told.steps(3, 90, (1, false));
            told.change(1);
            told.steps(slow, 90, (1, false));
            told.steps(9, 90, (2, true));
            let found = told.steps(100, 12, (3, false));
            assert_eq!(Vec::from_iter(found.iter().map(|times| times.before_us)), expected);
        }
    }
}
