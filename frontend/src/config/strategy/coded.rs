//! Coded redundancy as configured: its code compared with those that the parity models were trained
//! for.

use std::sync::Arc;

use parapet_config::repository::ModelEntry;
use parapet_decoder::build_decoder;
use parapet_encoder::{Code, CodeError, CodeSpec, EncoderKind, build_encoder};
use parapet_frontend_core::CodedConfig;

use super::settings::{Models, Parity};
use super::tensors::CodedTensors;
use super::trained::check_trained_for;
use super::{BuiltCode, Deployed, RedundantPool, learned};
use crate::config::ConfigError;
use crate::config::at::At;
use crate::config::pool::{resolve_pool, resolve_version};

pub(super) struct Resolved {
    pub(super) code: BuiltCode,
    /// Pools of parity models.
    pub(super) parity: Vec<RedundantPool>,
}

/// The code of the strategy, and the pools of its parity models.
pub(super) fn resolve(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    config: &CodedConfig,
    models: &Models,
) -> Result<Resolved, ConfigError> {
    let encoder = models.encoder.ok_or_else(|| {
        let fix = "set encoder = \"sum\", \"concat\" or \"learned\"";
        at.field("encoder", "missing", fix)
    })?;
    let asked = CodeSpec::new(encoder, config.k, config.r);
    if !encoder.has_parity_models() {
        if !models.parity.is_empty() {
            let problem = format!(
                "encoder = \"{encoder}\" asks the deployed model itself, and has no parity models"
            );
            return Err(at.field(
                "parity",
                problem,
                "leave the [[models.strategy.parity]] tables out",
            ));
        }
        deployed
            .instances()
            .check_second()
            .map_err(|setting| at.refused(setting))?;
    }
    let own_entry =
        models.model.is_some() || models.version.is_some() || models.max_coding_queue.is_some();
    if encoder != EncoderKind::Learned && own_entry {
        let fix = "leave model, version and max_coding_queue out, or set encoder = \"learned\"";
        return Err(at.field("model", "only a learned code has an entry of its own", fix));
    }
    match encoder {
        EncoderKind::Sum | EncoderKind::Concat => {
            let (trained, parity) = resolve_parities(at, deployed, asked, &models.parity)?;
            let code =
                build(deployed.entry, trained, &parity).map_err(|source| ConfigError::Code {
                    path: at.path.to_owned(),
                    field: at.prefix.clone(),
                    source: Box::new(source),
                })?;
            Ok(Resolved { code, parity })
        }
        EncoderKind::Learned => {
            let code = learned::resolve(at, deployed, &asked, models)?;
            let parity = Vec::new();
            Ok(Resolved { code, parity })
        }
    }
}

/// Builds the coders of each covered tensor.
fn build(
    deployed: &ModelEntry,
    Trained { spec, tensors }: Trained,
    parity: &[RedundantPool],
) -> Result<BuiltCode, CodeError> {
    let encoders = tensors
        .inputs_of(deployed)
        .map(|input| build_encoder(&spec, &input.shape).map(Arc::from));
    let decoders = tensors
        .outputs_of(deployed)
        .map(|output| build_decoder(&spec, output.sample_len()).map(Arc::from));
    let names = |index: usize| {
        let names = parity
            .iter()
            .filter_map(|pool| pool.entry.inputs.get(index));
        names.map(|input| input.name.clone()).collect()
    };
    let calibrations = parity
        .iter()
        .map(|pool| pool.entry.code.as_ref()?.calibration.clone());
    Ok(BuiltCode {
        label: Code::try_from(&spec)?.label(),
        encoders: encoders.collect::<Result<_, _>>()?,
        decoders: decoders.collect::<Result<_, _>>()?,
        parity_names: (0..tensors.inputs.len()).map(names).collect(),
        calibrations: calibrations.collect::<Option<_>>().unwrap_or_default(),
        max_queue: None,
        tensors,
        spec: Some(spec),
    })
}

/// The code that a parity model was trained for, the same for all rows.
#[derive(Debug, Clone)]
struct Trained {
    spec: CodeSpec,
    tensors: CodedTensors,
}

/// The parity pools, one for each row, and the code that all of their models were trained for.
fn resolve_parities(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: CodeSpec,
    pools: &[Parity],
) -> Result<(Trained, Vec<RedundantPool>), ConfigError> {
    if pools.len() != asked.r {
        return Err(at.field(
            "parity",
            format!("{} parity pools for r = {}", pools.len(), asked.r),
            "give one [[models.strategy.parity]] table for each of the r rows",
        ));
    }
    let mut parity = Vec::with_capacity(asked.r);
    let mut code: Option<Trained> = None;
    for (row, pool) in pools.iter().enumerate() {
        let at = at.inside(&format!("parity[{row}]"));
        let (resolved, trained) = resolve_parity(&at, deployed, &asked, row, pool)?;
        let first = code.get_or_insert_with(|| trained.clone());
        if codes_differ(&first.spec, &trained.spec) || first.tensors != trained.tensors {
            let problem = "another generator, transform, inputs or outputs than row 0's";
            return Err(at.field("model", problem, "train all rows with one code"));
        }
        parity.push(resolved);
    }
    let missing = || {
        at.field(
            "parity",
            "missing",
            "give a [[models.strategy.parity]] table",
        )
    };
    Ok((code.ok_or_else(missing)?, parity))
}

fn codes_differ(a: &CodeSpec, b: &CodeSpec) -> bool {
    match (Code::try_from(a), Code::try_from(b)) {
        (Ok(a), Ok(b)) => a != b,
        _ => true,
    }
}

/// The parity pool of `row`, and the code its model was trained for: the one asked for,
/// with its generator.
fn resolve_parity(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    row: usize,
    pool: &Parity,
) -> Result<(RedundantPool, Trained), ConfigError> {
    let entry = deployed
        .repository
        .load(&pool.model)
        .map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, pool.version)?;
    let toml = entry.toml_file();
    let Some(code) = entry.code.clone() else {
        return Err(at.field(
            "model",
            format!(
                "{:?} is no parity model ({} has no [code])",
                entry.name,
                toml.display()
            ),
            "name a parity model",
        ));
    };
    check_trained_for(at, &toml, deployed.entry, asked, row, &code)?;
    let tensors = CodedTensors::named(at, &entry, &code, deployed.entry)?;
    let tls = pool.tls.as_ref();
    let pool = resolve_pool(at, &pool.instances, pool.slots_per_instance, pool.max_queue)?
        .with_tls(at, tls)?;
    let pool = RedundantPool {
        label: format!("parity{row}"),
        entry,
        version,
        pool,
    };
    Ok((
        pool,
        Trained {
            spec: code.spec,
            tensors,
        },
    ))
}
