//! Interpolation in its authors' form as configured: every query coded, for replicas of the deployed model.

use parapet_decoder::BerrutDecoder;
use parapet_encoder::{BerrutEncoder, CodeError, CodeSpec, EncoderKind};
use parapet_frontend_core::InterpolatedConfig;

use super::coded::MAX_KEYS;
use super::settings::Interpolated;
use super::tensors::CodedTensors;
use super::{ClassCode, Deployed, resolve_delay};
use crate::config::ConfigError;
use crate::config::resolve::At;

/// The strategy's settings, and the code, whose r is the number of spare queries.
pub(super) fn resolve(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    settings: &Interpolated,
) -> Result<(InterpolatedConfig, ClassCode), ConfigError> {
    let tensors = CodedTensors::all(at, deployed.entry)?;
    let (k, spare) = (settings.k, settings.spare);
    let code = |source: CodeError| ConfigError::Code {
        path: at.path.to_owned(),
        field: at.prefix.clone(),
        source: Box::new(source),
    };
    for input in tensors.inputs_of(deployed.entry) {
        BerrutEncoder::new(k, spare, &input.shape).map_err(code)?;
    }
    for output in tensors.outputs_of(deployed.entry) {
        BerrutDecoder::new(k, spare, settings.transform.clone(), output.sample_len()).map_err(code)?;
    }
    let (workers, instances) = (k + spare, deployed.listed());
    if instances < workers {
        let problem = format!("k + spare = {workers} coded queries, and the model has {instances} instances");
        return Err(at.field("k", problem, "list an instance for each coded query, or lower k"));
    }
    at.positive("fill_within_ms", settings.fill_within)?;
    at.positive("plain_after_ms", settings.plain_after)?;
    at.positive("coded_timeout_ms", settings.coded_timeout)?;
    let redundant_share = settings.redundant_share.unwrap_or(workers as f64 / k as f64);
    at.share("redundant_share", redundant_share)?;
    let redundant_burst = settings.redundant_burst.unwrap_or_else(|| (2.0 * workers as f64).max(16.0));
    if redundant_burst.is_nan() || redundant_burst < workers as f64 {
        let fix = format!("give at least k + spare = {workers}, what one group costs");
        return Err(at.field("redundant_burst", format!("{redundant_burst}"), fix));
    }
    let config = InterpolatedConfig {
        k,
        spare,
        fill_within: settings.fill_within,
        hold_back: resolve_delay(at, "hold_back", &settings.hold_back, 0.97)?,
        plain_after: settings.plain_after,
        coded_timeout: settings.coded_timeout,
        late_truth_wait: settings.late_truth_wait,
        redundant_share,
        redundant_burst,
        shed_above: settings.shed_above.unwrap_or(deployed.slots()),
        audit_every: settings.audit_every,
        max_keys: MAX_KEYS,
    };
    let transform = settings.transform.clone();
    let spec = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Berrut, k, spare) };
    Ok((config, ClassCode { spec, tensors }))
}
