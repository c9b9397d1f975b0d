//! `cargo xtask bench-cluster-training`: a parity model, trained by one process with all threads, and by a cluster on this machine
//! with one thread for each process.
//!
//! The two take turns, and who is first changes; each run is of the same settings, steps and seed, and a cluster is started
//! anew for each. Time is what the training says it took: on a cluster that includes the beginning of the training and the
//! time until the workers have loaded data and model, in one process nothing of the kind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::section;
use super::spread::Spread;
use crate::demo::step;
use crate::{cargo, native, workspace};

/// Where everything of a run lies.
const FOLDER: &str = ".parapet/bench-cluster-training";

/// Points of accuracy by which the two may differ, and the most that the cluster may take longer, times.
const AIMS: (f64, f64) = (0.3, 1.1);

/// Arguments of `cargo xtask bench-cluster-training`.
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
    /// Parts of a step on the cluster
    #[arg(long, default_value_t = 4)]
    executors: u32,
    /// Threads of the one process
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Where to write the table
    #[arg(long, default_value = "parity-trainer/parameter-server/RESULTS.md")]
    out: PathBuf,
}

/// What a run gave.
#[derive(Debug, Clone, Copy)]
struct Trained {
    seconds: f64,
    /// Accuracy of reconstructions and of the deployed model, percent.
    reconstructed: f64,
    deployed: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// If a run fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args::default())?;
    // The development profile optimises the trainer and the parameter server, too; libtorch is the same.
    cargo::run(&["build", "-p", "parity-trainer"])?;
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let bench = Bench { args, folder, trainer: workspace::target().join("debug/parity-trainer") };

    step("the deployed model's answers, which all runs use");
    bench.alone(1)?;
    let mut runs = Vec::new();
    for round in 1..=args.rounds.max(1) {
        let pair = if round % 2 == 1 {
            let alone = bench.alone(args.steps)?;
            (alone, bench.on_cluster()?)
        } else {
            let cluster = bench.on_cluster()?;
            (bench.alone(args.steps)?, cluster)
        };
        let (alone, cluster) = pair;
        eprintln!(
            "round {round}: one process {:.1} s, {:.2} %; cluster {:.1} s, {:.2} %",
            alone.seconds, alone.reconstructed, cluster.seconds, cluster.reconstructed
        );
        runs.push(pair);
    }
    let table = markdown(args, &runs);
    println!("{table}");
    let out = workspace::root().join(&args.out);
    section::write(&out, "Measured", "cargo xtask bench-cluster-training", &table)?;
    println!("written: {}", out.display());
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    folder: PathBuf,
    trainer: PathBuf,
}

impl Bench<'_> {
    fn alone(&self, steps: u32) -> Result<Trained> {
        self.train("alone", steps, &["--threads", &self.args.threads.to_string()], &[])
    }

    fn on_cluster(&self) -> Result<Trained> {
        let cluster = Cluster::up(&self.trainer, &self.folder.join("cluster.log"))?;
        let executors = self.args.executors.to_string();
        let rest = ["--cluster", &cluster.registry, "--executors", &executors];
        self.train("cluster", self.args.steps, &["--threads", "1"], &rest)
    }

    /// The recipe of MNIST, k = 2, but for its number of steps and the trials that would choose the transform.
    fn train(&self, name: &str, steps: u32, threads: &[&str], rest: &[&str]) -> Result<Trained> {
        let report = self.folder.join(format!("{name}.json"));
        let log = self.folder.join(format!("{name}.log"));
        let file = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
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
        command.args(["--augment", "shift", "--copies", "1", "--seed", "1", "--network", &self.args.network]);
        command.args(["--steps", &steps.to_string(), "--name", name]);
        command.arg("--model").arg(&self.args.model).arg("--data").arg(&self.args.data);
        command.arg("--out").arg(self.folder.join("models")).arg("--json").arg(&report).args(rest);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status();
        let status = status.with_context(|| format!("cannot start {}", self.trainer.display()))?;
        ensure!(status.success(), "a training failed ({status}); see {}", log.display());
        Trained::read(&report)
    }
}

