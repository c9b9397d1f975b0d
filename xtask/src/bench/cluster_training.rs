//! `cargo xtask bench cluster-training`: a parity model, trained by one process with two threads,
//! and by a cluster on this machine with one thread for each process, in turns.

use super::report::{self, Spread, in_turns, ratio};
use crate::models::figure;
use crate::prelude::*;

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
}

const CLUSTER: &str = "2 workers, 2 parts a step";
const NAME: &str = "cargo xtask bench cluster-training";
const HEAD: &str = "\
### A parity model, trained by one process and by a cluster on the same processors

One process with two threads; workers of one thread each (the process that leads is one of them) and
two servers, replication 2. In turns. Seconds include what a cluster needs before it is complete.

| seed | | s | A_d, % | times the one process | points more |
|---|---|---|---|---|---|
";

/// Seconds, and accuracy of reconstructions in percent.
type Trained = [f64; 2];

pub(super) fn run(args: &Args) -> Result<()> {
    setup::run(&setup::Args::default())?;
    // In every build of the tests this would cost minutes.
    cargo("--config profile.dev.package.parapet-cluster.opt-level=2 build -p parity-trainer")?;
    step("the deployed model's answers, which all runs use");
    for seed in 1..=args.rounds {
        train(args, false, 1, seed)?;
    }
    let trained = in_turns(args.rounds, 2, |seed, arm| {
        let trained = train(args, arm == 1, args.steps, seed)?;
        eprintln!("seed {seed}, on a cluster: {}: {trained:.2?}", arm == 1);
        Ok(trained)
    })?;
    let table = markdown(&trained[0], &trained[1]);
    println!("{table}");
    report::write(report::PARAMETER_SERVER, NAME, &table)
}

/// Trains in one process, or on a cluster: the recipe of MNIST, k = 2, but for its number of steps
/// and the trials that would choose the transform.
fn train(args: &Args, on_cluster: bool, steps: u32, seed: u64) -> Result<Trained> {
    let (sh, folder) = (shell()?, scratch("bench-cluster-training"));
    let (trainer, mut processes) = (debug("parity-trainer"), Processes::new(&folder)?);
    let (mut threads, mut cluster) = ("2", Vec::new());
    if on_cluster {
        let up = cmd!(
            sh,
            "{trainer} --threads 1 cluster up --servers 2 --workers 1 --listen 127.0.0.1:0"
        );
        let registry = processes.start_ready("cluster", up, "registry ")?;
        cluster.extend(["--cluster", &registry, "--executors", "2"].map(str::to_owned));
        threads = "1";
    }
    let Args { data, model, .. } = args;
    let (steps, seed) = (steps.to_string(), seed.to_string());
    let (out, report) = (folder.join("models"), folder.join("report.json"));
    let training = cmd!(
        sh,
        "{trainer} --threads {threads} train --k 2 --encoder concat --transform log_softmax
            --augment shift --copies 1 --seed {seed} --network cells:1x2:resnet8:16 --steps {steps}
            --name parity --model {model} --data {data} --out {out} --json {report} {cluster...}"
    );
    processes.run("training", training)?;
    let report = read_json(&report)?;
    let accuracy = figure(&report, "/accuracy_reconstructed")?;
    Ok([figure(&report, "/seconds")?, 100.0 * accuracy])
}

fn markdown(alone: &[Trained], clustered: &[Trained]) -> String {
    let mut text = HEAD.to_owned();
    let mut points = Vec::new();
    for (seed, ([s, accuracy], [cluster_s, clusters])) in (1..).zip(alone.iter().zip(clustered)) {
        let (times, more) = (cluster_s / s, clusters - accuracy);
        text += &format!(
            "| {seed} | one process | {s:.1} | {accuracy:.2} | 1 | |\n\
             | {seed} | {CLUSTER} | {cluster_s:.1} | {clusters:.2} | {times:.2} | {more:.2} |\n"
        );
        points.push(more);
    }
    let (times, points) = (ratio(clustered, alone, 0), Spread::new(points));
    let (times, points) = (times.text(2), points.text(2));
    text + &format!("\n{times} times as long (aim: 1.1); {points} points more (aim: 0.3).\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_compares_the_cluster_with_the_process_of_its_round() {
        let (alone, cluster) = ([[10.0, 98.0], [10.0, 98.5]], [[10.8, 98.2], [9.0, 98.2]]);
        let text = markdown(&alone, &cluster);
        for words in [
            "| 2 | 2 workers, 2 parts a step | 9.0 | 98.20 | 0.90 | -0.30 |",
            "0.99 (0.90-1.08) times as long (aim: 1.1); -0.05 (-0.30-0.20) points more",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
