//! The bridge between tensors and the pure encoder and decoder.

use std::sync::Arc;

use parapet_decoder::{BerrutDecoder, Calibration, DecodeError, Decoder, agrees, build_decoder, confidence};
use parapet_encoder::{
    BerrutEncoder, CodeError, CodeSpec, EncodeError, Encoder, OutputDomain, build_encoder,
};
use parapet_frontend_core::{CodedConfig, Row, Slot};
use parapet_open_inference::{ProtocolError, Tensor};
use parapet_repository::TensorSpec;
use thiserror::Error;

use super::line::Line;
use crate::config::{LearnedConfig, ModelConfig};
use crate::payload::{Input, Output};

/// Why a parity query or a reconstruction could not be computed. The group goes on without it.
#[derive(Debug, Error)]
pub enum CodingError {
    /// The encoder refused the group.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The decoder refused the group.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A tensor is not what the code needs.
    #[error(transparent)]
    Tensor(#[from] ProtocolError),
    /// A member without a tensor, or no members.
    #[error("a member of the group has no tensor")]
    NoTensor,
    /// The reconstruction is not finite.
    #[error("the reconstruction is not finite")]
    NotFinite,
}

/// Encodes and decodes the groups of one model.
#[derive(Debug)]
pub struct Coder {
    form: Form,
    /// Name of each parity model's input; none where the deployed model itself is asked.
    parity_inputs: Vec<String>,
    /// For each parity row; empty unless all rows have one.
    calibrations: Vec<Calibration>,
    output: TensorSpec,
    label: String,
    /// See [`Coder::line`].
    line: Option<Line>,
}

/// Which queries are coded.
#[derive(Debug)]
enum Form {
    /// Queries are sent as they are, and parity queries beside them.
    Systematic { encoder: Box<dyn Encoder>, decoder: Box<dyn Decoder> },
    /// Coded queries are sent in their place.
    EveryCoded { encoder: BerrutEncoder, decoder: BerrutDecoder },
}

impl Coder {
    /// A coder for a model with one input and output. `None` for other models.
    ///
    /// # Errors
    /// [`CodeError`] when the code does not fit the input.
    pub fn new(model: &ModelConfig, spec: &CodeSpec, coded: &CodedConfig) -> Result<Option<Self>, CodeError> {
        let (Some(input), Some(output)) = (model.entry.inputs.first(), model.entry.outputs.first()) else {
            return Ok(None);
        };
        // Pool 0 is the deployed model's, and not among these.
        let first = usize::from(coded.first_parity.0).checked_sub(1);
        let parity = first.and_then(|first| model.redundant.get(first..first + coded.r)).unwrap_or_default();
        let parity_inputs = parity
            .iter()
            .map(|pool| {
                pool.entry.inputs.first().map_or_else(|| input.name.clone(), |spec| spec.name.clone())
            })
            .collect();
        let calibrations = parity.iter().map(|pool| pool.entry.code.as_ref()?.calibration.clone());
        let calibrations = calibrations.collect::<Option<Vec<Calibration>>>().unwrap_or_default();
        let encoder = build_encoder(spec, &input.shape)?;
        let label = encoder.code().label();
        let form = Form::Systematic { encoder, decoder: build_decoder(spec, output.sample_len())? };
        Ok(Some(Self { label, form, parity_inputs, calibrations, output: output.clone(), line: None }))
    }

    /// A coder for a model with one input and output, of which every query is coded into `spec.k + spec.r`. `None` for other
    /// models.
    ///
    /// # Errors
    /// [`CodeError`] when the code does not fit the input or the output.
    pub fn every_coded(model: &ModelConfig, spec: &CodeSpec) -> Result<Option<Self>, CodeError> {
        let (Some(input), Some(output)) = (model.entry.inputs.first(), model.entry.outputs.first()) else {
            return Ok(None);
        };
        let encoder = BerrutEncoder::new(spec.k, spec.r, &input.shape)?;
        let decoder = BerrutDecoder::new(spec.k, spec.r, spec.transform.clone(), output.sample_len())?;
        Ok(Some(Self {
            label: encoder.label(),
            form: Form::EveryCoded { encoder, decoder },
            parity_inputs: Vec::new(),
            calibrations: Vec::new(),
            output: output.clone(),
            line: None,
        }))
    }

    /// A coder by a learned code's networks, for a model with one output. `None` for other models.
    pub fn learned(model: &ModelConfig, learned: &LearnedConfig) -> Option<Self> {
        let code = &learned.code;
        let output = model.entry.outputs.first()?.clone();
        // One table stands for all rows.
        let calibrations = (0..code.code().r()).map_while(|_| code.calibration().cloned()).collect();
        let label = code.code().label();
        let (encoder, decoder) = code.clone().into_coders();
        Some(Self {
            label,
            form: Form::Systematic { encoder, decoder },
            parity_inputs: Vec::new(),
            calibrations,
            output,
            line: Some(Line::new(learned.max_queue)),
        })
    }

