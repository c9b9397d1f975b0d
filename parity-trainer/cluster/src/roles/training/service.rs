//! Measurement of the servers by a process, for load distribution.

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::{NodeId, ServedBy, ServiceModel, ServiceTime, estimates, median};

use crate::registry::Revision;

/// Time from its first service to the first telling about a server, and between two.
const EVERY: Duration = Duration::from_secs(2);

/// Time after which a server that serves nothing here is forgotten, so that it is tried again.
const RETRY: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Measured {
    model: ServiceModel,
    told: Option<ServiceTime>,
    /// Time at which it was told of, or first served; and at which it served something last.
    told_at: Duration,
    seen_at: Duration,
}

/// Models of the servers, and what was told of them. Times count from any moment.
#[derive(Debug, Default)]
pub(super) struct ServiceMeter {
    /// The routing table under which they served.
    table: Revision,
    servers: BTreeMap<NodeId, Measured>,
}

impl ServiceMeter {
    /// Takes in what a step of so many executors, and so many here, was served; not while shards
    /// move, as copies make servers slow. Returns what is to be told, with each routing table anew,
    /// nothing of a server that is not known any longer; and true if a server has changed.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        (table, is_moving): (Revision, bool),
        [executors, own]: [usize; 2],
        served: &[ServedBy],
    ) -> (Vec<(NodeId, Option<ServiceTime>)>, bool) {
        let is_other_table = table != std::mem::replace(&mut self.table, table);
        let mut is_changed = false;
        if !is_other_table && !is_moving {
            let pushes = served.iter().map(|served| served.pushed).filter(|rows| rows.count > 0);
            let usual = median(pushes.map(|rows| rows.took)).unwrap_or_default();
            for served in served {
                let part = among_pushes(served.pushed.took, usual, own);
                let logged = (served.logged as f64 * part) as u64;
                let served = &ServedBy { logged, ..*served };
                let new = || Measured { told_at: now, ..Measured::default() };
                let measured = self.servers.entry(served.node).or_insert_with(new);
                let after = now.saturating_sub(measured.seen_at);
                is_changed |= measured.model.observe(served, executors, after);
                measured.seen_at = now;
            }
        }
        let times = estimates(self.servers.iter().map(|(&node, measured)| (node, &measured.model)));
        let mut news = Vec::new();
        self.servers.retain(|&node, measured| {
            let is_known = now < measured.seen_at + RETRY;
            if is_other_table || !is_known {
                news.extend(measured.told.map(|_| (node, None)));
                measured.model.settle();
                (measured.told, measured.told_at) = (None, now);
            } else if let Some(time) = measured.news(now, times.get(&node)) {
                news.push((node, Some(time)));
            }
            is_known
        });
        (news, is_changed)
    }
}

/// Part of the log entries that came among the pushes to a server. Heads send entries when the last
/// executor's part is there: to one whose pushes are done by then, they come later.
fn among_pushes(took: Duration, usual: Duration, own_executors: usize) -> f64 {
    let before_end = 1.0 - took.div_duration_f64(usual.max(Duration::from_nanos(1)));
    (1.0 - own_executors as f64 * before_end).clamp(0.0, 1.0)
}

impl Measured {
    /// The estimate, if it is to be told.
    fn news(&mut self, now: Duration, time: Option<&ServiceTime>) -> Option<ServiceTime> {
        let estimate = *time.filter(|_| now >= self.told_at + EVERY)?;
        if self.told.is_some_and(|told| !estimate.is_far_from(told)) {
            return None;
        }
        (self.told, self.told_at) = (Some(estimate), now);
        Some(estimate)
    }
}

#[cfg(test)]
mod tests {
    use parapet_parameter_server::RowTimes;

    use super::*;

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn server_is_told_of_when_it_changes_and_tried_again_when_it_serves_nothing() {
        let mut meter = ServiceMeter::default();
        let mut told = Vec::new();
        let table = (Revision(1), false);
        meter.observe(second(0), table, [1; 2], &[]);
        let served = |node, ms| {
            let rows = RowTimes { count: 100, took: Duration::from_millis(ms) };
            ServedBy { node: NodeId(node), pushed: rows, logged: 0, read: rows }
        };
        for now in 0..60 {
            let served = [served(1, 10), served(2, if now < 20 { 10 } else { 80 })];
            let served = if now < 40 { &served[..] } else { &served[..1] };
            for (node, time) in meter.observe(second(now), table, [1; 2], served).0 {
                told.push((now, node.0, time.map_or(0, |time| time.push_ns / 1000)));
            }
        }
        let firsts: Vec<_> = told.iter().filter(|(now, ..)| *now < 20).copied().collect();
        assert_eq!(firsts, [(4, 1, 100), (4, 2, 100)]);
        let rest = || told.iter().filter(|(now, ..)| *now >= 20);
        assert!(rest().all(|&(_, node, _)| node == 2), "{told:?}");
        let last = rest().rfind(|(now, ..)| *now < 40).map(|&(.., us)| us);
        assert!(last.is_some_and(|us| us > 550), "{told:?}");
        assert_eq!(told.last(), Some(&(59, 2, 0)), "{told:?}");
        let mut look = |now, is_moving, served: &[ServedBy]| {
            meter.observe(second(now), (Revision(2), is_moving), [1; 2], served).0
        };
        assert_eq!(look(60, true, &[]), [(NodeId(1), None)], "under another table");
        assert_eq!(look(61, true, &[served(1, 900)]), [], "a copy is on its way");
        let again = ServiceTime { push_ns: 100_000, read_ns: 100_000 };
        assert_eq!(look(62, false, &[]), [(NodeId(1), Some(again))], "it serves nothing any more");
        assert_eq!(look(79, false, &[]), [(NodeId(1), None)], "retried");
    }

    /// Four executors' parts go to each server after one another.
    #[test]
    fn log_entries_count_where_pushes_are_not_over_before_them() {
        let part = |ms, own| among_pushes(Duration::from_millis(ms), second(1), own);
        assert_eq!(
            [800, 750, 300].map(|ms| part(ms, 4)).map(|part| (part * 10.0).round()),
            [2.0, 0.0, 0.0]
        );
        assert_eq!([part(1000, 4), part(2000, 4), part(500, 1)], [1.0, 1.0, 0.5]);
    }
}
