//! `cargo xtask bench cluster-training`: a parity model, trained by one process with all threads,
//! and by a cluster on this machine with one thread for each process.
//!
//! They take turns, and who is first changes; the runs of a round are of the same settings, steps
//! and seed, each round has a seed of its own, because one seed's accuracy says little, and a
//! cluster is started anew for each run. Time is what the training says it took: on a cluster that
//! includes the beginning of the training and the time until the workers have loaded data and
//! model, in one process nothing of the kind.

use super::spread::Spread;
use super::{in_turns, section};
use crate::models::figure;
use crate::prelude::*;
use std::str::FromStr;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data, such as MNIST's folder
    #[arg(long)]
    data: PathBuf,
    /// The deployed model
    #[arg(long)]
    model: PathBuf,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Steps of each run
    #[arg(long, default_value_t = 600)]
    steps: u32,
    /// The parity model
    #[arg(long, default_value = "cells:1x2:resnet8:16")]
    network: String,
    /// Clusters, as WORKERSxPARTS: processes that compute, the one that leads among them, and parts
    /// of a step
    #[arg(long, value_delimiter = ',', default_value = "2x2")]
    clusters: Vec<Shape>,
    /// Seed of the first round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads of the one process
    #[arg(long, default_value_t = 2)]
    threads: u32,
}

/// Processes, the one that leads among them, and parts of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    workers: u32,
    parts: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('x')
            .map(|(workers, parts)| (workers.parse(), parts.parse()));
        match numbers {
            Some((Ok(workers @ 1..), Ok(parts @ 1..))) => Ok(Self { workers, parts }),
            _ => Err(format!(
                "'{text}' is no cluster: write 2x4 for 2 workers and 4 parts a step"
            )),
        }
    }
}

/// Accuracies of reconstructions and of the deployed model are in percent.
#[derive(Debug, Clone, Copy, Default)]
struct Trained {
    seconds: f64,
    reconstructed: f64,
    deployed: f64,
}

/// One process, then each of the clusters.
type Round = Vec<Trained>;

pub(super) fn run(args: &Args) -> Result<()> {
    setup::run(&setup::Args::default())?;
    // In every build of the tests this would cost minutes.
    cargo("--config profile.dev.package.parapet-cluster.opt-level=2 build -p parity-trainer")?;
    step("the deployed model's answers, which all runs use");
    for round in 0..args.rounds {
        train(args, None, 1, args.seed + round)?;
    }
    let mut rounds: Vec<Round> = Vec::new();
    for round in 0..args.rounds {
        let mut trained = vec![Trained::default(); 1 + args.clusters.len()];
        in_turns(round, trained.len(), |place| {
            let shape = place.checked_sub(1).map(|cluster| args.clusters[cluster]);
            let seed = args.seed + round;
            let result = train(args, shape, args.steps, seed)?;
            eprintln!("seed {seed}, {}: {result:.2?}", name(shape));
            trained[place] = result;
            Ok(())
        })?;
        rounds.push(trained);
    }
    let table = markdown(args, &rounds);
    println!("{table}");
    section::write(
        section::PARAMETER_SERVER,
        "cargo xtask bench cluster-training",
        &table,
    )
}

/// Trains in one process, or on a cluster: the recipe of MNIST, k = 2, but for its number of steps
/// and the trials that would choose the transform.
fn train(args: &Args, shape: Option<Shape>, steps: u32, seed: u64) -> Result<Trained> {
    let (sh, folder) = (shell()?, scratch("bench-cluster-training"));
    let (trainer, mut processes) = (debug("parity-trainer"), Processes::new(&folder)?);
    let mut rest = Vec::new();
    let mut threads = args.threads.to_string();
    if let Some(Shape { workers, parts }) = shape {
        let (helpers, parts) = ((workers - 1).to_string(), parts.to_string());
        let up = cmd!(
            sh,
            "{trainer} --threads 1 cluster up --workers {helpers} --servers 2
                --listen 127.0.0.1:0"
        );
        let registry = processes.start_ready("cluster", up, "registry ")?;
        rest = ["--cluster", &registry, "--executors", &parts]
            .map(str::to_owned)
            .to_vec();
        threads = "1".to_owned();
    }
    let Args {
        data,
        model,
        network,
        ..
    } = args;
    let (steps, seed) = (steps.to_string(), seed.to_string());
    let (out, report) = (folder.join("models"), folder.join("report.json"));
    let training = cmd!(
        sh,
        "{trainer} --threads {threads} train --k 2 --encoder concat --transform log_softmax
            --augment shift --copies 1 --seed {seed} --network {network} --steps {steps}
            --name parity --model {model} --data {data} --out {out} --json {report} {rest...}"
    );
    processes.run("training", training)?;
    let report = read_json(&report)?;
    Ok(Trained {
        seconds: figure(&report, "/seconds")?,
        reconstructed: 100.0 * figure(&report, "/accuracy_reconstructed")?,
        deployed: 100.0 * figure(&report, "/accuracy_deployed")?,
    })
}

