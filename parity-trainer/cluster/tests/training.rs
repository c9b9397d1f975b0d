//! A training gives the same bits on any number of processes, and while processes come and go.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::{Pulled, TaskSpec, Transport, Worker};
use parapet_cluster::registry::View;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Job, NewTraining, Settled, Training, next_job};
use parapet_parameter_server::{Clock, Consistency, KeyRange, Values};
use support::learning::{EXECUTORS, LENGTH, begin, join, new, plain, start, work, worked};
use support::{CLUSTER, Cluster, soon, until};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// A process that takes part in the next training until it is over.
async fn host(cluster: &Cluster, steps: u64) -> JoinHandle<()> {
    let (registry, transport) = (cluster.open().await, cluster.transport());
    tokio::spawn(async move {
        let job = next_job(&registry, None).await.unwrap();
        let joined = Training::join(&registry, CLUSTER, transport, job).await;
        let mut training = joined.unwrap();
        match work(&mut training, steps, None).await {
            Ok(()) | Err(ClusterError::Ended) => training.leave().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_two_and_four_processes_give_the_bits_of_plain_training() {
    for hosts in [1, 2, 4] {
        let cluster = Cluster::for_training(Transport::Tcp).await;
        let weights = start();
        let training = begin(&cluster, &cluster.open().await, new(8, &weights)).await;
        assert_eq!(training.weights(), weights);
        let mut others = Vec::new();
        for _ in 1..hosts {
            others.push(host(&cluster, 8).await);
        }
        let are_there = |view: &View| view.present_workers.len() == hosts;
        cluster.until(are_there).await;
        let mut training = worked(training, 8).await;
        let (expected, state) = plain(8);
        assert_eq!(training.weights(), expected, "{hosts} processes");
        assert_eq!(soon(training.optimiser_state()).await.unwrap(), state);
        for other in others {
            soon(other).await.unwrap();
        }
        soon(training.leave()).await.unwrap();
        let is_over = |view: &View| {
            let workers = &view.workers.workers;
            view.job.is_none() && workers.is_empty() && view.present_workers.is_empty()
        };
        cluster.until(is_over).await;
    }
}

/// Pushes the same number for all parameters, for each executor that is here.
async fn push_all(training: &mut Training, number: f32) {
    for executor in training.to_do() {
        let gradient = [number; LENGTH].into_iter();
        soon(training.push(executor, 0, gradient)).await.unwrap();
    }
}

/// Gradients that are finite, while their sum is not.
#[tokio::test(start_paused = true)]
async fn step_whose_sum_overflows_ends_with_an_error_in_every_process() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let leading = begin(&cluster, &cluster.open().await, new(8, &weights)).await;
    let joined = join(&cluster, &cluster.open().await, leading.job()).await;
    let mut processes = [leading, joined.unwrap()];
    cluster.until(|view| view.present_workers.len() == 2).await;
    for training in &mut processes {
        push_all(training, 2e38).await;
    }
    for training in &mut processes {
        let error = loop {
            match soon(training.settle()).await {
                Ok(Settled::MoreToDo) => push_all(training, 2e38).await,
                Ok(Settled::Done) => panic!("the step is done"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("overflows") && !error.contains('\n'), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn training_whose_only_server_of_some_keys_died_ends_with_an_error() {
    let mut cluster = Cluster::start(Transport::memory(), 2, 1, Consistency::Bsp, true).await;
    let weights = start();
    let mut training = begin(&cluster, &cluster.open().await, new(8, &weights)).await;
    let dead = *cluster.view().servers.keys().next().unwrap();
    cluster.kill(dead);
    push_all(&mut training, 1.0).await;
    let error = soon(training.settle()).await.unwrap_err();
    assert!(matches!(error, ClusterError::Orphaned { .. }), "{error}");
    soon(training.leave()).await.unwrap();
    cluster.until(|view| view.job.is_none()).await;
    let again = begin(&cluster, &cluster.open().await, new(8, &weights)).await;
    assert_eq!(worked(again, 8).await.weights(), plain(8).0, "on the server that is left");
}

#[tokio::test(start_paused = true)]
async fn process_without_an_executor_follows_the_training_and_the_bits_stay() {
    const STEPS: u64 = 8;
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let mut all = vec![begin(&cluster, &cluster.open().await, new(STEPS, &weights)).await];
    let job = all[0].job().clone();
    let count = EXECUTORS + 2;
    let mut registries = Vec::new();
    for _ in 1..count {
        let registry = cluster.open().await;
        all.push(join(&cluster, &registry, &job).await.unwrap());
        registries.push(registry);
    }
    for registry in &registries {
        until(registry, |view| view.present_workers.len() == count).await;
    }
    // The last ones to come have nothing to do, and are not waited for.
    let mut processes = Vec::new();
    for mut idle in all.split_off(EXECUTORS) {
        processes.push(tokio::spawn(async move {
            assert_eq!(idle.to_do(), Vec::<usize>::new());
            while idle.steps_done() < STEPS {
                // It would push a gradient of its own otherwise.
                assert_eq!(idle.settle().await.unwrap(), Settled::Done);
                assert_eq!(idle.to_do(), Vec::<usize>::new());
            }
            idle
        }));
    }
    let working = all.into_iter().map(|training| tokio::spawn(worked(training, STEPS)));
    processes.extend(working);
    let mut done = Vec::new();
    for process in processes {
        done.push(soon(process).await.unwrap());
    }
    for training in done {
        assert_eq!(training.weights(), plain(STEPS).0);
        soon(training.leave()).await.unwrap();
    }
}

/// Computes each executor's part in so many milliseconds. Returns how long each step took.
#[tokio::test(start_paused = true)]
async fn process_that_comes_when_the_training_is_over_is_told_at_once() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let training = begin(&cluster, &cluster.open().await, new(3, &weights)).await;
    let job = training.job().clone();
    // One has heard of it and is still on its way.
    let late = cluster.open().await;
    soon(worked(training, 3).await.leave()).await.unwrap();
    until(&late, |view| view.job.is_none()).await;
    let begun = Instant::now();
    let joining = join(&cluster, &late, &job).await;
    assert!(matches!(joining, Err(ClusterError::Ended)), "{joining:?}");
    cluster.assert_within(Duration::from_secs(1), begun, "to be told");
    cluster.until(|view| view.present_workers.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_and_servers_come_and_go_and_the_bits_stay() {
    const STEPS: u64 = 60;
    let mut cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let mut training = begin(&cluster, &cluster.open().await, new(STEPS, &weights)).await;
    let (told, mut news) = mpsc::unbounded_channel();
    let working = tokio::spawn(async move {
        work(&mut training, STEPS, Some(&told)).await.unwrap();
        training
    });
    let mut reach =
        async |step: u64| soon(async { while news.recv().await.unwrap() < step {} }).await;
    reach(5).await;
    let (first, second) = (host(&cluster, STEPS).await, host(&cluster, STEPS).await);
    cluster.until(|view| view.present_workers.len() == 3).await;
    reach(15).await;
    let joined = cluster.join().await;
    first.abort();
    reach(25).await;
    let head = cluster.view().table.routing.routes()[0].head().unwrap();
    cluster.kill(head);
    reach(35).await;
    if joined != head {
        cluster.leave(joined).await;
    }
    let training = soon(working).await.unwrap();
    assert_eq!(training.weights(), plain(STEPS).0);
    soon(second).await.unwrap();
    soon(training.leave()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_goes_on_from_a_state_and_only_one_runs_at_a_time() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let first = begin(&cluster, &cluster.open().await, new(9, &weights)).await;
    let mut first = worked(first, 4).await;
    let weights = first.weights().to_vec();
    let state = soon(first.optimiser_state()).await.unwrap();

    let second = cluster.open().await;
    let begun = Training::begin(&second, CLUSTER, cluster.transport(), new(9, &weights));
    let busy = soon(begun).await;
    assert!(matches!(busy, Err(ClusterError::Busy { .. })), "{busy:?}");
    // Its leader dies; what it left is put away.
    drop(first);
    until(&second, |view| view.present_workers.is_empty()).await;
    let from = NewTraining { from: Some((4, &state)), ..new(9, &weights) };
    let later = begin(&cluster, &second, from).await;
    assert_eq!((later.steps_done(), later.weights()), (4, &weights[..]));
    let mut later = worked(later, 9).await;
    assert_eq!(later.weights(), plain(9).0);
    // A gradient that is no number is named, and no process hangs.
    let error = soon(async {
        for executor in 0..EXECUTORS {
            let number = if executor == 0 { f32::NAN } else { 0.0 };
            later.push(executor, 0, [number; LENGTH].into_iter()).await?;
        }
        later.settle().await
    });
    let what = "the gradient";
    assert!(matches!(error.await, Err(ClusterError::Task { what: w, .. }) if w == what));
}

/// The push of one executor, by hand: a process that dies may have sent only a part of it.
async fn push_some(worker: &Worker, job: &Job, keys: KeyRange) {
    let clock = Clock(job.training.set_up() + 1);
    let rows = usize::try_from(keys.len()).unwrap();
    let values = Values::from(vec![1.0; rows * job.spec().client().width]);
    let spec = TaskSpec::new(job.array(), keys, clock);
    // It is acknowledged once all executors have pushed.
    drop(worker.push(spec, values).await.unwrap());
}

async fn pull(worker: &Worker, job: &Job) -> Pulled {
    let spec = TaskSpec::new(job.array(), job.keys(), Clock(0));
    soon(worker.pull(spec).await.unwrap()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn process_does_not_begin_with_the_parameters_of_two_steps() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let registry = cluster.open().await;
    let training = begin(&cluster, &registry, new(8, &weights)).await;
    let job = training.job().clone();
    // All executors hand in the first step's gradient for some of the parameters, all but one for
    // the others.
    let all = job.keys();
    let view = cluster.view();
    let mut routes = view.table.routing.overlapping(job.array(), all);
    let cut = routes.next().unwrap().range.end;
    let mut executors = Vec::new();
    for number in &job.executors {
        let executor = cluster.executor(*number, &job);
        let is_last = Some(number) == job.executors.last();
        let end = if is_last { cut } else { all.end };
        push_some(&executor, &job, KeyRange::new(all.start, end)).await;
        executors.push(executor);
    }
    // Until the servers have taken that.
    let mut pulled = pull(&executors[0], &job).await;
    while pulled.newest == pulled.clock {
        pulled = pull(&executors[0], &job).await;
    }
    let mut joining = Box::pin(join(&cluster, &registry, &job));
    let waited = timeout(Duration::from_secs(1), &mut joining).await;
    assert!(waited.is_err(), "joined between two steps");
    push_some(executors.last().unwrap(), &job, KeyRange::new(cut, all.end)).await;
    let joined = joining.await.unwrap();
    assert_eq!(joined.steps_done(), 1);
    let pulled = pull(&executors[0], &job).await;
    assert!(pulled.newest == pulled.clock && pulled.values.starts_with(joined.weights()));
    let mut both = training.weights().iter().zip(joined.weights());
    assert!(both.all(|(before, after)| before != after));
}
