//! Gain of dealing executors by pace, where one of four processes is four times slower for good.
//!
//! Servers and connections are real; the computation is slept, so that the processors of one
//! machine, which all processes share, decide nothing.

use std::time::{Duration, Instant};

use crate::support::learning::{begin, gradient, join, new, start};
use crate::support::{Cluster, soon};
use parapet_cluster::node::Transport;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Deal, NewTraining, Settled, Training};
use parapet_parameter_server::Consistency;

const PROCESSES: usize = 4;
const EXECUTORS: usize = 16;
const STEPS: u64 = 200;
/// Steps at the end whose mean is what a step takes in the long run.
const LAST: usize = 50;
const PART: Duration = Duration::from_millis(20);
const SLOWER: u32 = 4;
const ROUNDS: usize = 3;

const ARMS: [(&str, Consistency, Deal, bool); 6] = [
    ("BSP, evenly", Consistency::Bsp, Deal::Evenly, true),
    ("BSP, by pace", Consistency::Bsp, Deal::ByPace, true),
    ("SSP, s = 4, evenly", Consistency::Ssp(4), Deal::Evenly, true),
    ("SSP, s = 4, by pace", Consistency::Ssp(4), Deal::ByPace, true),
    ("none slow: BSP, evenly", Consistency::Bsp, Deal::Evenly, false),
    ("none slow: BSP, by pace", Consistency::Bsp, Deal::ByPace, false),
];

/// Times at which a process's steps were done.
async fn work(
    mut training: Training,
    part: Duration,
) -> Result<(Training, Vec<Instant>), ClusterError> {
    let mut done = Vec::new();
    while training.steps_done() < STEPS {
        let step = training.steps_done();
        for executor in training.to_do() {
            tokio::time::sleep(part).await;
            let gradient = gradient(training.weights(), executor, step);
            match training.push(executor, 0, gradient.into_iter()).await {
                Err(ClusterError::Ended) => return Ok((training, done)),
                pushed => pushed?,
            }
        }
        match training.settle().await {
            Ok(Settled::Done) => done.push(Instant::now()),
            Ok(Settled::MoreToDo) => {}
            Err(ClusterError::Ended) => break,
            Err(error) => return Err(error),
        }
    }
    Ok((training, done))
}

struct Measured {
    seconds: f64,
    /// Milliseconds of one of the last steps.
    step: f64,
    weights: Vec<f32>,
}

async fn run(consistency: Consistency, deal: Deal, is_slow: bool) -> Measured {
    let cluster = Cluster::for_training(Transport::Tcp).await;
    let weights = start();
    let registry: Registry = cluster.open().await;
    let new = NewTraining { executors: EXECUTORS, consistency, deal, ..new(STEPS, &weights) };
    let leading = begin(&cluster, &registry, new).await;
    let job = leading.job().clone();
    let mut processes = vec![leading];
    for _ in 1..PROCESSES {
        processes.push(join(&cluster, &cluster.open().await, &job).await.unwrap());
    }
    cluster.until(|view| view.present_workers.len() == PROCESSES).await;
    let begun = Instant::now();
    let mut running = Vec::new();
    for (number, training) in processes.into_iter().enumerate() {
        let factor = if is_slow && number == PROCESSES - 1 { SLOWER } else { 1 };
        running.push(tokio::spawn(work(training, PART * factor)));
    }
    let mut outcomes = Vec::new();
    for process in running {
        outcomes.push(process.await.unwrap().unwrap());
    }
    let (leader, done) = outcomes.remove(0);
    let last = *done.last().unwrap();
    let step = last.duration_since(done[done.len() - 1 - LAST]) / LAST as u32;
    let measured = Measured {
        seconds: last.duration_since(begun).as_secs_f64(),
        step: step.as_secs_f64() * 1e3,
        weights: leader.weights().to_vec(),
    };
    for (other, _) in outcomes {
        soon(other.leave()).await.unwrap();
    }
    soon(leader.leave()).await.unwrap();
    measured
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) async fn bench() {
    let mut runs: Vec<Vec<Measured>> = ARMS.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for (runs, &(name, consistency, deal, is_slow)) in runs.iter_mut().zip(&ARMS) {
            let measured = run(consistency, deal, is_slow).await;
            eprintln!("round {round}, {name}: {:.1} s", measured.seconds);
            runs.push(measured);
        }
    }
    let bits = &runs[0][0].weights;
    for (runs, (name, consistency, ..)) in runs.iter().zip(ARMS) {
        let same = runs.iter().all(|run| run.weights == *bits);
        assert!(same || consistency != Consistency::Bsp, "{name}: the model is another one");
    }
    println!(
        "{PROCESSES} processes, {EXECUTORS} executors of {PART:?} each, {STEPS} steps, one process \
         {SLOWER} times slower. Medians of {ROUNDS} runs in turns; BSP's model is the same bit for \
         bit in all of them.\n\n| arm | seconds | a step in the end, ms | sooner than evenly |\n\
         |---|---|---|---|"
    );
    for (arm, (name, ..)) in ARMS.iter().enumerate() {
        let seconds = |arm: usize| median(runs[arm].iter().map(|run| run.seconds).collect());
        let step = median(runs[arm].iter().map(|run| run.step).collect());
        let sooner = seconds(arm / 2 * 2) / seconds(arm);
        println!("| {name} | {:.1} | {step:.1} | {sooner:.2} |", seconds(arm));
    }
}
