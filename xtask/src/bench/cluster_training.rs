//! `cargo xtask bench cluster-training`: a parity model, trained by one process with all threads,
//! and by a cluster on this machine with one thread for each process.
//!
//! They take turns, and who is first changes; the runs of a round are of the same settings, steps
//! and seed, each round has a seed of its own, because one seed's accuracy says little, and a
//! cluster is started anew for each run. Time is what the training says it took: on a cluster that
//! includes the beginning of the training and the time until the workers have loaded data and
//! model, in one process nothing of the kind.

mod helpers;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use self::helpers::HelperProcesses;
use super::section;
use super::spread::Spread;
use crate::workspace::step;
use crate::{cargo, native, workspace};

/// Where everything of a run lies.
const FOLDER: &str = ".parapet/bench-cluster-training";

/// Points of accuracy by which the two may differ, and the most that the cluster may
/// take longer, times.
const AIMS: (f64, f64) = (0.3, 1.1);

/// Arguments of `cargo xtask bench cluster-training`.
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
    rounds: usize,
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
    /// Where to write the table
    #[arg(long, default_value = "parity-trainer/parameter-server/RESULTS.md")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Processes, the one that leads among them.
    workers: u32,
    /// Of a step.
    parts: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('x')
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match numbers {
            Some((workers, parts)) if workers > 0 && parts > 0 => Ok(Self { workers, parts }),
            _ => Err(format!(
                "'{text}' is no cluster: write 2x4 for 2 workers and 4 parts a step"
            )),
        }
    }
}

/// One process, and each of the clusters.
type Round = (Trained, Vec<Trained>);

#[derive(Debug, Clone, Copy)]
struct Trained {
    seconds: f64,
    /// Accuracy of reconstructions and of the deployed model, percent.
    reconstructed: f64,
    deployed: f64,
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args::default())?;
    cargo::build_trainer_optimised()?;
    let folder = workspace::root().join(FOLDER);
    workspace::make_folder(&folder)?;
    let bench = Bench {
        args,
        folder,
        trainer: workspace::target().join("debug/parity-trainer"),
    };

    let seeds = || (0..args.rounds.max(1) as u64).map(|round| args.seed + round);
    step("the deployed model's answers, which all runs use");
    for seed in seeds() {
        bench.alone(1, seed)?;
    }
    let mut rounds: Vec<Round> = Vec::new();
    for seed in seeds() {
        let first = rounds
            .len()
            .is_multiple_of(2)
            .then(|| bench.alone(args.steps, seed))
            .transpose()?;
        let on_cluster = args
            .clusters
            .iter()
            .map(|&shape| bench.on_cluster(shape, seed));
        let clusters = on_cluster.collect::<Result<Vec<_>>>()?;
        let alone = first.map_or_else(|| bench.alone(args.steps, seed), Ok)?;
        eprintln!("seed {seed}: one process {alone}");
        for (shape, trained) in args.clusters.iter().zip(&clusters) {
            eprintln!(
                "seed {seed}: {} workers, {} parts {trained}",
                shape.workers, shape.parts
            );
        }
        rounds.push((alone, clusters));
    }
    let table = markdown(args, &rounds);
    println!("{table}");
    let out = workspace::root().join(&args.out);
    section::write(
        &out,
        "Measured",
        "cargo xtask bench cluster-training",
        &table,
    )?;
    println!("written: {}", out.display());
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    folder: PathBuf,
    trainer: PathBuf,
}

impl Bench<'_> {
    fn alone(&self, steps: u32, seed: u64) -> Result<Trained> {
        self.train(
            "alone",
            steps,
            seed,
            &["--threads", &self.args.threads.to_string()],
            &[],
        )
    }

    fn on_cluster(&self, shape: Shape, seed: u64) -> Result<Trained> {
        let cluster = HelperProcesses::up(&self.trainer, shape, &self.folder.join("cluster.log"))?;
        let parts = shape.parts.to_string();
        let rest = ["--cluster", &cluster.registry, "--executors", &parts];
        self.train("cluster", self.args.steps, seed, &["--threads", "1"], &rest)
    }

    /// The recipe of MNIST, k = 2, but for its number of steps and the trials that would
    /// choose the transform.
    fn train(
        &self,
        name: &str,
        steps: u32,
        seed: u64,
        threads: &[&str],
        rest: &[&str],
    ) -> Result<Trained> {
        let report = self.folder.join(format!("{name}.json"));
        let log = self.folder.join(format!("{name}.log"));
        let file =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&self.trainer);
        command.args(threads).args([
            "train",
            "--k",
            "2",
            "--encoder",
            "concat",
            "--transform",
            "log_softmax",
        ]);
        let seed = seed.to_string();
        command.args([
            "--augment",
            "shift",
            "--copies",
            "1",
            "--seed",
            &seed,
            "--network",
            &self.args.network,
        ]);
        command.args(["--steps", &steps.to_string(), "--name", name]);
        command
            .arg("--model")
            .arg(&self.args.model)
            .arg("--data")
            .arg(&self.args.data);
        command
            .arg("--out")
            .arg(self.folder.join("models"))
            .arg("--json")
            .arg(&report)
            .args(rest);
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .status();
        let status = status.with_context(|| format!("cannot start {}", self.trainer.display()))?;
        ensure!(
            status.success(),
            "a training failed ({status}); see {}",
            log.display()
        );
        Trained::read(&report)
    }
}

