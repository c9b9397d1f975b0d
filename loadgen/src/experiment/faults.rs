//! Service times and faults in the short form of command lines: `constant:18`, `0.01:15:45`. Their
//! ranges are checked with the whole profile.

use anyhow::{anyhow, bail};
use parapet_config::faults::{Freezing, ServiceTime, Slowdown, Span, Straggling};

pub fn parse_service_time(text: &str) -> anyhow::Result<ServiceTime> {
    let form = "constant:MS, uniform:MIN:MAX, lognormal:MEDIAN:SIGMA or empirical:MS:MS:...";
    let (kind, times) = text.split_once(':').unwrap_or((text, ""));
    let values_ms = list("service time", text, times, form)?;
    Ok(match (kind, values_ms.as_slice()) {
        ("constant", &[ms]) => ServiceTime::Constant { ms },
        ("uniform", &[min_ms, max_ms]) => ServiceTime::Uniform { min_ms, max_ms },
        ("lognormal", &[median_ms, sigma]) => ServiceTime::Lognormal { median_ms, sigma },
        ("empirical", _) => ServiceTime::Empirical { values_ms },
        _ => bail!(
            "service time {text:?}: not a distribution with so many numbers; write it as {form}"
        ),
    })
}

/// Stragglers, as `0.01:15:45`: with that probability a batch takes so many milliseconds more.
pub fn parse_straggle(text: &str) -> anyhow::Result<Straggling> {
    let form = "PROBABILITY:MIN_MS:MAX_MS";
    let [probability, min_ms, max_ms] = numbers("straggle", text, text, form)?;
    Ok(Straggling {
        probability,
        min_ms,
        max_ms,
    })
}

/// Freezes, as `5000:100:500`: at that mean interval an instance stands still for
/// so many milliseconds.
pub fn parse_freeze(text: &str) -> anyhow::Result<Freezing> {
    let (mean_interval_ms, Span { min_ms, max_ms }) = parse_interval("freeze", text)?;
    Ok(Freezing {
        mean_interval_ms,
        min_ms,
        max_ms,
    })
}

/// A mean interval and a span in milliseconds; `what` names them in errors.
pub fn parse_interval(what: &str, text: &str) -> anyhow::Result<(f64, Span)> {
    let form = "MEAN_INTERVAL_MS:MIN_MS:MAX_MS";
    let [mean_interval_ms, min_ms, max_ms] = numbers(what, text, text, form)?;
    Ok((mean_interval_ms, Span { min_ms, max_ms }))
}

pub fn parse_slowdown(text: &str) -> anyhow::Result<Slowdown> {
    let form = "SHARE:(own|correlated):MEAN_INTERVAL_MS:MIN_LENGTH_MS:MAX_LENGTH_MS:MIN_ADDED_MS:\
                MAX_ADDED_MS";
    let correlated = text.contains(":correlated:");
    if !correlated && !text.contains(":own:") {
        bail!(
            "slowdown {text:?}: the second part is neither own nor correlated; write it as {form}"
        );
    }
    let times = text
        .replacen(":correlated:", ":", 1)
        .replacen(":own:", ":", 1);
    let [share, mean_interval_ms, shortest, longest, least, most] =
        numbers("slowdown", text, &times, form)?;
    let span = |min_ms, max_ms| Span { min_ms, max_ms };
    Ok(Slowdown {
        share,
        correlated,
        mean_interval_ms,
        length: span(shortest, longest),
        added: span(least, most),
    })
}

fn list(what: &str, text: &str, part: &str, form: &str) -> anyhow::Result<Vec<f64>> {
    let number = |number: &str| {
        let wrong = |_| anyhow!("{what} {text:?}: {number:?} is no number; write it as {form}");
        number.parse().map_err(wrong)
    };
    part.split(':').map(number).collect()
}

fn numbers<const N: usize>(
    what: &str,
    text: &str,
    part: &str,
    form: &str,
) -> anyhow::Result<[f64; N]> {
    let numbers = list(what, text, part, form)?;
    let count = numbers.len();
    let wrong = |_| anyhow!("{what} {text:?}: {count} numbers in place of {N}; write it as {form}");
    numbers.try_into().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_read() {
        let constant = ServiceTime::Constant { ms: 18.0 };
        assert_eq!(parse_service_time("constant:18").unwrap(), constant);
        let lognormal = ServiceTime::Lognormal {
            median_ms: 18.0,
            sigma: 0.2,
        };
        assert_eq!(parse_service_time("lognormal:18:0.2").unwrap(), lognormal);
        let straggle = parse_straggle("0.01:15:45").unwrap();
        let numbers = [straggle.probability, straggle.min_ms, straggle.max_ms];
        assert_eq!(numbers, [0.01, 15.0, 45.0]);
        let slowdown = parse_slowdown("0.4:correlated:5000:1000:2000:15:45").unwrap();
        assert!(slowdown.correlated && slowdown.added.max_ms == 45.0);
        assert_eq!(parse_interval("crash", "5000:1:2").unwrap().0, 5000.0);
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        let service_time = |text| parse_service_time(text).unwrap_err();
        for (error, named) in [
            (service_time("18"), "\"\" is no number"),
            (service_time("constant:x"), "\"x\" is no number"),
            (service_time("gamma:1:2"), "not a distribution"),
            (
                parse_straggle("0.5:1").unwrap_err(),
                "2 numbers in place of 3",
            ),
            (
                parse_slowdown("0.4:often:1:1:1:1:1").unwrap_err(),
                "neither own nor correlated",
            ),
        ] {
            let line = error.to_string();
            assert!(
                line.contains(named) && line.contains("write it as"),
                "{line}"
            );
        }
    }
}
