//! The sequences of faults that follow from a profile, its seed and the instance's number.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use crate::faults::profile::{FaultProfile, ServiceTime, Slowdown, Span, Straggling, Transfers};

/// Faults of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time to add.
    pub delay: Duration,
    /// True if the batch fails after its delay.
    pub fails: bool,
}

/// Sequence of faults for the batches of one model at one instance.
///
/// Each kind of fault draws from its own random stream: switching one on does not move the others.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    service_time: Option<ServiceTime>,
    straggle: Option<Straggling>,
    /// Slow periods, then each of the concurrent transfers.
    disturbances: Vec<Disturbance>,
    instance: u64,
    error_probability: f64,
    service_times: ChaCha8Rng,
    straggles: ChaCha8Rng,
    added: ChaCha8Rng,
    errors: ChaCha8Rng,
}

impl FaultPlan {
    /// The plan of `profile` for `model` at the instance of this number.
    pub fn new(profile: &FaultProfile, instance: u64, model: &str) -> Self {
        let own = of_instance(profile.seed, instance);
        // Models of one instance draw apart from each other.
        let seed = model.bytes().fold(own, |seed, byte| mix(seed ^ u64::from(byte)));
        let slowdown = profile.slowdown.into_iter();
        let slowdown = slowdown.map(|slowdown| Disturbance::slow(slowdown, profile.seed, own));
        let transfers = profile.transfers.into_iter().flat_map(|transfers| {
            let numbers = 0..u64::from(transfers.concurrent);
            numbers.map(move |number| Disturbance::transfer(transfers, profile.seed, number))
        });
        let of_model = profile.model_service_time.get(model);
        Self {
            service_time: of_model.or(profile.service_time.as_ref()).cloned(),
            straggle: profile.straggle,
            disturbances: slowdown.chain(transfers).collect(),
            instance,
            error_probability: profile.error_probability,
            service_times: stream(seed, Kind::ServiceTime),
            straggles: stream(seed, Kind::Straggling),
            added: stream(seed, Kind::Slowdown),
            errors: stream(seed, Kind::Errors),
        }
    }

    /// Returns the faults of the batch that begins at `elapsed` since the start of the experiment.
    /// `elapsed` must not go back.
    pub fn next(&mut self, elapsed: Duration) -> Fault {
        let mut ms = match &self.service_time {
            None => 0.0,
            Some(ServiceTime::Constant { ms }) => *ms,
            Some(ServiceTime::Uniform { min_ms, max_ms }) => {
                self.service_times.random_range(*min_ms..=*max_ms)
            }
            Some(ServiceTime::Lognormal { median_ms, sigma }) => {
                let normal: f64 = StandardNormal.sample(&mut self.service_times);
                median_ms * (sigma * normal).exp()
            }
            Some(ServiceTime::Empirical { values_ms }) => {
                let index = self.service_times.random_range(0..values_ms.len().max(1));
                values_ms.get(index).copied().unwrap_or_default()
            }
        };
        if let Some(straggle) = self.straggle {
            // Both numbers are drawn for each batch, so the probability does not move the times.
            let happens = self.straggles.random_bool(straggle.probability);
            let time = self.straggles.random_range(straggle.min_ms..=straggle.max_ms);
            ms += if happens { time } else { 0.0 };
        }
        for disturbance in &mut self.disturbances {
            if let Some(added) = disturbance.at(elapsed, self.instance) {
                ms += self.added.random_range(added.min_ms..=added.max_ms);
            }
        }
        Fault { delay: milliseconds(ms), fails: self.errors.random_bool(self.error_probability) }
    }
}

#[derive(Debug, Clone)]
struct Disturbance {
    windows: Windows,
    seed: u64,
    cause: Cause,
}

#[derive(Debug, Clone)]
enum Cause {
    Slowdown(Slowdown),
    Transfer(Transfers),
}

impl Disturbance {
    /// Slow periods of an instance whose own seed is `own`.
    fn slow(slowdown: Slowdown, seed: u64, own: u64) -> Self {
        let of_windows = if slowdown.correlated { seed } else { own };
        let random = stream(of_windows, Kind::Slowdown);
        Self {
            windows: Windows::new(slowdown.mean_interval_ms, slowdown.length, random),
            seed,
            cause: Cause::Slowdown(slowdown),
        }
    }

