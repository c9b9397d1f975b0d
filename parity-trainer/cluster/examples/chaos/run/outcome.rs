//! Outcome of a run, and whether it is good enough.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub struct Kill {
    pub led: bool,
    /// From its death to the acknowledgement of the first push that was begun after it.
    pub delay: Duration,
}

/// The time in which the registry stood still, and what it set off.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    pub length: Duration,
    /// Pushes acknowledged in it.
    pub acknowledged: u64,
    /// The longest that one took then, or after it until all was well.
    pub longest: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct ChaosOutcome {
    pub kills: Vec<Kill>,
    /// If it was stopped.
    pub stop: Option<Stop>,
    /// Pushes acknowledged, all of which are in the values, once.
    pub acknowledged: u64,
    /// Steps of the disturbed training's workers.
    pub steps: u64,
    pub loss: Option<f64>,
    /// The final losses of as many steps without disturbance, each with other batches.
    pub undisturbed: Vec<f64>,
}

/// Two-sided 99 % quantiles of Student's t with 1, 2, .. degrees of freedom.
const T: [f64; 9] = [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250];

/// Within what one more loss should lie, if it is one of the same kind: the 99 % prediction
/// interval, mean ± t s sqrt(1 + 1/n).
fn noise(losses: &[f64]) -> Option<(f64, f64)> {
    let n = losses.len() as f64;
    let t = T.get(losses.len().checked_sub(2)?)?;
    let mean = losses.iter().sum::<f64>() / n;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t * (variance * (1.0 + 1.0 / n)).sqrt();
    Some((mean - half, mean + half))
}

impl ChaosOutcome {
    /// The delay that so many of all kills do not exceed: of few, the longest.
    pub fn percentile(&self, part: f64) -> Duration {
        let mut delays: Vec<Duration> = self.kills.iter().map(|kill| kill.delay).collect();
        delays.sort_unstable();
        let place = ((delays.len() as f64 * part).ceil() as usize).clamp(1, delays.len().max(1));
        delays.get(place - 1).copied().unwrap_or_default()
    }

    /// The bounds that were missed: `limit` by the kills' 99th percentile and by the waits while
    /// the registry stood still, the noise of the undisturbed losses by the disturbed one.
    #[allow(dead_code, reason = "the test does without")]
    pub fn missed(&self, limit: Duration) -> Vec<String> {
        let mut missed = Vec::new();
        let p99 = self.percentile(0.99);
        if p99 > limit {
            missed.push(format!("the next push took {p99:.1?} at p99, above {limit:?}"));
        }
        if let Some(stop) = self.stop
            && (stop.longest > limit || stop.acknowledged == 0)
        {
            let longest = stop.longest;
            missed.push(format!(
                "while the registry stood still, or after, a push took {longest:.1?}, above \
                    {limit:?}"
            ));
        }
        if let (Some(loss), Some((low, high))) = (self.loss, noise(&self.undisturbed))
            && !(low..=high).contains(&loss)
        {
            missed.push(format!("the loss {loss:.6} is not within {low:.6} to {high:.6}"));
        }
        missed
    }
}

impl fmt::Display for ChaosOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let led = self.kills.iter().filter(|kill| kill.led).count();
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| self.percentile(part));
        write!(
            f,
            "{} servers killed, {led} of them leaders; the next push took {p50:.1?} at p50, \
                {p99:.1?} at p99, {longest:.1?} at most; {} pushes acknowledged, none lost",
            self.kills.len(),
            self.acknowledged
        )?;
        if let Some(stop) = self.stop {
            let (length, longest) = (stop.length, stop.longest);
            let acknowledged = stop.acknowledged;
            write!(
                f,
                "\nRegistry stopped for {length:?}: {acknowledged} pushes acknowledged meanwhile; \
                    the longest then and after took {longest:.1?}"
            )?;
        }
        if let (Some(loss), Some((low, high))) = (self.loss, noise(&self.undisturbed)) {
            let (steps, trainings) = (self.steps, self.undisturbed.len());
            write!(
                f,
                "\nFinal loss after {steps} steps: {loss:.6}; {trainings} undisturbed trainings \
                    allow {low:.6} to {high:.6}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_loss_outside_the_noise_is_told_from_one_inside() {
        // Mean 2, deviation 1: half the interval is 9.925 * sqrt(1 + 1/3).
        let (low, high) = noise(&[1.0, 2.0, 3.0]).unwrap();
        let errors = [low + 9.460_3, high - 13.460_3];
        assert!(errors.iter().all(|by| by.abs() < 1e-3), "{low} {high}");
        assert_eq!((noise(&[]), noise(&[1.0])), (None, None));
    }

    #[test]
    fn percentiles_of_few_are_the_longest() {
        let kill = |ms| Kill { led: false, delay: Duration::from_millis(ms) };
        let outcome =
            ChaosOutcome { kills: (1..=20).rev().map(kill).collect(), ..ChaosOutcome::default() };
        let found = [0.5, 0.99].map(|part| outcome.percentile(part).as_millis());
        assert_eq!(found, [10, 20]);
        assert_eq!(ChaosOutcome::default().percentile(0.99), Duration::ZERO);
    }
}
