//! Coded redundancy as configured: its code compared with those that the parity models were trained for.

use std::path::Path;

use parapet_encoder::{Code, CodeSpec, EncoderKind, build_encoder};
use parapet_frontend_core::{CodedConfig, PoolId};
use parapet_open_inference::Datatype;
use parapet_repository::{CodeMetadata, ModelEntry, TensorSpec};

use super::settings::{Coded, Parity};
use super::{
    Deployed, LearnedConfig, RedundantPool, another_instance, learned, resolve_delay, takes_the_place_of,
};
use crate::config::ConfigError;
use crate::config::resolve::{At, resolve_pool, resolve_version};

/// Kinds of query (numbers of samples) that have groups of their own.
pub(super) const MAX_KEYS: usize = 64;

/// A coded strategy.
pub(super) struct Resolved {
    pub(super) config: CodedConfig,
    pub(super) spec: CodeSpec,
    /// The networks of a learned code.
    pub(super) learned: Option<LearnedConfig>,
    /// Pools of parity models.
    pub(super) parity: Vec<RedundantPool>,
}

/// The one input and the one output of a model that queries can be coded for.
pub(super) fn one_fp32_tensor_each_way<'a>(
    at: &At<'_>,
    deployed: &Deployed<'a>,
) -> Result<(&'a TensorSpec, &'a TensorSpec), ConfigError> {
    let [input] = deployed.entry.inputs.as_slice() else {
        return Err(at.field("kind", "coding needs a model with one input", "use kind = \"none\""));
    };
    let [output] = deployed.entry.outputs.as_slice() else {
        return Err(at.field("kind", "coding needs a model with one output", "use kind = \"none\""));
    };
    if input.datatype != Datatype::Fp32 || output.datatype != Datatype::Fp32 {
        return Err(at.field("kind", "coding needs FP32 input and output", "use kind = \"none\""));
    }
    Ok((input, output))
}

/// The strategy's settings and the code; the first of the parity pools will be `first_parity`.
pub(super) fn resolve(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    coded: &Coded,
    first_parity: PoolId,
) -> Result<Resolved, ConfigError> {
    let (input, _) = one_fp32_tensor_each_way(at, deployed)?;
    let asked = CodeSpec::new(coded.encoder, coded.k, coded.r);
    if !coded.encoder.has_parity_models() {
        if !coded.parity.is_empty() {
            let encoder = coded.encoder;
            let problem =
                format!("encoder = \"{encoder}\" asks the deployed model itself, and has no parity models");
            return Err(at.field("parity", problem, "leave the [[models.strategy.parity]] tables out"));
        }
        another_instance(at, deployed)?;
    }
    let own_entry = coded.model.is_some() || coded.version.is_some() || coded.max_coding_queue.is_some();
    if coded.encoder != EncoderKind::Learned && own_entry {
        let fix = "leave model, version and max_coding_queue out, or set encoder = \"learned\"";
        return Err(at.field("model", "only a learned code has an entry of its own", fix));
    }
    let (spec, learned, parity) = match coded.encoder {
        EncoderKind::Sum | EncoderKind::Concat => {
            let (spec, parity) = resolve_parities(at, deployed, asked, &coded.parity)?;
            (spec, None, parity)
        }
        EncoderKind::Berrut => (asked, None, Vec::new()),
        EncoderKind::Learned => {
            let learned = learned::resolve(at, deployed, &asked, coded)?;
            (learned.code.code().to_spec(), Some(learned), Vec::new())
        }
    };
    let first_parity = if parity.is_empty() { PoolId::DEPLOYED } else { first_parity };
    if learned.is_none() {
        build_encoder(&spec, &input.shape).map_err(|source| ConfigError::Code {
            path: at.path.to_owned(),
            field: at.prefix.clone(),
            source: Box::new(source),
        })?;
    }
    at.share("redundant_share", coded.redundant_share)?;
    at.positive("flush_after_ms", coded.flush_after)?;
    at.positive("parity_timeout_ms", coded.parity_timeout)?;
    let config = CodedConfig {
        k: spec.k,
        r: spec.r,
        first_parity,
        hold_back: resolve_delay(at, "hold_back", &coded.hold_back, 0.97)?,
        defer_parity: coded.defer_parity,
        flush_after: coded.flush_after,
        late_truth_wait: coded.late_truth_wait,
        parity_timeout: coded.parity_timeout,
        redundant_share: coded.redundant_share,
        redundant_burst: coded.redundant_burst,
        shed_above: coded.shed_above.unwrap_or(deployed.slots()),
        audit_every: coded.audit_every,
        max_keys: MAX_KEYS,
    };
    Ok(Resolved { config, spec, learned, parity })
}

