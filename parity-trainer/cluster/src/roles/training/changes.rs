//! Cost to a training of servers and workers that come and go.
//!
//! Steps are bulk synchronous, so every wait that a change causes shows in the length of the step.
//! The time that a change has cost is by how much the steps around it were longer than steps
//! usually are: the one in which it was seen, for a death is seen at the end of what it cost, and
//! some after it, in which shards are copied.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use parapet_parameter_server::median;

use crate::registry::Member;

/// Undisturbed steps whose median is what a step usually takes.
const USUAL: usize = 33;

/// Steps after a change that still count as disturbed by it.
const AFTER: u32 = 8;

const KEPT: usize = 256;

/// A change of the members that take part, and what it has cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MembershipChange {
    pub step: u64,
    /// Servers that hold shards now, and processes that compute, and did not before.
    pub joined: BTreeSet<Member>,
    pub left: BTreeSet<Member>,
    /// By how much the steps around it were longer than usual, added up.
    pub lost: Duration,
    pub usual: Duration,
}

impl fmt::Display for MembershipChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left.iter().map(|member| format!("{member} left"));
        let joined = self.joined.iter().map(|member| format!("{member} joined"));
        let members = left.chain(joined).collect::<Vec<_>>().join(", ");
        let (step, lost, usual) = (self.step, self.lost.as_secs_f64(), self.usual.as_secs_f64());
        write!(f, "{members} at step {step}: {lost:.2} s lost (a step takes {usual:.3} s)")
    }
}

/// Watches the steps of a training. Times count from any moment.
#[derive(Debug, Default)]
pub(super) struct Changes {
    members: Option<BTreeSet<Member>>,
    begun: Option<Duration>,
    usual: VecDeque<Duration>,
    /// The last change, and the steps in which it still costs.
    open: Option<(MembershipChange, u32)>,
    over: VecDeque<MembershipChange>,
}

impl Changes {
    /// The step begins, unless it has begun. Validation between steps is none of them.
    pub(super) fn begin(&mut self, now: Duration) {
        self.begun.get_or_insert(now);
    }

    /// The step is done, as this one of the training, by these.
    pub(super) fn end(&mut self, now: Duration, step: u64, members: BTreeSet<Member>) {
        let took = self.begun.take().map(|begun| now.saturating_sub(begun));
        let Some(before) = self.members.replace(members.clone()) else {
            return;
        };
        if before != members {
            let change = self.open.take().map(|(change, _)| change);
            let mut change =
                change.unwrap_or_else(|| MembershipChange { step, ..MembershipChange::default() });
            change.joined.extend(members.difference(&before));
            change.left.extend(before.difference(&members));
            self.open = Some((change, AFTER));
        }
        let Some(took) = took else { return };
        let Some((mut change, left)) = self.open.take() else {
            self.usual.truncate(USUAL - 1);
            self.usual.push_front(took);
            return;
        };
        if let Some(usual) = median(self.usual.iter().copied()) {
            change.usual = usual;
            change.lost += took.saturating_sub(usual);
        }
        if let Some(fewer) = left.checked_sub(1) {
            self.open = Some((change, fewer));
        } else {
            self.over.truncate(KEPT - 1);
            self.over.push_front(change);
        }
    }

    /// Changes whose cost is known by now, each once.
    pub(super) fn take(&mut self) -> Vec<MembershipChange> {
        self.over.drain(..).rev().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]

    use parapet_parameter_server::{NodeId, WorkerId};

    use super::*;

    const SERVERS: [Member; 2] = [Member::Server(NodeId(1)), Member::Server(NodeId(2))];
    const WORKER: Member = Member::Worker(WorkerId(9));

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Steps one after the other, with as much time between them.
    #[derive(Default)]
    struct Run {
        changes: Changes,
        now: Duration,
        step: u64,
    }

    impl Run {
        fn steps(&mut self, count: u32, length: u64, members: &[Member]) {
            for _ in 0..count {
                self.changes.begin(self.now);
                self.changes.begin(self.now + ms(1));
                self.step += 1;
                let members = members.iter().copied().collect();
                self.changes.end(self.now + ms(length), self.step, members);
                self.now += ms(2 * length);
            }
        }

        fn only_change(&mut self) -> MembershipChange {
            match &self.changes.take()[..] {
                [change] => change.clone(),
                others => panic!("{others:?}"),
            }
        }
    }

    #[test]
    fn death_costs_what_its_step_and_the_next_ones_took_longer() {
        let mut run = Run::default();
        run.steps(10, 20, &SERVERS);
        run.steps(1, 320, &SERVERS[1..]);
        run.steps(2, 50, &SERVERS[1..]);
        run.steps(5, 20, &SERVERS[1..]);
        assert_eq!(run.changes.take(), [], "it may cost more yet");
        run.steps(1, 20, &SERVERS[1..]);
        let change = run.only_change();
        assert_eq!((change.step, change.lost, change.usual), (11, ms(360), ms(20)));
        let text = "server 1 left at step 11: 0.36 s lost (a step takes 0.020 s)";
        assert_eq!(change.to_string(), text);
        assert_eq!(run.changes.take(), []);
    }

    #[test]
    fn change_that_is_followed_by_another_is_counted_with_it() {
        let mut run = Run::default();
        run.steps(10, 20, &SERVERS);
        run.steps(3, 40, &SERVERS[1..]);
        run.steps(20, 20, &[SERVERS[1], WORKER]);
        let change = run.only_change();
        assert_eq!(change.lost, ms(60));
        let text = change.to_string();
        assert!(text.starts_with("server 1 left, worker 9 joined at step 11: "), "{text}");
        // Nothing is said where nothing changes.
        run.steps(50, 30, &[SERVERS[1], WORKER]);
        assert_eq!(run.changes.take(), []);
    }
}
