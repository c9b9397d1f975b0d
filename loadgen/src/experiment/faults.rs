//! Service times and faults in the short form of command lines: `constant:18`, `0.01:15:45`.

use parapet_config::faults::{FaultProfile, Freezing, ServiceTime, Slowdown, Span, Straggling};

use super::ExperimentError;

const SERVICE_TIME: &str =
    "constant:MS, uniform:MIN:MAX, lognormal:MEDIAN:SIGMA or empirical:MS:MS:...";
const STRAGGLE: &str = "PROBABILITY:MIN_MS:MAX_MS";
const FREEZE: &str = "MEAN_INTERVAL_MS:MIN_MS:MAX_MS";
const SLOWDOWN: &str =
    "SHARE:(own|correlated):MEAN_INTERVAL_MS:MIN_LENGTH_MS:MAX_LENGTH_MS:MIN_ADDED_MS:MAX_ADDED_MS";

/// A distribution of service times, as `constant:18`.
///
/// # Errors
/// One line with what is wrong and how it is written.
pub fn parse_service_time(text: &str) -> Result<ServiceTime, ExperimentError> {
    let form = Form {
        what: "service time",
        text,
        form: SERVICE_TIME,
    };
    let (kind, numbers) = text
        .split_once(':')
        .ok_or_else(|| form.error("no numbers".to_owned()))?;
    let numbers = form.numbers(numbers.split(':'))?;
    let time = match (kind, numbers.as_slice()) {
        ("constant", &[ms]) => ServiceTime::Constant { ms },
        ("uniform", &[min_ms, max_ms]) => ServiceTime::Uniform { min_ms, max_ms },
        ("lognormal", &[median_ms, sigma]) => ServiceTime::Lognormal { median_ms, sigma },
        ("empirical", _) => ServiceTime::Empirical { values_ms: numbers },
        _ => return Err(form.error("not a distribution with so many numbers".to_owned())),
    };
    let profile = FaultProfile {
        service_time: Some(time.clone()),
        ..FaultProfile::default()
    };
    form.validate(&profile)?;
    Ok(time)
}

/// Stragglers, as `0.01:15:45`: with that probability a batch takes so many milliseconds more.
///
/// # Errors
/// As for [`parse_service_time`].
pub fn parse_straggle(text: &str) -> Result<Straggling, ExperimentError> {
    let form = Form {
        what: "straggle",
        text,
        form: STRAGGLE,
    };
    let [probability, min_ms, max_ms] = form.exactly(text.split(':'))?;
    let straggle = Straggling {
        probability,
        min_ms,
        max_ms,
    };
    form.validate(&FaultProfile {
        straggle: Some(straggle),
        ..FaultProfile::default()
    })?;
    Ok(straggle)
}

/// Freezes, as `5000:100:500`: at that mean interval an instance stands still for
/// so many milliseconds.
///
/// # Errors
/// As for [`parse_service_time`].
pub fn parse_freeze(text: &str) -> Result<Freezing, ExperimentError> {
    let form = Form {
        what: "freeze",
        text,
        form: FREEZE,
    };
    let [mean_interval_ms, min_ms, max_ms] = form.exactly(text.split(':'))?;
    let freeze = Freezing {
        mean_interval_ms,
        min_ms,
        max_ms,
    };
    form.validate(&FaultProfile {
        freeze: Some(freeze),
        ..FaultProfile::default()
    })?;
    Ok(freeze)
}

/// A mean interval and a span in milliseconds, as [`parse_freeze`] has them; `what` names
/// them in errors.
///
/// # Errors
/// As for [`parse_service_time`].
pub fn parse_span(what: &'static str, text: &str) -> Result<(f64, Span), ExperimentError> {
    let Freezing {
        mean_interval_ms,
        min_ms,
        max_ms,
    } = parse_freeze(text).map_err(|error| match error {
        ExperimentError::Form {
            text,
            problem,
            form,
            ..
        } => ExperimentError::Form {
            what,
            text,
            problem: problem.replace("freeze", what),
            form,
        },
        other => other,
    })?;
    Ok((mean_interval_ms, Span { min_ms, max_ms }))
}

/// Slow periods, as `0.4:correlated:5000:1000:2000:15:45`.
///
/// # Errors
/// As for [`parse_service_time`].
pub fn parse_slowdown(text: &str) -> Result<Slowdown, ExperimentError> {
    let form = Form {
        what: "slowdown",
        text,
        form: SLOWDOWN,
    };
    let parts: Vec<&str> = text.split(':').collect();
    let correlated = match parts.get(1) {
        Some(&"correlated") => true,
        Some(&"own") => false,
        _ => return Err(form.error("the second part is neither own nor correlated".to_owned())),
    };
    let numbers = parts
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != 1)
        .map(|(_, part)| *part);
    let [
        share,
        mean_interval_ms,
        length_min,
        length_max,
        added_min,
        added_max,
    ] = form.exactly(numbers)?;
    let slowdown = Slowdown {
        share,
        correlated,
        mean_interval_ms,
        length: Span {
            min_ms: length_min,
            max_ms: length_max,
        },
        added: Span {
            min_ms: added_min,
            max_ms: added_max,
        },
    };
    form.validate(&FaultProfile {
        slowdown: Some(slowdown),
        ..FaultProfile::default()
    })?;
    Ok(slowdown)
}

struct Form<'a> {
    what: &'static str,
    text: &'a str,
    form: &'static str,
}

impl Form<'_> {
    fn error(&self, problem: String) -> ExperimentError {
        let Self { what, text, form } = *self;
        ExperimentError::Form {
            what,
            text: text.to_owned(),
            problem,
            form,
        }
    }

    fn numbers<'t>(
        &self,
        parts: impl Iterator<Item = &'t str>,
    ) -> Result<Vec<f64>, ExperimentError> {
        let number = |part: &str| {
            part.parse()
                .map_err(|_| self.error(format!("{part:?} is no number")))
        };
        parts.map(number).collect()
    }

    fn exactly<'t, const N: usize>(
        &self,
        parts: impl Iterator<Item = &'t str>,
    ) -> Result<[f64; N], ExperimentError> {
        let numbers = self.numbers(parts)?;
        let count = numbers.len();
        numbers
            .try_into()
            .map_err(|_| self.error(format!("{count} numbers in place of {N}")))
    }

    fn validate(&self, profile: &FaultProfile) -> Result<(), ExperimentError> {
        profile
            .validate()
            .map_err(|problem| self.error(problem.replace("; ", ", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_read() {
        assert_eq!(
            parse_service_time("constant:18"),
            Ok(ServiceTime::Constant { ms: 18.0 })
        );
        assert_eq!(
            parse_service_time("lognormal:18:0.2"),
            Ok(ServiceTime::Lognormal {
                median_ms: 18.0,
                sigma: 0.2
            })
        );
        assert_eq!(
            parse_straggle("0.01:15:45"),
            Ok(Straggling {
                probability: 0.01,
                min_ms: 15.0,
                max_ms: 45.0
            })
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
