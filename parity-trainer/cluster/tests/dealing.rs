//! Parts go to the processes that are fast, shards to the servers that are, and the bits stay.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::Transport;
use parapet_cluster::registry::View;
use parapet_cluster::roles::training::{Deal, NewTraining, Settled, Training};
use parapet_parameter_server::{ArrayId, LoadPlan, NodeId, Routing};
use support::learning::{EXECUTORS, begin, gradient, join, new, plain, start, worked};
use support::{Cluster, soon};
use tokio::time::{Instant, sleep};

async fn paced(training: &mut Training, steps: u64, ms: u64) -> Vec<u128> {
    let mut took = Vec::new();
    while training.steps_done() < steps {
        let begun = Instant::now();
        loop {
            let step = training.steps_done();
            for executor in training.to_do() {
                sleep(Duration::from_millis(ms)).await;
                let gradient = gradient(training.weights(), executor, step);
                training.push(executor, 0, gradient.into_iter()).await.unwrap();
            }
            if soon(training.settle()).await.unwrap() == Settled::Done {
                break;
            }
        }
        took.push(begun.elapsed().as_millis());
    }
    took
}

#[tokio::test(start_paused = true)]
async fn slow_process_is_dealt_fewer_executors_and_the_bits_stay() {
    const STEPS: u64 = 60;
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    for (deal, last) in [(Deal::Evenly, 600..650), (Deal::ByPace, 300..350)] {
        let leading = NewTraining { deal, ..new(STEPS, &weights) };
        let mut fast = begin(&cluster, &cluster.open().await, leading).await;
        let mut slow = join(&cluster, &cluster.open().await, fast.job()).await.unwrap();
        cluster.until(|view| view.present_workers.len() == 2).await;
        let slowly = tokio::spawn(async move {
            paced(&mut slow, STEPS, 300).await;
            slow
        });
        let took = paced(&mut fast, STEPS, 100).await;
        assert!(last.contains(took.last().unwrap()), "{deal:?}: {took:?}");
        assert_eq!(fast.weights(), plain(STEPS).0, "{deal:?}");
        soon(slowly).await.unwrap().leave().await.unwrap();
        soon(fast.leave()).await.unwrap();
        cluster.until(|view| view.present_workers.is_empty()).await;
    }
}

fn holds(view: &View, node: NodeId) -> usize {
    let routes = view.table.routing.routes().iter();
    routes.filter(|route| route.chain.contains(&node)).count()
}

/// Says of the server with most shards that it is slow.
async fn write_slow_server(cluster: &Cluster) -> NodeId {
    let view = cluster.view();
    let (slow, _) = view.servers.iter().max_by_key(|(node, _)| holds(&view, **node)).unwrap();
    for &node in view.servers.keys() {
        let row_ns = if node == *slow { 900_000 } else { 1_000 };
        let report = format!(
            r#"{{"service":[{node},{{"push_ns":{row_ns},"read_ns":{row_ns}}}]}}"#,
            node = node.0
        );
        cluster.write(&format!("reports/worker-777/service/{}", node.0), &report).await;
    }
    *slow
}

/// One of three servers is said to be slow. What is said does not change what is learned.
#[tokio::test(start_paused = true)]
async fn shards_leave_a_slow_server_and_the_bits_stay() {
    const STEPS: u64 = 60;
    let mut cluster = Cluster::for_training(Transport::memory()).await;
    cluster.join().await;
    let weights = start();
    let leading = NewTraining { shards: 3, ..new(STEPS, &weights) };
    let mut training = begin(&cluster, &cluster.open().await, leading).await;
    let slow = write_slow_server(&cluster).await;
    let took = paced(&mut training, STEPS, 100).await;
    assert_eq!(took.len() as u64, STEPS);
    assert_eq!(training.weights(), plain(STEPS).0);
    let view = cluster.view();
    let LoadPlan { moved, before_us, after_us, .. } = &view.table.plan;
    assert!(*moved > 0 && after_us < before_us, "{:?}", view.table.plan);
    assert_eq!(holds(&view, slow), 0, "{:?}", view.table);
    assert!(view.table.routing.routes().iter().all(|route| route.chain.len() == 2));
    soon(training.leave()).await.unwrap();
}

