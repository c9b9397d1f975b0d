//! Deployed model: frozen, of any origin, known only by its outputs (ParM section 4.1).
//!
//! A parity model is trained on the deployed model's raw outputs, so all that is wanted of it is a
//! function from samples to outputs. [`open`] makes one of an ONNX file, a model repository's entry
//! or a TorchScript file, and tries it on a few samples before a run of hours begins.

mod cache;
mod cost;
mod entry;
mod external;
mod isolation;
mod model;
mod scaling;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use parapet_config::repository::{ModelEntry, name_of};
use parapet_decoder::{Agreement, OutputSpec};
use sha2::{Digest, Sha256};

use crate::network::Network;
use crate::{Result, TrainError};

pub use cache::cached_outputs;
pub use cost::QueryTimer;
use entry::read_entry;
pub use entry::{CodeEntry, CodeNetworks, open_code};
pub use isolation::is_isolated;
use model::FileModel;
pub use model::{Differentiable, check_padding, differentiable, own_network};
pub use scaling::InputScaling;

const BATCH: usize = 256;
/// Samples of a trial run of a model just opened: more than one, for models of a fixed batch.
const TRIAL: usize = 3;

/// A model whose outputs are learned from: one row for each whole sample, all of one shape.
pub trait DeployedModel: std::fmt::Debug {
    fn input_shape(&self) -> &[usize];

    /// Shape of one sample's output, without the batch axis.
    fn output_shape(&self) -> &[usize];

