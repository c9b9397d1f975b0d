//! Deployed model: frozen, of any origin, known only by its outputs (ParM section 4.1).
//!
//! A parity model is trained on the deployed model's raw outputs, so all that is wanted of it is a
//! function from samples to outputs. [`open`] makes one of an ONNX file, a model repository's entry
//! or a TorchScript file, and tries it on a few samples before a run of hours begins.

mod cache;
mod differentiable;
mod error;
mod external;
mod network;
mod onnx;
mod scaling;
mod shape;
mod torchscript;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use parapet_config::repository::{CodeMetadata, ModelEntry, ModelRepository, ModelToml, Platform};
use parapet_decoder::ClassAxis;
use parapet_onnx::learned_code::LearnedCode;
use parapet_onnx::runtime::OnnxRuntime;
use sha2::{Digest, Sha256};

pub use cache::{OutputCache, Reuse};
pub use differentiable::{Differentiable, differentiable};
pub use error::DeployedError;
pub use onnx::OnnxModel;
pub use scaling::InputScaling;
pub use torchscript::TorchScriptModel;

/// Samples that go through a model at once.
const BATCH: usize = 256;
/// Samples of the trial run of a model that has just been opened: more than one, for models of
/// a fixed batch.
const TRIAL: usize = 3;

/// A model whose outputs are learned from. It takes whole samples of one shape and gives one row of
/// outputs for each.
pub trait DeployedModel: std::fmt::Debug {
    /// Shape of one sample, without the batch axis.
    fn input_shape(&self) -> &[usize];

    /// Shape of one sample's output, without the batch axis.
    fn output_shape(&self) -> &[usize];

    /// Length of one sample's output.
    fn outputs(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// The one input that is fed, by name, where the model has several.
    fn chosen_input(&self) -> Option<&str> {
        None
    }

    /// The one output that is learned, by name, where the model has several.
    fn chosen_output(&self) -> Option<&str> {
        None
    }

    /// Raw outputs, `[samples, outputs]` row-major, of whole samples, row-major too.
    ///
    /// # Errors
    /// If the model breaks on the samples or gives something else than it has promised.
    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError>;
}

/// Settings of a model besides its file.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The input to feed, of a model with several.
    pub input: Option<String>,
    /// The output to learn, of a model with several.
    pub output: Option<String>,
    /// ONNX Runtime's library, where it is not found by itself.
    pub onnxruntime: Option<PathBuf>,
    /// Threads that the model computes with; 0 for all processors.
    pub threads: usize,
}

/// A deployed model that has been opened and tried.
#[derive(Debug)]
pub struct Deployed {
    /// Its name: the entry's, or the file's.
    pub name: String,
    /// The file it was read from.
    pub file: PathBuf,
    /// SHA-256 of the file and of which input and output are used, hexadecimal.
    pub sha256: String,
    /// The network that this trainer made it with, where it did (`training.network` of its entry).
    pub network: Option<String>,
    /// Runtime of the model, with its version.
    pub runtime: String,
    pub model: Box<dyn DeployedModel>,
}

impl Deployed {
    /// The classes that its output scores.
    ///
    /// # Errors If the output has no class scores: then there is nothing to choose and judge a
    /// parity model by.
    pub fn classes(&self) -> Result<ClassAxis, DeployedError> {
        ClassAxis::of(self.model.output_shape()).map_err(|source| DeployedError::NoClasses {
            path: self.file.clone(),
            source,
        })
    }
}

