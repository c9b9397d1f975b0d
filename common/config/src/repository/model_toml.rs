//! `model.toml`: what a model takes and gives.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use parapet_decoder::{Agreement, Calibration, OutputSpec};
use parapet_encoder::{Code, CodeError, CodeSpec, Decoding, EncoderKind, OutputTransform, Padding};
use parapet_open_inference::{Datatype, TensorMetadata};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, EnumString};

use crate::repository::Shape;
use crate::{FileError, toml_file};

/// The contents of a `model.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelToml {
    /// Name of the model; the same as its folder's.
    pub name: String,
    /// Engine that runs the model.
    pub platform: Platform,
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Kind of the first output; class scores if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
    /// For a parity model: the code and its place in it. For a learned code: the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeMetadata>,
    /// Free-form record of the model's training, by which the trainer finds its own networks.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub training: toml::Table,
}

/// Engine and file format of a model.
#[derive(
    Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr, Display, EnumString,
)]
pub enum Platform {
    /// ONNX, run by ONNX Runtime.
    #[strum(serialize = "onnxruntime_onnx")]
    OnnxRuntime,
    /// A TorchScript module, run by libtorch; only instances built with the feature
    /// `torch` serve it.
    #[strum(serialize = "pytorch_libtorch")]
    TorchScript,
    /// A learned code's encoder and decoder as ONNX, run by the frontend; no instance serves it.
    #[strum(serialize = "parapet_learned_code")]
    LearnedCode,
    /// Any other: a model that other servers have, whose files need not be here.
    #[strum(default, to_string = "{0}")]
    Foreign(String),
}

impl Platform {
    /// Name of a learned encoder's file in a version's folder.
    pub const ENCODER_FILE: &str = "encoder.onnx";
    /// Name of a learned decoder's file in a version's folder.
    pub const DECODER_FILE: &str = "decoder.onnx";

    /// Names of the model's files in a version's folder, the first of which stands for the model.
    pub const fn file_names(&self) -> &'static [&'static str] {
        match self {
            Self::OnnxRuntime => &["model.onnx"],
            Self::TorchScript => &["model.pt"],
            Self::LearnedCode => &[Self::ENCODER_FILE, Self::DECODER_FILE],
            Self::Foreign(_) => &[],
        }
    }

    /// Name of the file that stands for the model in a version's folder.
    pub fn file_name(&self) -> &'static str {
        self.file_names().first().copied().unwrap_or_default()
    }
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Name in the model's graph.
    pub name: String,
    /// Datatype of the tensor's elements.
    pub datatype: Datatype,
    /// Shape of one sample: without the batch axis, which every input and output has in front.
    pub shape: Shape,
}

impl TensorSpec {
    /// Elements of one sample, unless an axis has any length.
    pub fn sample_len(&self) -> Option<usize> {
        Some(self.shape.fixed()?.iter().product())
    }

    /// As the protocol's metadata has it, with the batch axis in front.
    pub fn metadata(&self) -> TensorMetadata {
        TensorMetadata::batched(&self.name, self.datatype, self.shape.axes())
    }
}

/// Code that a parity model was trained for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "CodeToml")]
pub struct CodeMetadata {
    /// Name of the deployed model whose predictions it helps to reconstruct.
    pub deployed: String,
    /// Row of the code that encodes its inputs, from 0.
    pub row: usize,
    /// Names of those of the deployed model's inputs that are encoded, in the order of this model's
    /// own; empty: all of them, in the deployed model's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Names of those of the deployed model's outputs that are reconstructed, likewise. Confidence
    /// is that of the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Specification of the code.
    #[serde(flatten)]
    pub spec: CodeSpec,
    /// For samples whose first axis (but for those of length 1) has any length: lengths that a
    /// group's are padded to. The last input, INT64 `[k]`, then takes their own lengths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
    /// True if a slot's output was seen to depend on its own query alone, bit for bit: queries of
    /// clients that do not trust each other may then share a group.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// Measured agreement for each score of a reconstruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

impl CodeMetadata {
    /// A parity model of `deployed` for `row` of `spec` and all of its inputs and
    /// outputs, not calibrated.
    pub fn new(deployed: impl Into<String>, row: usize, spec: CodeSpec) -> Self {
        Self {
            deployed: deployed.into(),
            row,
            inputs: Vec::new(),
            outputs: Vec::new(),
            spec,
            padding: None,
            isolated: false,
            calibration: None,
        }
    }

