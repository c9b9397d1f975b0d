//! Entries of a model repository: `NAME/model.toml` and `NAME/1/model.onnx`.
//!
//! The weights lie beside the ONNX file as safetensors, so that a parity model can be trained for a deployed model that is
//! on disk. An entry is written aside and renamed into place: a reader finds the old one or the new one.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_encoder::{Code, CodeSpec};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::network::{INPUT, Network, NetworkSpec, OUTPUT};

const VERSION: &str = "1";
const CARD: &str = "model.toml";
const MODEL: &str = "model.onnx";
const WEIGHTS: &str = "weights.safetensors";

/// A `model.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelCard {
    /// The model's name, also its folder's.
    pub name: String,
    /// The engine that runs it.
    pub platform: String,
    /// Its inputs; shapes without the batch axis.
    pub inputs: Vec<TensorCard>,
    /// Its outputs; shapes without the batch axis.
    pub outputs: Vec<TensorCard>,
    /// What it is the parity model of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeSection>,
    /// Where it comes from: seed, data, steps, accuracies. Not read by the serving side.
    #[serde(default)]
    pub training: toml::Table,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorCard {
    name: String,
    datatype: String,
    shape: Vec<usize>,
}

/// The code of a parity model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CodeSection {
    /// Name of the deployed model.
    pub deployed: String,
    /// The parity row that the model answers for.
    pub row: usize,
    /// The code.
    #[serde(flatten)]
    pub code: CodeSpec,
}

impl CodeSection {
    /// The section for `row` of `code`, the generator spelled out.
    ///
    /// # Errors
    /// If the code is invalid.
    pub fn new(deployed: &str, row: usize, code: &CodeSpec) -> Result<Self, TrainError> {
        Ok(Self { deployed: deployed.to_owned(), row, code: Code::try_from(code)?.to_spec() })
    }
}

/// A deployed model, read back from a repository.
#[derive(Debug)]
pub struct DeployedModel {
    /// Its name.
    pub name: String,
    /// The network with its weights, frozen.
    pub network: Network,
}

impl DeployedModel {
    /// Reads the entry `path` (`REPOSITORY/NAME`), which this trainer has written.
    ///
    /// # Errors
    /// If there is no such entry or the trainer has not written it.
    pub fn load(path: &Path) -> Result<Self, TrainError> {
        let card_path = path.join(CARD);
        let wrong = |reason: String| TrainError::Entry { path: card_path.clone(), reason };
        let text = fs::read_to_string(&card_path).map_err(|error| {
            wrong(format!(
                "cannot read it ({error}); --model wants REPOSITORY/NAME of a model made by `train-deployed`"
            ))
        })?;
        let card: ModelCard = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if card.code.is_some() {
            return Err(wrong("is a parity model; --model wants the deployed one".to_owned()));
        }
        let Some(network) = card.training.get("network").and_then(toml::Value::as_str) else {
            let reason =
                "has no training.network: only models made by `train-deployed` can be given to --model";
            return Err(wrong(reason.to_owned()));
        };
        let spec: NetworkSpec = network.parse()?;
        let ([input], [output]) = (card.inputs.as_slice(), card.outputs.as_slice()) else {
            return Err(wrong("must have one input and one output".to_owned()));
        };
        let classes = output.shape.iter().product();
        let weights = path.join(VERSION).join(WEIGHTS);
        let network = Network::load(&spec, &input.shape, classes, &weights)?;
        Ok(Self { name: card.name, network })
    }
}

/// Writes `network` as the entry `name` of `repository`, in place of one that is there.
///
/// # Errors
/// If something cannot be written; the old entry stays then.
pub fn write_entry(
    repository: &Path,
    name: &str,
    network: &Network,
    code: Option<CodeSection>,
    mut training: toml::Table,
) -> Result<PathBuf, TrainError> {
    training.insert("network".to_owned(), network.spec().to_string().into());
    let tensor = |name: &str, shape: &[usize]| TensorCard {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: shape.to_vec(),
    };
    let card = ModelCard {
        name: name.to_owned(),
        platform: "onnxruntime_onnx".to_owned(),
        inputs: vec![tensor(INPUT, network.input_shape())],
        outputs: vec![tensor(OUTPUT, &[network.outputs()])],
        code,
        training,
    };
    let place = repository.join(name);
    let partial = repository.join(format!(".{name}.partial"));
    let replaced = repository.join(format!(".{name}.replaced"));
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| TrainError::Write { path, source }
    };
    let card = toml::to_string_pretty(&card)
        .map_err(|error| failed(&place.join(CARD))(std::io::Error::other(error)))?;

    remove(&partial).map_err(failed(&partial))?;
    let version = partial.join(VERSION);
    fs::create_dir_all(&version).map_err(failed(&version))?;
    fs::write(version.join(MODEL), network.to_onnx()?).map_err(failed(&version.join(MODEL)))?;
    network.save(&version.join(WEIGHTS))?;
    fs::write(partial.join(CARD), card).map_err(failed(&partial.join(CARD)))?;
    remove(&replaced).map_err(failed(&replaced))?;
    if place.exists() {
        fs::rename(&place, &replaced).map_err(failed(&place))?;
    }
    fs::rename(&partial, &place).map_err(failed(&place))?;
    remove(&replaced).map_err(failed(&replaced))?;
    Ok(place)
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
