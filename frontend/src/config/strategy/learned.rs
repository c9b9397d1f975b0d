//! A learned code as configured: its entry found, held against the configuration, and its networks
//! loaded.

use std::sync::Arc;

use parapet_config::repository::Platform;
use parapet_encoder::CodeSpec;
use parapet_onnx::learned_code::LearnedCode;
use parapet_onnx::runtime::OnnxRuntime;

use super::settings::Models;
use super::tensors::CodedTensors;
use super::trained::check_trained_for;
use super::{BuiltCode, Deployed};
use crate::config::ConfigError;
use crate::config::at::At;
use crate::config::pool::resolve_version;

/// Pieces of coding that may wait, unless the file says otherwise: some tens of
/// milliseconds of work.
const MAX_QUEUE: usize = 64;

/// The code that `models.model` names, as it was asked for.
pub(super) fn resolve(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    models: &Models,
) -> Result<BuiltCode, ConfigError> {
    let max_queue = models.max_coding_queue.unwrap_or(MAX_QUEUE);
    at.at_least_one("max_coding_queue", max_queue)?;
    let Some(name) = &models.model else {
        let fix =
            "name the learned code's entry, as `parity-trainer train --encoder learned` writes one";
        return Err(at.field("model", "missing", fix));
    };
    let entry = deployed
        .repository
        .load(name)
        .map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, models.version)?;
    let toml = entry.toml_file();
    let (Platform::LearnedCode, Some(code)) = (entry.platform, &entry.code) else {
        let problem = format!(
            "{name:?} is no learned code ({} has another platform)",
            toml.display()
        );
        return Err(at.field("model", problem, "name a learned code"));
    };
    check_trained_for(at, &toml, deployed.entry, asked, code.row, code)?;
    let tensors = CodedTensors::named(at, &entry, code, deployed.entry)?;
    if tensors.inputs.len() > 1 || tensors.outputs.len() > 1 {
        let problem = format!("{} has several inputs or outputs", toml.display());
        return Err(at.field(
            "model",
            problem,
            "a learned code is for one of each: name it in [code]",
        ));
    }
    let runtime = OnnxRuntime::load(None).map_err(|source| ConfigError::OnnxRuntime {
        path: at.path.to_owned(),
        field: format!("{}.encoder", at.prefix),
        source: Box::new(source),
    })?;
    let networks = LearnedCode::load(&runtime, &entry, version).map_err(|source| {
        ConfigError::LearnedCode {
            path: at.path.to_owned(),
            field: format!("{}.model", at.prefix),
            source: Box::new(source),
        }
    })?;
    // One table stands for all rows.
    let calibrations = (0..networks.code().r())
        .map_while(|_| networks.calibration().cloned())
        .collect();
    let label = networks.code().label();
    let (encoder, decoder) = networks.into_coders();
    Ok(BuiltCode {
        label,
        tensors,
        encoders: vec![Arc::from(encoder)],
        decoders: vec![Arc::from(decoder)],
        parity_names: vec![Vec::new()],
        calibrations,
        max_queue: Some(max_queue),
        spec: None,
    })
}
