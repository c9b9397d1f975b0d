//! Input of a query and prediction, which the core carries unread.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use parapet_encoder::OutputDomain;
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Encoded, Encoding, Parameters, ProtocolError, Tensor, encode_inputs,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::traces::Members;

static BINARY_ANSWER: LazyLock<Parameters> =
    LazyLock::new(|| std::iter::once((BINARY_DATA_OUTPUT.to_owned(), true.into())).collect());
static NO_PARAMETERS: LazyLock<Parameters> = LazyLock::new(Parameters::new);

/// Parts of a request, beside its inputs, that are the instance's to understand.
#[derive(Debug, Default)]
pub struct Extra {
    pub id: Option<String>,
    pub parameters: Parameters,
}

/// A query, ready to be sent to any instance as often as need be.
#[derive(Debug)]
pub struct Input {
    pub tensors: Vec<Tensor>,
    pub rows: usize,
    /// False for a query that no group has a place for.
    pub may_join: bool,
    pub extra: Extra,
    /// The upstream request's body over HTTP, once it was asked for: in binary form, and in JSON.
    binary: OnceLock<Encoded>,
    json: OnceLock<Encoded>,
    /// End of the client's wait; instances that know of it need not begin with it then.
    pub deadline: Option<Instant>,
    pub traces: Members,
}

impl Input {
    pub fn new(tensors: Vec<Tensor>, rows: usize) -> Self {
        Self {
            tensors,
            rows,
            may_join: true,
            extra: Extra::default(),
            binary: OnceLock::new(),
            json: OnceLock::new(),
            deadline: None,
            traces: Members::default(),
        }
    }

    /// Returns true if the client has parameters for the instance, which no group could keep.
    pub fn has_foreign_parameters(&self) -> bool {
        let of_tensors = self.tensors.iter().any(|tensor| !tensor.parameters.is_empty());
        of_tensors || !self.extra.parameters.is_empty()
    }

    /// The upstream request's body, written once, however often it is sent.
    pub fn body(&self, encoding: Encoding) -> Result<&Encoded, ProtocolError> {
        let (cell, parameters) = match encoding {
            Encoding::Binary => (&self.binary, &*BINARY_ANSWER),
            Encoding::Json => (&self.json, &*NO_PARAMETERS),
        };
        if let Some(encoded) = cell.get() {
            return Ok(encoded);
        }
        let mut own = Cow::Borrowed(parameters);
        if !self.extra.parameters.is_empty() {
            own.to_mut().extend(self.extra.parameters.clone());
        }
        let encoded = encode_inputs(self.extra.id.as_deref(), &own, &self.tensors, &[], encoding)?;
        Ok(cell.get_or_init(|| encoded))
    }

    /// Size of the tensors and the id.
    pub fn bytes(&self) -> usize {
        let id = self.extra.id.as_ref().map_or(0, String::len);
        self.tensors.iter().map(|tensor| tensor.data.len()).sum::<usize>() + id
    }
}

/// A prediction, checked against the model's metadata and finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The model's outputs; of a reconstruction those that are coded.
    pub tensors: Vec<Tensor>,
    /// The instance's own, about its response.
    pub parameters: Parameters,
    /// For a reconstruction, how probably it agrees with the truth (the least over the samples),
    /// and none if that is not known; 1 for an exact prediction.
    pub confidence: Option<f32>,
}

impl Output {
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Provenance {
    /// One of [`Provenance::KINDS`].
    pub kind: &'static str,
    /// 1 for any model's own prediction; for a reconstruction see [`parapet_decoder::Agreement`].
    /// None for a reconstruction of which nothing is known.
    pub confidence: Option<f32>,
    /// True if that is how often such reconstructions agreed when it was measured
    /// ([`parapet_decoder::Calibration`]).
    pub calibrated: bool,
    /// Error that nine of ten such reconstructions did not exceed when it was measured, of outputs
    /// that are no class scores ([`parapet_decoder::OutputKind`]).
    pub expected_error: Option<f32>,
    /// For a reconstruction, the code's short name.
    pub code: Option<String>,
    /// Scale of the output's numbers: the deployed model's, but for some codes' reconstructions.
    pub domain: OutputDomain,
}

impl Provenance {
    /// The kinds: the deployed model's own prediction; the same from a redundant copy of the query;
    /// a backup model's; one decoded from a coding group.
    pub const KINDS: [&str; 4] = ["exact", "hedged", "backup", "reconstructed"];

    pub(crate) fn parameters(&self) -> Parameters {
        let is_in_another_domain = self.domain != OutputDomain::Deployed;
        let entries = [
            ("provenance", Some(self.kind.into())),
            ("confidence", self.confidence.map(|confidence| f64::from(confidence).into())),
            ("confidence_calibrated", self.calibrated.then(|| true.into())),
            ("expected_error", self.expected_error.map(|error| f64::from(error).into())),
            ("code", self.code.as_deref().map(Value::from)),
            ("output_domain", is_in_another_domain.then(|| self.domain.to_string().into())),
        ];
        entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