    /// Inputs of its model that stand for the deployed model's: all but the lengths.
    pub fn coded_inputs<'a>(&self, inputs: &'a [TensorSpec]) -> &'a [TensorSpec] {
        let lengths = usize::from(self.padding.is_some());
        inputs.get(..inputs.len().saturating_sub(lengths)).unwrap_or_default()
    }
}

/// The `[code]` table as read. (To read it flat, `#[serde(flatten)]` would lose a mistake's line.)
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeToml {
    deployed: String,
    #[serde(default)]
    row: usize,
    #[serde(default)]
    inputs: Vec<String>,
    #[serde(default)]
    outputs: Vec<String>,
    encoder: EncoderKind,
    decoding: Option<Decoding>,
    k: usize,
    #[serde(default = "one")]
    r: usize,
    generator: Option<Vec<Vec<f32>>>,
    #[serde(default)]
    transform: OutputTransform,
    padding: Option<Padding>,
    #[serde(default)]
    isolated: bool,
    calibration: Option<Calibration>,
}

fn one() -> usize {
    1
}

impl From<CodeToml> for CodeMetadata {
    fn from(code: CodeToml) -> Self {
        Self {
            deployed: code.deployed,
            row: code.row,
            inputs: code.inputs,
            outputs: code.outputs,
            spec: CodeSpec {
                encoder: code.encoder,
                decoding: code.decoding.unwrap_or(code.encoder.usual_decoding()),
                k: code.k,
                r: code.r,
                generator: code.generator,
                transform: code.transform,
            },
            padding: code.padding,
            isolated: code.isolated,
            calibration: code.calibration,
        }
    }
}

