//! `model.toml`: what a model takes and gives.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use parapet_encoder::{Code, CodeSpec, EncoderKind};
use parapet_open_inference::{Datatype, TensorMetadata};
use serde::{Deserialize, Serialize};

use crate::RepositoryError;

/// The contents of a `model.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelToml {
    /// Name of the model; the same as its folder's.
    pub name: String,
    /// Which engine runs it.
    pub platform: Platform,
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// For a parity model: the code and its place in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeMetadata>,
    /// How the model came to be; free-form. Serving does not read it; the trainer finds its own networks by it.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub training: toml::Table,
}

/// Engine and file format of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Platform {
    /// ONNX, run by ONNX Runtime.
    #[serde(rename = "onnxruntime_onnx")]
    OnnxRuntime,
}

impl Platform {
    /// The name in `model.toml` and in the protocol's metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime_onnx",
        }
    }

    /// Name of the model's file in a version's folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "model.onnx",
        }
    }
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Name in the model's graph.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Shape of one sample: without the batch axis, which every input and output has in front.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Elements of one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// As the protocol's metadata has it, with the batch axis in front.
    pub fn metadata(&self) -> TensorMetadata {
        TensorMetadata::batched(&self.name, self.datatype, &self.shape)
    }
}

/// What a parity model was trained for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "CodeToml", from = "CodeToml")]
pub struct CodeMetadata {
    /// Name of the deployed model whose predictions it helps to reconstruct.
    pub deployed: String,
    /// Which row of the code its inputs are encoded with, from 0.
    pub row: usize,
    /// The code.
    pub spec: CodeSpec,
}

/// The `[code]` table: flat in the file. (`#[serde(flatten)]` would lose `deny_unknown_fields`.)
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeToml {
    deployed: String,
    #[serde(default)]
    row: usize,
    encoder: EncoderKind,
    k: usize,
    #[serde(default = "one")]
    r: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generator: Option<Vec<Vec<f32>>>,
}

fn one() -> usize {
    1
}

impl From<CodeToml> for CodeMetadata {
    fn from(CodeToml { deployed, row, encoder, k, r, generator }: CodeToml) -> Self {
        Self { deployed, row, spec: CodeSpec { encoder, k, r, generator } }
    }
}

impl From<CodeMetadata> for CodeToml {
    fn from(CodeMetadata { deployed, row, spec }: CodeMetadata) -> Self {
        Self { deployed, row, encoder: spec.encoder, k: spec.k, r: spec.r, generator: spec.generator }
    }
}

impl ModelToml {
    /// Name of the file in the model's folder.
    pub const FILE_NAME: &'static str = "model.toml";

    /// Reads and validates the `model.toml` at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, RepositoryError> {
        let text = fs::read_to_string(path).map_err(RepositoryError::io("read", path))?;
        let model: Self = parapet_toml_file::parse(&text)
            .map_err(|source| RepositoryError::Toml { path: path.to_owned(), source })?;
        model.validate(path)?;
        Ok(model)
    }

    /// Validates the metadata and writes it to `folder`, made if need be: readers see the old file or the new one,
    /// never half of it.
    pub fn save(&self, folder: &Path) -> Result<(), RepositoryError> {
        let path = folder.join(Self::FILE_NAME);
        self.validate(&path)?;
        let text = toml::to_string(self)
            .map_err(|source| RepositoryError::Unwritable { path: path.clone(), source: Box::new(source) })?;
        fs::create_dir_all(folder).map_err(RepositoryError::io("make the folder", folder))?;
        let partial = folder.join(format!(".{}.{}", Self::FILE_NAME, std::process::id()));
        let write = || {
            let mut file = fs::File::create(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&partial))).map_err(RepositoryError::io("write", &path))
    }

    fn validate(&self, path: &Path) -> Result<(), RepositoryError> {
        let wrong = |field: &str, problem: String, fix: &str| {
            let (path, field, fix) = (path.to_owned(), field.to_owned(), fix.to_owned());
            Err(RepositoryError::Field { path, field, problem, fix })
        };
        check_name(&self.name)?;
        for (field, specs) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            if specs.is_empty() {
                return wrong(field, "empty".to_owned(), "describe at least one tensor");
            }
            for (index, spec) in specs.iter().enumerate() {
                let field = format!("{field}[{index}]");
                if spec.name.is_empty() || specs[..index].iter().any(|earlier| earlier.name == spec.name) {
                    let problem = format!("name {:?} is empty or taken", spec.name);
                    return wrong(&field, problem, "give each tensor the name it has in the graph");
                }
                let len = spec.shape.iter().try_fold(1_usize, |len, &axis| len.checked_mul(axis));
                if len.is_none_or(|len| len == 0) {
                    let problem = format!("shape {:?} has no or too many elements", spec.shape);
                    return wrong(&field, problem, "give one sample's shape, without the batch axis");
                }
            }
        }
        let Some(code) = &self.code else { return Ok(()) };
        check_name(&code.deployed)?;
        if let Err(source) = Code::try_from(&code.spec) {
            return Err(RepositoryError::Code { path: path.to_owned(), source });
        }
        if code.row >= code.spec.r {
            let problem = format!("{} is beyond the last of r = {} rows", code.row, code.spec.r);
            return wrong("code.row", problem, "rows count from 0");
        }
        Ok(())
    }
}

/// A model's name becomes a folder's and a part of URLs: nothing that could lead out of the repository.
pub(crate) fn check_name(name: &str) -> Result<(), RepositoryError> {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins_well && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
    {
        return Ok(());
    }
    Err(RepositoryError::Name { name: name.to_owned() })
}
