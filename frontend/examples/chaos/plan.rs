//! Faults of the cluster and their times, drawn from the seed alone.

use std::fmt;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Instances of the deployed model. The first is reached directly, the others by way of a relay
/// that can spoil their answers.
pub const REPLICAS: usize = 4;
/// Instances that serve the parity models and the backup model; the same goes for the
/// first of them.
pub const PARITY: usize = 2;
/// Frontends beside each other.
pub const FRONTENDS: usize = 2;
/// Nothing is done any more before the end, so that all is well again by then.
pub const CALM: Duration = Duration::from_secs(12);

/// An instance by its place: the replicas first.
pub type Instance = usize;

/// Returns true if the frontends reach it by way of a relay.
pub fn is_relayed(instance: Instance) -> bool {
    instance != 0 && instance != REPLICAS
}

/// Way in which an answer is spoilt between an instance and a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    /// One of its numbers is not one.
    NaN,
    /// Other shapes, types or names than the model's.
    WrongShape,
    /// It comes a few bytes at a time.
    SlowBody,
    /// The connection is reset within it.
    Reset,
    /// It is no HTTP.
    Garbage,
    /// The instance says that it has failed.
    Error,
    /// It never ends.
    Endless,
}

impl Spoil {
    pub const ALL: [Self; 7] = [
        Self::NaN,
        Self::WrongShape,
        Self::SlowBody,
        Self::Reset,
        Self::Garbage,
        Self::Error,
        Self::Endless,
    ];
}

/// Mistake in a configuration that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    NoToml,
    UnknownModel,
    OtherAddress,
}

impl Mistake {
    const ALL: [Self; 3] = [Self::NoToml, Self::UnknownModel, Self::OtherAddress];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGSTOP, and SIGCONT afterwards.
    Frozen(Instance),
    /// SIGKILL; afterwards it is started again.
    Killed(Instance),
    /// All replicas at once: every member of every group is late.
    ReplicasFrozen,
    /// Its answers, each with this probability in percent.
    Spoilt(Instance, Spoil, u8),
    /// All of them killed, or else frozen, at once.
    ParityLost { killed: bool },
    /// This variant of the configuration, on both frontends.
    Reloaded(usize),
    /// One that must be refused, and change nothing.
    Misconfigured(Mistake),
    /// A new process takes the place of this frontend, which is asked to stop.
    Rolled(usize),
    /// Clients send bursts of inputs that overflow the model, beside the honest ones.
    Poisoned,
}

impl Fault {
    /// Its kind, for counting.
    pub fn kind(&self) -> String {
        match self {
            Self::Frozen(_) => "instance frozen".to_owned(),
            Self::Killed(_) => "instance killed".to_owned(),
            Self::ReplicasFrozen => "replicas frozen".to_owned(),
            Self::Spoilt(_, how, _) => format!("answers spoilt: {how:?}"),
            Self::ParityLost { killed: true } => "parity pool killed".to_owned(),
            Self::ParityLost { killed: false } => "parity pool frozen".to_owned(),
            Self::Reloaded(_) => "configuration reloaded".to_owned(),
            Self::Misconfigured(_) => "configuration with a mistake refused".to_owned(),
            Self::Rolled(_) => "frontend rolled".to_owned(),
            Self::Poisoned => "bursts of poison queries".to_owned(),
        }
    }

    /// Returns true if the instance gives its frontends cause to eject it.
    pub fn spoils(&self, instance: Instance) -> bool {
        match self {
            Self::Frozen(of) | Self::Killed(of) | Self::Spoilt(of, ..) => *of == instance,
            Self::ParityLost { .. } => instance >= REPLICAS,
            Self::ReplicasFrozen => instance < REPLICAS,
            _ => false,
        }
    }

    /// Returns true if requests to an instance fail at once rather than late, so that a query may
    /// lose its prediction before it is late.
    pub fn fails_at_once(&self) -> bool {
        match self {
            Self::Killed(_) => true,
            Self::Spoilt(_, how, _) => *how != Spoil::SlowBody,
            _ => false,
        }
    }
}

/// A fault with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub at: Duration,
    /// Until it is made good, where that is for us to do.
    pub lasts: Duration,
    pub fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7.2} s  {:?}", self.at.as_secs_f64(), self.fault)?;
        match self.fault {
            Fault::Reloaded(_) | Fault::Misconfigured(_) | Fault::Rolled(_) => Ok(()),
            _ => write!(f, " for {:.2} s", self.lasts.as_secs_f64()),
        }
    }
}

/// The faults of a run of this length. They come in rounds in which each kind has its turn, in an
/// order of its own.
pub fn draw(seed: u64, length: Duration, variants: usize) -> Vec<Planned> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let last = length.saturating_sub(CALM);
    let mut planned = Vec::new();
    let mut at = Duration::from_secs(2);
    loop {
        let mut round = round(&mut random, variants);
        round.shuffle(&mut random);
        for fault in round {
            let lasts = Duration::from_millis(random.random_range(300..5_000));
            if at >= last {
                return planned;
            }
            planned.push(Planned { at, lasts: lasts.min(last - at), fault });
            at += Duration::from_millis(random.random_range(300..2_500));
        }
    }
}

fn round(random: &mut ChaCha8Rng, variants: usize) -> Vec<Fault> {
    let all = 0..REPLICAS + PARITY;
    let relayed: Vec<Instance> = all.filter(|&instance| is_relayed(instance)).collect();
    let mut faults = Vec::new();
    for _ in 0..3 {
        faults.push(Fault::Frozen(random.random_range(0..REPLICAS + PARITY)));
        faults.push(Fault::Killed(random.random_range(0..REPLICAS + PARITY)));
    }
    for spoil in Spoil::ALL {
        let instance = relayed[random.random_range(0..relayed.len())];
        faults.push(Fault::Spoilt(instance, spoil, random.random_range(5..=100)));
    }
    faults.push(Fault::ReplicasFrozen);
    faults.push(Fault::ParityLost { killed: true });
    faults.push(Fault::ParityLost { killed: false });
    for _ in 0..2 {
        faults.push(Fault::Reloaded(random.random_range(0..variants)));
    }
    let mistakes = Mistake::ALL;
    let mistake = mistakes[random.random_range(0..mistakes.len())];
    faults.push(Fault::Misconfigured(mistake));
    faults.push(Fault::Rolled(random.random_range(0..FRONTENDS)));
    faults.push(Fault::Poisoned);
    faults.push(Fault::Poisoned);
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    #[test]
    fn the_seed_determines_everything() {
        assert_eq!(draw(7, TEN_MINUTES, 6), draw(7, TEN_MINUTES, 6));
        assert_ne!(draw(7, TEN_MINUTES, 6), draw(8, TEN_MINUTES, 6));
    }

    #[test]
    fn every_kind_has_its_turn_and_all_is_made_good_before_the_calm() {
        let planned = draw(1, Duration::from_secs(90), 4);
        let kinds: BTreeSet<String> = planned.iter().map(|planned| planned.fault.kind()).collect();
        assert_eq!(kinds.len(), 9 + Spoil::ALL.len(), "{kinds:?}");
        let last = Duration::from_secs(90) - CALM;
        assert!(planned.iter().all(|planned| planned.at + planned.lasts <= last));
        assert!(draw(1, CALM, 4).is_empty());
    }
}
