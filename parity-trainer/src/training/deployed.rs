//! Trains a deployed model: cross-entropy on labels.

use tch::{Kind, Reduction, Tensor};

use super::StepReport;
use super::weights::Weights;
use crate::TrainError;
use crate::backend::{EmbeddedBackend, OptimiserSpec, ParameterBackend, Schedule, UpdateRule};
use crate::data::{Augment, DataSet, Shuffle};
use crate::network::{Network, NetworkSpec, batch, stream};

/// How a deployed model is trained.
#[derive(Debug, Clone)]
pub struct DeployedRun {
    /// The network.
    pub network: NetworkSpec,
    /// Passes over the training samples.
    pub epochs: usize,
    /// Samples a step.
    pub batch: usize,
    /// Peak of the learning rate's cosine schedule.
    pub learning_rate: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// Probability mass that targets give to all classes alike, `0.0..1.0`.
    pub label_smoothing: f64,
    /// How samples are varied, afresh each pass.
    pub augment: Augment,
    /// Seed of everything random.
    pub seed: u64,
}

/// Trains the network of `run` on `data`'s training samples.
///
/// # Errors
/// If the network does not take the samples, or training diverges.
pub fn train_deployed(
    run: &DeployedRun,
    data: &DataSet,
    mut report: impl FnMut(StepReport),
) -> Result<Network, TrainError> {
    let samples = &data.train;
    let mut network = Network::new(&run.network, &samples.shape, data.classes, &mut stream(run.seed, 0))?;
    let mut rng = stream(run.seed, 1);
    let mut shuffle = Shuffle::new(samples.len());
    let sample_len = samples.sample_len();
    let batch_len = run.batch.clamp(1, samples.len());
    let steps = run.epochs * samples.len().div_ceil(batch_len);
    let rule = UpdateRule {
        optimiser: OptimiserSpec::AdamW { weight_decay: run.weight_decay },
        learning_rate: run.learning_rate,
        schedule: Schedule::Cosine,
        steps: steps as u64,
        clip: None,
    };
    let mut weights = Weights::of(&[("", &network)])?;
    let mut backend = EmbeddedBackend::new(rule, weights.parameters().clone())?;
    let mut inputs = vec![0.0; batch_len * sample_len];
    let mut labels = vec![0i64; batch_len];
    for step in 0..steps {
        for (input, label) in inputs.chunks_exact_mut(sample_len).zip(&mut labels) {
            let index = shuffle.next(&mut rng);
            run.augment.apply(&mut rng, &samples.shape, samples.sample(index), input);
            *label = samples.labels.get(index).copied().map_or(0, i64::from);
        }
        let labels = Tensor::from_slice(&labels);
        weights.pull(&mut backend)?;
        let outputs = network.forward_t(&batch(&inputs, &samples.shape), true);
        let loss =
            outputs.cross_entropy_loss::<Tensor>(&labels, None, Reduction::Mean, -100, run.label_smoothing);
        let tick = weights.push(&mut backend, &loss)?;

        let correct = outputs.argmax(-1, false).eq_tensor(&labels).to_kind(Kind::Float).mean(Kind::Float);
        let loss = loss.double_value(&[]);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step });
        }
        let (step, rows) = (step + 1, (step + 1) * batch_len);
        report(StepReport {
            step,
            steps,
            loss,
            agreement: correct.double_value(&[]),
            rows,
            epoch: rows as f64 / samples.len() as f64,
            learning_rate: tick.learning_rate,
            gradient_norm: tick.gradient_norm,
            validation: None,
        });
    }
    weights.pull(&mut backend as &mut dyn ParameterBackend)?;
    network.freeze();
    Ok(network)
}
