//! Outcome of a run, and whether it is good enough.

use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;

#[derive(Debug, Clone, Copy)]
pub struct Kill {
    /// The dead server's number.
    pub server: u64,
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
    /// Pushes acknowledged, all of which are in the final values, once.
    pub acknowledged: u64,
    /// Steps of the disturbed training's workers.
    pub steps: u64,
    pub loss: Option<f64>,
    /// The final losses of as many steps without disturbance, each with other batches.
    pub undisturbed: Vec<f64>,
    pub failed: Option<String>,
}

/// The bounds, and which of them were missed.
#[derive(Debug)]
#[allow(dead_code, reason = "the test does with some")]
pub struct Judgement {
    pub json: Value,
    /// A few lines of Markdown.
    pub text: String,
    /// One line for each bound.
    pub missed: Vec<String>,
}

/// Two-sided 99 % quantiles of Student's t with 1, 2, .. degrees of freedom.
const T: [f64; 9] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250,
];

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

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}

impl ChaosOutcome {
    /// The delay that so many of all kills do not exceed: of few, the longest.
    pub fn percentile(&self, part: f64) -> Duration {
        let mut delays: Vec<Duration> = self.kills.iter().map(|kill| kill.delay).collect();
        delays.sort_unstable();
        let place = ((delays.len() as f64 * part).ceil() as usize).clamp(1, delays.len().max(1));
        delays.get(place - 1).copied().unwrap_or_default()
    }

    /// Judges whether the kills' 99th percentile and the waits while the registry stood still keep
    /// to `limit`, and the loss to the noise of the undisturbed ones.
    #[allow(dead_code, reason = "the test does without")]
    pub fn judge(&self, plan: &Plan, limit: Duration) -> Judgement {
        let delays = [0.5, 0.99, 1.0].map(|part| ms(self.percentile(part)));
        let limit = ms(limit);
        let mut missed: Vec<String> = self.failed.clone().into_iter().collect();
        let p99 = delays[1];
        if p99 > limit {
            missed.push(format!(
                "the next push took {p99} ms at p99, above {limit} ms"
            ));
        }
        if let Some(stop) = self.stop
            && (ms(stop.longest) > limit || stop.acknowledged == 0)
        {
            let longest = ms(stop.longest);
            missed.push(format!(
                "while the registry stood still, or after, a push took {longest} ms, above {limit} \
                    ms"
            ));
        }
        if let (Some(loss), Some((low, high))) = (self.loss, noise(&self.undisturbed))
            && !(low..=high).contains(&loss)
        {
            missed.push(format!(
                "the loss {loss:.6} is not within {low:.6} to {high:.6}"
            ));
        }
        Judgement {
            json: self.json(plan, limit, delays, &missed),
            text: self.text(delays, &missed),
            missed,
        }
    }

    fn text(&self, [p50, p99, longest]: [f64; 3], missed: &[String]) -> String {
        let verdict = if missed.is_empty() { "kept" } else { "missed" };
        let lost = if self.failed.is_some() { "?" } else { "0" };
        let led = self.kills.iter().filter(|kill| kill.led).count();
        let (kills, acknowledged) = (self.kills.len(), self.acknowledged);
        let mut text = format!(
            "| kills | of leaders | next push p50 | p99 | max | acknowledged | lost | bounds |\n\
             |---|---|---|---|---|---|---|---|\n\
             | {kills} | {led} | {p50} ms | {p99} ms | {longest} ms | {acknowledged} | {lost} | \
             {verdict} |\n"
        );
        if let Some(stop) = self.stop {
            let (seconds, acknowledged) = (stop.length.as_secs(), stop.acknowledged);
            let longest = ms(stop.longest);
            text += &format!(
                "\nRegistry stopped for {seconds} s: {acknowledged} pushes acknowledged meanwhile; \
                    the longest then and after took {longest} ms.\n"
            );
        }
        if let (Some(loss), Some((low, high))) = (self.loss, noise(&self.undisturbed)) {
            let (steps, trainings) = (self.steps, self.undisturbed.len());
            text += &format!(
                "\nFinal loss after {steps} steps: {loss:.6}; {trainings} undisturbed trainings \
                    allow {low:.6} to {high:.6}.\n"
            );
        }
        for reason in missed {
            text += &format!("\nMissed: {reason}.\n");
        }
        text.trim_end().to_owned()
    }

    fn json(&self, plan: &Plan, limit: f64, delays: [f64; 3], missed: &[String]) -> Value {
        let [p50, p99, max] = delays;
        let kills = self.kills.iter().map(|kill| {
            json!({ "server": kill.server, "led": kill.led, "next_push_ms": ms(kill.delay) })
        });
        let stop = self.stop.map(|stop| {
            json!({
                "seconds": stop.length.as_secs_f64(),
                "acknowledged": stop.acknowledged,
                "longest_push_ms": ms(stop.longest),
            })
        });
        json!({
            "registry": format!("{:?}", plan.registry),
            "seed": plan.seed,
            "kills": kills.collect::<Vec<_>>(),
            "kills_planned": plan.kills,
            "next_push_ms": { "p50": p50, "p99": p99, "max": max, "limit": limit },
            "acknowledged_pushes_checked": self.acknowledged,
            "registry_stopped": stop,
            "loss": {
                "steps": self.steps,
                "disturbed": self.loss,
                "undisturbed": self.undisturbed,
                "noise": noise(&self.undisturbed).map(|(low, high)| [low, high]),
            },
            "missed": missed,
        })
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
        assert!(
            (low + 9.460_3).abs() < 1e-3 && (high - 13.460_3).abs() < 1e-3,
            "{low} {high}"
        );
        assert_eq!((noise(&[]), noise(&[1.0])), (None, None));
    }

    #[test]
    fn percentiles_of_few_are_the_longest() {
        let kill = |ms| Kill {
            server: 1,
            led: false,
            delay: Duration::from_millis(ms),
        };
        let outcome = ChaosOutcome {
            kills: (1..=20).rev().map(kill).collect(),
            ..ChaosOutcome::default()
        };
        assert_eq!(
            [0.5, 0.99].map(|part| outcome.percentile(part).as_millis()),
            [10, 20]
        );
        assert_eq!(ChaosOutcome::default().percentile(0.99), Duration::ZERO);
    }
}
