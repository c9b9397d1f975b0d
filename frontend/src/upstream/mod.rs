//! Requests to instances, behind a trait so that tests can answer from memory.

mod grpc;
mod http;
mod instances;

pub use crate::discovery::Place;
pub use instances::Instances;

use std::sync::Arc;
use std::time::Duration;

use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_encoder::Decoding;
use parapet_frontend_core::{AttemptResult, Failure, FailureKind, InstanceId};
use parapet_net::LogLimit;
use parapet_net::client::SendError;
use parapet_net::tls::TlsFailure;
use parapet_open_inference::{Excerpt, InferResponse, Tensor};
use tokio::time::Instant;

use crate::payload::{Input, Output};

pub trait Transport: Send + Sync + std::fmt::Debug + 'static {
    /// Has an instance infer. Dropping the future withdraws the request.
    fn infer(
        &self,
        instance: InstanceId,
        input: Arc<Input>,
    ) -> impl Future<Output = AttemptResult<Output>> + Send;

    fn ready(&self, instance: InstanceId) -> impl Future<Output = Result<(), Unready>> + Send;

    /// Rows of a request that every instance takes, as far as they say.
    fn max_rows(&self) -> usize {
        usize::MAX
    }

    /// An instance joined, at this place; it will be asked whether it is ready, then to infer.
    /// Gives its name in logs and metrics.
    fn join(&self, instance: InstanceId, place: &Place) -> String;

    /// An instance left, and has nothing in flight.
    fn left(&self, instance: InstanceId);
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    #[error("no TLS connection: {0}")]
    Tls(TlsFailure),
    #[error("{0}")]
    Unreachable(String),
    #[error("it answers {0}")]
    Says(String),
    #[error("its address or model name makes no valid request")]
    Unaddressable,
    /// Its metadata does not fit the model.
    #[error("{0}")]
    Differs(String),
}

impl From<SendError> for Unready {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Tls(failure) => Self::Tls(failure),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// Resolution of the timers of an instance, and of ours.
const TIMER: Duration = Duration::from_millis(5);

/// The failure of an instance that gave a query up for lack of time; it does not count against the
/// instance if the time that it was given is over.
fn given_up(input: &Input) -> FailureKind {
    match input.deadline {
        Some(deadline) if Instant::now() + TIMER >= deadline => FailureKind::DeadlineExceeded,
        _ => FailureKind::InstanceError,
    }
}

fn unreadable<E: ToString>(error: E) -> Unready {
    let error = Excerpt::from(&error.to_string());
    Unready::Says(format!("with metadata that cannot be read: {error}"))
}

/// Room in a response for an output with an axis of any length.
const FREE_OUTPUT_ROOM: usize = 64 * 1024 * 1024;
/// Room for the rest of a response beside its tensors, and for metadata.
const RESPONSE_HEADER_ROOM: usize = 256 * 1024;

#[derive(Debug)]
struct Expected {
    outputs: Vec<TensorSpec>,
    /// False if an output has slots: a member's input spoils only its own, which the decoder finds.
    must_be_finite: bool,
    max_bytes: usize,
}

impl Expected {
    fn of(entry: &ModelEntry, max_rows: usize) -> Self {
        let bytes = |output: &TensorSpec| {
            let Some(len) = output.sample_len() else { return FREE_OUTPUT_ROOM };
            // JSON spells a number in up to some 25 bytes.
            let size = 8 * output.datatype.size().unwrap_or(4096);
            len.saturating_mul(size).saturating_mul(max_rows)
        };
        let max_bytes =
            entry.outputs.iter().map(bytes).fold(RESPONSE_HEADER_ROOM, usize::saturating_add);
        let code = entry.code.as_ref();
        Self {
            must_be_finite: code.is_none_or(|code| code.spec.decoding != Decoding::Slots),
            outputs: entry.outputs.clone(),
            max_bytes,
        }
    }

    /// Prediction for `rows` samples; outputs that the model's metadata does not name are left out.
    fn check(&self, response: InferResponse, rows: usize) -> Result<Output, String> {
        let mut outputs = response.outputs;
        let tensors = self.outputs.iter().map(|spec| {
            let tensor = take_output(&mut outputs, spec, rows)?;
            let is_sound = !self.must_be_finite || !tensor.has_non_finite();
            ensure!(is_sound, format!("output {:?} holds a NaN or an infinity", tensor.name));
            Ok(tensor)
        });
        Ok(Output {
            tensors: tensors.collect::<Result<_, String>>()?,
            parameters: response.parameters,
            confidence: Some(1.0),
        })
    }
}

/// The output that `spec` describes, for `rows` samples (CG-6: nothing else gets into a group).
fn take_output(
    outputs: &mut Vec<Tensor>,
    spec: &TensorSpec,
    rows: usize,
) -> Result<Tensor, String> {
    let position = outputs.iter().position(|tensor| tensor.name == spec.name);
    let position = position.ok_or_else(|| format!("no output {:?} in the answer", spec.name))?;
    let tensor = outputs.swap_remove(position);
    let sample = tensor.shape.split_first().filter(|(batch, _)| **batch == rows);
    let fits = sample.is_some_and(|(_, sample)| spec.shape.matches(sample));
    if tensor.datatype == spec.datatype && fits {
        return Ok(tensor);
    }
    let (name, shape, datatype) = (&tensor.name, &tensor.shape, tensor.datatype);
    let (expected, here) = (spec.shape.behind(rows), spec.datatype);
    Err(format!("output {name:?} is {datatype} {shape:?}, not {here} {expected}"))
}

static FAILED: LogLimit = LogLimit::new();

/// Failure of a request to the instance at `address`, which is logged. Only the log has more than
/// the first line, as a stack is.
fn failure(address: &str, kind: FailureKind, reason: &str) -> Failure {
    let first = Excerpt::from(reason.lines().next().unwrap_or_default());
    let reason = Excerpt::from(reason);
    if let Some(held_back) = kind.counts_as_instance_failure().then(|| FAILED.pass()).flatten() {
        tracing::warn!(instance = address, %kind, %reason, held_back,
            "a request to an instance failed");
    } else {
        tracing::debug!(instance = address, %kind, %reason, "a request to an instance failed");
    }
    Failure::new(kind, first.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_no_address_and_is_short() {
        let address = "10.0.0.7:9001";
        let long = "\u{200b}".repeat(1 << 20);
        for kind in [
            FailureKind::Unreachable,
            FailureKind::ConnectionLost,
            FailureKind::InstanceBusy,
            FailureKind::InstanceError,
            FailureKind::Refused,
            FailureKind::InvalidOutput,
            FailureKind::DeadlineExceeded,
            FailureKind::Shed,
        ] {
            let failure = failure(address, kind, &long);
            assert_eq!(failure.kind, kind);
            let text = failure.to_string();
            assert!(!text.contains(address) && text.len() < 2100, "{text}");
        }
        let stack = "500 boom\n\nAt:\n  /models/1/model.py(7): execute";
        let failed = failure(address, FailureKind::InstanceError, stack).to_string();
        assert!(failed.ends_with(": 500 boom"), "{failed}");
        let reason = "400 Bad Request 4 rows; send 1 to 2";
        let refused = failure(address, FailureKind::Refused, reason).to_string();
        assert!(refused.ends_with(&format!(": {reason}")), "{refused}");
    }
}
