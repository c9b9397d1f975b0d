//! Service times and faults in the short form of command lines: `constant:18`, `0.01:15:45`. Their
//! ranges are checked with the whole profile.

use anyhow::{anyhow, bail};
use parapet_config::faults::{ServiceTime, Straggling};

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
    let values = list("straggle", text, text, form)?;
    let [probability, min_ms, max_ms] = values[..] else {
        let count = values.len();
        bail!("straggle {text:?}: {count} numbers in place of 3; write it as {form}");
    };
    Ok(Straggling {
        probability,
        min_ms,
        max_ms,
    })
}

fn list(what: &str, text: &str, part: &str, form: &str) -> anyhow::Result<Vec<f64>> {
    let number = |number: &str| {
        let wrong = |_| anyhow!("{what} {text:?}: {number:?} is no number; write it as {form}");
        number.parse().map_err(wrong)
    };
    part.split(':').map(number).collect()
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
        ] {
            let line = error.to_string();
            assert!(
                line.contains(named) && line.contains("write it as"),
                "{line}"
            );
        }
    }
}
