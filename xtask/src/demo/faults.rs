//! The faults of a demo run, planned from a seed: the same for the run without coding and the run with it.

use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Replicas of the deployed model.
pub(crate) const REPLICAS: usize = 4;
/// Instances of the parity model.
pub(crate) const PARITY: usize = 2;
/// Freezes of a replica per second. A frozen replica holds the one request in its slot, so at 200 requests/s this
/// catches 1 % of them.
const FREEZES_PER_SECOND: f64 = 2.0;
/// How long a freeze lasts, in milliseconds.
const FREEZE_MS: std::ops::Range<u64> = 200..400;

/// Something that happens to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGSTOP.
    Freeze,
    /// SIGCONT.
    Thaw,
    /// SIGKILL.
    Kill,
}

/// A fault at a time after the start of the load. Instances count replicas first, then parity instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) instance: usize,
    pub(crate) fault: Fault,
}

/// Freezes at random moments, on any instance, parity ones included, that is not frozen already; and one replica killed
/// for good half-way.
pub(crate) fn plan(seed: u64, span: Duration) -> Vec<Planned> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let half = span / 2;
    let killed = random.random_range(0..REPLICAS);
    // Of all freezes, a replica's share is hit; the rate is that of replicas.
    let count =
        (FREEZES_PER_SECOND * span.as_secs_f64() * (REPLICAS + PARITY) as f64 / REPLICAS as f64) as usize;
    let mut starts: Vec<Duration> =
        (0..count).map(|_| span.mul_f64(random.random_range(0.02..0.96))).collect();
    starts.sort_unstable();
    let mut thawed = [Duration::ZERO; REPLICAS + PARITY];
    let mut faults = vec![Planned { at: half, instance: killed, fault: Fault::Kill }];
    for at in starts {
        let length = Duration::from_millis(random.random_range(FREEZE_MS));
        let free: Vec<usize> = (0..REPLICAS + PARITY)
            .filter(|&instance| thawed.get(instance).is_some_and(|&thawed| thawed < at))
            .filter(|&instance| instance != killed || at + length < half)
            .collect();
        let Some(&instance) = free.choose(&mut random) else { continue };
        if let Some(thawed) = thawed.get_mut(instance) {
            *thawed = at + length;
        }
        faults.push(Planned { at, instance, fault: Fault::Freeze });
        faults.push(Planned { at: at + length, instance, fault: Fault::Thaw });
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// One line for people.
pub(crate) fn describe(faults: &[Planned]) -> String {
    let freezes = |range: std::ops::Range<usize>| {
        faults.iter().filter(|fault| fault.fault == Fault::Freeze && range.contains(&fault.instance)).count()
    };
    format!(
        "{} freezes of a replica and {} of a parity instance, {} to {} ms each",
        freezes(0..REPLICAS),
        freezes(REPLICAS..REPLICAS + PARITY),
        FREEZE_MS.start,
        FREEZE_MS.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_follows_from_the_seed_and_thaws_whatever_it_freezes() {
        let span = Duration::from_secs(40);
        let faults = plan(7, span);
        assert_eq!(faults, plan(7, span));
        assert_ne!(faults, plan(8, span));
        let mut frozen = [false; REPLICAS + PARITY];
        let mut killed = None;
        for fault in &faults {
            assert_ne!(Some(fault.instance), killed, "a killed instance is left alone");
            match fault.fault {
                Fault::Freeze => assert!(!std::mem::replace(&mut frozen[fault.instance], true)),
                Fault::Thaw => assert!(std::mem::replace(&mut frozen[fault.instance], false)),
                Fault::Kill => killed = Some(fault.instance),
            }
            assert!(fault.at <= span);
        }
        assert_eq!(frozen, [false; REPLICAS + PARITY]);
        assert!(killed.is_some_and(|instance| instance < REPLICAS));
        let replicas = faults.iter().filter(|f| f.fault == Fault::Freeze && f.instance < REPLICAS).count();
        assert!((60..=100).contains(&replicas), "about 1 % of 8,000 requests: {replicas}");
    }
}
