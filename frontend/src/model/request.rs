//! A request to a model: checked, asked, and answered.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parapet_config::repository::{TensorSpec, check_outputs, take_inputs};
use parapet_encoder::{OutputDomain, Padding};
use parapet_frontend_core::{Answer, ClassId, DomainId, GroupKey, Rejected};
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Excerpt, InferRequest, InferResponse, Parameters,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::coding::Coder;
use crate::config::ClassConfig;
use crate::error::ServeError;
use crate::model::ServedModel;
use crate::payload::{Extra, Input, Output, Provenance};
use crate::tenants::MixingDomain;
use crate::upstream::Transport;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub timeout: Duration,
    /// True if a reconstruction, or a backup model's prediction, is welcome.
    pub allow_approximate: bool,
}

impl Options {
    /// Reads `timeout` (microseconds, as Triton has it), `deadline_unix_ms` (an absolute time) and
    /// `allow_approximate`.
    pub fn parse(
        parameters: &Parameters,
        default: Duration,
        max: Duration,
    ) -> Result<Self, ServeError> {
        let number = |name: &str, expected: &str| {
            let value = parameters.get(name);
            let number =
                value.map(|value| value.as_u64().ok_or_else(|| wrong(name, expected, value)));
            number.transpose()
        };
        let timeout = number("timeout", "a number of microseconds")?.map(Duration::from_micros);
        let left = number("deadline_unix_ms", "milliseconds since 1970")?.map(|millis| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Duration::from_millis(millis).saturating_sub(now)
        });
        // Where the client gives both, both hold.
        let timeout = timeout.into_iter().chain(left).min().unwrap_or(default).min(max);
        ensure!(!timeout.is_zero(), Rejected::DeadlinePassed.into());
        let allow_approximate = match parameters.get("allow_approximate") {
            None => true,
            Some(Value::Bool(allowed)) => *allowed,
            Some(value) => return Err(wrong("allow_approximate", "true or false", value)),
        };
        Ok(Self { timeout, allow_approximate })
    }
}

pub const CLASS: &str = "class";

/// The class that the parameter `class` names; the default one without it.
fn class(parameters: &Parameters, classes: &[ClassConfig]) -> Result<ClassId, ServeError> {
    let Some(value) = parameters.get(CLASS) else { return Ok(ClassId::DEFAULT) };
    let names = || classes.iter().map(|class| class.name.as_str());
    let position = names().position(|name| value.as_str() == Some(name));
    position.and_then(|index| u8::try_from(index).ok()).map(ClassId).ok_or_else(|| {
        let known: Vec<&str> = names().collect();
        wrong(CLASS, &format!("one of {}", known.join(", ")), value)
    })
}

/// Parameters that are read here, or by the codec; all others are the instance's.
const OWN: [&str; 5] =
    ["timeout", "deadline_unix_ms", "allow_approximate", CLASS, BINARY_DATA_OUTPUT];
/// Parameters that make a request a part of a sequence, where they are more than 0 or false.
const OF_SEQUENCE: [&str; 3] = ["sequence_id", "sequence_start", "sequence_end"];

/// The parameters of a request that go to the instance with it.
fn for_instance(parameters: Parameters) -> Result<Parameters, ServeError> {
    let others = parameters.into_iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
    let mut kept = Parameters::new();
    for (name, value) in others {
        if OF_SEQUENCE.contains(&name.as_str()) {
            if [0.into(), false.into(), "".into(), Value::Null].contains(&value) {
                continue;
            }
            return Err(ServeError::Input(format!(
                "parameter {name:?}: requests of a sequence need one instance for all of them, and \
                 queries go to any; send them to an instance itself"
            )));
        }
        kept.insert(name, value);
    }
    Ok(kept)
}

fn wrong(parameter: &str, expected: &str, value: &Value) -> ServeError {
    // A text is not written as JSON first, which could take as much again.
    let shown = match value {
        Value::String(text) => format!("{:?}", Excerpt::from(text)),
        other => Excerpt::from(&other.to_string()).to_string(),
    };
    ServeError::Input(format!("parameter {parameter:?} must be {expected}, not {shown}"))
}

/// Kinds of query with one number of samples: one more than lengths that groups can be padded to.
const LENGTH_CLASSES: u32 = Padding::MAX_LENGTHS as u32 + 1;

/// Contents of this size are taken for any model: mistakes in small requests are told precisely.
const SMALL_CONTENTS: usize = 64 * 1024;

