//! Request checked against the model.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parapet_config::repository::TensorSpec;
use parapet_frontend_core::{ClassId, Rejected};
use parapet_open_inference::{Excerpt, Parameters, Tensor};
use serde_json::Value;

use crate::config::ClassConfig;
use crate::error::ServeError;

/// Longest request id taken from a client, in bytes.
pub const MAX_REQUEST_ID: usize = 128;

/// Request parameters that the frontend understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Time that the request may take from now on.
    pub timeout: Duration,
    /// True if a reconstruction, or a backup model's prediction, is welcome.
    pub allow_approximate: bool,
}

impl Options {
    /// Reads `timeout` (microseconds, as Triton has it), `deadline_unix_ms` (an absolute time) and
    /// `allow_approximate`.
    ///
    /// # Errors
    /// [`ServeError::Input`] for a value of the wrong type, [`Rejected::DeadlinePassed`] for a
    /// deadline in the past.
    pub fn parse(
        parameters: &Parameters,
        default: Duration,
        max: Duration,
    ) -> Result<Self, ServeError> {
        let mut timeout = default;
        if let Some(value) = parameters.get("timeout") {
            let micros = value
                .as_u64()
                .ok_or_else(|| wrong("timeout", "a number of microseconds", value))?;
            timeout = Duration::from_micros(micros);
        }
        if let Some(value) = parameters.get("deadline_unix_ms") {
            let millis = value
                .as_u64()
                .ok_or_else(|| wrong("deadline_unix_ms", "milliseconds since 1970", value))?;
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let left = Duration::from_millis(millis).saturating_sub(now);
            // Where the client gives both, both hold.
            timeout = if parameters.contains_key("timeout") {
                timeout.min(left)
            } else {
                left
            };
        }
        if timeout.is_zero() {
            return Err(Rejected::DeadlinePassed.into());
        }
        let allow_approximate = match parameters.get("allow_approximate") {
            None => true,
            Some(Value::Bool(allowed)) => *allowed,
            Some(value) => return Err(wrong("allow_approximate", "true or false", value)),
        };
        Ok(Self {
            timeout: timeout.min(max),
            allow_approximate,
        })
    }
}

/// The parameter that names a request's class.
pub const CLASS: &str = "class";

/// The class that the parameter `class` names; the default one without it.
pub(super) fn class(
    parameters: &Parameters,
    classes: &[ClassConfig],
) -> Result<ClassId, ServeError> {
    let Some(value) = parameters.get(CLASS) else {
        return Ok(ClassId::DEFAULT);
    };
    let position = value
        .as_str()
        .and_then(|name| classes.iter().position(|class| class.name == name));
    position
        .and_then(|index| u8::try_from(index).ok())
        .map(ClassId)
        .ok_or_else(|| {
            let known: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
            wrong(CLASS, &format!("one of {}", known.join(", ")), value)
        })
}

fn wrong(parameter: &str, expected: &str, value: &Value) -> ServeError {
    // A text is not written as JSON first, which could take as much again.
    let shown = match value {
        Value::String(text) => format!("{:?}", Excerpt::from(text)),
        other => Excerpt::from(&other.to_string()).to_string(),
    };
    ServeError::Input(format!(
        "parameter {parameter:?} must be {expected}, not {shown}"
    ))
}

/// Contents of this size are taken for any model, so that mistakes in small requests
/// are told precisely.
const SMALL_CONTENTS: usize = 64 * 1024;

/// Bytes of contents that a request of `max_rows` samples can have; those of BYTES have no bound.
pub(super) fn max_contents(specs: &[TensorSpec], max_rows: usize) -> usize {
    let bytes = |spec: &TensorSpec| {
        spec.datatype
            .size()
            .map_or(usize::MAX, |size| spec.sample_len().saturating_mul(size))
    };
    let sample = specs.iter().map(bytes).fold(0, usize::saturating_add);
    sample.saturating_mul(max_rows).max(SMALL_CONTENTS)
}

/// The inputs in the model's order, and the number of samples in each.
pub(super) fn check_inputs(
    mut given: Vec<Tensor>,
    specs: &[TensorSpec],
    max_rows: usize,
) -> Result<(Vec<Tensor>, usize), ServeError> {
    let mut rows = None;
    let mut inputs = Vec::with_capacity(specs.len());
    for spec in specs {
        let position = given
            .iter()
            .position(|tensor| tensor.name == spec.name)
            .ok_or_else(|| ServeError::Input(format!("input {:?} is missing", spec.name)))?;
        let tensor = given.swap_remove(position);
        let input_rows = check_input(&tensor, spec, max_rows)?;
        if *rows.get_or_insert(input_rows) != input_rows {
            let reason = format!(
                "input {:?} has {input_rows} samples where others have another number",
                spec.name
            );
            return Err(ServeError::Input(reason));
        }
        inputs.push(tensor);
    }
    if let Some(extra) = given.first() {
        return Err(ServeError::Input(format!(
            "the model has no input {:?}, or it is there twice",
            Excerpt::from(&extra.name)
        )));
    }
    Ok((inputs, rows.unwrap_or(1)))
}