/// Opens the model at `path` for samples of `sample_shape`: `FILE.onnx`, `FILE.pt` (TorchScript),
/// or `REPOSITORY/NAME`.
///
/// `samples` are a few whole samples, or all; the first ones are answered on trial.
///
/// # Errors
/// If there is no such model, it takes other samples, its batch axis is fixed, it has several
/// inputs or outputs and none was named, or its outputs are not finite.
pub fn open(
    path: &Path,
    options: &OpenOptions,
    sample_shape: &[usize],
    samples: &[f32],
) -> Result<Deployed, DeployedError> {
    let entry = if path.is_dir() {
        Some(read_entry(path)?)
    } else {
        None
    };
    if entry.as_ref().is_some_and(|entry| entry.code.is_some()) {
        return Err(DeployedError::ParityModel {
            path: path.to_path_buf(),
        });
    }
    let file = match &entry {
        Some(entry) => entry.model_file(entry.latest())?,
        None => path.to_path_buf(),
    };
    if !file.is_file() {
        return Err(DeployedError::Missing { path: file });
    }
    let (model, runtime): (Box<dyn DeployedModel>, String) =
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("onnx") => {
                let model = OnnxModel::open(&file, options, sample_shape)?;
                (Box::new(model), format!("ONNX Runtime, {}", ort::info()))
            }
            Some("pt" | "pth" | "ts" | "torchscript") => (
                Box::new(TorchScriptModel::open(&file, sample_shape)?),
                "libtorch".to_owned(),
            ),
            _ => return Err(DeployedError::Kind { path: file }),
        };
    try_out(&file, model.as_ref(), samples)?;
    let mut hash = Sha256::new();
    hash_model(&file, &mut hash)?;
    hash.update(format!("{:?} {:?}", options.input, options.output));
    let network = entry
        .as_ref()
        .and_then(|entry| entry.training.get("network")?.as_str().map(str::to_owned));
    let name = entry.map_or_else(|| file_name(&file), |entry| entry.name);
    Ok(Deployed {
        name,
        file,
        sha256: format!("{:x}", hash.finalize()),
        network,
        runtime,
        model,
    })
}

/// A parity model, as it would be served.
#[derive(Debug)]
pub struct ParityEntry {
    pub code: CodeMetadata,
    pub scaling: InputScaling,
    pub model: Deployed,
}

/// Opens the parity model `REPOSITORY/NAME` for samples of `sample_shape`.
///
/// # Errors
/// As [`open`]'s, or if it is no parity model.
pub fn open_parity(
    path: &Path,
    options: &OpenOptions,
    sample_shape: &[usize],
    samples: &[f32],
) -> Result<ParityEntry, DeployedError> {
    if !path.is_dir() {
        return Err(DeployedError::NotEntry {
            path: path.to_path_buf(),
        });
    }
    let entry = read_entry(path)?;
    let Some(code) = entry.code.clone() else {
        return Err(DeployedError::NotParity {
            path: path.to_path_buf(),
        });
    };
    let scaling = entry
        .training
        .get("input_scaling")
        .cloned()
        .and_then(|scaling| scaling.try_into().ok());
    let file = entry.model_file(entry.latest())?;
    let mut model = open(&file, options, sample_shape, samples)?;
    model.name = entry.name;
    Ok(ParityEntry {
        code,
        scaling: scaling.unwrap_or_default(),
        model,
    })
}

/// A learned code, as it would be served.
#[derive(Debug)]
pub struct LearnedEntry {
    pub name: String,
    pub code: CodeMetadata,
    pub scaling: InputScaling,
    pub learned: LearnedCode,
}

/// Opens the learned code `REPOSITORY/NAME` for samples of `sample_shape`; none if the entry
/// is something else.
///
/// # Errors
/// If the entry cannot be read, or it is for samples of another shape.
pub fn open_learned(
    path: &Path,
    sample_shape: &[usize],
) -> Result<Option<LearnedEntry>, DeployedError> {
    if !path.is_dir() {
        return Err(DeployedError::NotEntry {
            path: path.to_path_buf(),
        });
    }
    let entry = read_entry(path)?;
    if entry.platform != Platform::LearnedCode {
        return Ok(None);
    }
    let (Some(code), Some(input)) = (entry.code.clone(), entry.inputs.first()) else {
        return Err(DeployedError::NotParity {
            path: path.to_path_buf(),
        });
    };
    if input.sample_len() != sample_shape.iter().product::<usize>() {
        let (model, data) = (format!("{:?}", input.shape), sample_shape.to_vec());
        return Err(DeployedError::Shape {
            path: path.to_path_buf(),
            model,
            data,
        });
    }
    let runtime = OnnxRuntime::load(None)?;
    let learned = LearnedCode::load(&runtime, &entry, entry.latest()).map_err(|error| {
        DeployedError::LearnedCode {
            reason: error.to_string(),
        }
    })?;
    let scaling = entry
        .training
        .get("input_scaling")
        .cloned()
        .and_then(|scaling| scaling.try_into().ok());
    Ok(Some(LearnedEntry {
        name: entry.name,
        code,
        scaling: scaling.unwrap_or_default(),
        learned,
    }))
}

