//! The bridge between tensors and the pure encoder and decoder.

use std::sync::Arc;

use parapet_config::repository::TensorSpec;
use parapet_decoder::{Calibration, ClassAxis, ClassScores, DecodeError, Decoder, Score};
use parapet_encoder::{EncodeError, Encoder, OutputDomain};
use parapet_frontend_core::{Row, Slot};
use parapet_open_inference::{ProtocolError, Tensor};
use thiserror::Error;

use super::coding_queue::CodingQueue;
use super::judged::JudgedOutput;
use crate::config::{BuiltCode, ModelConfig};
use crate::payload::{Input, Output};

/// Reason why a parity query or a reconstruction could not be computed. The group goes
/// on without it.
#[derive(Debug, Error)]
pub enum CodingError {
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Tensor(#[from] ProtocolError),
    #[error("a member of the group has no tensor")]
    NoTensor,
    #[error("the reconstruction is not finite")]
    NotFinite,
}

/// Encodes and decodes the groups of one class of a model's requests: each coded input and output
/// by itself, with one code.
#[derive(Debug)]
pub struct Coder {
    inputs: Vec<CodedInput>,
    outputs: Vec<CodedOutput>,
    /// The first of them, if it has class scores.
    judged: Option<JudgedOutput>,
    /// For each parity row; empty unless all rows have one.
    calibrations: Vec<Calibration>,
    label: String,
    /// True if no output of the model is left out.
    covers_all: bool,
    /// See [`Coder::line`].
    line: Option<CodingQueue>,
}

#[derive(Debug)]
struct CodedInput {
    /// Where it stands among the deployed model's.
    position: usize,
    encoder: Arc<dyn Encoder>,
    /// Its name at each row's parity model; none where the deployed model itself is asked.
    parity_names: Vec<String>,
}

#[derive(Debug)]
struct CodedOutput {
    /// Where it stands among the deployed model's; a parity model's outputs are in the
    /// code's own order.
    position: usize,
    spec: TensorSpec,
    decoder: Arc<dyn Decoder>,
}

impl Coder {
    /// The coders of `code`, each with its tensor.
    pub fn new(model: &ModelConfig, code: &BuiltCode) -> Self {
        let tensors = &code.tensors;
        let inputs = tensors.inputs.iter().zip(&code.encoders);
        let inputs = inputs.zip(&code.parity_names);
        let outputs = tensors.outputs.iter().zip(&code.decoders);
        let outputs = outputs.zip(tensors.outputs_of(&model.entry));
        Self {
            inputs: inputs
                .map(|((&position, encoder), names)| CodedInput {
                    position,
                    encoder: Arc::clone(encoder),
                    parity_names: names.clone(),
                })
                .collect(),
            outputs: outputs
                .map(|((&position, decoder), spec)| CodedOutput {
                    position,
                    spec: spec.clone(),
                    decoder: Arc::clone(decoder),
                })
                .collect(),
            judged: tensors
                .outputs_of(&model.entry)
                .next()
                .and_then(|spec| judged(model, spec)),
            calibrations: code.calibrations.clone(),
            label: code.label.clone(),
            covers_all: tensors.outputs.len() == model.entry.outputs.len(),
            line: code.max_queue.map(CodingQueue::new),
        }
    }

    /// Returns true if a reconstruction holds every output of the model that is `wanted`.
    pub fn covers(&self, model: &[TensorSpec], wanted: impl Fn(&str) -> bool) -> bool {
        let is_coded = |name: &str| self.outputs.iter().any(|output| output.spec.name == name);
        self.covers_all
            || model
                .iter()
                .all(|output| is_coded(&output.name) || !wanted(&output.name))
    }

    /// The output by which reconstructions are judged: the first that is coded, if it
    /// has class scores.
    pub fn judged(&self) -> Option<&JudgedOutput> {
        self.judged.as_ref()
    }

    /// Where encoding and decoding wait for their turn, if they compute networks: no request should
    /// wait behind them.
    pub fn line(&self) -> Option<&CodingQueue> {
        self.line.as_ref()
    }

    /// The code's short name, as `concat-k2-r1`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the scale of a reconstruction's numbers.
    pub fn output_domain(&self) -> OutputDomain {
        self.outputs
            .first()
            .map_or(OutputDomain::Deployed, |output| {
                output.decoder.output_domain()
            })
    }

    /// Returns true if the confidence of reconstructions is a measured agreement.
    pub fn is_calibrated(&self) -> bool {
        self.judged.is_some() && !self.calibrations.is_empty()
    }

    /// The parity query of `row` for these k inputs of equal shapes.
    ///
    /// # Errors
    /// [`CodingError`] when the inputs do not fit the code.
    pub fn encode(&self, row: Row, inputs: &[Arc<Input>]) -> Result<Input, CodingError> {
        let rows = inputs.first().map_or(0, |input| input.rows);
        let tensors = self
            .inputs
            .iter()
            .map(|coded| coded.encode(usize::from(row.0), inputs));
        Ok(Input::new(tensors.collect::<Result<_, _>>()?, rows))
    }

