//! Codes as configured: compared with those that the entries were trained for, and built.

use std::fmt::Display;
use std::path::Path;

use parapet_config::repository::{CodeMetadata, ModelEntry, Platform, TensorSpec};
use parapet_decoder::build_decoder;
use parapet_encoder::{Code, CodeError, CodeSpec, Decoding, EncoderKind, Padding, build_encoder};
use parapet_frontend_core::CodedConfig;
use parapet_onnx::learned_code::LearnedCode;
use parapet_onnx::runtime::OnnxRuntime;
use parapet_open_inference::Datatype;

use super::{Deployed, PoolSettings, RedundantPool, redundant_size};
use crate::coding::{CodedInput, CodedOutput, Coder, CodingQueue, Combined, Padded};
use crate::config::settings::{Models, Parity};
use crate::config::{At, ConfigError};

/// Pieces of a learned code's coding that may wait by default: some tens of milliseconds of work.
const MAX_CODING_QUEUE: usize = 64;

pub(super) fn resolve(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    config: &CodedConfig,
    models: &Models,
) -> Result<(Coder, Vec<RedundantPool>), ConfigError> {
    let fix = "set encoder = \"sum\", \"concat\", \"stack\" or \"learned\"";
    let encoder = models.encoder.ok_or_else(|| at.field("encoder", "missing", fix))?;
    let asked =
        CodeSpec { decoding: config.decoding, ..CodeSpec::new(encoder, config.k, config.r) };
    let free = deployed.entry.free_tensor().filter(|_| encoder != EncoderKind::Stack);
    if let Some(free) = free {
        let (name, toml) = (&free.name, deployed.entry.toml_file());
        let problem = format!("{name:?} of {} has shape {}, a code", toml.display(), free.shape);
        let fix = "set kind = \"hedge\", or write the length of every axis there, or train a parity \
            model with encoder = \"stack\" and padding";
        return Err(at.field("kind", problem + " needs fixed axes", fix));
    }
    if !encoder.has_parity_models() {
        let problem = format!(
            "encoder = \"{encoder}\" asks the deployed model itself, and has no parity models"
        );
        let fix = "leave the [[models.strategy.parity]] tables out";
        at.check(models.parity.is_empty(), "parity", problem, fix)?;
        deployed.pool.deployed().check_second().map_err(|mistake| at.setting(mistake))?;
    }
    let own_entry =
        models.model.is_some() || models.version.is_some() || models.max_coding_queue.is_some();
    let problem = "only a learned code has an entry of its own";
    let fix = "leave model, version and max_coding_queue out, or set encoder = \"learned\"";
    at.check(encoder == EncoderKind::Learned || !own_entry, "model", problem, fix)?;
    match encoder {
        EncoderKind::Sum | EncoderKind::Concat | EncoderKind::Stack => {
            let (trained, parity) = resolve_parities(at, deployed, &asked, &models.parity)?;
            let coder = build(deployed.entry, trained, &parity).map_err(|error| {
                ConfigError(format!("{}: {}: {error}", at.path.display(), at.table))
            })?;
            Ok((coder, parity))
        }
        EncoderKind::Learned => Ok((resolve_learned(at, deployed, &asked, models)?, Vec::new())),
    }
}

