//! A training gives the same bits on any number of processes, and while processes come and go.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::transport::{Memory, Tcp, Transport};
use parapet_cluster::node::{TaskSpec, Worker};
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Job, NewTraining, Settled, Training, next_job};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::{Clock, KeyRange, Values, WorkerId};
use support::learning::{EXECUTORS, LENGTH, new, plain, start, work};
use support::{CLUSTER, Cluster, assert_within, soon};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// A process that takes part in the next training until it is over.
fn host<T: Transport>(cluster: &Cluster<T>, registry: Registry, steps: u64) -> JoinHandle<()> {
    let transport = cluster.transport();
    tokio::spawn(async move {
        let job: Job = next_job(&registry, None).await.unwrap();
        let mut training = Training::join(&registry, CLUSTER, transport, job)
            .await
            .unwrap();
        let (told, _news) = mpsc::unbounded_channel();
        match work(&mut training, steps, &told).await {
            Ok(()) | Err(ClusterError::Ended) => training.leave().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    })
}

async fn fixed<T: Transport>(transport: T, hosts: usize) {
    let cluster = Cluster::start(transport, 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new(8, &weights));
    let mut training = soon(begun).await.unwrap();
    assert_eq!(training.weights(), weights);
    let mut others = Vec::new();
    for _ in 1..hosts {
        others.push(host(&cluster, cluster.open().await, 8));
    }
    cluster
        .until("all are there", |view| view.present_workers.len() == hosts)
        .await;
    let (told, _news) = mpsc::unbounded_channel();
    soon(work(&mut training, 8, &told)).await.unwrap();
    let (expected, state) = plain(8);
    assert_eq!(training.weights(), expected, "{hosts} processes");
    assert_eq!(soon(training.optimiser_state()).await.unwrap(), state);
    for other in others {
        soon(other).await.unwrap();
    }
    soon(training.leave()).await.unwrap();
    let view = cluster.until("nothing is left of it", |view| {
        view.job.is_none() && view.workers.workers.is_empty() && view.present_workers.is_empty()
    });
    view.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_two_and_four_processes_give_the_bits_of_plain_training() {
    for hosts in [1, 2, 4] {
        fixed(Tcp, hosts).await;
    }
}

/// Gradients that are finite, while their sum is not.
#[tokio::test(start_paused = true)]
async fn step_whose_sum_overflows_ends_with_an_error_in_every_process() {
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new(8, &weights));
    let leading = soon(begun).await.unwrap();
    let other = cluster.open().await;
    let joining = Training::join(&other, CLUSTER, cluster.transport(), leading.job().clone());
    let mut processes = [leading, soon(joining).await.unwrap()];
    cluster
        .until("both are there", |view| view.present_workers.len() == 2)
        .await;
    for training in &mut processes {
        for executor in training.to_do() {
            soon(training.push(executor, [2e38; LENGTH].into_iter()))
                .await
                .unwrap();
        }
    }
    for training in &mut processes {
        let error = loop {
            match soon(training.settle()).await {
                Ok(Settled::MoreToDo) => {
                    for executor in training.to_do() {
                        soon(training.push(executor, [2e38; LENGTH].into_iter()))
                            .await
                            .unwrap();
                    }
                }
                Ok(Settled::Done) => panic!("the step is done"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            error.contains("overflows") && !error.contains('\n'),
            "{error}"
        );
    }
}

/// Makes the steps of a training up to `steps`, and stays.
async fn follow<T: Transport>(mut training: Training<T>, steps: u64) -> Training<T> {
    let (told, _news) = mpsc::unbounded_channel();
    work(&mut training, steps, &told).await.unwrap();
    training
}

#[tokio::test(start_paused = true)]
async fn a_process_without_an_executor_follows_the_training_and_the_bits_stay() {
    const STEPS: u64 = 8;
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(
        &registry,
        CLUSTER,
        cluster.transport(),
        new(STEPS, &weights),
    );
    let leading = soon(begun).await.unwrap();
    let job = leading.job().clone();
    let mut joined = Vec::new();
    for _ in 0..EXECUTORS + 1 {
        let registry = cluster.open().await;
        let part = Training::join(&registry, CLUSTER, cluster.transport(), job.clone());
        joined.push((soon(part).await.unwrap(), registry));
    }
    let count = EXECUTORS + 2;
    for (_, registry) in &joined {
        let mut views = registry.view();
        soon(views.wait_for(|view| view.present_workers.len() == count))
            .await
            .unwrap();
    }
    // The last ones to come have nothing to do, and are not waited for.
    let mut idle = joined.split_off(EXECUTORS - 1);
    assert_eq!(idle.len(), 2);
    for (training, _) in &mut idle {
        assert_eq!(training.to_do(), Vec::<usize>::new());
    }
    let mut following = vec![tokio::spawn(follow(leading, STEPS))];
    following.extend(
        joined
            .into_iter()
            .map(|(training, _)| tokio::spawn(follow(training, STEPS))),
    );
    let mut watching = Vec::new();
    for (mut training, _) in idle {
        watching.push(tokio::spawn(async move {
            while training.steps_done() < STEPS {
                // It would push a gradient of its own otherwise.
                assert_eq!(training.settle().await.unwrap(), Settled::Done);
                assert_eq!(training.to_do(), Vec::<usize>::new());
            }
            training
        }));
    }
    let mut all = Vec::new();
    for process in watching.into_iter().chain(following) {
        all.push(soon(process).await.unwrap());
    }
    for training in all {
        assert_eq!(training.weights(), plain(STEPS).0);
        soon(training.leave()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_comes_when_the_training_is_over_is_told_so_at_once() {
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new(3, &weights));
    let training = soon(begun).await.unwrap();
    let job = training.job().clone();
    // One has heard of it and is still on its way.
    let late = cluster.open().await;
    let leaving = follow(training, 3).await.leave();
    soon(leaving).await.unwrap();
    let mut views = late.view();
    soon(views.wait_for(|view| view.job.is_none()))
        .await
        .unwrap();
    let begun = Instant::now();
    let joining = soon(Training::join(&late, CLUSTER, cluster.transport(), job)).await;
    assert!(matches!(joining, Err(ClusterError::Ended)), "{joining:?}");
    assert_within::<Memory>(Duration::from_secs(1), begun, "to be told");
    cluster
        .until("it has left", |view| view.present_workers.is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_and_servers_come_and_go_and_the_bits_stay() {
    const STEPS: u64 = 60;
    let mut cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(
        &registry,
        CLUSTER,
        cluster.transport(),
        new(STEPS, &weights),
    );
    let mut training = soon(begun).await.unwrap();
    let (told, mut news) = mpsc::unbounded_channel();
    let working = tokio::spawn(async move {
        work(&mut training, STEPS, &told).await.unwrap();
        training
    });
    let mut reach =
        async |step: u64| soon(async { while news.recv().await.unwrap() < step {} }).await;
    reach(5).await;
    let first = host(&cluster, cluster.open().await, STEPS);
    let second = host(&cluster, cluster.open().await, STEPS);
    cluster
        .until("two have come", |view| view.present_workers.len() == 3)
        .await;
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
async fn a_training_goes_on_from_a_state_and_only_one_runs_at_a_time() {
    let cluster = Cluster::start(Memory::default(), 2, 1, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let transport = || cluster.transport();
    let mut first = soon(Training::begin(
        &registry,
        CLUSTER,
        transport(),
        new(9, &weights),
    ))
    .await
    .unwrap();
    let (told, _news) = mpsc::unbounded_channel();
    soon(work(&mut first, 4, &told)).await.unwrap();
    let (weights, state) = (
        first.weights().to_vec(),
        soon(first.optimiser_state()).await.unwrap(),
    );

    let second = cluster.open().await;
    let busy = soon(Training::begin(
        &second,
        CLUSTER,
        transport(),
        new(9, &weights),
    ))
    .await;
    assert!(matches!(busy, Err(ClusterError::Busy { .. })), "{busy:?}");
    // Its leader dies; what it left is put away.
    drop(first);
    // As seen by the process that begins anew.
    let mut views = second.view();
    soon(views.wait_for(|view| view.present_workers.is_empty()))
        .await
        .unwrap();
    let from = NewTraining {
        from: Some((4, &state)),
        ..new(9, &weights)
    };
    let mut later = soon(Training::begin(&second, CLUSTER, transport(), from))
        .await
        .unwrap();
    assert_eq!((later.steps_done(), later.weights()), (4, &weights[..]));
    soon(work(&mut later, 9, &told)).await.unwrap();
    assert_eq!(later.weights(), plain(9).0);
    // A gradient that is no number is named, and no process hangs.
    later
        .push(0, std::iter::repeat_n(f32::NAN, LENGTH))
        .await
        .unwrap();
    let error = soon(async {
        for executor in 1..EXECUTORS {
            later
                .push(executor, std::iter::repeat_n(0.0, LENGTH))
                .await?;
        }
        later.settle().await
    });
    assert!(matches!(
        error.await,
        Err(ClusterError::Task {
            what: "the gradient",
            ..
        })
    ));
}

/// The push of one executor, by hand: a process that dies may have sent only a part of it.
async fn push_some(worker: &Worker, job: &Job, keys: KeyRange) {
    let clock = job.training.set_up() + 1;
    let rows = usize::try_from(keys.len()).unwrap();
    let values = Values::from(vec![1.0; rows * job.spec().client().width]);
    // It is acknowledged once all executors have pushed.
    drop(
        worker
            .push(TaskSpec::new(job.array(), keys, Clock(clock)), values)
            .await
            .unwrap(),
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_begins_with_the_parameters_of_two_steps() {
    let cluster = Cluster::start(Memory::default(), 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new(8, &weights));
    let training = soon(begun).await.unwrap();
    let job = training.job().clone();
    // All executors hand in the first step's gradient for some of the parameters, all but one for
    // the others.
    let all = job.keys();
    let cut = cluster
        .view()
        .table
        .routing
        .overlapping(job.array(), all)
        .next()
        .unwrap()
        .range
        .end;
    let mut executors = Vec::new();
    for (place, number) in job.executors.iter().enumerate() {
        let executor = cluster.executor(WorkerId(*number), &job);
        if place + 1 < job.executors.len() {
            push_some(&executor, &job, all).await;
        } else {
            push_some(&executor, &job, KeyRange::new(all.start, cut)).await;
        }
        executors.push(executor);
    }
    // Until the servers have taken that.
    soon(async {
        loop {
            let pull = executors[0]
                .pull(TaskSpec::new(job.array(), all, Clock(0)))
                .await
                .unwrap();
            let pulled = pull.await.unwrap();
            if pulled.newest > pulled.clock {
                break;
            }
        }
    })
    .await;
    let mut joining = Box::pin(Training::join(
        &registry,
        CLUSTER,
        cluster.transport(),
        job.clone(),
    ));
    assert!(
        timeout(Duration::from_secs(1), &mut joining).await.is_err(),
        "joined between two steps"
    );
    push_some(executors.last().unwrap(), &job, KeyRange::new(cut, all.end)).await;
    let joined = soon(joining).await.unwrap();
    assert_eq!(joined.steps_done(), 1);
    let pull = executors[0]
        .pull(TaskSpec::new(job.array(), all, Clock(0)))
        .await
        .unwrap();
    let pulled = pull.await.unwrap();
    assert!(pulled.newest == pulled.clock && pulled.values.starts_with(joined.weights()));
    assert!(
        training
            .weights()
            .iter()
            .zip(joined.weights())
            .all(|(before, after)| before != after)
    );
}
