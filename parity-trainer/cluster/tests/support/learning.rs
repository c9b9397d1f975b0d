//! A training whose outcome is known to the last bit.

use parapet_cluster::array::FilterSpec;
use parapet_cluster::node::transport::Transport;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{NewTraining, Settled, Training};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::UpdateRule as _;
use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule, ServerRule};
use tokio::sync::mpsc;

/// Not a whole number of rows.
pub const LENGTH: usize = 700;
pub const EXECUTORS: usize = 4;

pub fn rule(steps: u64) -> OptimiserConfig {
    let optimiser = OptimiserSpec::AdamW { weight_decay: 0.1 };
    OptimiserConfig {
        optimiser,
        learning_rate: 0.01,
        schedule: Schedule::Cosine,
        steps,
        clip: None,
    }
}

pub fn start() -> Vec<f32> {
    (0..LENGTH)
        .map(|index| (index as f32 * 0.37).sin())
        .collect()
}

/// The gradient of one executor's part: depends on all parameters, so that one wrong bit spreads.
pub fn gradient(weights: &[f32], executor: usize, step: u64) -> Vec<f32> {
    let mean = weights.iter().sum::<f32>() / weights.len() as f32;
    let value = |(index, weight): (usize, &f32)| {
        (weight - mean) * (1.0 + executor as f32) + ((index as u64 * 7 + step * 3) as f32).cos()
    };
    weights.iter().enumerate().map(value).collect()
}

/// The same without any servers.
pub fn plain(steps: u64) -> (Vec<f32>, [Vec<f32>; 2]) {
    let mut weights = start();
    let mut state = [vec![0.0; LENGTH], vec![0.0; LENGTH]];
    for step in 0..steps {
        let mut sum = vec![0.0; LENGTH];
        for executor in 0..EXECUTORS {
            let parts = gradient(&weights, executor, step);
            // The first is taken as it is: 0 + -0 is another number than -0.
            let added = sum
                .iter()
                .zip(parts)
                .map(|(sum, part)| if executor == 0 { part } else { sum + part });
            sum = added.collect();
        }
        let [first, second] = &mut state;
        ServerRule(rule(steps)).apply(step as u32 + 1, &sum, &mut weights, &mut [first, second]);
    }
    (weights, state)
}

/// Steps until `steps` are done or another process has ended it.
pub async fn work<T: Transport>(
    training: &mut Training<T>,
    steps: u64,
    told: &mpsc::UnboundedSender<u64>,
) -> Result<(), ClusterError> {
    while training.steps_done() < steps {
        loop {
            let step = training.steps_done();
            for executor in training.to_do() {
                let gradient = gradient(training.weights(), executor, step);
                training.push(executor, gradient.into_iter()).await?;
            }
            if training.settle().await? == Settled::Done {
                break;
            }
        }
        let _ = told.send(training.steps_done());
    }
    Ok(())
}

pub fn new(steps: u64, weights: &[f32]) -> NewTraining<'_> {
    NewTraining {
        rule: rule(steps),
        executors: EXECUTORS,
        shards: 3,
        weights,
        measured_from: None,
        consistency: Consistency::Bsp,
        filters: FilterSpec::NONE,
        from: None,
        task: "test",
    }
}