    fn transfer(transfers: Transfers, seed: u64, number: u64) -> Self {
        let seed = mix(seed ^ mix(number));
        let random = stream(seed, Kind::Transfers);
        Self {
            windows: Windows::new(transfers.mean_pause_ms, transfers.length, random),
            seed,
            cause: Cause::Transfer(transfers),
        }
    }

    /// Time added to each batch of the instance, if it is hit at `elapsed`.
    fn at(&mut self, elapsed: Duration, instance: u64) -> Option<Span> {
        let window = self.windows.covering(elapsed)?;
        match &self.cause {
            Cause::Slowdown(slowdown) => {
                let draw = if slowdown.correlated { window.index } else { 0 };
                let seed = of_instance(mix(self.seed ^ draw), instance);
                let is_hit = stream(seed, Kind::SlowdownShare).random_bool(slowdown.share);
                is_hit.then_some(slowdown.added)
            }
            Cause::Transfer(transfers) => {
                let mut random = ChaCha8Rng::seed_from_u64(mix(self.seed ^ mix(window.index)));
                let all = u64::from(transfers.instances.max(2));
                let one = random.random_range(0..all);
                let other = (one + random.random_range(1..all)) % all;
                [one, other].contains(&instance).then_some(transfers.added)
            }
        }
    }
}

/// One freeze of an instance after the other, endless and never overlapping; none without a
/// [`Freezing`](crate::faults::Freezing).
#[derive(Debug, Clone)]
pub struct Freezes(Option<Windows>);

impl Freezes {
    /// The freezes of `profile` at the instance of this number.
    pub fn new(profile: &FaultProfile, instance: u64) -> Self {
        let random = stream(of_instance(profile.seed, instance), Kind::Freezes);
        Self(profile.freeze.map(|freeze| {
            let length = Span { min_ms: freeze.min_ms, max_ms: freeze.max_ms };
            Windows::new(freeze.mean_interval_ms, length, random)
        }))
    }

    /// Remaining standstill of the instance `elapsed` after its start; `elapsed` must not go back.
    pub fn remaining(&mut self, elapsed: Duration) -> Duration {
        let window = self.0.as_mut().and_then(|windows| windows.covering(elapsed));
        window.map_or(Duration::ZERO, |window| window.end - elapsed)
    }
}

impl Iterator for Freezes {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        self.0.as_mut().map(Windows::advance)
    }
}

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
struct Windows {
    mean_interval_ms: f64,
    length: Span,
    random: ChaCha8Rng,
    current: Option<Window>,
}

impl Windows {
    fn new(mean_interval_ms: f64, length: Span, random: ChaCha8Rng) -> Self {
        Self { mean_interval_ms, length, random, current: None }
    }

    /// The window in which `elapsed` lies; `elapsed` must not go back.
    fn covering(&mut self, elapsed: Duration) -> Option<Window> {
        let mut window = self.current.unwrap_or_else(|| self.advance());
        while window.end <= elapsed {
            window = self.advance();
        }
        (window.start <= elapsed).then_some(window)
    }

    fn advance(&mut self) -> Window {
        let interval: f64 = Exp1.sample(&mut self.random);
        let length = self.random.random_range(self.length.min_ms..=self.length.max_ms);
        let last = self.current;
        let start = last.map_or(Duration::ZERO, |last| last.end)
            + milliseconds(interval * self.mean_interval_ms);
        // Not empty, so that looking for the one that covers a time gets on.
        let end = start + milliseconds(length).max(Duration::from_micros(1));
        let window = Window { index: last.map_or(0, |last| last.index + 1), start, end };
        self.current = Some(window);
        window
    }
}

/// The random stream of one kind of fault: switching one on does not move the others.
fn stream(seed: u64, kind: Kind) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(kind as u64);
    random
}

#[derive(Debug, Clone, Copy)]
enum Kind {
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
fn of_instance(seed: u64, instance: u64) -> u64 {
    mix(seed ^ mix(instance.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// SplitMix64's finaliser: neighbouring numbers come out unrelated.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The tail of a distribution is cut at an hour.
fn milliseconds(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, 3_600_000.0) / 1000.0)
}

#[cfg(test)]
mod tests;
