//! What the core carries without looking at it: a query's input, and a prediction.

use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Encoded, Encoding, InferRequest, Parameters, ProtocolError, Tensor, encode_request,
};
use tokio::time::Instant;

use crate::traces::Members;

/// A query, ready to be sent to any instance as often as need be.
#[derive(Debug)]
pub struct Input {
    /// The model's inputs.
    pub tensors: Vec<Tensor>,
    /// Samples: the length of the batch axis.
    pub rows: usize,
    /// The upstream request's body, in binary form.
    pub wire: Encoded,
    /// When nobody waits for its answer any more; instances that know of it need not begin with it then.
    pub deadline: Option<Instant>,
    /// The traced requests that it is for.
    pub traces: Members,
}

impl Input {
    /// A query of `rows` samples.
    ///
    /// # Errors
    /// [`ProtocolError`] when the tensors cannot be written in binary form.
    pub fn new(tensors: Vec<Tensor>, rows: usize) -> Result<Self, ProtocolError> {
        let mut parameters = Parameters::new();
        parameters.insert(BINARY_DATA_OUTPUT.to_owned(), true.into());
        let request = InferRequest { id: None, parameters, inputs: tensors, outputs: Vec::new() };
        let wire = encode_request(&request, Encoding::Binary)?;
        Ok(Self { tensors: request.inputs, rows, wire, deadline: None, traces: Members::default() })
    }

    /// Nobody waits for its answer after `deadline`.
    #[must_use]
    pub fn by(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Bytes of its tensors.
    pub fn len(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.data.len()).sum()
    }

    /// Whether its tensors are without contents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prediction, checked against the model's metadata and finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The model's outputs.
    pub tensors: Vec<Tensor>,
    /// For a reconstruction, how sure it is of its top class (the least over the samples); 1 for an exact prediction.
    pub confidence: f32,
}