impl Trained {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let figure =
            |name: &str| report[name].as_f64().with_context(|| format!("{} has no {name}", path.display()));
        Ok(Self {
            seconds: figure("seconds")?,
            reconstructed: 100.0 * figure("accuracy_reconstructed")?,
            deployed: 100.0 * figure("accuracy_deployed")?,
        })
    }
}

/// Two servers and two workers of one thread each. They end with this.
struct Cluster {
    process: Child,
    registry: String,
}

impl Cluster {
    fn up(trainer: &Path, log: &Path) -> Result<Self> {
        let mut command = Command::new(trainer);
        command.args(["--threads", "1", "cluster", "up", "--workers", "2", "--servers", "2"]);
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().context("cannot start a cluster")?;
        let errors = process.stderr.take().context("the cluster says nothing")?;
        let mut cluster = Self { process, registry: String::new() };
        let mut lines = BufReader::new(errors).lines();
        for line in lines.by_ref() {
            if let Some((_, rest)) = line?.split_once("registry ") {
                rest.split(';').next().unwrap_or_default().clone_into(&mut cluster.registry);
                break;
            }
        }
        ensure!(!cluster.registry.is_empty(), "the cluster did not start");
        let mut file = fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes());
            }
        });
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}

fn markdown(args: &Args, runs: &[(Trained, Trained)]) -> String {
    let mut text = format!(
        "### A parity model, trained by one process and by a cluster on the same processors\n\n{} for `{}`, {} steps of 64 \
         groups, seed 1: one process with {} threads, and a process that leads with two workers (one thread each, {} parts a step) \
         and two servers, replication 2. In turns. Seconds include what a cluster needs before it is complete.\n\n\
         | round | one process, s | A_d, % | cluster, s | A_d, % | cluster's time, times |\n|---|---|---|---|---|---|\n",
        args.network,
        args.model.file_name().unwrap_or_default().display(),
        args.steps,
        args.threads,
        args.executors,
    );
    for (round, (alone, cluster)) in (1..).zip(runs) {
        text += &format!(
            "| {round} | {:.1} | {:.2} | {:.1} | {:.2} | {:.2} |\n",
            alone.seconds,
            alone.reconstructed,
            cluster.seconds,
            cluster.reconstructed,
            cluster.seconds / alone.seconds
        );
    }
    let of = |figure: fn(&(Trained, Trained)) -> f64| Spread::new(runs.iter().map(figure).collect());
    let ratio = of(|(alone, cluster)| cluster.seconds / alone.seconds);
    let apart = of(|(alone, cluster)| (cluster.reconstructed - alone.reconstructed).abs());
    let deployed = of(|(alone, _)| alone.deployed);
    let (points, times) = AIMS;
    let met = |is_met: bool| if is_met { "met" } else { "**missed**" };
    text += &format!(
        "\nThe cluster takes {:.2} times as long (median; {:.2} to {:.2}; aim {times}: {}); A_d differs by {:.2} points at most (aim \
         {points}: {}). The deployed model has {:.2} %.\n",
        ratio.median,
        ratio.lowest,
        ratio.highest,
        met(ratio.median <= times),
        apart.highest,
        met(apart.highest <= points),
        deployed.median,
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
        Trained { seconds, reconstructed, deployed: 99.0 }
    }

    #[test]
    fn a_table_says_what_was_missed() {
        let args = Cli::parse_from(["bench", "--data", "mnist", "--model", "m/digits.onnx"]).args;
        let fair = [(trained(10.0, 98.0), trained(10.9, 98.2)), (trained(10.0, 98.0), trained(9.0, 97.9))];
        let text = markdown(&args, &fair);
        assert!(text.contains("`digits.onnx`") && text.contains("| 2 | 10.0 | 98.00 | 9.0 | 97.90 | 0.90 |"));
        assert!(text.contains("1.00 times as long") && text.matches(": met").count() == 2, "{text}");
        let text = markdown(&args, &[(trained(10.0, 98.0), trained(12.0, 97.0))]);
        assert!(text.contains("**missed**") && text.matches(": met").count() == 0, "{text}");
    }
}
