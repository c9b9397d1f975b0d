//! The bridge between tensors and the pure encoders and decoders.

mod padded;

use std::sync::Arc;

use parapet_config::repository::{Datatype, ModelEntry, TensorSpec};
use parapet_decoder::{Agreement, Calibration, DecodeError, Decoder};
use parapet_encoder::{CodeSpec, EncodeError, Encoder, OutputDomain};
use parapet_frontend_core::{Row, Slot};
use parapet_open_inference::{Parameters, ProtocolError, Tensor};
use thiserror::Error;
use tokio::sync::Semaphore;

pub(crate) use self::padded::Padded;
use crate::payload::{Input, Output};

/// Reason why a parity query or reconstruction could not be computed. The group goes on without it.
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
    #[error("a query of {steps} steps is longer than all padding")]
    TooLong { steps: usize },
    #[error("the reconstruction is not finite")]
    NotFinite,
}

/// Encodes and decodes the groups of one class of a model's requests: each coded input and output
/// by itself, with one code.
#[derive(Debug)]
pub struct Coder {
    /// Short name of the code, as `concat-k2-r1`.
    pub label: String,
    inputs: Vec<CodedInput>,
    outputs: Vec<CodedOutput>,
    pub judged: Option<JudgedOutput>,
    /// For each parity row; empty unless all rows have one.
    pub(crate) calibrations: Vec<Calibration>,
    covers_all: bool,
    /// True if no query of a group can be seen in, or disturb, another's reconstruction.
    pub is_isolated: bool,
    /// For codes that compute networks: no request should wait behind them.
    pub queue: Option<CodingQueue>,
    /// Specification that the coders were built from; `None` for networks.
    pub(crate) spec: Option<CodeSpec>,
}

#[derive(Debug)]
pub struct CodedInput {
    pub(crate) position: usize,
    pub(crate) combined: Combined,
    /// Its name at each row's parity model; none where the deployed model itself is asked.
    pub(crate) parity_names: Vec<String>,
}

/// Makes one parity query of k queries.
#[derive(Debug)]
pub(crate) enum Combined {
    Encoder(Box<dyn Encoder>),
    /// A stack of queries of several lengths.
    Padded(Padded),
}

#[derive(Debug)]
pub struct CodedOutput {
    /// Place among the deployed model's outputs; a parity model's are in the code's own order.
    pub(crate) position: usize,
    pub(crate) spec: TensorSpec,
    pub(crate) decoder: Box<dyn Decoder>,
}

/// Networks are never equal: they may have changed in their files.
impl PartialEq for Coder {
    fn eq(&self, other: &Self) -> bool {
        let inputs = |coder: &Self| coder.inputs.iter().map(|input| input.position).collect();
        let outputs = |coder: &Self| coder.outputs.iter().map(|output| output.position).collect();
        let positions = |coder: &Self| -> [Vec<usize>; 2] { [inputs(coder), outputs(coder)] };
        let kind = |coder: &Self| {
            let padding = coder.padded().map(|(_, padded)| padded.padding.clone());
            (coder.spec.clone(), coder.is_isolated, padding, positions(coder))
        };
        self.spec.is_some() && kind(self) == kind(other)
    }
}

impl Coder {
    pub(crate) fn new(
        label: String,
        inputs: Vec<CodedInput>,
        outputs: Vec<CodedOutput>,
        deployed: &ModelEntry,
    ) -> Self {
        Self {
            label,
            covers_all: outputs.len() == deployed.outputs.len(),
            is_isolated: false,
            inputs,
            judged: outputs.first().and_then(|first| JudgedOutput::of(deployed, first.position)),
            outputs,
            calibrations: Vec::new(),
            queue: None,
            spec: None,
        }
    }

    /// Padding of the input whose queries have lengths of their own.
    fn padded(&self) -> Option<(usize, &Padded)> {
        self.inputs.iter().find_map(|input| match &input.combined {
            Combined::Padded(padded) => Some((input.position, padded)),
            Combined::Encoder(_) => None,
        })
    }

    /// Number of the kind of query whose members may share a group: those that are padded to one
    /// length. `None` for a query that is longer than all of them.
    pub fn length_class(&self, query: &[Tensor]) -> Option<u32> {
        let Some((position, padded)) = self.padded() else { return Some(0) };
        u32::try_from(padded.padding.position(padded.steps(query.get(position)?))?).ok()
    }