fn name(shape: Option<Shape>) -> String {
    shape.map_or("one process".to_owned(), |Shape { workers, parts }| {
        format!("{workers} workers, {parts} parts a step")
    })
}

/// A figure of a cluster beside that of the one process of its round.
type Compare = fn(&Trained, &Trained) -> f64;
const TIMES: Compare = |one, alone| one.seconds / alone.seconds;
const POINTS: Compare = |one, alone| one.reconstructed - alone.reconstructed;

fn markdown(args: &Args, rounds: &[Round]) -> String {
    let Args {
        network,
        steps,
        threads,
        ..
    } = args;
    let mut text = format!(
        "### A parity model, trained by one process and by a cluster on the same processors\n\n\
         {network} for `{}`, {steps} steps of 64 groups: one process with {threads} threads, and \
         clusters of workers of one thread each (the process that leads is one of them) and two \
         servers, replication 2. In turns. Seconds include what a cluster needs before it is \
         complete.\n\n\
         | seed | | s | A_d, % | times the one process | points more |\n|---|---|---|---|---|---|\n",
        args.model.file_name().unwrap_or_default().display(),
    );
    let clusters = args.clusters.iter().copied().map(Some);
    let names: Vec<String> = std::iter::once(None).chain(clusters).map(name).collect();
    for (seed, round) in (args.seed..).zip(rounds) {
        for (name, one) in names.iter().zip(round) {
            let (times, points) = (TIMES(one, &round[0]), POINTS(one, &round[0]));
            let Trained {
                seconds,
                reconstructed,
                ..
            } = one;
            text += &format!(
                "| {seed} | {name} | {seconds:.1} | {reconstructed:.2} | {times:.2} | {points:.2} |\n"
            );
        }
    }
    for (place, name) in names.iter().enumerate().skip(1) {
        let of = |figure: Compare| {
            Spread::new(rounds.iter().map(|round| figure(&round[place], &round[0]))).text(2)
        };
        text += &format!(
            "\n{name}: {} times as long as one process (median; aim 1.1); A_d differs by {} points \
             (aim 0.3).\n",
            of(TIMES),
            of(POINTS)
        );
    }
    let deployed = Spread::new(rounds.iter().map(|round| round[0].deployed)).median;
    text + &format!("\nThe deployed model has {deployed:.2} %.\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn table_compares_each_cluster_with_the_process_of_its_round() {
        let line = "bench --data mnist --model m/digits.onnx --clusters 2x2,3x4";
        let trained = |(seconds, reconstructed)| Trained {
            seconds,
            reconstructed,
            deployed: 99.0,
        };
        let rounds = [
            [(10.0, 98.0), (10.8, 98.2), (30.0, 98.0)]
                .map(trained)
                .to_vec(),
            [(10.0, 98.5), (9.0, 98.2), (30.0, 98.4)]
                .map(trained)
                .to_vec(),
        ];
        let text = markdown(&Cli::parse_from(line.split(' ')).args, &rounds);
        for words in [
            "`digits.onnx`",
            "| 2 | 2 workers, 2 parts a step | 9.0 | 98.20 | 0.90 | -0.30 |",
            "2 workers, 2 parts a step: 0.99 (0.90-1.08) times as long",
            "3 workers, 4 parts a step: 3.00 (3.00-3.00) times as long",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }

    #[test]
    fn cluster_is_read_and_a_mistake_is_shown_how_to_mend() {
        assert_eq!(
            "3x4".parse(),
            Ok(Shape {
                workers: 3,
                parts: 4
            })
        );
        for wrong in ["", "2", "2x", "0x2", "2x0"] {
            let refused = wrong.parse::<Shape>();
            assert!(refused.is_err_and(|error| error.contains("2x4")), "{wrong}");
        }
    }
}
