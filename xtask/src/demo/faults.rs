//! The faults of a demo run, planned from a seed: the same for runs without coding and with it.

use crate::prelude::*;
use nix::sys::signal::Signal::{self, SIGCONT, SIGKILL, SIGSTOP};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub(crate) const REPLICAS: usize = 4;
pub(crate) const PARITY: usize = 2;
/// Seconds between two freezes of a replica. A frozen replica holds the one request in its slot, so
/// at 200 requests/s a freeze every half second catches 1 % of them.
const REPLICA_INTERVAL: f64 = 0.5;
/// Seconds between two freezes of a parity instance: as often for each instance as a replica.
const PARITY_INTERVAL: f64 = REPLICA_INTERVAL * (REPLICAS / PARITY) as f64;
const FREEZE_MS: std::ops::Range<u64> = 200..400;

/// A signal to an instance at a time after the start of the load: SIGSTOP freezes, SIGCONT thaws,
/// SIGKILL kills. Instances count replicas first, then parity instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) instance: usize,
    pub(crate) signal: Signal,
}

/// Freezes at random moments, and one replica killed for good half-way. Stragglers are independent
/// and rare, the case that a code with r = 1 is for: of the replicas one is frozen at a time, and
/// of the parity instances one, but a replica and a parity instance may well be at once.
pub(crate) fn plan(seed: u64, span: Duration) -> Vec<Planned> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let killed = random.random_range(0..REPLICAS);
    let planned = |at, instance, signal| Planned { at, instance, signal };
    let mut faults = vec![planned(span / 2, killed, SIGKILL)];
    let pools = [(0..REPLICAS, REPLICA_INTERVAL), (REPLICAS..REPLICAS + PARITY, PARITY_INTERVAL)];
    for (pool, interval) in pools {
        let mean_length = Duration::from_millis((FREEZE_MS.start + FREEZE_MS.end) / 2);
        let mean_gap = interval - mean_length.as_secs_f64();
        let mut at = Duration::ZERO;
        loop {
            at += Duration::from_secs_f64(mean_gap * random.random_range(0.1..1.9));
            let thaw = at + Duration::from_millis(random.random_range(FREEZE_MS));
            if thaw > span {
                break;
            }
            let is_alive = |&instance: &usize| instance != killed || thaw < span / 2;
            let alive: Vec<usize> = pool.clone().filter(is_alive).collect();
            if let Some(&instance) = alive.choose(&mut random) {
                faults.push(planned(at, instance, SIGSTOP));
                faults.push(planned(thaw, instance, SIGCONT));
            }
            at = thaw;
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

pub(crate) fn describe(faults: &[Planned]) -> String {
    let freezes = faults.iter().filter(|fault| fault.signal == SIGSTOP);
    let (replicas, parity): (Vec<&Planned>, Vec<&Planned>) =
        freezes.partition(|fault| fault.instance < REPLICAS);
    format!(
        "{} freezes of a replica and {} of a parity instance, {} to {} ms each, at most one of a \
         kind at a time",
        replicas.len(),
        parity.len(),
        FREEZE_MS.start,
        FREEZE_MS.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_follows_from_the_seed_and_thaws_whatever_it_freezes() {
        let span = Duration::from_secs(40);
        let faults = plan(7, span);
        assert_eq!(faults, plan(7, span));
        assert_ne!(faults, plan(8, span));
        let mut frozen = [false; REPLICAS + PARITY];
        let mut killed = None;
        let mut freezes_of_replicas = 0;
        for fault in &faults {
            let (instance, signal) = (fault.instance, fault.signal);
            assert_ne!(Some(instance), killed, "a killed instance is left alone");
            match signal {
                SIGKILL => killed = Some(instance),
                _ => {
                    assert_eq!(frozen[instance], signal == SIGCONT);
                    frozen[instance] = signal == SIGSTOP;
                }
            }
            freezes_of_replicas += usize::from(signal == SIGSTOP && instance < REPLICAS);
            assert!(fault.at <= span);
        }
        assert_eq!(frozen, [false; REPLICAS + PARITY]);
        assert!(killed.is_some_and(|instance| instance < REPLICAS));
        assert!(
            (60..=100).contains(&freezes_of_replicas),
            "about 1 % of 8,000 requests: {freezes_of_replicas}"
        );
    }
}
