//! Entries of a model repository: `NAME/model.toml` and `NAME/1/model.onnx` (or `model.pt`).
//!
//! The weights lie beside the ONNX file as safetensors, for who would go on training. An entry is written aside and renamed into place: a reader finds the old one or the new one.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_encoder::{Code, CodeSpec};
use parapet_repository::{CodeMetadata, Datatype, ModelToml, Platform, TensorSpec};

use crate::TrainError;
use crate::network::{INPUT, Network, OUTPUT};

const VERSION: &str = "1";
pub(crate) const WEIGHTS: &str = "weights.safetensors";
/// Key under `[training]` that names the network which the weights belong to.
const NETWORK: &str = "network";
/// Where entries are put together, in the repository but not a model of it.
const WORKSHOP: &str = ".partial";

/// The code section of a parity model's `model.toml`: `row` of `code` for the model `deployed`, the generator spelled out.
///
/// # Errors
/// If the code is invalid.
pub fn code_metadata(deployed: &str, row: usize, code: &CodeSpec) -> Result<CodeMetadata, TrainError> {
    Ok(CodeMetadata::new(deployed, row, Code::try_from(code)?.to_spec()))
}

/// Writes `network` as the entry `name` of `repository`, in place of one that is there.
///
/// # Errors
/// If something cannot be written; the old entry stays then.
pub fn write_entry(
    repository: &Path,
    name: &str,
    network: &Network,
    code: Option<CodeMetadata>,
    mut training: toml::Table,
) -> Result<PathBuf, TrainError> {
    training.insert(NETWORK.to_owned(), network.spec().to_string().into());
    let tensor = |name: &str, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: shape.to_vec(),
    };
    // A user's own module cannot be written as ONNX.
    let platform = if network.spec().exports_onnx() { Platform::OnnxRuntime } else { Platform::TorchScript };
    let card = ModelToml {
        name: name.to_owned(),
        platform,
        inputs: vec![tensor(INPUT, network.input_shape())],
        outputs: vec![tensor(OUTPUT, &[network.outputs()])],
        code,
        training,
    };
    let (place, workshop) = (repository.join(name), repository.join(WORKSHOP));
    let (fresh, replaced) = (workshop.join(name), workshop.join(format!("{name}.replaced")));
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| TrainError::Write { path, source }
    };
    remove(&fresh).map_err(failed(&fresh))?;
    remove(&replaced).map_err(failed(&replaced))?;
    let version = fresh.join(VERSION);
    fs::create_dir_all(&version).map_err(failed(&version))?;
    let model = version.join(platform.file_name());
    match platform {
        Platform::OnnxRuntime => fs::write(&model, network.to_onnx()?).map_err(failed(&model))?,
        Platform::TorchScript => network.save_torch_script(&model)?,
    }
    network.save(&version.join(WEIGHTS))?;
    card.save(&fresh)?;

    if place.exists() {
        fs::rename(&place, &replaced).map_err(failed(&place))?;
    }
    fs::rename(&fresh, &place).map_err(failed(&place))?;
    remove(&replaced).map_err(failed(&replaced))?;
    // Another run may be at work there: only an empty folder goes.
    let _ = fs::remove_dir(&workshop);
    Ok(place)
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
