//! Service level objectives: figures that a report has to keep.

use std::str::FromStr;

use anyhow::{Context, bail};

use super::{Accuracy, Counts, Summary};

/// One objective, such as `p99.9=30ms`, `failed=0.1%` or `accuracy=85%`. Times and `failed` may not
/// exceed it; `accuracy` has to reach it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slo {
    figure: &'static str,
    limit: f64,
}

const SHARES: [&str; 2] = ["failed", "accuracy"];

/// Returns a line for each objective that is not met. A figure that was not measured meets none.
pub fn check(
    slos: &[Slo],
    latency: Option<Summary>,
    counts: Counts,
    accuracy: Option<Accuracy>,
) -> Vec<String> {
    let measured = |figure: &str| match figure {
        "failed" => (counts.sent > 0).then(|| counts.without_answer()),
        "accuracy" => accuracy.map(|accuracy| accuracy.accuracy),
        time => {
            let times = latency?.figures().map(|(_, time)| time);
            let mut named = Summary::NAMES.into_iter().zip(times);
            named.find_map(|(name, found)| (name == time).then_some(found))
        }
    };
    let breach = |slo: &Slo| {
        let (name, limit) = (slo.figure, slo.show(slo.limit));
        let found = match measured(name) {
            Some(found) if slo.is_met(found) => return None,
            Some(found) => slo.show(found),
            None => "nothing was measured".to_owned(),
        };
        Some(format!("objective {name} {limit} missed: {found}"))
    };
    slos.iter().filter_map(breach).collect()
}

impl Slo {
    fn is_met(self, found: f64) -> bool {
        if self.figure == "accuracy" { found >= self.limit } else { found <= self.limit }
    }

    fn show(self, value: f64) -> String {
        let round = |value: f64| (value * 1e3).round() / 1e3;
        match SHARES.contains(&self.figure) {
            true => format!("{} %", round(100.0 * value)),
            false => format!("{} ms", round(value)),
        }
    }
}

impl FromStr for Slo {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let known = || Summary::NAMES.into_iter().chain(SHARES);
        let parts = text.split_once('=').and_then(|(name, limit)| {
            Some((known().find(|known| *known == name.trim())?, limit.trim()))
        });
        let Some((figure, text)) = parts else {
            let known = known().collect::<Vec<_>>().join(", ");
            bail!("{text:?} is no objective; give FIGURE=LIMIT with {known}");
        };
        let limit = match SHARES.contains(&figure) {
            true => share(text).with_context(|| {
                format!("{text:?} is no share from 0 % to 100 %; give it as, say, 0.1%")
            })?,
            false => milliseconds(text).with_context(|| {
                format!("{text:?} is no time; give it as, say, 30ms, 1.5s or 800us")
            })?,
        };
        Ok(Self { figure, limit })
    }
}

fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn milliseconds(text: &str) -> Option<f64> {
    let time = [("ms", 1.0), ("us", 1e-3), ("s", 1e3)].into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * factor)
    });
    time.filter(|time| time.is_finite() && *time >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(texts: &[&str], accuracy: Option<f64>) -> Vec<String> {
        let slos: Vec<Slo> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let times = [("mean", 4.0), ("p50", 3.0), ("p99", 12.0), ("p99_9", 31.25), ("max", 50.0)];
        let mut latency = serde_json::json!({ "count": 9, "p90": 6.0, "p99_5": 20.0 });
        times.iter().for_each(|(name, time)| latency[name] = (*time).into());
        let latency = serde_json::from_value(latency).unwrap();
        let counts = Counts { sent: 1000, failed: 2, ..Counts::default() };
        let accuracy = accuracy.map(|accuracy| Accuracy { judged: 10, correct: 9, accuracy });
        check(&slos, Some(latency), counts, accuracy)
    }

    #[test]
    fn objectives_are_met_up_to_their_limit() {
        let met = [
            "p50=3ms",
            "p99.9=0.03125s",
            "mean = 4000us",
            "failed=0.2%",
            "accuracy=90 %",
            "max=50ms",
        ];
        assert!(missed(&met, Some(0.9)).is_empty());
        let limits = ["p99.9=30ms", "p99=12ms", "failed=0.1%", "accuracy=90.1%"];
        let expected = [
            "objective p99.9 30 ms missed: 31.25 ms",
            "objective failed 0.1 % missed: 0.2 %",
            "objective accuracy 90.1 % missed: 90 %",
        ];
        assert_eq!(missed(&limits, Some(0.9)), expected);
        let unknown = ["objective accuracy 1 % missed: nothing was measured"];
        assert_eq!(missed(&["accuracy=1%"], None), unknown);
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, start) in [
            ("p98=3ms", "\"p98=3ms\" is no objective"),
            ("p99", "\"p99\" is no objective"),
            ("p99=30", "\"30\" is no time"),
            ("p99=-1ms", "\"-1ms\" is no time"),
            ("failed=0.1", "\"0.1\" is no share"),
            ("accuracy=101%", "\"101%\" is no share"),
        ] {
            let error = text.parse::<Slo>().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
