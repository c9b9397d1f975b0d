//! Stretches of time that follow from a seed.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};

use crate::faults::profile::Span;

/// A stretch of time, counted from the start of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its number, from 0.
    pub index: u64,
    /// Start, since the start of the experiment.
    pub start: Duration,
    /// End, since the start of the experiment.
    pub end: Duration,
}

/// One window after the other, endless and never overlapping: exponential times between the end of
/// one and the start of the next, lengths uniform.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    mean_interval_ms: f64,
    length: Span,
    random: ChaCha8Rng,
    current: Option<Window>,
}

impl Windows {
    pub(crate) fn new(mean_interval_ms: f64, length: Span, random: ChaCha8Rng) -> Self {
        Self {
            mean_interval_ms,
            length,
            random,
            current: None,
        }
    }

    /// The window in which `elapsed` lies; `elapsed` must not go back.
    pub(crate) fn covering(&mut self, elapsed: Duration) -> Option<Window> {
        let mut window = match self.current {
            Some(window) => window,
            None => self.advance(),
        };
        while window.end <= elapsed {
            window = self.advance();
        }
        (window.start <= elapsed).then_some(window)
    }

    pub(crate) fn advance(&mut self) -> Window {
        let interval: f64 = Exp1.sample(&mut self.random);
        let length = self
            .random
            .random_range(self.length.min_ms..=self.length.max_ms);
        let last = self.current;
        let start = last.map_or(Duration::ZERO, |last| last.end)
            + milliseconds(interval * self.mean_interval_ms);
        // Not empty, so that looking for the one that covers a time gets on.
        let end = start + milliseconds(length).max(Duration::from_micros(1));
        let window = Window {
            index: last.map_or(0, |last| last.index + 1),
            start,
            end,
        };
        self.current = Some(window);
        window
    }
}

/// The random stream of one kind of fault: switching one on does not move the others.
pub(crate) fn stream(seed: u64, kind: Kind) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(kind as u64);
    random
}

/// Purpose of a random stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    ServiceTime = 0,
    Straggling = 1,
    Errors = 2,
    Freezes = 3,
    Slowdown = 4,
    SlowdownShare = 5,
    /// One stream for each concurrent transfer follows.
    Transfers = 64,
}

/// The seed of what belongs to one instance alone.
pub(crate) fn of_instance(seed: u64, instance: u64) -> u64 {
    mix(seed ^ mix(instance.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// SplitMix64's finaliser: neighbouring numbers come out unrelated.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The tail of a distribution is cut at an hour.
pub(crate) fn milliseconds(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, 3_600_000.0) / 1000.0)
}
