//! Options of learned codes: their networks, the choice of their loss, and their evaluation.

use std::path::Path;

use parapet_encoder::OutputTransform;
use parapet_onnx::learned_code::{LearnedCode, Sizes};
use parapet_onnx::runtime::OnnxRuntime;
use parity_trainer::deployed::{self, Deployed, DeployedModel};
use parity_trainer::evaluation::{CodeEvaluation, CodedModels, EvaluationPlan, evaluate_with};
use parity_trainer::network::{Network, NetworkSpec};
use parity_trainer::{CodeNetworks, LearnedRun, Loss, TrainError, group_shape};

use super::prepared::Prepared;
use super::settings::Settings;

/// The losses that short trials choose from.
const LOSSES: [Loss; 2] = [Loss::Mse, Loss::Kl];

/// The encoder's network, and what else a learned code's training needs; whether both networks fit
/// shows here. `few` are some samples, as the deployed model takes them.
pub(super) fn prepare(
    settings: &Settings,
    deployed: &Deployed,
    shape: &[usize],
    few: &[f32],
) -> Result<(NetworkSpec, LearnedRun), TrainError> {
    let (k, r, outputs) = (settings.k, settings.r, deployed.model.outputs());
    let shape = group_shape(shape, k);
    let inputs: usize = shape.iter().product();
    let (given, made) = ((k + r) * outputs, k * outputs);
    let encoder = match &settings.network {
        Some(network) => network.clone(),
        None => format!("mlp:{inputs},{inputs}").parse()?,
    };
    let decoder = match &settings.decoder_network {
        Some(network) => network.clone(),
        None => format!("mlp:{given},{given},{made}").parse()?,
    };
    let mut any = rand_chacha::rand_core::SeedableRng::seed_from_u64(0);
    for (network, shape, outputs) in [
        (&encoder, shape.as_slice(), inputs / k * r),
        (&decoder, [given].as_slice(), made),
    ] {
        // Serving runs them by ONNX Runtime.
        Network::new(network, shape, outputs, &mut any)?.to_onnx()?;
    }
    let through = deployed::differentiable(deployed, few)?;
    let loss = settings.loss.unwrap_or(Loss::Mse);
    Ok((
        encoder,
        LearnedRun {
            decoder,
            loss,
            through,
        },
    ))
}

/// Returns the candidates for trials: the transforms, for a learned code each with the losses. Raw
/// outputs are not among those of a learned code if others are: networks want them scaled.
pub(super) fn candidates(
    settings: &Settings,
    transforms: Vec<OutputTransform>,
) -> Vec<(OutputTransform, Option<Loss>)> {
    if !settings.is_learned() {
        return transforms
            .into_iter()
            .map(|transform| (transform, None))
            .collect();
    }
    let scaled: Vec<_> = transforms
        .iter()
        .filter(|transform| !transform.is_raw())
        .cloned()
        .collect();
    let transforms = if scaled.is_empty() {
        transforms
    } else {
        scaled
    };
    let losses = settings.loss.map_or(LOSSES.to_vec(), |loss| vec![loss]);
    let with_losses = |transform: OutputTransform| {
        losses
            .iter()
            .map(move |&loss| (transform.clone(), Some(loss)))
            .collect::<Vec<_>>()
    };
    transforms.into_iter().flat_map(with_losses).collect()
}

/// Judges a learned code on the test set as it will be served: by ONNX Runtime, the deployed model
/// answering for every row.
pub(super) fn evaluate_code(
    prepared: &Prepared,
    networks: CodeNetworks<'_>,
    calibrations: &[parapet_decoder::Calibration],
    plan: EvaluationPlan,
    progress: impl FnMut(usize, usize),
) -> Result<CodeEvaluation, TrainError> {
    let (deployed, test, spec) = (
        prepared.deployed.model.as_ref(),
        &prepared.data.test,
        &prepared.run.code,
    );
    let sizes = Sizes {
        spec,
        sample_len: test.sample_len(),
        output_len: deployed.outputs(),
    };
    let (encoder, decoder) = networks.to_onnx()?;
    let runtime = OnnxRuntime::load(None)?;
    let place = Path::new("the code just trained");
    let code = LearnedCode::from_onnx(&runtime, sizes, place, (&encoder, &decoder))?;
    let parity: Vec<(usize, &dyn DeployedModel)> = (0..spec.r).map(|row| (row, deployed)).collect();
    let models = CodedModels {
        deployed,
        parity: &parity,
        code: spec,
        calibrations,
    };
    evaluate_with(
        models,
        (code.encoder(), code.decoder()),
        test,
        plan,
        progress,
    )
}
