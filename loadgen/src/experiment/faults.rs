//! Service times and faults in the short form of command lines: `constant:18`, `0.01:15:45`.

use anyhow::{Context, anyhow, bail};
use parapet_config::faults::{FaultProfile, Freezing, ServiceTime, Slowdown, Span, Straggling};

/// A distribution of service times, as `constant:18`.
pub fn parse_service_time(text: &str) -> anyhow::Result<ServiceTime> {
    let form = "constant:MS, uniform:MIN:MAX, lognormal:MEDIAN:SIGMA or empirical:MS:MS:...";
    let parse = || {
        let (kind, parts) = text.split_once(':').context("no numbers")?;
        let numbers = numbers(parts.split(':'))?;
        let time = match (kind, numbers.as_slice()) {
            ("constant", &[ms]) => ServiceTime::Constant { ms },
            ("uniform", &[min_ms, max_ms]) => ServiceTime::Uniform { min_ms, max_ms },
            ("lognormal", &[median_ms, sigma]) => ServiceTime::Lognormal { median_ms, sigma },
            ("empirical", _) => ServiceTime::Empirical { values_ms: numbers },
            _ => bail!("not a distribution with so many numbers"),
        };
        validate(|profile| profile.service_time = Some(time.clone()))?;
        Ok(time)
    };
    explained("service time", text, form, parse())
}

/// Stragglers, as `0.01:15:45`: with that probability a batch takes so many milliseconds more.
pub fn parse_straggle(text: &str) -> anyhow::Result<Straggling> {
    let parse = || {
        let [probability, min_ms, max_ms] = exactly(text.split(':'))?;
        let straggle = Straggling {
            probability,
            min_ms,
            max_ms,
        };
        validate(|profile| profile.straggle = Some(straggle))?;
        Ok(straggle)
    };
    explained("straggle", text, "PROBABILITY:MIN_MS:MAX_MS", parse())
}

/// Freezes, as `5000:100:500`: at that mean interval an instance stands still for
/// so many milliseconds.
pub fn parse_freeze(text: &str) -> anyhow::Result<Freezing> {
    let parse = || {
        let [mean_interval_ms, min_ms, max_ms] = exactly(text.split(':'))?;
        let freeze = Freezing {
            mean_interval_ms,
            min_ms,
            max_ms,
        };
        validate(|profile| profile.freeze = Some(freeze))?;
        Ok(freeze)
    };
    explained("freeze", text, "MEAN_INTERVAL_MS:MIN_MS:MAX_MS", parse())
}

/// A mean interval and a span in milliseconds, as [`parse_freeze`] has them; `what` names
/// them in errors.
pub fn parse_span(what: &str, text: &str) -> anyhow::Result<(f64, Span)> {
    let freeze = parse_freeze(text);
    let freeze = freeze.map_err(|error| anyhow!(error.to_string().replace("freeze", what)))?;
    let Freezing {
        mean_interval_ms,
        min_ms,
        max_ms,
    } = freeze;
    Ok((mean_interval_ms, Span { min_ms, max_ms }))
}

/// Slow periods, as `0.4:correlated:5000:1000:2000:15:45`.
pub fn parse_slowdown(text: &str) -> anyhow::Result<Slowdown> {
    let form = "SHARE:(own|correlated):MEAN_INTERVAL_MS:MIN_LENGTH_MS:MAX_LENGTH_MS:MIN_ADDED_MS:\
                MAX_ADDED_MS";
    let parse = || {
        let mut parts: Vec<&str> = text.split(':').collect();
        let correlated = match parts.get(1) {
            Some(&"correlated") => true,
            Some(&"own") => false,
            _ => bail!("the second part is neither own nor correlated"),
        };
        parts.remove(1);
        let numbers = exactly(parts.into_iter())?;
        let [
            share,
            mean_interval_ms,
            length_min,
            length_max,
            added_min,
            added_max,
        ] = numbers;
        let span = |min_ms, max_ms| Span { min_ms, max_ms };
        let slowdown = Slowdown {
            share,
            correlated,
            mean_interval_ms,
            length: span(length_min, length_max),
            added: span(added_min, added_max),
        };
        validate(|profile| profile.slowdown = Some(slowdown))?;
        Ok(slowdown)
    };
    explained("slowdown", text, form, parse())
}

/// Adds to an error what was read and how it is written.
fn explained<T>(what: &str, text: &str, form: &str, read: anyhow::Result<T>) -> anyhow::Result<T> {
    read.map_err(|problem| anyhow!("{what} {text:?}: {problem}; write it as {form}"))
}

fn numbers<'t>(parts: impl Iterator<Item = &'t str>) -> anyhow::Result<Vec<f64>> {
    let number = |part: &str| part.parse().map_err(|_| anyhow!("{part:?} is no number"));
    parts.map(number).collect()
}

fn exactly<'t, const N: usize>(parts: impl Iterator<Item = &'t str>) -> anyhow::Result<[f64; N]> {
    let numbers = numbers(parts)?;
    let count = numbers.len();
    numbers
        .try_into()
        .map_err(|_| anyhow!("{count} numbers in place of {N}"))
}

/// Checks a fault profile with nothing but what `set` puts into it.
fn validate(set: impl FnOnce(&mut FaultProfile)) -> anyhow::Result<()> {
    let mut profile = FaultProfile::default();
    set(&mut profile);
    profile
        .validate()
        .map_err(|problem| anyhow!(problem.replace("; ", ", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_read() {
        assert_eq!(
            parse_service_time("constant:18").unwrap(),
            ServiceTime::Constant { ms: 18.0 }
        );
        assert_eq!(
            parse_service_time("lognormal:18:0.2").unwrap(),
            ServiceTime::Lognormal {
                median_ms: 18.0,
                sigma: 0.2
            }
        );
        assert_eq!(
            parse_straggle("0.01:15:45").unwrap(),
            Straggling {
                probability: 0.01,
                min_ms: 15.0,
                max_ms: 45.0
            }
        );
        assert!(
            parse_slowdown("0.4:correlated:5000:1000:2000:15:45")
                .unwrap()
                .correlated
        );
        assert_eq!(parse_span("crash", "5000:1:2").unwrap().0, 5000.0);
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (error, named) in [
            (parse_service_time("18").unwrap_err(), "no numbers"),
            (
                parse_service_time("constant:x").unwrap_err(),
                "\"x\" is no number",
            ),
            (
                parse_service_time("constant:-1").unwrap_err(),
                "service_time.ms: -1",
            ),
            (
                parse_service_time("gamma:1:2").unwrap_err(),
                "not a distribution",
            ),
            (
                parse_straggle("1.5:1:2").unwrap_err(),
                "straggle.probability: 1.5",
            ),
            (
                parse_straggle("0.5:1").unwrap_err(),
                "2 numbers in place of 3",
            ),
            (
                parse_freeze("0:1:2").unwrap_err(),
                "freeze.mean_interval_ms",
            ),
            (
                parse_span("crash", "0:1:2").unwrap_err(),
                "crash.mean_interval_ms",
            ),
            (
                parse_slowdown("0.4:often:1:1:1:1:1").unwrap_err(),
                "neither own nor correlated",
            ),
        ] {
            let line = error.to_string();
            assert!(
                line.contains(named) && line.contains("write it as") && !line.contains('\n'),
                "{line}"
            );
        }
    }
}
