//! A training whose outcome is known to the last bit.

use parapet_cluster::array::FilterSpec;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Deal, Job, NewTraining, ROW, Settled, Training};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};
use tokio::sync::mpsc;

use super::{CLUSTER, Cluster, soon};

/// Not a whole number of rows.
pub const LENGTH: usize = 700;
pub const EXECUTORS: usize = 4;

pub fn rule(optimiser: OptimiserSpec, learning_rate: f64, steps: u64) -> OptimiserConfig {
    OptimiserConfig { optimiser, learning_rate, schedule: Schedule::Cosine, steps, clip: None }
}

fn adamw(steps: u64) -> OptimiserConfig {
    rule(OptimiserSpec::AdamW { weight_decay: 0.1 }, 0.01, steps)
}

pub fn start() -> Vec<f32> {
    (0..LENGTH).map(|index| (index as f32 * 0.37).sin()).collect()
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
        // The first is taken as it is: 0 + -0 is another number than -0.
        let mut sum = gradient(&weights, 0, step);
        for executor in 1..EXECUTORS {
            let part = gradient(&weights, executor, step);
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let [first, second] = &mut state;
        let (rule, number) = (adamw(steps), step as u32 + 1);
        let state: &mut [&mut [f32]] = &mut [first, second];
        rule.optimiser.at(rule.rate(step), |rule| {
            rule.apply(number, &sum, &mut weights, state);
        });
    }
    (weights, state)
}

/// Steps until `steps` are done or another process has ended it.
pub async fn work(
    training: &mut Training,
    steps: u64,
    told: Option<&mpsc::UnboundedSender<u64>>,
) -> Result<(), ClusterError> {
    while training.steps_done() < steps {
        loop {
            let step = training.steps_done();
            for executor in training.to_do() {
                let mut gradient = gradient(training.weights(), executor, step);
                // Some in pieces, the last rows first.
                for row in (0..=executor % 3).rev() {
                    let piece = gradient.split_off(row * ROW);
                    training.push(executor, row as u64, piece.into_iter()).await?;
                }
            }
            if training.settle().await? == Settled::Done {
                break;
            }
        }
        if let Some(told) = told {
            let _ = told.send(training.steps_done());
        }
    }
    Ok(())
}

/// Works to the end, and stays.
pub async fn worked(mut training: Training, steps: u64) -> Training {
    soon(work(&mut training, steps, None)).await.unwrap();
    training
}

pub fn new(steps: u64, weights: &[f32]) -> NewTraining<'_> {
    NewTraining {
        rule: adamw(steps),
        executors: EXECUTORS,
        deal: Deal::ByPace,
        shards: 3,
        layers: &[],
        weights,
        measured_from: None,
        consistency: Consistency::Bsp,
        filters: FilterSpec::NONE,
        wait_free: false,
        factors: false,
        from: None,
        task: "test",
    }
}

pub async fn begin(cluster: &Cluster, registry: &Registry, new: NewTraining<'_>) -> Training {
    let begun = Training::begin(registry, CLUSTER, cluster.transport(), new);
    soon(begun).await.unwrap()
}

pub async fn join(
    cluster: &Cluster,
    registry: &Registry,
    job: &Job,
) -> Result<Training, ClusterError> {
    let (transport, job) = (cluster.transport(), job.clone());
    soon(Training::join(registry, CLUSTER, transport, job)).await
}
