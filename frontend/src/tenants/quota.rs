//! A quota of requests per second: a token bucket filled by time, which is handed in.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Quota {
    /// Tokens per second.
    rate: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was right, after some start.
    at: Duration,
}

impl Quota {
    /// `rate` requests a second over time, `burst` at once; starts full.
    pub fn new(rate: f64, burst: f64) -> Self {
        let burst = burst.max(1.0);
        Self {
            rate: rate.max(f64::MIN_POSITIVE),
            burst,
            tokens: burst,
            at: Duration::ZERO,
        }
    }

    /// Takes a token at `now`, or returns the time until there is one.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::try_from_secs_f64((1.0 - self.tokens) / self.rate).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut quota = Quota::new(10.0, 5.0);
        let granted = |quota: &mut Quota, ms: u64| quota.take(Duration::from_millis(ms)).is_ok();
        assert_eq!((0..20).filter(|_| granted(&mut quota, 0)).count(), 5);
        assert_eq!(quota.take(Duration::ZERO).unwrap_err().as_millis(), 100);
        assert_eq!(
            (1..=10_000).filter(|&ms| granted(&mut quota, ms)).count(),
            100
        );
        let granted_later = (0..20).filter(|_| granted(&mut quota, 1_000_000)).count();
        assert_eq!(granted_later, 5, "it never holds more than the burst");
        assert!(
            !granted(&mut quota, 10),
            "time that goes back grants nothing"
        );
    }
}