impl Trained {
    fn read(path: &Path) -> Result<Self> {
        let text = workspace::read(path)?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let figure = |name: &str| {
            report[name]
                .as_f64()
                .with_context(|| format!("{} has no {name}", path.display()))
        };
        Ok(Self {
            seconds: figure("seconds")?,
            reconstructed: 100.0 * figure("accuracy_reconstructed")?,
            deployed: 100.0 * figure("accuracy_deployed")?,
        })
    }
}

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s, {:.2} %", self.seconds, self.reconstructed)
    }
}

fn markdown(args: &Args, rounds: &[Round]) -> String {
    let mut text = format!(
        "### A parity model, trained by one process and by a cluster on the same processors\n\n{} \
            for `{}`, {} steps of 64 groups: one process with {} threads, and clusters of workers \
            of one thread each (the process that leads is one of them) and two servers, \
            replication 2. In turns. Seconds include what a cluster needs before it is \
            complete.\n\n\
            | seed | | s | A_d, % | times the one process | points more \
            |\n|---|---|---|---|---|---|\n",
        args.network,
        args.model.file_name().unwrap_or_default().display(),
        args.steps,
        args.threads,
    );
    let name = |shape: Shape| format!("{} workers, {} parts a step", shape.workers, shape.parts);
    for (seed, (alone, clusters)) in (args.seed..).zip(rounds) {
        text += &format!(
            "| {seed} | one process | {:.1} | {:.2} | 1 | |\n",
            alone.seconds, alone.reconstructed
        );
        for (&shape, cluster) in args.clusters.iter().zip(clusters) {
            text += &format!(
                "| {seed} | {} | {:.1} | {:.2} | {:.2} | {:.2} |\n",
                name(shape),
                cluster.seconds,
                cluster.reconstructed,
                cluster.seconds / alone.seconds,
                cluster.reconstructed - alone.reconstructed
            );
        }
    }
    let (points, times) = AIMS;
    let met = |is_met: bool| if is_met { "met" } else { "**missed**" };
    for (at, &shape) in args.clusters.iter().enumerate() {
        let of = |figure: fn(&Trained, &Trained) -> f64| {
            let figures = rounds
                .iter()
                .filter_map(|(alone, clusters)| Some(figure(alone, clusters.get(at)?)));
            figures.collect::<Vec<_>>()
        };
        let ratio = Spread::new(of(|alone, cluster| cluster.seconds / alone.seconds));
        let more = of(|alone, cluster| cluster.reconstructed - alone.reconstructed);
        let mean = more.iter().sum::<f64>() / more.len().max(1) as f64;
        text += &format!(
            "\n{}: {:.2} times as long as one process (median; {:.2} to {:.2}; aim {times}: {}); \
                A_d differs by {mean:.2} points in the mean (aim {points}: {}).\n",
            name(shape),
            ratio.median,
            ratio.lowest,
            ratio.highest,
            met(ratio.median <= times),
            met(mean.abs() <= points),
        );
    }
    let alone = Spread::new(
        rounds
            .iter()
            .map(|(alone, _)| alone.reconstructed)
            .collect(),
    );
    let deployed = Spread::new(rounds.iter().map(|(alone, _)| alone.deployed).collect());
    text += &format!(
        "\nOne process's own A_d, seed by seed: {:.2} to {:.2} %. The deployed model has {:.2} \
            %.\n",
        alone.lowest, alone.highest, deployed.median
    );
    text
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

    fn trained(seconds: f64, reconstructed: f64) -> Trained {
        Trained {
            seconds,
            reconstructed,
            deployed: 99.0,
        }
    }

    #[test]
    fn a_table_says_what_was_missed() {
        let line = [
            "bench",
            "--data",
            "mnist",
            "--model",
            "m/digits.onnx",
            "--clusters",
            "2x2,3x4",
        ];
        let args = Cli::parse_from(line).args;
        let fair = [
            (
                trained(10.0, 98.0),
                vec![trained(10.8, 98.2), trained(30.0, 98.0)],
            ),
            (
                trained(10.0, 98.5),
                vec![trained(9.0, 98.2), trained(30.0, 98.4)],
            ),
        ];
        let text = markdown(&args, &fair);
        assert!(text.contains("`digits.onnx`"), "{text}");
        assert!(
            text.contains("| 2 | 2 workers, 2 parts a step | 9.0 | 98.20 | 0.90 | -0.30 |"),
            "{text}"
        );
        assert!(
            text.contains("2 workers, 2 parts a step: 0.99 times as long"),
            "{text}"
        );
        assert!(
            text.contains("3 workers, 4 parts a step: 3.00 times as long"),
            "{text}"
        );
        assert!(
            text.matches(": met").count() == 3 && text.matches("**missed**").count() == 1,
            "{text}"
        );
        let text = markdown(
            &args,
            &[(
                trained(10.0, 98.0),
                vec![trained(12.0, 97.0), trained(12.0, 99.0)],
            )],
        );
        assert!(text.matches("**missed**").count() == 4, "{text}");
    }

    #[test]
    fn a_cluster_is_read_and_a_mistake_is_shown_how_to_mend() {
        let shape: Shape = "3x4".parse().unwrap_or(Shape {
            workers: 0,
            parts: 0,
        });
        assert_eq!((shape.workers, shape.parts), (3, 4));
        for wrong in ["", "2", "2x", "0x2", "2x0"] {
            assert!(
                wrong
                    .parse::<Shape>()
                    .is_err_and(|error| error.contains("2x4")),
                "{wrong}"
            );
        }
    }
}