impl ModelToml {
    /// Name of the file in the model's folder.
    pub const FILE_NAME: &'static str = "model.toml";

    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let model: Self = toml_file::read(path)?;
        model.validate(path)?;
        Ok(model)
    }

    /// Validates the metadata and writes it to `folder`, made if need be: readers see the old file
    /// or the new one, never half of it.
    pub fn save(&self, folder: &Path) -> Result<(), FileError> {
        let path = folder.join(Self::FILE_NAME);
        self.validate(&path)?;
        let text = toml::to_string(self).map_err(|error| {
            FileError::new(&path, format_args!("cannot be written as TOML: {error}"))
        })?;
        fs::create_dir_all(folder).map_err(FileError::io("make the folder", folder))?;
        let partial = folder.join(format!(".{}.{}", Self::FILE_NAME, std::process::id()));
        let write = || {
            let mut file = fs::File::create(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write()
            .inspect_err(|_| drop(fs::remove_file(&partial)))
            .map_err(FileError::io("write", &path))
    }

    /// The first input or output that has an axis of any length; codes take none.
    pub fn free_tensor(&self) -> Option<&TensorSpec> {
        self.inputs.iter().chain(&self.outputs).find(|spec| spec.shape.fixed().is_none())
    }

    pub(super) fn validate(&self, path: &Path) -> Result<(), FileError> {
        let name = |name| check_name(name).map_err(|problem| FileError::new(path, problem));
        name(&self.name)?;
        check_tensors(path, "inputs", &self.inputs)?;
        check_tensors(path, "outputs", &self.outputs)?;
        if let (Some(kind), Some(first)) = (&self.output, self.outputs.first()) {
            let free = || {
                let problem = format!("given for an output of shape {}", first.shape);
                let fix = "leave it out, or write the length of every axis";
                FileError::field(path, "output", &problem, fix)
            };
            let wrong = |error| FileError::new(path, error);
            let shape = first.shape.fixed().ok_or_else(free)?;
            Agreement::of(Some(kind), &shape).map_err(wrong)?;
        }
        let encoder = self.code.as_ref().map(|code| code.spec.encoder);
        let is_learned = encoder == Some(EncoderKind::Learned);
        if is_learned != (self.platform == Platform::LearnedCode) {
            let problem = format!("\"{}\" does not go with this [code]", self.platform);
            let fix = "a code with encoder = \"learned\" has platform = \"parapet_learned_code\", \
                and nothing else has";
            return Err(FileError::field(path, "platform", &problem, fix));
        }
        let Some(code) = &self.code else { return Ok(()) };
        name(&code.deployed)?;
        let invalid = |error: CodeError| FileError::new(path, error);
        let parsed = Code::try_from(&code.spec).map_err(invalid)?;
        code.check_lengths(path, &parsed, &self.inputs, &self.outputs)?;
        code.check(path, code.coded_inputs(&self.inputs), &self.outputs)?;
        if code.isolated && parsed.slots() == 1 {
            let problem = "true, and a linear code computes from a whole group";
            let fix = "leave it out, or train a parity model with slots";
            return Err(FileError::field(path, "code.isolated", problem, fix));
        }
        check_axis(path, "inputs", &self.inputs, parsed.stacked())?;
        check_axis(path, "outputs", &self.outputs, parsed.slots())?;
        // The rest of a parity model's outputs has the deployed model's shapes.
        if let [output] = self.outputs.as_slice() {
            let transform = &code.spec.transform;
            let output_len = output.sample_len().unwrap_or_default() / parsed.slots();
            transform.validate(output_len).map_err(invalid)?;
        }
        code.calibration.as_ref().map(Calibration::validate).unwrap_or(Ok(())).map_err(invalid)
    }
}

/// Checks that each tensor has an axis of k in front, where `count` of a sample are k.
fn check_axis(
    path: &Path,
    field: &str,
    specs: &[TensorSpec],
    count: usize,
) -> Result<(), FileError> {
    let has_axis = |spec: &TensorSpec| {
        spec.shape.axes().first().is_some_and(|&axis| usize::try_from(axis) == Ok(count))
    };
    let is_short = |spec: &&TensorSpec| count > 1 && !has_axis(spec);
    let Some(spec) = specs.iter().find(is_short) else { return Ok(()) };
    let problem = format!(
        "{:?} has shape {} where code.k = {count} wants an axis of {count} in front",
        spec.name, spec.shape
    );
    let fix = "correct code.k, code.encoder and code.decoding, or train the model anew";
    Err(FileError::field(path, field, &problem, fix))
}

fn check_tensors(path: &Path, field: &str, specs: &[TensorSpec]) -> Result<(), FileError> {
    if specs.is_empty() {
        return Err(FileError::field(path, field, "empty", "describe at least one tensor"));
    }
    for (index, spec) in specs.iter().enumerate() {
        let wrong = |problem: String, fix: &str| {
            FileError::field(path, &format!("{field}[{index}]"), &problem, fix)
        };
        let is_taken = specs[..index].iter().any(|other| other.name == spec.name);
        if spec.name.is_empty() || is_taken {
            let problem = format!("name {:?} is empty or taken", spec.name);
            return Err(wrong(problem, "give each tensor the name it has in the graph"));
        }
        let len = spec.shape.smallest().into_iter().try_fold(1_usize, usize::checked_mul);
        if len.is_none_or(|len| len == 0) {
            let problem = format!("shape {} has no or too many elements", spec.shape);
            let fix = "give one sample's shape, without the batch axis; -1 for any length";
            return Err(wrong(problem, fix));
        }
    }
    Ok(())
}

/// Checks a model's name, which becomes a folder's and a part of URLs: nothing that could lead out
/// of the repository.
///
/// # Errors
/// One line with the fix.
pub fn check_name(name: &str) -> Result<(), String> {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    if begins_well && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "model name {name:?}: use letters, digits, '-', '_' and '.', and begin with a letter or \
            digit"
    ))
}
