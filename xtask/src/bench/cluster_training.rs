//! `cargo xtask bench cluster-training`: a parity model, trained by one process with two threads,
//! and by a cluster on this machine with one thread for each process, in turns.

use super::report::Spread;
use super::{in_turns, report};
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
    /// Processes of the cluster that compute, the one that leads among them
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Parts of a step on the cluster
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    parts: u32,
}

const NAME: &str = "cargo xtask bench cluster-training";
const HEAD: &str = "\
### A parity model, trained by one process and by a cluster on the same processors

One process with two threads; workers of one thread each (the process that leads is one of them) and
two servers, replication 2. In turns. Seconds include what a cluster needs before it is complete.

| seed | | s | A_d, % | times the one process | points more |
|---|---|---|---|---|---|
";

/// Seconds, and accuracy of reconstructions in percent.
type Trained = (f64, f64);

pub(super) fn run(args: &Args) -> Result<()> {
    setup::run(&setup::Args::default())?;
    // In every build of the tests this would cost minutes.
    cargo("--config profile.dev.package.parapet-cluster.opt-level=2 build -p parity-trainer")?;
    step("the deployed model's answers, which all runs use");
    for seed in 1..=args.rounds {
        train(args, false, 1, seed)?;
    }
    let mut rounds = Vec::new();
    for seed in 1..=args.rounds {
        let mut trained = [Trained::default(); 2];
        in_turns(seed, 2, |place| {
            trained[place] = train(args, place == 1, args.steps, seed)?;
            eprintln!(
                "seed {seed}, on a cluster: {}: {:.2?}",
                place == 1,
                trained[place]
            );
            Ok(())
        })?;
        rounds.push(trained);
    }
    let cluster = format!("{} workers, {} parts a step", args.workers, args.parts);
    let table = markdown(&cluster, &rounds);
    println!("{table}");
    report::write(report::PARAMETER_SERVER, NAME, &table)
}

/// Trains in one process, or on a cluster: the recipe of MNIST, k = 2, but for its number of steps
/// and the trials that would choose the transform.
fn train(args: &Args, on_cluster: bool, steps: u32, seed: u64) -> Result<Trained> {
    let (sh, folder) = (shell()?, scratch("bench-cluster-training"));
    let (trainer, mut processes) = (debug("parity-trainer"), Processes::new(&folder)?);
    let threads = if on_cluster { "1" } else { "2" };
    let mut cluster = Vec::new();
    if on_cluster {
        let line = format!("cluster up --servers 2 --workers {}", args.workers - 1);
        let (words, listen) = (line.split(' '), "127.0.0.1:0");
        let up = cmd!(sh, "{trainer} --threads 1 {words...} --listen {listen}");
        let registry = processes.start_ready("cluster", up, "registry ")?;
        let line = format!("--cluster {registry} --executors {}", args.parts);
        cluster.extend(line.split(' ').map(str::to_owned));
    }
    let Args { data, model, .. } = args;
    let (steps, seed) = (steps.to_string(), seed.to_string());
    let (out, report) = (folder.join("models"), folder.join("report.json"));
    let training = cmd!(
        sh,
        "{trainer} --threads {threads} train --k 2 --encoder concat --transform log_softmax --augment shift
            --copies 1 --seed {seed} --network cells:1x2:resnet8:16 --steps {steps}
            --name parity --model {model} --data {data} --out {out} --json {report} {cluster...}"
    );
    processes.run("training", training)?;
    let report = read_json(&report)?;
    let accuracy = figure(&report, "/accuracy_reconstructed")?;
    Ok((figure(&report, "/seconds")?, 100.0 * accuracy))
}

/// Rounds of one process and the cluster.
fn markdown(cluster: &str, rounds: &[[Trained; 2]]) -> String {
    let mut text = HEAD.to_owned();
    for (seed, [alone, other]) in (1..).zip(rounds) {
        let (times, points) = (other.0 / alone.0, other.1 - alone.1);
        text += &format!(
            "| {seed} | one process | {:.1} | {:.2} | 1 | |\n\
             | {seed} | {cluster} | {:.1} | {:.2} | {times:.2} | {points:.2} |\n",
            alone.0, alone.1, other.0, other.1
        );
    }
    let times = Spread::new(rounds.iter().map(|[alone, other]| other.0 / alone.0));
    let points = Spread::new(rounds.iter().map(|[alone, other]| other.1 - alone.1));
    let (times, points) = (times.text(2), points.text(2));
    text + &format!("\n{times} times as long (aim: 1.1); {points} points more (aim: 0.3).\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_compares_the_cluster_with_the_process_of_its_round() {
        let rounds = [[(10.0, 98.0), (10.8, 98.2)], [(10.0, 98.5), (9.0, 98.2)]];
        let text = markdown("2 workers, 2 parts a step", &rounds);
        for words in [
            "| 2 | 2 workers, 2 parts a step | 9.0 | 98.20 | 0.90 | -0.30 |",
            "0.99 (0.90-1.08) times as long (aim: 1.1); -0.05 (-0.30-0.20) points more",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
