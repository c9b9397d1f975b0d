//! Entries of a model repository: `NAME/model.toml` and `NAME/1/model.onnx` (of a
//! learned code `encoder.onnx` and `decoder.onnx`).
//!
//! The weights lie beside the ONNX file as safetensors, for who would go on training. An entry is
//! written aside and renamed into place: a reader finds the old one or the new one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use parapet_config::repository::{CodeMetadata, Datatype, ModelToml, Platform, TensorSpec};
use parapet_decoder::OutputSpec;

use crate::TrainError;
use crate::network::{INPUT, LENGTHS, Network, OUTPUT};
use crate::training::Trained;

pub(crate) const WEIGHTS: &str = "weights.safetensors";

#[derive(Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    pub trained: &'a Trained,
    /// Shapes of a sample and of its outputs; of a query, to write the network of a slot alone.
    pub input: &'a [usize],
    pub output: &'a [usize],
    /// Kind of its output; none for class scores.
    pub kind: Option<OutputSpec>,
    pub code: Option<CodeMetadata>,
    pub training: toml::Table,
}

impl Entry<'_> {
    /// Writes the entry into `repository`, in place of one that is there. If something cannot be
    /// written, the old entry stays.
    pub fn write(mut self, repository: &Path) -> Result<PathBuf, TrainError> {
        let trained = self.trained;
        let (platform, networks) = match trained {
            Trained::LearnedCode { encoder, decoder } => {
                (Platform::LearnedCode, vec![("encoder.", encoder), ("decoder.", decoder)])
            }
            Trained::Model(network) => (Platform::OnnxRuntime, vec![("", network)]),
            Trained::Slots(slots) => (Platform::OnnxRuntime, vec![("", &slots.network)]),
        };
        for (word, network) in &networks {
            let key = word.replace('.', "_") + "network";
            self.training.insert(key, network.spec().to_string().into());
        }
        let mut input = tensor(INPUT, self.input);
        if networks.iter().any(|(_, network)| network.spec().is_of_sequences()) {
            input.shape = input.shape.free(self.input.len().saturating_sub(2));
        }
        let padded = self.code.as_ref().filter(|code| code.padding.is_some());
        let lengths = padded.map(|code| TensorSpec {
            name: LENGTHS.to_owned(),
            datatype: Datatype::Int64,
            shape: vec![code.spec.k].into(),
        });
        let card = ModelToml {
            name: self.name.to_owned(),
            platform: platform.clone(),
            inputs: std::iter::once(input).chain(lengths).collect(),
            outputs: vec![tensor(OUTPUT, self.output)],
            output: self.kind,
            code: self.code,
            training: self.training,
        };
        replace(repository, &card, |version| {
            fill(version, &platform, trained, (self.input, self.output))?;
            Network::save_all(&networks, &version.join(WEIGHTS))
        })
    }
}

fn fill(
    version: &Path,
    platform: &Platform,
    trained: &Trained,
    (input, output): (&[usize], &[usize]),
) -> Result<(), TrainError> {
    let write = |name: &str, contents: &[u8]| {
        let path = version.join(name);
        fs::write(&path, contents).map_err(failed(&path))
    };
    match trained {
        Trained::Model(network) => write(platform.file_name(), &network.to_onnx_as(output)?),
        Trained::Slots(slots) => write(platform.file_name(), &slots.to_onnx_as(input, output)?),
        Trained::LearnedCode { encoder, decoder } => {
            write(Platform::ENCODER_FILE, &encoder.to_onnx()?)?;
            write(Platform::DECODER_FILE, &decoder.to_onnx()?)
        }
    }
}

fn tensor(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype: Datatype::Fp32, shape: shape.to_vec().into() }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> TrainError + use<'_> {
    |source| {
        TrainError::Failed(format!(
            "{}: cannot write the entry: {source}; make room, then the same command with --resume \
             writes it without training again",
            path.display()
        ))
    }
}

/// Writes the entry that `card` describes, its version's files by `fill`.
fn replace(
    repository: &Path,
    card: &ModelToml,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<PathBuf, TrainError> {
    let name = &card.name;
    // Entries are put together in the repository, but not as a model of it.
    let (place, workshop) = (repository.join(name), repository.join(".partial"));
    let fresh = workshop.join(name);
    let replaced = workshop.join(format!("{name}.replaced"));
    let version = fresh.join("1");
    remove(&fresh)?;
    remove(&replaced)?;
    let made = fs::create_dir_all(&version).map_err(failed(&version));
    if let Err(error) = made.and_then(|()| fill(&version)).and_then(|()| Ok(card.save(&fresh)?)) {
        // A full disk gets its room back.
        let _ = fs::remove_dir_all(&fresh);
        let _ = fs::remove_dir(&workshop);
        return Err(error);
    }
    if place.exists() {
        fs::rename(&place, &replaced).map_err(failed(&place))?;
    }
    fs::rename(&fresh, &place).map_err(failed(&place))?;
    remove(&replaced)?;
    // Another run may be at work there: only an empty folder goes.
    let _ = fs::remove_dir(&workshop);
    Ok(place)
}

fn remove(folder: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(failed(folder)),
    }
}