/// Steps take twice as long under a plan that promised shorter ones.
#[tokio::test(start_paused = true)]
async fn plan_under_which_steps_are_longer_is_taken_back() {
    const STEPS: u64 = 400;
    let mut cluster = Cluster::for_training(Transport::memory()).await;
    cluster.join().await;
    let weights = start();
    let leading = NewTraining { shards: 3, ..new(STEPS, &weights) };
    let mut training = begin(&cluster, &cluster.open().await, leading).await;
    paced(&mut training, 40, 100).await;
    let ring = cluster.view().table.routing.clone();
    let slow = write_slow_server(&cluster).await;
    let mut held = Vec::new();
    while !cluster.view().table.plan.taken_back {
        let step = training.steps_done();
        assert!(step < STEPS, "{:?}", cluster.view().table);
        let is_planned = cluster.view().table.plan.moved > 0;
        paced(&mut training, step + 1, if is_planned { 200 } else { 100 }).await;
        held.push(holds(&cluster.view(), slow));
    }
    assert!(held.contains(&0), "{held:?}");
    let plan = cluster.view().table.plan.clone();
    let step_us = EXECUTORS as u64 * 100_000;
    assert_eq!((plan.before_us, plan.after_us), (2 * step_us, step_us));
    let chains = |routing: &Routing| {
        Vec::from_iter(routing.routes().iter().map(|route| route.chain.clone()))
    };
    cluster.until(|view| chains(&view.table.routing) == chains(&ring)).await;
    soon(training.leave()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pace_that_is_nonsense_is_ignored_and_the_last_one_stays() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let registry = cluster.open().await;
    let training = begin(&cluster, &registry, new(9, &start())).await;
    let other = join(&cluster, &cluster.open().await, training.job()).await.unwrap();
    let view = cluster.until(|view| view.present_workers.len() == 2).await;
    let worker = *view.present_workers.last().unwrap();
    let job = training.job();
    let fast = format!("reports/worker-{}/pace", job.driver);
    let slow = format!("reports/worker-{worker}/pace", worker = worker.0);
    cluster.write(&fast, r#"{"pace":100}"#).await;
    for (pace, expected) in
        [("300", 1), ("-5", 1), ("0", 1), ("NaN", 1), ("1e300", 1), ("3600000001", 1), ("100", 2)]
    {
        cluster.write(&slow, &format!(r#"{{"pace":{pace}}}"#)).await;
        // What is written after it has been seen.
        cluster
            .write("arrays/77", &format!(r#"{{"keys":[0,9],"shards":[],"description":"{pace}"}}"#))
            .await;
        let is_seen = |view: &View| {
            view.arrays.get(&ArrayId(77)).is_some_and(|array| array.description == pace)
        };
        let view = cluster.until(is_seen).await;
        assert_eq!(job.executors_of(worker, &view).len(), expected, "{pace}");
    }
    let gap = r#"{"keys":[0,9],"shards":[[0,4],[5,9]],"description":""}"#;
    cluster.write("arrays/78", gap).await;
    for (node, row_ns, expected) in [(1, "5", 1), (1, "-1", 1), (1, "2000000000", 1), (2, "7", 2)] {
        let report = format!(r#"{{"service":[{node},{{"push_ns":{row_ns},"read_ns":{row_ns}}}]}}"#);
        cluster.write(&format!("reports/worker-777/service/{node}"), &report).await;
        let found = |view: &View| view.services().count() == expected;
        let view = cluster.until(found).await;
        let first = view.services().find(|(node, _)| *node == NodeId(1)).unwrap().1;
        assert_eq!(first.push_ns, 5, "{row_ns}");
        assert!(!view.arrays.contains_key(&ArrayId(78)), "shards with a gap between");
    }
    soon(other.leave()).await.unwrap();
    soon(training.leave()).await.unwrap();
}

/// A process has handed in all parts but the last when another one comes and gets some of them: it
/// hands these in again, and nothing is done until the last one is there.
#[tokio::test(start_paused = true)]
async fn executor_that_has_gone_is_connected_from_one_process() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = start();
    let mut first = begin(&cluster, &cluster.open().await, new(1, &weights)).await;
    let (last, others) = (EXECUTORS - 1, 0..EXECUTORS - 1);
    assert_eq!(first.to_do(), Vec::from_iter(0..EXECUTORS));
    for executor in others {
        let gradient = gradient(&weights, executor, 0);
        first.push(executor, 0, gradient.into_iter()).await.unwrap();
    }
    let mut second = join(&cluster, &cluster.open().await, first.job()).await.unwrap();
    cluster.until(|view| view.present_workers.len() == 2).await;
    let mut own = second.to_do();
    assert!(!own.is_empty());
    own.retain(|&executor| executor != last);
    for executor in own {
        let gradient = gradient(&weights, executor, 0);
        second.push(executor, 0, gradient.into_iter()).await.unwrap();
    }
    let waiting = tokio::spawn(async move { (first.settle().await.unwrap(), first) });
    sleep(Duration::from_secs(1)).await;
    let connected = async || cluster.counters().await.iter().map(|one| one.connected).sum::<u64>();
    let before = connected().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(connected().await, before);
    // The last one may be either's.
    let second = worked(second, 1).await;
    let (settled, mut first) = soon(waiting).await.unwrap();
    if settled == Settled::MoreToDo {
        first = worked(first, 1).await;
    }
    let expected = plain(1).0;
    assert!(first.weights() == expected && second.weights() == expected);
    soon(second.leave()).await.unwrap();
    soon(first.leave()).await.unwrap();
}
