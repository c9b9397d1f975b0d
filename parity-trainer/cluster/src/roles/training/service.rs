//! Measurement of the servers by a process, for load distribution.

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::{NodeId, ServiceModel, ServiceTime};

/// Time between two tellings about a server, at least.
const EVERY: Duration = Duration::from_secs(1);

/// Time after which a server that serves nothing here is told to take half as long, so that it is
/// tried again.
const RETRY: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
struct Measured {
    model: ServiceModel,
    told: Option<ServiceTime>,
    /// When it was told of, and when it served something, last.
    told_at: Duration,
    seen_at: Duration,
}

/// Models of the servers, and what was told of them. Times count from any moment.
#[derive(Debug, Default)]
pub(super) struct ServiceMeter(BTreeMap<NodeId, Measured>);

impl ServiceMeter {
    /// Takes in what a step was served: by which server, how many rows, in which time. Returns what
    /// is to be told, as it has changed.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        served: &[(NodeId, u64, Duration)],
    ) -> Vec<(NodeId, ServiceTime)> {
        for &(node, rows, took) in served {
            let measured = self.0.entry(node).or_default();
            measured.model.observe(rows, took);
            measured.seen_at = now;
        }
        // One that is forgotten is as good as any other.
        self.0.retain(|_, measured| measured.told.is_none_or(|told| told.row_ns > 0));
        let tell = |(&node, measured): (&NodeId, &mut Measured)| {
            let next = if now >= measured.seen_at.max(measured.told_at) + RETRY {
                measured.model = ServiceModel::default();
                let told = measured.told?;
                ServiceTime { base_us: told.base_us / 2, row_ns: told.row_ns / 2 }
            } else {
                let is_due = measured.told.is_none() || now >= measured.told_at + EVERY;
                let estimate = measured.model.estimate().filter(|_| is_due)?;
                let is_far = |told: ServiceTime| estimate.is_far_from(told);
                measured.told.is_none_or(is_far).then_some(estimate)?
            };
            (measured.told, measured.told_at) = (Some(next), now);
            Some((node, next))
        };
        self.0.iter_mut().filter_map(tell).collect()
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
                told.push((now, node.0, time.row_ns / 1000));
            }
        }
        let firsts: Vec<_> = told.iter().filter(|(now, ..)| *now < 20).copied().collect();
        assert_eq!(firsts, [(2, 1, 100), (2, 2, 100)]);
        let rest = || told.iter().filter(|(now, ..)| *now >= 20);
        assert!(rest().all(|&(_, node, _)| node == 2), "{told:?}");
        let last = rest().rfind(|(now, ..)| *now < 40).map(|&(.., us)| us);
        assert!(last.is_some_and(|us| us > 700), "{told:?}");
        let halved = rest().find(|(now, ..)| *now >= 54).map(|&(.., us)| us);
        assert_eq!(halved, last.map(|us| us / 2), "{told:?}");
    }
}