/// Bytes of contents that a request of `max_rows` samples can have; those of BYTES have no bound,
/// nor have those with an axis of any length.
pub(super) fn max_contents(specs: &[TensorSpec], max_rows: usize) -> usize {
    let bytes = |spec: &TensorSpec| {
        let sizes = spec.datatype.size().zip(spec.sample_len());
        sizes.map_or(usize::MAX, |(size, len)| len.saturating_mul(size))
    };
    let sample = specs.iter().map(bytes).fold(0, usize::saturating_add);
    sample.saturating_mul(max_rows).max(SMALL_CONTENTS)
}

impl<T: Transport> ServedModel<T> {
    /// Answers a request, in coding groups with queries of this domain only (CG-6), or of any if
    /// the code isolates them.
    pub async fn infer(
        &self,
        domain: MixingDomain,
        request: InferRequest,
    ) -> Result<(InferResponse, Provenance), ServeError> {
        let (settings, entry) = (&self.config.settings, &self.config.entry);
        let parameters = &request.parameters;
        let options = Options::parse(parameters, settings.timeout, settings.max_timeout)?;
        let class = class(parameters, &self.config.classes)?;
        let (id, parameters) = (request.id.clone(), for_instance(request.parameters)?);
        check_outputs(&entry.outputs, &request.outputs).map_err(ServeError::Input)?;
        let asked = InferRequest { outputs: request.outputs, ..InferRequest::default() };
        let wanted = |name: &str| asked.wants_output(name);
        let taken = take_inputs(&entry.inputs, request.inputs, self.max_rows());
        let (tensors, rows) = taken.map_err(ServeError::Input)?;
        let config = self.config.classes.get(usize::from(class.0));
        let code = config.and_then(|class| class.code.as_ref());
        // A coded model fixes shape and datatype but for the number of samples, and the length where
        // groups are padded; those and the domain must agree (CG-6).
        let length_class = code.map_or(Some(0), |code| code.length_class(&tensors));
        let kind = u32::try_from(rows).ok().and_then(|rows| rows.checked_mul(LENGTH_CLASSES));
        let kind = kind.ok_or_else(|| ServeError::Input(format!("{rows} samples are too many")))?
            + length_class.unwrap_or_default();
        let domain =
            if code.is_some_and(|code| code.is_isolated) { MixingDomain::SHARED } else { domain };
        let key = GroupKey { domain: DomainId(domain.number()), kind };
        let timeout = options.timeout.saturating_sub(answer_margin(options.timeout));
        // Some requests go on when their client is answered: they are not to be given up before the
        // engine does that.
        let kept = config.map(|class| class.strategy.keeps_requests_for()).unwrap_or_default();
        let mut query = Input::new(tensors, rows);
        query.deadline = Some(Instant::now() + timeout + kept);
        query.extra = Extra { id, parameters };
        query.may_join = length_class.is_some();
        let approximate = options.allow_approximate && self.driver.approximates(class, wanted);
        let answer = self.driver.infer(query, key, class, timeout, approximate).await?;
        let (output, provenance) = self.provenance(answer, class)?;
        let outputs = entry.outputs.iter().filter_map(|spec| output.tensor(&spec.name).cloned());
        let mut parameters = output.parameters.clone();
        parameters.extend(provenance.parameters());
        let response = InferResponse {
            model_name: entry.name.clone(),
            model_version: Some(self.config.version.to_string()),
            id: request.id,
            parameters,
            outputs: asked.select(outputs.collect())?,
        };
        Ok((response, provenance))
    }

    fn provenance(
        &self,
        answer: Answer<Output>,
        class: ClassId,
    ) -> Result<(Arc<Output>, Provenance), ServeError> {
        let (kind, output) = match answer {
            Answer::Exact(output) => ("exact", output),
            Answer::Hedged(output) => ("hedged", output),
            Answer::Backup(output) => ("backup", output),
            Answer::Reconstructed(output) => ("reconstructed", output),
            Answer::Failed(failure) => return Err(failure.into()),
        };
        let coder = self.driver.coder(class).filter(|_| kind == "reconstructed");
        let provenance = Provenance {
            kind,
            confidence: output.confidence,
            calibrated: coder.is_some_and(Coder::is_calibrated),
            expected_error: coder.and_then(Coder::expected_error),
            code: coder.map(|coder| coder.label.clone()),
            domain: coder.map_or(OutputDomain::Deployed, Coder::output_domain),
        };
        Ok((output, provenance))
    }
}

/// Time kept back of a deadline, so that the answer still travels in time.
fn answer_margin(timeout: Duration) -> Duration {
    (timeout / 10).min(Duration::from_millis(3))
}

#[cfg(test)]
mod tests;