    pub fn covers(&self, model: &[TensorSpec], wanted: impl Fn(&str) -> bool) -> bool {
        let is_coded = |name: &str| self.outputs.iter().any(|output| output.spec.name == name);
        let mut wanted = model.iter().filter(|output| wanted(&output.name));
        self.covers_all || wanted.all(|output| is_coded(&output.name))
    }

    pub fn output_domain(&self) -> OutputDomain {
        let domain = |first: &CodedOutput| first.decoder.output_domain();
        self.outputs.first().map_or(OutputDomain::Deployed, domain)
    }

    pub fn is_calibrated(&self) -> bool {
        self.judged.is_some() && !self.calibrations.is_empty()
    }

    /// The error that nine of ten reconstructions do not exceed, by the worst of the rows, where
    /// that was measured.
    pub fn expected_error(&self) -> Option<f32> {
        let errors = self.calibrations.iter().filter_map(|table| table.error);
        errors.reduce(f32::max).filter(|_| self.is_calibrated())
    }

    /// The parity query of `row` for these k inputs of equal shapes, or of one padded length.
    pub fn encode(&self, row: Row, inputs: &[Arc<Input>]) -> Result<Input, CodingError> {
        let rows = inputs.first().map_or(0, |input| input.rows);
        let row = usize::from(row.0);
        let mut tensors = Vec::with_capacity(self.inputs.len());
        for coded in &self.inputs {
            match &coded.combined {
                Combined::Encoder(encoder) => tensors.push(coded.encode(&**encoder, row, inputs)?),
                Combined::Padded(padded) => tensors.extend(coded.stack(padded, row, inputs)?),
            }
        }
        Ok(Input::new(tensors, rows))
    }

    /// The coded outputs of `slot`, in the code's [`output_domain`](Self::output_domain).
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
            let out = output.decode(slot, &known, &values(parity, index)?)?;
            if let (0, Some(judged)) = (index, &self.judged) {
                confidence = self.confidence(&judged.agreement, &out, answered);
            }
            let spec = &output.spec;
            let sample = spec.shape.fixed().unwrap_or_default();
            let rows = out.len() / sample.iter().product::<usize>().max(1);
            let shape = [&[rows], sample.as_slice()].concat();
            tensors.push(Tensor::from_f32(spec.name.clone(), shape, &out)?);
        }
        Ok(Output { tensors, parameters: Parameters::new(), confidence })
    }

    /// Trust in the samples of a reconstruction, that of the least certain: as measured for the
    /// rows that answered, the least of them; if nothing was measured, the top class's probability.
    fn confidence(
        &self,
        agreement: &Agreement,
        samples: &[f32],
        answered: impl Fn(usize) -> bool,
    ) -> Option<f32> {
        let of_sample = |sample: &[f32]| match self.is_calibrated() {
            true => {
                let rows = self.calibrations.iter().enumerate();
                rows.filter(|(row, _)| answered(*row))
                    .filter_map(|(_, table)| agreement.confidence(Some(table), sample))
                    .reduce(f32::min)
            }
            false => agreement.confidence(None, sample),
        };
        let samples = samples.chunks_exact(agreement.output_len());
        samples.map(of_sample).try_fold(1.0, |least: f32, sure| Some(least.min(sure?)))
    }
}

impl CodedInput {
    fn encode(
        &self,
        encoder: &dyn Encoder,
        row: usize,
        inputs: &[Arc<Input>],
    ) -> Result<Tensor, CodingError> {
        let queries = inputs.iter().map(|input| f32s(&input.tensors, self.position));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
        let code = encoder.code();
        let len = views.first().map_or(0, |query| query.len());
        let mut parity = vec![0.0; code.stacked() * len];
        encoder.encode(row, &views, &mut parity)?;
        let first = inputs.first().ok_or(CodingError::NoTensor)?;
        let first = at(&first.tensors, self.position)?;
        let name = self.parity_names.get(row).unwrap_or(&first.name);
        let (batch, sample) = first.shape.split_first().ok_or(CodingError::NoTensor)?;
        let mut shape = vec![*batch];
        shape.extend(code.parity_input_shape(sample));
        Ok(Tensor::from_f32(name.clone(), shape, &parity)?)
    }
}