    /// Where encoding and decoding wait for their turn, if they compute networks: no request should wait behind them.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// The code's short name, as `concat-k2-r1`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What the numbers of a reconstruction are.
    pub fn output_domain(&self) -> OutputDomain {
        match &self.form {
            Form::Systematic { decoder, .. } => decoder.output_domain(),
            Form::EveryCoded { decoder, .. } => decoder.output_domain(),
        }
    }

    /// Whether the confidence of reconstructions is a measured agreement.
    pub fn is_calibrated(&self) -> bool {
        !self.calibrations.is_empty()
    }

    /// The parity or coded query of `row` for these k inputs of equal shape.
    ///
    /// # Errors
    /// [`CodingError`] when the inputs do not fit the code.
    pub fn encode(&self, row: Row, inputs: &[Arc<Input>]) -> Result<Input, CodingError> {
        let first = inputs.first().and_then(|input| input.tensors.first()).ok_or(CodingError::NoTensor)?;
        let rows = inputs.first().map_or(0, |input| input.rows);
        let queries = inputs
            .iter()
            .map(|input| Ok(input.tensors.first().ok_or(CodingError::NoTensor)?.f32s()?))
            .collect::<Result<Vec<Vec<f32>>, CodingError>>()?;
        let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
        let mut parity = vec![0.0; views.first().map_or(0, |query| query.len())];
        let index = usize::from(row.0);
        match &self.form {
            Form::Systematic { encoder, .. } => encoder.encode(index, &views, &mut parity)?,
            Form::EveryCoded { encoder, .. } => encoder.encode(index, &views, &mut parity)?,
        }
        let name = self.parity_inputs.get(index).unwrap_or(&first.name);
        let tensor = Tensor::from_f32(name.clone(), first.shape.clone(), &parity)?;
        Ok(Input::new(vec![tensor], rows))
    }

    /// The reconstruction of `slot`, in the code's [`output_domain`](Self::output_domain).
    ///
    /// # Errors
    /// [`CodingError`] when the group cannot be decoded, or not to finite numbers.
    pub fn decode(
        &self,
        slot: Slot,
        predictions: &[Option<Arc<Output>>],
        parity: &[Option<Arc<Output>>],
    ) -> Result<Output, CodingError> {
        let (predictions, parity) = (values(predictions)?, values(parity)?);
        let len = predictions.iter().chain(&parity).flatten().map(Vec::len).next().unwrap_or(0);
        let mut out = vec![0.0; len];
        let (known, coded) = (views(&predictions), views(&parity));
        match &self.form {
            Form::Systematic { decoder, .. } => {
                decoder.decode(&known, &coded, usize::from(slot.0), &mut out)?
            }
            Form::EveryCoded { decoder, .. } => decoder.decode(&coded, usize::from(slot.0), &mut out)?,
        }
        if !out.iter().all(|value| value.is_finite()) {
            return Err(CodingError::NotFinite);
        }
        let sample_len = self.output.sample_len().max(1);
        let rows = len / sample_len;
        let answered = |row: usize| parity.get(row).is_some_and(Option::is_some);
        let confidence =
            out.chunks(sample_len).map(|sample| self.confidence(sample, answered)).fold(1.0, f32::min);
        let shape: Vec<usize> = std::iter::once(rows).chain(self.output.shape.iter().copied()).collect();
        let tensor = Tensor::from_f32(self.output.name.clone(), shape, &out)?;
        Ok(Output { tensors: vec![tensor], confidence })
    }

    /// How far one sample of a reconstruction can be trusted: as measured for the rows that answered, the least of them; if
    /// nothing was measured, its top class's probability.
    fn confidence(&self, sample: &[f32], answered: impl Fn(usize) -> bool) -> f32 {
        if !self.is_calibrated() {
            return confidence(sample);
        }
        let rows = self.calibrations.iter().enumerate().filter(|(row, _)| answered(*row));
        rows.map(|(_, calibration)| calibration.confidence(sample)).fold(1.0, f32::min)
    }
}

/// Whether an approximation names the deployed model's top class for every sample of its first output, `sample_len`
/// values each; they may be in different domains, for every output transform keeps the top class. `None` if that is no FP32.
pub fn agree(sample_len: usize, approximation: &Output, truth: &Output) -> Option<bool> {
    let values = |output: &Output| output.tensors.first().and_then(|tensor| tensor.f32s().ok());
    let (a, b) = (values(approximation)?, values(truth)?);
    Some(agrees(&a, &b, a.len() / sample_len.max(1)))
}

fn values(outputs: &[Option<Arc<Output>>]) -> Result<Vec<Option<Vec<f32>>>, CodingError> {
    let values = |output: &Arc<Output>| -> Result<Vec<f32>, CodingError> {
        Ok(output.tensors.first().ok_or(CodingError::NoTensor)?.f32s()?)
    };
    outputs.iter().map(|output| output.as_ref().map(values).transpose()).collect()
}

fn views(values: &[Option<Vec<f32>>]) -> Vec<Option<&[f32]>> {
    values.iter().map(Option::as_deref).collect()
}