/// The code that a parity model was trained for, and the positions of the deployed model's inputs
/// and outputs that it covers, in the order of the parity model's own.
#[derive(Clone, PartialEq)]
struct Trained {
    code: Code,
    padding: Option<Padding>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

fn resolve_parities(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    pools: &[Parity],
) -> Result<(Trained, Vec<RedundantPool>), ConfigError> {
    let problem = format!("{} parity pools for r = {}", pools.len(), asked.r);
    let fix = "give one [[models.strategy.parity]] table for each of the r rows";
    at.check(pools.len() == asked.r, "parity", problem, fix)?;
    let mut parity = Vec::with_capacity(asked.r);
    let mut code: Option<Trained> = None;
    for (row, pool) in pools.iter().enumerate() {
        let at = at.inside(&format!("parity[{row}]"));
        let (resolved, trained) = resolve_parity(&at, deployed, asked, row, pool)?;
        let alike = *code.get_or_insert_with(|| trained.clone()) == trained;
        let problem = "another generator, transform, padding, inputs or outputs than row 0's";
        at.check(alike, "model", problem, "train all rows with one code")?;
        parity.push(resolved);
    }
    let fix = "give a [[models.strategy.parity]] table";
    Ok((code.ok_or_else(|| at.field("parity", "missing", fix))?, parity))
}

fn resolve_parity(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    row: usize,
    parity: &Parity,
) -> Result<(RedundantPool, Trained), ConfigError> {
    let (entry, version) = deployed.load(at, &parity.model, parity.version)?;
    let toml = entry.toml_file();
    let code = entry.code.as_ref().ok_or_else(|| {
        let (name, toml) = (&entry.name, toml.display());
        let problem = format!("{name:?} is no parity model ({toml} has no [code])");
        at.field("model", problem, "name a parity model")
    })?;
    check_trained_for(at, &toml, deployed.entry, asked, row, code)?;
    let trained = covered(at, &entry, code, deployed.entry)?;
    let size = redundant_size(parity.slots_per_instance, parity.max_queue);
    let pool = PoolSettings::resolve(at, &parity.instances, size, parity.tls.as_ref())?;
    let label = format!("parity{row}");
    Ok((RedundantPool { label, entry, version: Some(version), pool }, trained))
}

fn check_trained_for(
    at: &At<'_>,
    toml: &Path,
    deployed: &ModelEntry,
    asked: &CodeSpec,
    row: usize,
    code: &CodeMetadata,
) -> Result<(), ConfigError> {
    let quoted = |name: &dyn Display| format!("\"{name}\"");
    let compared = [
        ("deployed", deployed.name.clone(), code.deployed.clone()),
        ("row", row.to_string(), code.row.to_string()),
        ("encoder", quoted(&asked.encoder), quoted(&code.spec.encoder)),
        ("decoding", quoted(&asked.decoding), quoted(&code.spec.decoding)),
        ("k", asked.k.to_string(), code.spec.k.to_string()),
        ("r", asked.r.to_string(), code.spec.r.to_string()),
    ];
    for (what, asked, trained) in compared {
        let toml = toml.display();
        let problem = format!("{what} = {asked} here, and code.{what} = {trained} in {toml}");
        let fix = format!("set {what} = {trained}, or name a model trained for {asked}");
        at.check(asked == trained, "model", problem, fix)?;
    }
    Ok(())
}

/// The tensors that the `[code]` of `entry` names; all of the deployed model's if it names none.
fn covered(
    at: &At<'_>,
    entry: &ModelEntry,
    code: &CodeMetadata,
    deployed: &ModelEntry,
) -> Result<Trained, ConfigError> {
    let parsed = Code::try_from(&code.spec).map_err(|error| at.because("model", error))?;
    let toml = entry.toml_file();
    let padding = code.padding.clone();
    let inputs = (code.coded_inputs(&entry.inputs), &*deployed.inputs);
    let outputs = (&*entry.outputs, &*deployed.outputs);
    let (stacked, slots) = (parsed.stacked(), parsed.slots());
    let is_padded = padding.is_some();
    Ok(Trained {
        inputs: positions(at, &toml, "inputs", &code.inputs, inputs, (stacked, is_padded))?,
        outputs: positions(at, &toml, "outputs", &code.outputs, outputs, (slots, false))?,
        padding,
        code: parsed,
    })
}

/// Positions of the tensors `names` of the deployed model (all, if none) that `own`, a parity
/// model's, stand for; it has `in_one` of the deployed model's samples in one, of any fixed-size
/// datatype if they are padded.
fn positions(
    at: &At<'_>,
    toml: &Path,
    field: &'static str,
    names: &[String],
    (own, deployed): (&[TensorSpec], &[TensorSpec]),
    (in_one, is_padded): (usize, bool),
) -> Result<Vec<usize>, ConfigError> {
    let toml = toml.display();
    let all: Vec<String> = deployed.iter().map(|spec| spec.name.clone()).collect();
    let names = if names.is_empty() { &all } else { names };
    let (count, of_deployed) = (own.len(), deployed.len());
    let problem = format!("{toml} has {count} {field}, the deployed model {of_deployed}");
    let fix = format!("name in code.{field} those of the deployed model's that it is for");
    at.check(names.len() == count, "model", problem, fix)?;
    let position = |(name, own): (&String, &TensorSpec)| {
        let mut specs = deployed.iter().enumerate();
        let (position, spec) = specs.find(|(_, spec)| spec.name == *name).ok_or_else(|| {
            let problem = format!("code.{field} of {toml} names {name:?}");
            at.field("model", problem, format!("name one of the deployed model's {field}"))
        })?;
        let is_coded =
            own.datatype == spec.datatype && (is_padded || own.datatype == Datatype::Fp32);
        let shape = spec.shape.with_axis(in_one);
        let replaces = own.shape == shape && is_coded;
        let wanted = if is_padded { spec.datatype } else { Datatype::Fp32 };
        let problem = format!(
            "{:?} in {toml} is {}, not {shape} as the deployed model's {name:?} wants, or one is \
             not {wanted}",
            own.name, own.shape
        );
        at.check(replaces, "model", problem, "name a parity model of this deployed model")?;
        Ok(position)
    };
    names.iter().zip(own).map(position).collect()
}

fn build(
    deployed: &ModelEntry,
    trained: Trained,
    parity: &[RedundantPool],
) -> Result<Coder, CodeError> {
    let spec = trained.code.to_spec();
    let mut inputs = Vec::new();
    for (index, position) in trained.inputs.into_iter().enumerate() {
        let Some(input) = deployed.inputs.get(position) else { continue };
        let names = |index: usize| -> Vec<String> {
            let inputs = parity.iter().filter_map(|pool| pool.entry.inputs.get(index));
            inputs.map(|input| input.name.clone()).collect()
        };
        let combined = match &trained.padding {
            Some(padding) => Combined::Padded(Padded {
                padding: padding.clone(),
                axis: 1 + input.shape.steps_axis().unwrap_or_default(),
                lengths_names: names(index + 1),
            }),
            None => {
                let shape = input.shape.fixed().unwrap_or_default();
                Combined::Encoder(build_encoder(&spec, &shape)?)
            }
        };
        inputs.push(CodedInput { position, combined, parity_names: names(index) });
    }
    let mut outputs = Vec::new();
    for position in trained.outputs {
        let Some(output) = deployed.outputs.get(position) else { continue };
        let decoder = build_decoder(&spec, output.sample_len().unwrap_or_default())?;
        outputs.push(CodedOutput { position, spec: output.clone(), decoder });
    }
    let codes = || parity.iter().map(|pool| pool.entry.code.as_ref());
    let calibrations: Option<Vec<_>> = codes().map(|code| code?.calibration.clone()).collect();
    let is_isolated = codes().flatten().all(|code| code.isolated);
    let mut coder = Coder::new(trained.code.label(), inputs, outputs, deployed);
    coder.is_isolated = is_isolated && spec.decoding == Decoding::Slots;
    coder.spec = Some(spec);
    coder.calibrations = calibrations.unwrap_or_default();
    Ok(coder)
}

fn resolve_learned(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    models: &Models,
) -> Result<Coder, ConfigError> {
    let max_queue = models.max_coding_queue.unwrap_or(MAX_CODING_QUEUE);
    at.at_least_one("max_coding_queue", max_queue)?;
    let fix =
        "name the learned code's entry, as `parity-trainer train --encoder learned` writes one";
    let name = models.model.as_ref().ok_or_else(|| at.field("model", "missing", fix))?;
    let (entry, version) = deployed.load(at, name, models.version)?;
    let toml = entry.toml_file();
    let (Platform::LearnedCode, Some(code)) = (&entry.platform, &entry.code) else {
        let toml = toml.display();
        let problem = format!("{name:?} is no learned code ({toml} has another platform)");
        return Err(at.field("model", problem, "name a learned code"));
    };
    check_trained_for(at, &toml, deployed.entry, asked, code.row, code)?;
    let Trained { inputs, outputs, .. } = covered(at, &entry, code, deployed.entry)?;
    let ([input], [output]) = (&inputs[..], &outputs[..]) else {
        let problem = format!("{} has several inputs or outputs", toml.display());
        let fix = "a learned code is for one of each: name it in [code]";
        return Err(at.field("model", problem, fix));
    };
    let runtime = OnnxRuntime::load(None).map_err(|error| {
        at.because("encoder", format!("\"learned\" needs ONNX Runtime: {error}"))
    })?;
    let networks =
        LearnedCode::load(&runtime, &entry, version).map_err(|error| at.because("model", error))?;
    // One table stands for all rows.
    let calibrations = (0..networks.code().r()).map_while(|_| networks.calibration().cloned());
    let (calibrations, label) = (calibrations.collect(), networks.code().label());
    let (encoder, decoder) = networks.into_coders();
    let spec = deployed.entry.outputs.get(*output).cloned();
    let outputs = spec.map(|spec| CodedOutput { position: *output, spec, decoder });
    let combined = Combined::Encoder(encoder);
    let inputs = vec![CodedInput { position: *input, combined, parity_names: Vec::new() }];
    let mut coder = Coder::new(label, inputs, outputs.into_iter().collect(), deployed.entry);
    coder.calibrations = calibrations;
    coder.queue = Some(CodingQueue::new(max_queue));
    Ok(coder)
}