    /// The reconstruction of `slot`, in the code's [`output_domain`](Self::output_domain):
    /// the coded outputs.
    ///
    /// # Errors
    /// [`CodingError`] when the group cannot be decoded, or not to finite numbers.
    pub fn decode(
        &self,
        slot: Slot,
        predictions: &[Option<Arc<Output>>],
        parity: &[Option<Arc<Output>>],
    ) -> Result<Output, CodingError> {
        let answered = |row: usize| parity.get(row).is_some_and(Option::is_some);
        let mut confidence = None;
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (index, output) in self.outputs.iter().enumerate() {
            let known = values(predictions, output.position)?;
            let coded = values(parity, index)?;
            let out = output.decode(slot, &known, &coded)?;
            let sample_len = output.spec.sample_len().max(1);
            if let (0, Some(judged)) = (index, &self.judged) {
                confidence = Some(self.confidence(judged.classes(), &out, answered));
            }
            let rows = out.len() / sample_len;
            let shape: Vec<usize> = std::iter::once(rows)
                .chain(output.spec.shape.iter().copied())
                .collect();
            tensors.push(Tensor::from_f32(output.spec.name.clone(), shape, &out)?);
        }
        Ok(Output {
            tensors,
            confidence,
        })
    }

    /// Trust in the samples of a reconstruction, that of the least certain: as measured for the
    /// rows that answered, the least of them; if nothing was measured, the top class's probability.
    fn confidence(
        &self,
        classes: ClassAxis,
        samples: &[f32],
        answered: impl Fn(usize) -> bool,
    ) -> f32 {
        let measured = |scores: ClassScores<'_>| {
            let rows = self
                .calibrations
                .iter()
                .enumerate()
                .filter(|(row, _)| answered(*row));
            rows.map(|(_, calibration)| calibration.confidence(scores))
                .fold(1.0, f32::min)
        };
        let of_sample = |scores: ClassScores<'_>| match self.is_calibrated() {
            true => measured(scores),
            false => Score::TopProbability.of(scores),
        };
        classes.samples(samples).map(of_sample).fold(1.0, f32::min)
    }
}

impl CodedInput {
    fn encode(&self, row: usize, inputs: &[Arc<Input>]) -> Result<Tensor, CodingError> {
        let tensors = inputs
            .iter()
            .map(|input| {
                input
                    .tensors
                    .get(self.position)
                    .ok_or(CodingError::NoTensor)
            })
            .collect::<Result<Vec<&Tensor>, _>>()?;
        let first = tensors.first().ok_or(CodingError::NoTensor)?;
        let queries = tensors
            .iter()
            .map(|tensor| tensor.f32s())
            .collect::<Result<Vec<_>, _>>()?;
        let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
        let mut parity = vec![0.0; views.first().map_or(0, |query| query.len())];
        self.encoder.encode(row, &views, &mut parity)?;
        let name = self.parity_names.get(row).unwrap_or(&first.name);
        Ok(Tensor::from_f32(
            name.clone(),
            first.shape.clone(),
            &parity,
        )?)
    }
}

impl CodedOutput {
    fn decode(
        &self,
        slot: Slot,
        predictions: &[Option<Vec<f32>>],
        parity: &[Option<Vec<f32>>],
    ) -> Result<Vec<f32>, CodingError> {
        let len = predictions
            .iter()
            .chain(parity)
            .flatten()
            .map(Vec::len)
            .next()
            .unwrap_or(0);
        let mut out = vec![0.0; len];
        let (known, coded) = (views(predictions), views(parity));
        self.decoder
            .decode(&known, &coded, usize::from(slot.0), &mut out)?;
        if !out.iter().all(|value| value.is_finite()) {
            return Err(CodingError::NotFinite);
        }
        Ok(out)
    }
}

/// The output `spec` as one that reconstructions are judged by. A model without class scores is
/// served all the same.
fn judged(model: &ModelConfig, spec: &TensorSpec) -> Option<JudgedOutput> {
    JudgedOutput::of(spec).unwrap_or_else(|reason| {
        let (model, output) = (&model.entry.name, &spec.name);
        tracing::warn!(
            model,
            output,
            "the output has {reason}: reconstructions are sent without a confidence, and their \
                agreement is not measured"
        );
        None
    })
}

fn values(
    outputs: &[Option<Arc<Output>>],
    position: usize,
) -> Result<Vec<Option<Vec<f32>>>, CodingError> {
    let values = |output: &Arc<Output>| -> Result<Vec<f32>, CodingError> {
        Ok(output
            .tensors
            .get(position)
            .ok_or(CodingError::NoTensor)?
            .f32s()?)
    };
    outputs
        .iter()
        .map(|output| output.as_ref().map(values).transpose())
        .collect()
}

fn views(values: &[Option<Vec<f32>>]) -> Vec<Option<&[f32]>> {
    values.iter().map(Option::as_deref).collect()
}
