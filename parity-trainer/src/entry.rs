//! Entries of a model repository: `NAME/model.toml` and `NAME/1/model.onnx` (or `model.pt`; of a
//! learned code `encoder.onnx` and `decoder.onnx`).
//!
//! The weights lie beside the ONNX file as safetensors, for who would go on training. An entry is
//! written aside and renamed into place: a reader finds the old one or the new one.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_config::repository::{CodeMetadata, Datatype, ModelToml, Platform, TensorSpec};
use parapet_encoder::{Code, CodeSpec};

use crate::TrainError;
use crate::network::{INPUT, Network, OUTPUT};

const VERSION: &str = "1";
pub(crate) const WEIGHTS: &str = "weights.safetensors";
/// Key under `[training]` that names the network which the weights belong to.
const NETWORK: &str = "network";
/// Where entries are put together, in the repository but not a model of it.
const WORKSHOP: &str = ".partial";

/// The code section of a parity model's `model.toml`: `row` of `code` for the model `deployed`, the
/// generator spelled out.
///
/// # Errors
/// If the code is invalid.
pub fn code_metadata(
    deployed: &str,
    row: usize,
    code: &CodeSpec,
) -> Result<CodeMetadata, TrainError> {
    Ok(CodeMetadata::new(
        deployed,
        row,
        Code::try_from(code)?.to_spec(),
    ))
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
    // A user's own module cannot be written as ONNX.
    let platform = if network.spec().exports_onnx() {
        Platform::OnnxRuntime
    } else {
        Platform::TorchScript
    };
    let card = ModelToml {
        name: name.to_owned(),
        platform,
        inputs: vec![tensor(INPUT, network.input_shape())],
        outputs: vec![tensor(OUTPUT, &[network.outputs()])],
        code,
        training,
    };
    write(repository, &card, |version| {
        let model = version.join(platform.file_name());
        if platform == Platform::TorchScript {
            network.save_torch_script(&model)?;
        } else {
            write_file(&model, &network.to_onnx()?)?;
        }
        Ok(network.save(&version.join(WEIGHTS))?)
    })
}

/// Encoder and decoder of a learned code.
#[derive(Debug, Clone, Copy)]
pub struct CodeNetworks<'a> {
    /// From k queries to r parity queries.
    pub encoder: &'a Network,
    /// From k + r predictions to k.
    pub decoder: &'a Network,
}

impl CodeNetworks<'_> {
    /// Both as ONNX files, `encoder.onnx` and `decoder.onnx`.
    ///
    /// # Errors
    /// If libtorch does not hand the weights over, or a network is a user's TorchScript module.
    pub fn to_onnx(&self) -> Result<(Vec<u8>, Vec<u8>), TrainError> {
        Ok((self.encoder.to_onnx()?, self.decoder.to_onnx()?))
    }
}

/// Writes a learned code as the entry `name` of `repository`, in place of one that is there. The
/// deployed model takes samples of `input_shape` and gives `outputs` values.
///
/// # Errors
/// If something cannot be written; the old entry stays then.
pub fn write_learned_code(
    repository: &Path,
    name: &str,
    networks: CodeNetworks<'_>,
    (input_shape, outputs): (&[usize], usize),
    code: CodeMetadata,
    mut training: toml::Table,
) -> Result<PathBuf, TrainError> {
    let CodeNetworks { encoder, decoder } = networks;
    training.insert(
        "encoder_network".to_owned(),
        encoder.spec().to_string().into(),
    );
    training.insert(
        "decoder_network".to_owned(),
        decoder.spec().to_string().into(),
    );
    let card = ModelToml {
        name: name.to_owned(),
        platform: Platform::LearnedCode,
        inputs: vec![tensor(INPUT, input_shape)],
        outputs: vec![tensor(OUTPUT, &[outputs])],
        code: Some(code),
        training,
    };
    let (encoder_onnx, decoder_onnx) = networks.to_onnx()?;
    write(repository, &card, |version| {
        write_file(&version.join(Platform::ENCODER_FILE), &encoder_onnx)?;
        write_file(&version.join(Platform::DECODER_FILE), &decoder_onnx)?;
        Ok(Network::save_all(
            &[("encoder.", encoder), ("decoder.", decoder)],
            &version.join(WEIGHTS),
        )?)
    })
}

fn tensor(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: shape.to_vec(),
    }
}

fn write_file(path: &Path, contents: &[u8]) -> Result<(), TrainError> {
    fs::write(path, contents).map_err(|source| TrainError::Entry {
        path: path.to_path_buf(),
        source,
    })
}

/// Writes the entry that `card` describes, its version's files by `fill`.
fn write(
    repository: &Path,
    card: &ModelToml,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<PathBuf, TrainError> {
    let name = card.name.as_str();
    let (place, workshop) = (repository.join(name), repository.join(WORKSHOP));
    let (fresh, replaced) = (
        workshop.join(name),
        workshop.join(format!("{name}.replaced")),
    );
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| TrainError::Entry { path, source }
    };
    remove(&fresh).map_err(failed(&fresh))?;
    remove(&replaced).map_err(failed(&replaced))?;
    let version = fresh.join(VERSION);
    let made = fs::create_dir_all(&version).map_err(failed(&version));
    let filled = made
        .and_then(|()| fill(&version))
        .and_then(|()| Ok(card.save(&fresh)?));
    if let Err(error) = filled {
        // A full disk gets its room back.
        let _ = remove(&fresh);
        let _ = fs::remove_dir(&workshop);
        return Err(error);
    }

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
