//! Choice of the slow worker, and the time that this makes it compute.

use std::str::FromStr;
use std::time::Duration;

use twox_hash::XxHash3_64;

/// When which worker is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slowdown {
    Never,
    /// The first, all the time.
    Always,
    /// One at a time: for each stretch of this length, one is drawn. The same may be drawn again.
    Turns(Duration),
}

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => return Ok(Self::Never),
            "always" => return Ok(Self::Always),
            _ => {}
        }
        let milliseconds = text
            .strip_prefix("turns:")
            .and_then(|number| number.parse().ok());
        match milliseconds.filter(|&milliseconds| milliseconds > 0) {
            Some(milliseconds) => Ok(Self::Turns(Duration::from_millis(milliseconds))),
            None => Err(format!(
                "'{text}' is no slowdown: write never, always or turns:100 (milliseconds)"
            )),
        }
    }
}

/// Computation that takes longer while a worker is slow. A pure function of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Injection {
    /// When which is slow.
    pub(crate) slowdown: Slowdown,
    /// Number of workers, at least 1.
    pub(crate) workers: usize,
    /// Factor by which a slow worker's computation takes longer, at least 1.
    pub(crate) factor: f64,
    /// Gives the draws.
    pub(crate) seed: u64,
}

impl Injection {
    /// Returns true if `worker` is slow at a time since the start, and until when that stays
    /// as it is.
    fn at(&self, worker: usize, time: Duration) -> (bool, Duration) {
        match self.slowdown {
            Slowdown::Never => (false, Duration::MAX),
            Slowdown::Always => (worker == 0, Duration::MAX),
            Slowdown::Turns(length) => {
                let turn = time.as_nanos() / length.as_nanos().max(1);
                let drawn = XxHash3_64::oneshot_with_seed(self.seed, &turn.to_le_bytes());
                let slow = drawn % self.workers.max(1) as u64 == worker as u64;
                let next = u32::try_from(turn + 1).unwrap_or(u32::MAX);
                (slow, length.saturating_mul(next))
            }
        }
    }

    /// Returns the end of a computation that begins at `start` and takes `work` without slowdown.
    pub(crate) fn end(&self, worker: usize, start: Duration, work: Duration) -> Duration {
        let (mut now, mut left) = (start, work);
        loop {
            let (is_slow, until) = self.at(worker, now);
            let factor = if is_slow { self.factor.max(1.0) } else { 1.0 };
            let end = now.saturating_add(left.mul_f64(factor));
            if end <= until || until <= now {
                return end;
            }
            left = left.saturating_sub((until - now).div_f64(factor));
            now = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn slow_workers_compute_longer_for_as_long_as_they_are_slow() {
        let always = Injection {
            slowdown: Slowdown::Always,
            workers: 4,
            factor: 4.0,
            seed: 1,
        };
        assert_eq!(always.end(0, ms(100), ms(8)), ms(132));
        assert_eq!(always.end(1, ms(100), ms(8)), ms(108));
        let never = Injection {
            slowdown: Slowdown::Never,
            ..always
        };
        assert_eq!(never.end(0, ms(100), ms(8)), ms(108));
    }

    #[test]
    fn in_turns_one_is_slow_at_any_time_and_all_are_in_the_long_run() {
        let turns = Injection {
            slowdown: Slowdown::Turns(ms(100)),
            workers: 4,
            factor: 4.0,
            seed: 1,
        };
        let mut times = [0; 4];
        for turn in 0..400 {
            let slow: Vec<usize> = (0..4)
                .filter(|&worker| turns.at(worker, ms(turn * 100 + 50)).0)
                .collect();
            let &[slow] = &slow[..] else {
                panic!("{slow:?}")
            };
            times[slow] += 1;
        }
        assert!(
            times.iter().all(|times| (70..130).contains(times)),
            "{times:?}"
        );
        // One that computes without a pause does 1/4 of the work in the turns in which it is slow.
        let mut end = Duration::ZERO;
        for _ in 0..100 {
            end = turns.end(2, end, ms(8));
        }
        let lengths = (0..).map(|turn| (turn, end.saturating_sub(ms(turn * 100)).min(ms(100))));
        let work = lengths
            .take_while(|(_, length)| !length.is_zero())
            .map(|(turn, length)| {
                let is_slow = turns.at(2, ms(turn * 100)).0;
                length.as_secs_f64() * 1e3 / if is_slow { 4.0 } else { 1.0 }
            });
        let done: f64 = work.sum();
        assert!((done - 800.0).abs() < 0.01, "{done}");
    }

    #[test]
    fn slowdowns_are_read() {
        assert_eq!("turns:50".parse(), Ok(Slowdown::Turns(ms(50))));
        assert_eq!("always".parse(), Ok(Slowdown::Always));
        for bad in ["", "turns", "turns:0", "turns:x", "sometimes"] {
            assert!(
                bad.parse::<Slowdown>().unwrap_err().contains("turns:100"),
                "{bad}"
            );
        }
    }
}