fn check_input(tensor: &Tensor, spec: &TensorSpec, max_rows: usize) -> Result<usize, ServeError> {
    let name = &spec.name;
    if tensor.datatype != spec.datatype {
        let reason = format!(
            "input {name:?} is {}; the model takes {}",
            tensor.datatype, spec.datatype
        );
        return Err(ServeError::Input(reason));
    }
    let rows = match tensor.shape.split_first() {
        Some((&rows, sample)) if sample == spec.shape => rows,
        _ => {
            let expected: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
            let reason = format!(
                "input {name:?} has shape {:?}; the model takes [n, {}] for n samples",
                tensor.shape,
                expected.join(", ")
            );
            return Err(ServeError::Input(reason));
        }
    };
    if rows == 0 || rows > max_rows {
        let reason = format!("input {name:?} has {rows} samples; send 1 to {max_rows}");
        return Err(ServeError::Input(reason));
    }
    if tensor.has_non_finite() {
        return Err(ServeError::Input(format!(
            "input {name:?} holds a NaN or an infinity"
        )));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parapet_open_inference::Datatype;
    use serde_json::json;

    const SECOND: Duration = Duration::from_secs(1);

    fn options(parameters: Value) -> Result<Options, ServeError> {
        let Value::Object(parameters) = parameters else {
            panic!("an object")
        };
        Options::parse(&parameters, SECOND, 10 * SECOND)
    }

    #[test]
    fn options_have_defaults_and_bounds() {
        assert_eq!(
            options(json!({})).unwrap(),
            Options {
                timeout: SECOND,
                allow_approximate: true
            }
        );
        let asked = options(json!({"timeout": 2_500, "allow_approximate": false})).unwrap();
        assert_eq!(
            asked,
            Options {
                timeout: Duration::from_micros(2_500),
                allow_approximate: false
            }
        );
        assert_eq!(
            options(json!({"timeout": 3_600_000_000_u64}))
                .unwrap()
                .timeout,
            10 * SECOND
        );
    }

    #[test]
    fn of_a_timeout_and_a_deadline_the_earlier_counts() {
        let both = |timeout: u64, deadline: u64| {
            options(json!({"timeout": timeout, "deadline_unix_ms": deadline}))
                .unwrap()
                .timeout
        };
        let far = 4_000_000_000_000; // in 2096
        assert_eq!(both(1_000, far), Duration::from_millis(1));
        assert_eq!(
            options(json!({"deadline_unix_ms": far})).unwrap().timeout,
            10 * SECOND
        );
    }

    #[test]
    fn a_deadline_in_the_past_is_refused() {
        for past in [json!({"timeout": 0}), json!({"deadline_unix_ms": 1_000})] {
            assert!(matches!(
                options(past),
                Err(ServeError::Rejected(Rejected::DeadlinePassed))
            ));
        }
    }

    #[test]
    fn parameters_of_the_wrong_type_are_refused() {
        for wrong in [
            json!({"timeout": "fast"}),
            json!({"timeout": -1}),
            json!({"deadline_unix_ms": null}),
            json!({"allow_approximate": "yes"}),
        ] {
            assert!(matches!(options(wrong), Err(ServeError::Input(_))));
        }
    }

    fn spec() -> TensorSpec {
        TensorSpec {
            name: "input".to_owned(),
            datatype: Datatype::Fp32,
            shape: vec![2, 2],
        }
    }

    fn check(tensors: Vec<Tensor>) -> Result<usize, String> {
        check_inputs(tensors, &[spec()], 4)
            .map(|(_, rows)| rows)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn contents_are_bounded_by_the_most_samples_of_the_model() {
        let spec = |datatype, shape: &[usize]| TensorSpec {
            name: "input".to_owned(),
            datatype,
            shape: shape.to_vec(),
        };
        let (image, mask) = (
            spec(Datatype::Fp32, &[3, 100, 100]),
            spec(Datatype::Bool, &[100, 100]),
        );
        assert_eq!(max_contents(&[image, mask], 10), 10 * (120_000 + 10_000));
        assert_eq!(
            max_contents(&[spec(Datatype::Fp32, &[4])], 64),
            SMALL_CONTENTS
        );
        assert_eq!(max_contents(&[spec(Datatype::Bytes, &[1])], 64), usize::MAX);
    }

    #[test]
    fn a_mistake_repeats_little_of_a_long_text() {
        let long = "\u{200b}".repeat(1 << 20);
        let refused = options(json!({"timeout": long})).unwrap_err().to_string();
        assert!(refused.len() < 2200, "{} bytes", refused.len());
        let extra = vec![
            Tensor::from_f32("input", [1, 2, 2], &[0.5; 4]).unwrap(),
            Tensor::from_f32(long, [1], &[0.5]).unwrap(),
        ];
        let refused = check(extra).unwrap_err();
        assert!(refused.len() < 2200, "{} bytes", refused.len());
    }

    #[test]
    fn inputs_must_be_the_models() {
        let tensor = |name: &str, shape: &[usize], value: f32| {
            let count = shape.iter().product();
            Tensor::from_f32(name, shape, &vec![value; count]).unwrap()
        };
        assert_eq!(check(vec![tensor("input", &[3, 2, 2], 0.5)]), Ok(3));
        let refused = |tensors: Vec<Tensor>, expected: &str| {
            let error = check(tensors).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        refused(vec![], "\"input\" is missing");
        refused(
            vec![tensor("other", &[1, 2, 2], 0.5)],
            "\"input\" is missing",
        );
        refused(
            vec![
                tensor("input", &[1, 2, 2], 0.5),
                tensor("input", &[1, 2, 2], 0.5),
            ],
            "twice",
        );
        refused(vec![tensor("input", &[2, 2], 0.5)], "takes [n, 2, 2]");
        refused(vec![tensor("input", &[1, 4], 0.5)], "takes [n, 2, 2]");
        refused(vec![tensor("input", &[0, 2, 2], 0.5)], "1 to 4");
        refused(vec![tensor("input", &[5, 2, 2], 0.5)], "1 to 4");
        refused(vec![tensor("input", &[1, 2, 2], f32::NAN)], "NaN");
        refused(vec![tensor("input", &[1, 2, 2], f32::INFINITY)], "infinity");
        let ints =
            Tensor::new("input", Datatype::Int32, vec![1, 2, 2], vec![0; 16].into()).unwrap();
        refused(vec![ints], "is INT32");
    }
}
