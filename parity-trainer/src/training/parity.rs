//! Trains a parity model: mean squared error against the weighted sum of the deployed model's outputs (ParM section 4.1).

use parapet_encoder::{CodeSpec, build_encoder};
use tch::nn::OptimizerConfig;
use tch::{Kind, Reduction, Tensor, nn};

use super::groups::{GroupBatch, Pool};
use super::{StepReport, schedule};
use crate::TrainError;
use crate::network::{Network, NetworkError, NetworkSpec, batch, stream};

/// How a parity model is trained.
#[derive(Debug, Clone)]
pub struct ParityRun {
    /// The network.
    pub network: NetworkSpec,
    /// The code.
    pub code: CodeSpec,
    /// Which of the code's parity rows the model is for.
    pub row: usize,
    /// Optimiser steps.
    pub steps: usize,
    /// Coding groups a step.
    pub groups: usize,
    /// Peak of the learning rate's cosine schedule.
    pub learning_rate: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// What a parity model learns from: whole samples, and the deployed model's outputs for them.
#[derive(Debug, Clone)]
pub struct TrainingSet {
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Outputs of one sample.
    pub outputs: usize,
    /// The samples, row-major.
    pub inputs: Vec<f32>,
    /// The deployed model's raw outputs for each.
    pub answers: Vec<f32>,
}

/// Trains the parity model of `run`; labels are not looked at.
///
/// # Errors
/// If the code is invalid or does not fit the input, the network does not take the samples, or training diverges.
pub fn train_parity(
    run: &ParityRun,
    set: TrainingSet,
    mut report: impl FnMut(StepReport),
) -> Result<Network, TrainError> {
    let TrainingSet { shape, outputs: output_len, inputs, answers } = set;
    let encoder = build_encoder(&run.code, &shape)?;
    let code = encoder.code();
    if run.row >= code.r() {
        return Err(TrainError::Row { row: run.row, last: code.r() - 1, r: code.r() });
    }
    let sample_len: usize = shape.iter().product();
    let samples = inputs.len() / sample_len;
    if samples < code.k() {
        return Err(TrainError::TooFewSamples { found: samples, k: code.k() });
    }
    let mut network = Network::new(&run.network, &shape, output_len, &mut stream(run.seed, 2))?;
    let mut rng = stream(run.seed, 3);
    let mut pool = Pool::new(inputs, answers, sample_len, output_len);
    let (mean, deviation) = pool.output_moments();
    let row = code.row(run.row);
    let weight = f64::from(row.iter().sum::<f32>());
    let spread = f64::from(row.iter().map(|a| a * a).sum::<f32>()).sqrt();
    network.scale_output(deviation * spread, mean * weight);

    let mut optimizer = nn::AdamW { wd: run.weight_decay, ..nn::AdamW::default() }
        .build(network.variables(), run.learning_rate)
        .map_err(NetworkError::Tensor)?;
    let groups = run.groups.max(1);
    let mut filled = pool.batch(code.k(), groups);
    for step in 0..run.steps {
        pool.fill(encoder.as_ref(), run.row, &mut filled, &mut rng)?;
        let targets = batch(&filled.targets, &[output_len]);
        let outputs = network.forward(&batch(&filled.parity, &shape));
        let loss = outputs.mse_loss(&targets, Reduction::Mean);
        optimizer.set_lr(schedule::cosine(run.learning_rate, step, run.steps));
        optimizer.backward_step(&loss);

        let loss = loss.double_value(&[]);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step });
        }
        let agreement = agreement(&outputs.detach(), &targets, &filled, row, output_len);
        let (step, rows) = (step + 1, (step + 1) * groups);
        report(StepReport { step, steps: run.steps, loss, agreement, rows });
    }
    network.freeze();
    Ok(network)
}

/// The part of the batch's queries whose reconstruction names the class that the deployed model names.
///
/// The error of the parity output, divided by the query's coefficient, is the error of its reconstruction.
fn agreement(parity: &Tensor, targets: &Tensor, batch_of: &GroupBatch, row: &[f32], outputs: usize) -> f64 {
    let exact = Tensor::from_slice(&batch_of.outputs).view([row.len() as i64, -1, outputs as i64]);
    let coefficients = Tensor::from_slice(row).view([-1, 1, 1]);
    let reconstructed = &exact + (parity - targets).unsqueeze(0) / coefficients;
    let agree = reconstructed.argmax(-1, false).eq_tensor(&exact.argmax(-1, false));
    agree.to_kind(Kind::Float).mean(Kind::Float).double_value(&[])
}
