//! Entries of a model repository, as models to be learned from or judged.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use parapet_config::repository::{CodeMetadata, ModelEntry, ModelRepository, ModelToml, Platform};
use parapet_encoder::Code;
use parapet_onnx::learned_code::LearnedCode;
use parapet_onnx::runtime::OnnxRuntime;

use super::{DeployedModel, InputScaling, OpenOptions, open, wrong_shape};
use crate::{Result, TrainError};

#[derive(Debug)]
pub struct CodeEntry {
    pub name: String,
    pub code: CodeMetadata,
    pub scaling: InputScaling,
    pub networks: CodeNetworks,
}

#[derive(Debug)]
pub enum CodeNetworks {
    Parity(Rc<dyn DeployedModel>),
    Learned(Box<LearnedCode>),
}

/// Opens the entry `REPOSITORY/NAME` of a code for samples of `sample_shape`; a parity model
/// answers the first of `samples` on trial.
pub fn open_code(
    path: &Path,
    options: &OpenOptions,
    sample_shape: &[usize],
    samples: &[f32],
) -> Result<CodeEntry> {
    let entry = read_entry(path)?;
    let problem = "its model.toml has no [code]; --parity wants parity models";
    let code = entry.code.clone().ok_or_else(|| TrainError::input(path, problem))?;
    let networks = if entry.platform == Platform::LearnedCode {
        let input = entry.inputs.first();
        let (len, shape) = input.map(|input| (input.sample_len(), &input.shape)).unzip();
        let shape = shape.map(ToString::to_string).unwrap_or_default();
        let fits = len.flatten() == Some(sample_shape.iter().product());
        ensure!(fits, wrong_shape(path, &shape, sample_shape));
        let learned = LearnedCode::load(&OnnxRuntime::load(None)?, &entry, entry.latest());
        let learned = learned.map_err(|error| TrainError::Input(error.to_string()))?;
        CodeNetworks::Learned(Box::new(learned))
    } else {
        let file = entry.model_file(entry.latest())?;
        let spec = Code::try_from(&code.spec)?;
        let shape = spec.parity_input_shape(sample_shape);
        let mut options = options.clone();
        if let ([input, lengths], true) = (entry.inputs.as_slice(), code.padding.is_some()) {
            options.input = Some(input.name.clone());
            options.lengths = Some(lengths.name.clone());
        }
        CodeNetworks::Parity(open(&file, &options, &shape, &samples.repeat(spec.stacked()))?.model)
    };
    let scaling = entry.training.get("input_scaling").cloned();
    let scaling = scaling.and_then(|scaling| scaling.try_into().ok());
    Ok(CodeEntry { name: entry.name.clone(), code, scaling: scaling.unwrap_or_default(), networks })
}

/// The network that this trainer made the entry's model of.
pub(super) fn network_of(entry: &ModelEntry) -> Option<String> {
    Some(entry.training.get("network")?.as_str()?.to_owned())
}

pub(super) fn read_entry(path: &Path) -> Result<ModelEntry> {
    // `models/NAME/` and `.` name folders, too.
    let folder = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let name = folder.file_name().and_then(|name| name.to_str());
    match (name, folder.parent()) {
        (Some(name), Some(repository)) if folder.join(ModelToml::FILE_NAME).is_file() => {
            Ok(ModelRepository::open(repository)?.load(name)?)
        }
        _ => {
            let problem = "a folder without model.toml; give REPOSITORY/NAME or the model's file";
            Err(TrainError::input(path, problem))
        }
    }
}