/// The file with the weights of the entry `REPOSITORY/NAME`, which this trainer has written.
///
/// # Errors
/// If there is no such entry, or it is of other origin and has no weights beside the model.
pub fn weights_file(path: &Path) -> Result<PathBuf, DeployedError> {
    let entry = read_entry(path)?;
    let file = entry
        .model_file(entry.latest())?
        .with_file_name(crate::entry::WEIGHTS);
    if file.is_file() {
        Ok(file)
    } else {
        Err(DeployedError::Missing { path: file })
    }
}

/// SHA-256 of a file, hexadecimal.
///
/// # Errors
/// If it cannot be read.
pub fn file_sha256(path: &Path) -> Result<String, DeployedError> {
    let mut hash = Sha256::new();
    hash_file(path, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

fn read_entry(path: &Path) -> Result<ModelEntry, DeployedError> {
    // `models/NAME/` and `.` name folders, too.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let not_entry = || DeployedError::NotEntry { path: path.clone() };
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(not_entry)?;
    let repository = path.parent().ok_or_else(not_entry)?;
    if !path.join(ModelToml::FILE_NAME).is_file() {
        return Err(not_entry());
    }
    Ok(ModelRepository::open(repository)?.load(name)?)
}

/// The file's name without its end; the model's folder for `NAME/1/model.onnx`. What cannot be in a
/// model's name becomes `-`.
fn file_name(file: &Path) -> String {
    let stem = |path: &Path| {
        path.file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default()
            .to_owned()
    };
    let version = file
        .parent()
        .map(stem)
        .filter(|name| name.parse::<u64>().is_ok());
    let name = match (
        stem(file).as_str(),
        version,
        file.parent().and_then(Path::parent),
    ) {
        ("model", Some(_), Some(folder)) => stem(folder),
        (name, _, _) => name.to_owned(),
    };
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = name
        .chars()
        .map(|letter| if allowed(letter) { letter } else { '-' })
        .collect();
    match name.trim_start_matches(['-', '_', '.']) {
        "" => "deployed".to_owned(),
        name => name.to_owned(),
    }
}

/// Runs a few samples, which shows what a graph does not say: a batch that is fixed inside, outputs
/// that are no numbers.
fn try_out(file: &Path, model: &dyn DeployedModel, samples: &[f32]) -> Result<(), DeployedError> {
    let sample_len: usize = model.input_shape().iter().product();
    let count = (samples.len() / sample_len.max(1)).min(TRIAL);
    let first = |count: usize| samples.get(..count * sample_len).unwrap_or_default();
    let outputs = match model.infer(first(count)) {
        Err(DeployedError::Run { path, .. }) if count > 1 && model.infer(first(1)).is_ok() => {
            return Err(DeployedError::FixedBatch { path, batch: 1 });
        }
        outputs => outputs?,
    };
    check_finite(file, &outputs, model.outputs(), 0)
}

/// Refuses outputs that nothing can be learned from; `before` samples came before those of
/// `outputs`.
pub(crate) fn check_finite(
    file: &Path,
    outputs: &[f32],
    width: usize,
    before: usize,
) -> Result<(), DeployedError> {
    match outputs.iter().position(|output| !output.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let value = outputs.get(at).copied().unwrap_or_default();
            Err(DeployedError::NotFinite {
                path: file.to_path_buf(),
                sample: before + at / width.max(1),
                value,
            })
        }
    }
}

/// A model is its file, and what an ONNX file keeps beside itself.
fn hash_model(file: &Path, hash: &mut Sha256) -> Result<(), DeployedError> {
    hash_file(file, hash)?;
    if file
        .extension()
        .is_some_and(|extension| extension == "onnx")
    {
        let failed = |source| DeployedError::Read {
            path: file.to_path_buf(),
            source,
        };
        for name in external::external_data(&fs::read(file).map_err(failed)?) {
            let beside = file.with_file_name(&name);
            if beside.is_file() {
                hash_file(&beside, hash)?;
            }
        }
    }
    Ok(())
}

fn hash_file(file: &Path, hash: &mut Sha256) -> Result<(), DeployedError> {
    let failed = |source| DeployedError::Read {
        path: file.to_path_buf(),
        source,
    };
    let mut reader = fs::File::open(file).map_err(failed)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer).map_err(failed)? {
            0 => return Ok(()),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests;
