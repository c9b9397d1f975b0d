//! Measurement of the servers by a process, for load distribution.

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::{NodeId, ServiceModel, ServiceTime};

/// Time between two tellings about a server, at least.
const EVERY: Duration = Duration::from_secs(2);

/// Time after which a server that serves nothing here is not known any longer, so that it is tried
/// again.
const RETRY: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Measured {
    model: ServiceModel,
    told: Option<ServiceTime>,
    /// Time at which it was told of, and at which it served something, last.
    told_at: Duration,
    seen_at: Duration,
}

/// Models of the servers, and what was told of them. Times count from any moment.
#[derive(Debug, Default)]
pub(super) struct ServiceMeter(BTreeMap<NodeId, Measured>);

impl ServiceMeter {
    /// Takes in what a step was served: by which server, how many rows, in which time. Returns what
    /// is to be told, as it has changed; nothing of a server that is not known any longer.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        served: &[(NodeId, u64, Duration)],
    ) -> Vec<(NodeId, Option<ServiceTime>)> {
        for &(node, rows, took) in served {
            let measured = self.0.entry(node).or_default();
            measured.model.observe(rows, took);
            measured.seen_at = now;
        }
        let mut news = Vec::new();
        self.0.retain(|&node, measured| {
            let is_known = now < measured.seen_at + RETRY;
            if !is_known {
                news.push((node, None));
            } else if let Some(time) = measured.news(now) {
                news.push((node, Some(time)));
            }
            is_known
        });
        news
    }
}

impl Measured {
    /// The estimate, if it is to be told.
    fn news(&mut self, now: Duration) -> Option<ServiceTime> {
        let is_due = self.told.is_none() || now >= self.told_at + EVERY;
        let estimate = self.model.estimate().filter(|_| is_due)?;
        if self.told.is_some_and(|told| !estimate.is_far_from(told)) {
            return None;
        }
        (self.told, self.told_at) = (Some(estimate), now);
        Some(estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn server_is_told_of_when_it_changes_and_tried_again_when_it_serves_nothing() {
        let mut meter = ServiceMeter::default();
        let mut told = Vec::new();
        for now in 0..60 {
            let ms = if now < 20 { 10 } else { 80 };
            let fast = (NodeId(1), 100, Duration::from_millis(10));
            let slow = (NodeId(2), 100, Duration::from_millis(ms));
            let served = [fast, slow];
            let served = if now < 40 { &served[..] } else { &served[..1] };
            for (node, time) in meter.observe(second(now), served) {
                told.push((now, node.0, time.map_or(0, |time| time.row_ns / 1000)));
            }
        }
        let firsts: Vec<_> = told.iter().filter(|(now, ..)| *now < 20).copied().collect();
        assert_eq!(firsts, [(2, 1, 100), (2, 2, 100)]);
        let rest = || told.iter().filter(|(now, ..)| *now >= 20);
        assert!(rest().all(|&(_, node, _)| node == 2), "{told:?}");
        let last = rest().rfind(|(now, ..)| *now < 40).map(|&(.., us)| us);
        assert!(last.is_some_and(|us| us > 700), "{told:?}");
        assert_eq!(told.last(), Some(&(59, 2, 0)), "{told:?}");
    }
}
