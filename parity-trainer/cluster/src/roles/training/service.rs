//! Measurement of the servers by a process, for load distribution.

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::{NodeId, ServedBy, ServiceModel, ServiceTime, estimates};

use crate::registry::Revision;

/// Time from its first service to the first telling about a server, and between two.
const EVERY: Duration = Duration::from_secs(2);

/// Time after which a server that serves nothing here is forgotten, so that it is tried again.
const RETRY: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Measured {
    model: ServiceModel,
    told: Option<ServiceTime>,
    /// The last that was told of it under an earlier routing table.
    earlier: Option<ServiceTime>,
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
    /// Takes in what a step of so many executors was served. Returns what is to be told, as it has
    /// changed; nothing of a server that is not known any longer. With each routing table all begins
    /// anew, as copies of shards make servers slow meanwhile; but what is known of a server that
    /// serves nothing since is told again.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        table: Revision,
        executors: usize,
        served: &[ServedBy],
    ) -> Vec<(NodeId, Option<ServiceTime>)> {
        let is_changed = table != std::mem::replace(&mut self.table, table);
        if !is_changed {
            for served in served {
                let new = || Measured { told_at: now, ..Measured::default() };
                let measured = self.servers.entry(served.node).or_insert_with(new);
                let after = now.saturating_sub(measured.seen_at);
                measured.model.observe(served, executors, after);
                measured.seen_at = now;
            }
        }
        let times = estimates(self.servers.iter().map(|(&node, measured)| (node, &measured.model)));
        let mut news = Vec::new();
        self.servers.retain(|&node, measured| {
            let is_known = now < measured.seen_at + RETRY;
            if is_changed || !is_known {
                news.extend(measured.told.map(|_| (node, None)));
                measured.earlier = measured.told.take().or(measured.earlier);
                (measured.model, measured.told_at) = (ServiceModel::default(), now);
            } else if let Some(time) = measured.news(now, times.get(&node)) {
                news.push((node, Some(time)));
            }
            is_known
        });
        news
    }
}

impl Measured {
    /// The estimate, if it is to be told.
    fn news(&mut self, now: Duration, time: Option<&ServiceTime>) -> Option<ServiceTime> {
        let is_due = now >= self.told_at + EVERY;
        let earlier = self.earlier.filter(|_| self.model == ServiceModel::default());
        let estimate = time.copied().or(earlier).filter(|_| is_due)?;
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
        let table = Revision(1);
        meter.observe(second(0), table, 1, &[]);
        for now in 0..60 {
            let served = |node, ms| {
                let rows = RowTimes { count: 100, took: Duration::from_millis(ms) };
                ServedBy { node: NodeId(node), pushed: rows, logged: 0, read: rows }
            };
            let served = [served(1, 10), served(2, if now < 20 { 10 } else { 80 })];
            let served = if now < 40 { &served[..] } else { &served[..1] };
            for (node, time) in meter.observe(second(now), table, 1, served) {
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
        let gone = meter.observe(second(60), Revision(2), 1, &[]);
        assert_eq!(gone, [(NodeId(1), None)], "measured under another table");
        assert_eq!(meter.observe(second(61), Revision(2), 1, &[]), []);
        let again = ServiceTime { push_ns: 100_000, read_ns: 100_000 };
        let told = meter.observe(second(62), Revision(2), 1, &[]);
        assert_eq!(told, [(NodeId(1), Some(again))], "it serves nothing any more");
        assert_eq!(meter.observe(second(79), Revision(2), 1, &[]), [(NodeId(1), None)], "retried");
    }
}
