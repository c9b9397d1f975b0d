//! Trainings under other consistency models than BSP: processes at paces of their own, which no
//! slow one holds up sooner than it must.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::Transport;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Deal, NewTraining, Settled, Training, next_job};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::optimiser::OptimiserSpec;
use support::learning::{self, EXECUTORS, new, rule};
use support::{CLUSTER, Cluster, soon, until};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const STEPS: u64 = 60;
const LENGTH: usize = 600;

/// Returns the value to learn: the mean of what the executors are given.
fn target(index: usize, executor: usize) -> f32 {
    (index as f32 * 0.37).sin() + executor as f32 - 1.5
}

fn distance(weights: &[f32]) -> f32 {
    let mean = |index| {
        let targets = (0..EXECUTORS).map(|executor| target(index, executor));
        targets.sum::<f32>() / EXECUTORS as f32
    };
    let weights = weights.iter().enumerate();
    let squares = weights.map(|(index, weight)| (weight - mean(index)).powi(2));
    (squares.sum::<f32>() / LENGTH as f32).sqrt()
}

/// Progress that a process has seen after each of its steps: the step, and that of the slowest
/// executor in the parameters it got.
type Seen = Vec<(u64, u64)>;

/// One process's steps until the last, each of its parts in so many milliseconds.
async fn steps(training: &mut Training, each: u64) -> Result<Seen, ClusterError> {
    let mut seen = Seen::new();
    while training.steps_done() < STEPS {
        loop {
            for executor in training.to_do() {
                sleep(Duration::from_millis(each)).await;
                let weights = training.weights().iter().enumerate();
                let gradient = weights.map(|(index, weight)| weight - target(index, executor));
                let gradient = Vec::from_iter(gradient).into_iter();
                training.push(executor, 0, gradient).await?;
            }
            if training.settle().await? == Settled::Done {
                break;
            }
        }
        seen.push((training.steps_done(), training.steps_contained()));
    }
    Ok(seen)
}

async fn host(cluster: &Cluster, each: u64) -> JoinHandle<Seen> {
    let (registry, transport) = (cluster.open().await, cluster.transport());
    tokio::spawn(async move {
        let job = next_job(&registry, None).await.unwrap();
        let joined = Training::join(&registry, CLUSTER, transport, job).await;
        let mut training = joined.unwrap();
        let seen = steps(&mut training, each).await.unwrap();
        training.leave().await.unwrap();
        seen
    })
}

async fn begin(cluster: &Cluster, registry: &Registry, consistency: Consistency) -> Training {
    let (momentum, weight_decay) = (0.0, 0.0);
    let sgd = OptimiserSpec::Sgd { momentum, weight_decay };
    // So that the slow process stays behind.
    let new = NewTraining {
        rule: rule(sgd, 0.2, STEPS),
        consistency,
        deal: Deal::Evenly,
        ..new(STEPS, &[0.0; LENGTH])
    };
    learning::begin(cluster, registry, new).await
}

fn most_missed(seen: &Seen) -> u64 {
    let missed = |&(step, contained): &(u64, u64)| step.saturating_sub(contained);
    seen.iter().map(missed).max().unwrap()
}

/// A fast process leads, one that is four times slower takes part.
#[tokio::test(start_paused = true)]
async fn no_process_reads_what_misses_more_than_the_model_allows_and_it_converges() {
    for (consistency, bound) in [
        (Consistency::Ssp(2), 2),
        (Consistency::EagerSsp(2), 2),
        (Consistency::BoundedDelay(5), 5),
        (Consistency::Ssp(0), 0),
        (Consistency::Eventual, STEPS),
    ] {
        let cluster = Cluster::for_training(Transport::memory()).await;
        let registry = cluster.open().await;
        let mut training = begin(&cluster, &registry, consistency).await;
        let slow = host(&cluster, 200).await;
        until(&registry, |view| view.present_workers.len() == 2).await;
        let fast = soon(steps(&mut training, 50)).await.unwrap();
        let slow = soon(slow).await.unwrap();
        let missed = [most_missed(&fast), most_missed(&slow)];
        assert!(missed.iter().all(|&missed| missed <= bound), "{consistency:?}: {missed:?}");
        // Or nothing of this would have been seen.
        assert!(missed[0] >= bound.min(5), "{consistency:?}: {missed:?} at most");
        let last = fast.last();
        assert_eq!(last, Some(&(STEPS, STEPS)), "{consistency:?}: the last one lacks nothing");
        // Without a bound, the slow one goes on alone in the end, towards what it is given.
        let near = if consistency == Consistency::Eventual { 0.6 } else { 0.05 };
        let distance = distance(training.weights());
        assert!(distance < near, "{consistency:?}: {distance} from what is to be learned");
        soon(training.leave()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn executors_of_a_process_that_dies_are_taken_over() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let registry = cluster.open().await;
    let mut training = begin(&cluster, &registry, Consistency::Ssp(2)).await;
    let (dying, staying) = (host(&cluster, 80).await, host(&cluster, 120).await);
    until(&registry, |view| view.present_workers.len() == 3).await;
    tokio::spawn(async move {
        sleep(Duration::from_secs(2)).await;
        dying.abort();
    });
    let seen = soon(steps(&mut training, 50)).await.unwrap();
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
        let cluster = Cluster::for_training(Transport::Tcp).await;
        let new = NewTraining { consistency, executors: 1, ..new(STEPS, &[0.5; LENGTH]) };
        let mut training = learning::begin(&cluster, &cluster.open().await, new).await;
        soon(steps(&mut training, 0)).await.unwrap();
        outcomes.push(training.weights().to_vec());
        soon(training.leave()).await.unwrap();
    }
    assert!(outcomes.windows(2).all(|two| two[0] == two[1]));
}