impl CodedOutput {
    fn decode(
        &self,
        slot: Slot,
        predictions: &[Option<Vec<f32>>],
        parity: &[Option<Vec<f32>>],
    ) -> Result<Vec<f32>, CodingError> {
        let slots = self.decoder.code().slots();
        let len = |outputs: &[Option<Vec<f32>>]| outputs.iter().flatten().next().map(Vec::len);
        let len = len(parity).map_or_else(|| len(predictions), |len| Some(len / slots));
        let mut out = vec![0.0; len.unwrap_or_default()];
        self.decoder.decode(&views(predictions), &views(parity), usize::from(slot.0), &mut out)?;
        match out.iter().all(|value| value.is_finite()) {
            true => Ok(out),
            false => Err(CodingError::NotFinite),
        }
    }
}

fn values(
    outputs: &[Option<Arc<Output>>],
    position: usize,
) -> Result<Vec<Option<Vec<f32>>>, CodingError> {
    let values = |output: &Arc<Output>| f32s(&output.tensors, position);
    outputs.iter().map(Option::as_ref).map(|output| output.map(values).transpose()).collect()
}

fn at(tensors: &[Tensor], position: usize) -> Result<&Tensor, CodingError> {
    tensors.get(position).ok_or(CodingError::NoTensor)
}

fn f32s(tensors: &[Tensor], position: usize) -> Result<Vec<f32>, CodingError> {
    Ok(at(tensors, position)?.f32s()?)
}

fn views(values: &[Option<Vec<f32>>]) -> Vec<Option<&[f32]>> {
    values.iter().map(Option::as_deref).collect()
}

/// The output whose kind is known: confidence and agreement are about it.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedOutput {
    name: String,
    agreement: Agreement,
}

impl JudgedOutput {
    /// The output of `entry` at `position`; `None` if it is not FP32, or of no known kind.
    pub fn of(entry: &ModelEntry, position: usize) -> Option<Self> {
        let spec = entry.outputs.get(position)?;
        let agreement = entry.agreement(position).ok()?;
        (spec.datatype == Datatype::Fp32).then_some(Self { name: spec.name.clone(), agreement })
    }

    /// Tells whether an approximation agrees with the truth in every sample. They may be
    /// in different domains: every output transform keeps the top class. `None` if one of them
    /// has no such output.
    pub fn agrees(&self, approximation: &Output, truth: &Output) -> Option<bool> {
        let values = |given: &Output| given.tensor(&self.name)?.f32s().ok();
        Some(self.agreement.all_agree(&values(approximation)?, &values(truth)?))
    }
}

/// Queue of one class's pieces of coding that take long: off the threads that serve requests, one
/// after another, and bounded.
#[derive(Debug, Clone)]
pub struct CodingQueue {
    places: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl CodingQueue {
    /// A queue in which `places` pieces may wait, the one that is being computed among them.
    pub fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Has `piece` computed on another thread when it is its turn. False, and nothing is done, when
    /// the queue is full.
    pub fn join(&self, piece: impl FnOnce() + Send + 'static) -> bool {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return false };
        let turn = Arc::clone(&self.turn);
        tokio::spawn(async move {
            if let Ok(turn) = turn.acquire_owned().await {
                tokio::task::spawn_blocking(move || {
                    // Given back at the end of the piece, even if it panics.
                    let _given_back = (place, turn);
                    piece();
                });
            }
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn pieces_keep_their_order_and_a_full_queue_takes_none() {
        let queue = CodingQueue::new(3);
        let (go, gate) = mpsc::channel::<()>();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mut gate = Some(gate);
        for piece in 0..3 {
            let (tell, gate) = (told.clone(), gate.take());
            assert!(queue.join(move || {
                let _gone = gate.map(|gate| gate.recv().unwrap());
                tell.send(piece).unwrap();
            }));
        }
        assert!(!queue.join(|| panic!("a fourth has no place")));
        go.send(()).unwrap();
        for piece in 0..3 {
            assert_eq!(heard.recv().await, Some(piece));
        }
    }

    #[tokio::test]
    async fn a_piece_that_panics_holds_up_none_behind_it() {
        let queue = CodingQueue::new(2);
        assert!(queue.join(|| panic!("on purpose")));
        let (told, heard) = tokio::sync::oneshot::channel();
        assert!(queue.join(move || told.send(()).unwrap()));
        heard.await.unwrap();
    }
}