    fn outputs(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// Raw outputs, `[samples, outputs]` row-major, of whole samples, row-major too.
    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>>;
}

impl DeployedModel for Network {
    fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    fn output_shape(&self) -> &[usize] {
        std::slice::from_ref(&self.outputs)
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>> {
        Ok(Self::infer(self, samples))
    }
}

#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The input to feed, of a model with several.
    pub input: Option<String>,
    /// The output to learn, of a model with several.
    pub output: Option<String>,
    /// Kind of that output [default: what the entry says; else class scores].
    pub kind: Option<OutputSpec>,
    /// The input of a parity model that takes the lengths of its sequences, too.
    pub lengths: Option<String>,
    /// Threads that the model computes with; 0 for all processors.
    pub threads: usize,
}

#[derive(Debug)]
pub struct Deployed {
    /// Its name: the entry's, or the file's.
    pub name: String,
    pub file: PathBuf,
    /// SHA-256 of the file and of which input and output are used, hexadecimal.
    pub sha256: String,
    /// The network that this trainer made it with, where it did (`training.network` of its entry).
    pub network: Option<String>,
    pub runtime: String,
    /// Name of the one input that is fed, where the model has several.
    pub chosen_input: Option<String>,
    /// Name of the one output that is learned, where the model has several.
    pub chosen_output: Option<String>,
    /// True if its samples have any number of steps; those of data are padded with zeros.
    pub is_of_sequences: bool,
    /// Kind of its output; class scores if none is known.
    pub kind: Option<OutputSpec>,
    pub model: Rc<dyn DeployedModel>,
}

impl Deployed {
    /// The comparison of its outputs, by which training and evaluation go.
    pub fn agreement(&self) -> Result<Agreement> {
        Agreement::of(self.kind.as_ref(), self.model.output_shape()).map_err(|error| {
            let fix = "say the kind with --output-kind KIND:TOLERANCE, or name another output with \
                --output";
            TrainError::input(&self.file, format!("{error}; {fix}"))
        })
    }
}

/// Opens a model for samples of `sample_shape`: `FILE.onnx`, `FILE.pt`, or `REPOSITORY/NAME`.
///
/// `samples` are a few whole samples, or all; the first ones are answered on trial.
pub fn open(
    path: &Path,
    options: &OpenOptions,
    sample_shape: &[usize],
    samples: &[f32],
) -> Result<Deployed> {
    let entry = path.is_dir().then(|| read_entry(path)).transpose()?;
    let is_deployed = entry.as_ref().is_none_or(|entry| entry.code.is_none());
    let problem = "is a parity model; --model wants the deployed one";
    ensure!(is_deployed, TrainError::input(path, problem));
    let is_of_sequences = takes_sequences(entry.as_ref(), sample_shape)?;
    let file = match &entry {
        Some(entry) => entry.model_file(entry.latest())?,
        None => path.to_path_buf(),
    };
    ensure!(file.is_file(), missing(&file));
    let mut runtime = "libtorch".to_owned();
    let (mut model, [chosen_input, chosen_output]) = match file.extension().and_then(|e| e.to_str())
    {
        Some("onnx") => {
            let opened = FileModel::open_onnx(&file, options, sample_shape)?;
            runtime = format!("ONNX Runtime, {}", ort::info());
            opened
        }
        Some("pt" | "pth" | "ts" | "torchscript") => {
            (FileModel::open_script(&file, sample_shape)?, [None, None])
        }
        _ => {
            let problem = "what model is this? --model takes .onnx, TorchScript (.pt, .pth, .ts) \
                or REPOSITORY/NAME";
            return Err(TrainError::input(&file, problem));
        }
    };
    model.is_of_sequences = is_of_sequences;
    try_out(&file, &model, samples)?;
    let mut hash = Sha256::new();
    if is_of_sequences {
        hash.update("sequences");
    }
    external::hash_model(&file, &mut hash)?;
    hash.update(format!("{:?} {:?}", options.input, options.output));
    let network = entry.as_ref().and_then(entry::network_of);
    let kind = entry.as_ref().and_then(|entry| entry.output);
    Ok(Deployed {
        name: match entry {
            Some(entry) => entry.name.clone(),
            None => name_of(&file).unwrap_or_else(|| "deployed".to_owned()),
        },
        sha256: format!("{:x}", hash.finalize()),
        file,
        network,
        runtime,
        chosen_input,
        chosen_output,
        is_of_sequences,
        kind: options.kind.or(kind),
        model: Rc::new(model),
    })
}

/// Returns true for a model of sequences, which have one axis of any length.
fn takes_sequences(entry: Option<&ModelEntry>, sample_shape: &[usize]) -> Result<bool> {
    let Some((entry, free)) = entry.and_then(|entry| Some((entry, entry.free_tensor()?))) else {
        return Ok(false);
    };
    let are_fixed = entry.outputs.iter().all(|output| output.shape.fixed().is_some());
    let takes = match (entry.inputs.as_slice(), sample_shape) {
        ([input], [1, _, _] | [_, _]) => {
            input.shape.steps_axis().map(|axis| axis + 2) == Some(input.shape.axes().len())
        }
        _ => false,
    };
    let problem = format!("{:?} has shape {}, and a code needs fixed axes", free.name, free.shape);
    let fix = "write their lengths there, describe the model again with --shape, or give it \
        sequences, [-1, features] or [1, -1, features], and outputs of fixed shapes";
    let refused = TrainError::input(&entry.toml_file(), format!("{problem}; {fix}"));
    ensure!(takes && are_fixed, refused);
    Ok(true)
}

/// Runs a few samples, which shows what a graph does not say: a fixed batch, outputs not finite.
fn try_out(file: &Path, model: &FileModel, samples: &[f32]) -> Result<()> {
    let sample_len: usize = model.input_shape().iter().product();
    let count = (samples.len() / sample_len.max(1)).min(TRIAL);
    let first = |count: usize| samples.get(..count * sample_len).unwrap_or_default();
    let outputs = match model.infer(first(count)) {
        Err(_) if count > 1 && model.infer(first(1)).is_ok() => return Err(fixed_batch(file, 1)),
        outputs => outputs?,
    };
    check_finite(file, &outputs, model.outputs(), 0)
}

/// Refuses outputs that nothing can be learned from; `before` samples came before them.
fn check_finite(file: &Path, outputs: &[f32], width: usize, before: usize) -> Result<()> {
    let mut numbered = outputs.iter().enumerate();
    let Some((at, value)) = numbered.find(|(_, output)| !output.is_finite()) else { return Ok(()) };
    let sample = before + at / width.max(1);
    let fix = "check --input-scale and --input-mean, or the model's export";
    Err(TrainError::input(file, format!("answers sample {sample} with {value}; {fix}")))
}

fn missing(path: &Path) -> TrainError {
    let fix = "give an .onnx file, a TorchScript .pt file or REPOSITORY/NAME";
    TrainError::input(path, format!("no such model; {fix}"))
}

fn fixed_batch(path: &Path, batch: i64) -> TrainError {
    let fix = "export it with a dynamic batch axis";
    TrainError::input(path, format!("its batch axis is fixed at {batch}; {fix}"))
}

/// The data have samples of another shape than the `model`'s, which may have free axes, `?`.
pub fn wrong_shape(path: &Path, model: &str, data: &[usize]) -> TrainError {
    let problem = format!("the model takes samples of shape {model}, the data's have {data:?}");
    TrainError::input(path, problem + "; give it data of its shape")
}
