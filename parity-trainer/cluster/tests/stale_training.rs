//! Trainings under other consistency models than BSP: processes at paces of their own, which no
//! slow one holds up sooner than it must.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::transport::{Memory, Tcp, Transport};
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Job, NewTraining, Settled, Training, next_job};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};
use support::learning::{EXECUTORS, new};
use support::{CLUSTER, Cluster, soon};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const STEPS: u64 = 60;
const LENGTH: usize = 600;

/// Returns the value to learn: the mean of what the executors are given.
fn target(index: usize, executor: usize) -> f32 {
    (index as f32 * 0.37).sin() + executor as f32 - 1.5
}

fn distance(weights: &[f32]) -> f32 {
    let mean = |index| {
        (0..EXECUTORS)
            .map(|executor| target(index, executor))
            .sum::<f32>()
            / EXECUTORS as f32
    };
    let squares = weights
        .iter()
        .enumerate()
        .map(|(index, weight)| (weight - mean(index)).powi(2));
    (squares.sum::<f32>() / weights.len() as f32).sqrt()
}

/// Progress that a process has seen after each of its steps: the step, and that of the slowest
/// executor in the parameters it got.
type Seen = Vec<(u64, u64)>;

/// One process's steps until the last, each of its parts in so much time.
async fn steps<T: Transport>(
    training: &mut Training<T>,
    each: Duration,
) -> Result<Seen, ClusterError> {
    let mut seen = Seen::new();
    while training.steps_done() < STEPS {
        loop {
            for executor in training.to_do() {
                tokio::time::sleep(each).await;
                let weights = training.weights().iter().enumerate();
                let gradient: Vec<f32> = weights
                    .map(|(i, weight)| weight - target(i, executor))
                    .collect();
                training.push(executor, gradient.into_iter()).await?;
            }
            if training.settle().await? == Settled::Done {
                break;
            }
        }
        seen.push((training.steps_done(), training.steps_contained()));
    }
    Ok(seen)
}

fn host<T: Transport>(
    cluster: &Cluster<T>,
    registry: Registry,
    each: Duration,
) -> JoinHandle<Seen> {
    let transport = cluster.transport();
    tokio::spawn(async move {
        let job: Job = next_job(&registry, None).await.unwrap();
        let mut training = Training::join(&registry, CLUSTER, transport, job)
            .await
            .unwrap();
        let seen = steps(&mut training, each).await.unwrap();
        training.leave().await.unwrap();
        seen
    })
}

fn rule() -> OptimiserConfig {
    let optimiser = OptimiserSpec::Sgd {
        momentum: 0.0,
        weight_decay: 0.0,
    };
    OptimiserConfig {
        optimiser,
        learning_rate: 0.2,
        schedule: Schedule::Cosine,
        steps: STEPS,
        clip: None,
    }
}

async fn begin<T: Transport>(
    cluster: &Cluster<T>,
    registry: &Registry,
    consistency: Consistency,
) -> Training<T> {
    let weights = vec![0.0; LENGTH];
    let new = NewTraining {
        rule: rule(),
        consistency,
        ..new(STEPS, &weights)
    };
    soon(Training::begin(registry, CLUSTER, cluster.transport(), new))
        .await
        .unwrap()
}

/// Largest distance between the fast process and the slow one, and the time it took.
struct Race {
    fast: Seen,
    slow: Seen,
    distance: f32,
    took: Duration,
}

/// A fast process leads, one that is four times slower takes part.
async fn race(consistency: Consistency) -> Race {
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let registry = cluster.open().await;
    let mut training = begin(&cluster, &registry, consistency).await;
    let slow = host(&cluster, cluster.open().await, Duration::from_millis(200));
    let mut views = registry.view();
    soon(views.wait_for(|view| view.present_workers.len() == 2))
        .await
        .unwrap();
    let begun = Instant::now();
    let fast = soon(steps(&mut training, Duration::from_millis(50)))
        .await
        .unwrap();
    let took = begun.elapsed();
    let distance = distance(training.weights());
    let slow = soon(slow).await.unwrap();
    soon(training.leave()).await.unwrap();
    Race {
        fast,
        slow,
        distance,
        took,
    }
}

fn most_missed(seen: &Seen) -> u64 {
    seen.iter()
        .map(|&(step, contained)| step - contained.min(step))
        .max()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn nobody_reads_what_misses_more_than_the_model_allows_and_it_converges() {
    for (consistency, bound) in [
        (Consistency::Ssp(2), 2),
        (Consistency::EagerSsp(2), 2),
        (Consistency::BoundedDelay(5), 5),
        (Consistency::Ssp(0), 0),
        (Consistency::Eventual, STEPS),
    ] {
        let Race {
            fast,
            slow,
            distance,
            took,
        } = race(consistency).await;
        let missed = most_missed(&fast);
        assert!(
            missed <= bound && most_missed(&slow) <= bound,
            "{consistency:?}: missed {missed}"
        );
        // Or nothing of this would have been seen.
        assert!(
            missed >= bound.min(5),
            "{consistency:?}: missed {missed} at most"
        );
        assert_eq!(
            fast.last(),
            Some(&(STEPS, STEPS)),
            "{consistency:?}: the last one lacks nothing"
        );
        // Without a bound, the slow one goes on alone in the end, towards what it is given.
        let near = if consistency == Consistency::Eventual {
            0.6
        } else {
            0.05
        };
        assert!(
            distance < near,
            "{consistency:?}: {distance} from what is to be learned, after {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn executors_of_a_process_that_dies_are_taken_over() {
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let registry = cluster.open().await;
    let mut training = begin(&cluster, &registry, Consistency::Ssp(2)).await;
    let dying = host(&cluster, cluster.open().await, Duration::from_millis(80));
    let staying = host(&cluster, cluster.open().await, Duration::from_millis(120));
    let mut views = registry.view();
    soon(views.wait_for(|view| view.present_workers.len() == 3))
        .await
        .unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        dying.abort();
    });
    let seen = soon(steps(&mut training, Duration::from_millis(50)))
        .await
        .unwrap();
    assert!(most_missed(&seen) <= 2, "{seen:?}");
    assert_eq!(seen.last(), Some(&(STEPS, STEPS)));
    let distance = distance(training.weights());
    assert!(distance < 0.05, "{distance} from what is to be learned");
    assert!(most_missed(&soon(staying).await.unwrap()) <= 2);
    // What is there about then, for a checkpoint.
    let state = soon(training.optimiser_state()).await.unwrap();
    assert_eq!((state.len(), state[0].len()), (1, LENGTH));
    soon(training.leave()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_executor_makes_the_steps_of_plain_training_under_every_model() {
    let mut outcomes = Vec::new();
    for consistency in [
        Consistency::Bsp,
        Consistency::BoundedDelay(2),
        Consistency::Ssp(2),
        Consistency::EagerSsp(2),
        Consistency::Eventual,
    ] {
        let cluster = Cluster::start(Tcp, 2, 1, Consistency::Bsp, true).await;
        let registry = cluster.open().await;
        let weights = vec![0.5; LENGTH];
        let new = NewTraining {
            consistency,
            executors: 1,
            ..new(STEPS, &weights)
        };
        let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new);
        let mut training = soon(begun).await.unwrap();
        soon(steps(&mut training, Duration::ZERO)).await.unwrap();
        outcomes.push(training.weights().to_vec());
        soon(training.leave()).await.unwrap();
    }
    assert!(outcomes.windows(2).all(|two| two[0] == two[1]));
}
