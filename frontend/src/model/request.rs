//! A request to a model: checked, asked, and answered.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parapet_config::repository::TensorSpec;
use parapet_encoder::OutputDomain;
use parapet_frontend_core::{Answer, ClassId, DomainId, GroupKey, Rejected};
use parapet_open_inference::{Excerpt, InferRequest, InferResponse, Parameters, Tensor};
use serde_json::Value;
use tokio::time::Instant;

use crate::config::ClassConfig;
use crate::error::ServeError;
use crate::model::ServedModel;
use crate::payload::{Input, Output};
use crate::provenance::Provenance;
use crate::tenants::MixingDomain;
use crate::upstream::Transport;

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

impl<T: Transport> ServedModel<T> {
    /// Answers a request, in coding groups with queries of this domain only (CG-6).
    ///
    /// # Errors
    /// [`ServeError`]: the client's mistake, a bound reached, or no prediction by the deadline.
    pub async fn infer(
        &self,
        domain: MixingDomain,
        request: InferRequest,
    ) -> Result<(InferResponse, Provenance), ServeError> {
        let options = Options::parse(
            &request.parameters,
            self.config.timeout,
            self.config.max_timeout,
        )?;
        let class = self::class(&request.parameters, &self.config.classes)?;
        for requested in &request.outputs {
            if !self
                .config
                .entry
                .outputs
                .iter()
                .any(|output| output.name == requested.name)
            {
                let name = Excerpt::from(&requested.name);
                return Err(ServeError::Input(format!(
                    "the model has no output {name:?}"
                )));
            }
        }
        let InferRequest {
            id,
            inputs,
            outputs: named,
            ..
        } = request;
        let wanted =
            |name: &str| named.is_empty() || named.iter().any(|output| output.name == name);
        let (tensors, rows) =
            check_inputs(inputs, &self.config.entry.inputs, self.config.max_rows)?;
        let key = group_key(domain, rows)?;
        let timeout = options
            .timeout
            .saturating_sub(answer_margin(options.timeout));
        // Some requests go on when their client is answered: they are not to be given up before the
        // engine does that.
        let kept = self
            .config
            .classes
            .get(usize::from(class.0))
            .map_or(Duration::ZERO, |class| class.strategy.keeps_requests_for());
        let input = Input::new(tensors, rows).by(Instant::now() + timeout + kept);
        let allow_approximate =
            options.allow_approximate && self.driver.approximates(class, wanted);
        let answer = self
            .driver
            .infer(input, key, class, timeout, allow_approximate)
            .await?;
        let (output, provenance) = self.provenance(answer, class)?;
        let outputs = self
            .config
            .entry
            .outputs
            .iter()
            .filter(|spec| wanted(&spec.name));
        let outputs = outputs
            .filter_map(|spec| output.tensor(&spec.name).cloned())
            .collect();
        let response = InferResponse {
            model_name: self.config.entry.name.clone(),
            model_version: Some(self.config.version.to_string()),
            id,
            parameters: provenance.parameters(),
            outputs,
        };
        Ok((response, provenance))
    }

    fn provenance(
        &self,
        answer: Answer<Output>,
        class: ClassId,
    ) -> Result<(Arc<Output>, Provenance), ServeError> {
        let own = |kind, output: Arc<Output>| {
            let confidence = output.confidence;
            let domain = OutputDomain::Deployed;
            Ok((
                output,
                Provenance {
                    kind,
                    confidence,
                    calibrated: false,
                    code: None,
                    domain,
                },
            ))
        };
        match answer {
            Answer::Exact(output) => own("exact", output),
            Answer::Hedged(output) => own("hedged", output),
            Answer::Backup(output) => own("backup", output),
            Answer::Reconstructed(output) => {
                let (confidence, calibrated) =
                    (output.confidence, self.driver.is_calibrated(class));
                let domain = self.driver.output_domain(class);
                let code = self.driver.code_label(class).map(str::to_owned);
                Ok((
                    output,
                    Provenance {
                        kind: "reconstructed",
                        confidence,
                        calibrated,
                        code,
                        domain,
                    },
                ))
            }
            Answer::Failed(failure) => Err(failure.into()),
        }
    }
}

/// Shape and dtype are fixed by the model but for the number of samples; that and the domain must
/// agree (CG-6).
fn group_key(domain: MixingDomain, rows: usize) -> Result<GroupKey, ServeError> {
    let rows = u32::try_from(rows)
        .map_err(|_| ServeError::Input(format!("{rows} samples are too many")))?;
    Ok(GroupKey {
        domain: DomainId(domain.number()),
        kind: rows,
    })
}

/// Time kept back of a deadline, so that the answer still travels in time.
fn answer_margin(timeout: Duration) -> Duration {
    (timeout / 10).min(Duration::from_millis(3))
}

#[cfg(test)]
mod tests;