/// The parity pools, one for each row, and the code that all of their models were trained for.
fn resolve_parities(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: CodeSpec,
    pools: &[Parity],
) -> Result<(CodeSpec, Vec<RedundantPool>), ConfigError> {
    if pools.len() != asked.r {
        return Err(at.field(
            "parity",
            format!("{} parity pools for r = {}", pools.len(), asked.r),
            "give one [[models.strategy.parity]] table for each of the r rows",
        ));
    }
    let mut parity = Vec::with_capacity(asked.r);
    let mut spec = asked.clone();
    for (row, pool) in pools.iter().enumerate() {
        let at = at.inside(&format!("parity[{row}]"));
        let (resolved, trained) = resolve_parity(&at, deployed, &asked, row, pool)?;
        if row > 0 && codes_differ(&spec, &trained) {
            let problem = "another generator or transform than row 0's";
            return Err(at.field("model", problem, "train all rows with one code"));
        }
        spec = trained;
        parity.push(resolved);
    }
    Ok((spec, parity))
}

fn codes_differ(a: &CodeSpec, b: &CodeSpec) -> bool {
    match (Code::try_from(a), Code::try_from(b)) {
        (Ok(a), Ok(b)) => a != b,
        _ => true,
    }
}

/// The parity pool of `row`, and the code its model was trained for: the one asked for, with its generator.
fn resolve_parity(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    asked: &CodeSpec,
    row: usize,
    pool: &Parity,
) -> Result<(RedundantPool, CodeSpec), ConfigError> {
    let entry = deployed.repository.load(&pool.model).map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, pool.version)?;
    let deployed = deployed.entry;
    let toml = entry.toml_file();
    let Some(code) = entry.code.clone() else {
        return Err(at.field(
            "model",
            format!("{:?} is no parity model ({} has no [code])", entry.name, toml.display()),
            "name a parity model",
        ));
    };
    check_trained_for(at, &toml, deployed, asked, row, &code)?;
    if !takes_the_place_of(&entry, deployed) {
        return Err(at.field(
            "model",
            format!("inputs or outputs of {} have other shapes than the deployed model's", toml.display()),
            "name a parity model of this deployed model",
        ));
    }
    let tls = pool.tls.as_ref();
    let pool =
        resolve_pool(at, &pool.instances, pool.slots_per_instance, pool.max_queue)?.with_tls(at, tls)?;
    Ok((RedundantPool { label: format!("parity{row}"), entry, version, pool }, code.spec))
}

/// Holds what an entry's `[code]` says against the deployed model, the code asked for, and the row.
pub(super) fn check_trained_for(
    at: &At<'_>,
    toml: &Path,
    deployed: &ModelEntry,
    asked: &CodeSpec,
    row: usize,
    code: &CodeMetadata,
) -> Result<(), ConfigError> {
    let quoted = |encoder: EncoderKind| format!("\"{encoder}\"");
    let compared = [
        ("deployed", deployed.name.clone(), code.deployed.clone()),
        ("row", row.to_string(), code.row.to_string()),
        ("encoder", quoted(asked.encoder), quoted(code.spec.encoder)),
        ("k", asked.k.to_string(), code.spec.k.to_string()),
        ("r", asked.r.to_string(), code.spec.r.to_string()),
    ];
    match compared.into_iter().find(|(_, asked, trained)| asked != trained) {
        None => Ok(()),
        Some((what, asked, trained)) => Err(at.field(
            "model",
            format!("{what} = {asked} here, and code.{what} = {trained} in {}", toml.display()),
            format!("set {what} = {trained}, or name a model trained for {asked}"),
        )),
    }
}
