//! `cargo xtask elastic-train`: one training, while workers and servers join and leave: 1, then 4,
//! then 2 workers; 1, then 3, then 2 servers. The process that leads the training is one of the
//! workers.
//!
//! The same training runs on a cluster that stays as it is: both must have the same loss curve and
//! end with the same model, byte for byte. In sequential mode (one part a step) both must be those
//! of plain training in one process, too. What each change has cost is told by the training itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::section;
use crate::processes::{Place, Processes};
use crate::workspace::step;
use crate::{cargo, native, workspace};

/// Where everything of a run lies.
const FOLDER: &str = ".parapet/elastic-train";

/// Arguments of `cargo xtask elastic-train`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Steps of each training
    #[arg(long, default_value_t = 6000)]
    steps: u64,
    /// Seed of the trainings
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write what the changes have cost
    #[arg(long, default_value = "parity-trainer/parameter-server/RESULTS.md")]
    out: PathBuf,
}

/// # Errors
/// If a process fails, a change does not happen before the training is over, or
/// the trainings differ.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args::default())?;
    cargo::run(&["build", "-p", "parity-trainer"])?;
    let place = Place::new(FOLDER)?;
    step("a deployed model to learn from");
    place.train_deployed()?;

    step("plain training, in one process");
    place.finish(train(args, &place, "plain", None), "plain")?;
    let mut text = format!(
        "### Workers and servers that come and go during a training\n\n1, 4, 2 workers (the \
            process that leads is one of them) and 1, 3, 2 servers (two replicas where there are \
            two), as processes; {} steps of `lenet:8`, k = 2. The loss curve and the model are \
            those of a cluster that stays as it is, bit for bit; with one part a step, those of \
            plain training, too.\n\n\
            | parts a step | change | at step | lost, s | a step takes, ms \
            |\n|---|---|---|---|---|\n",
        args.steps
    );
    for parts in [1, 4] {
        let costs = compare(args, &place, parts)?;
        for cost in &costs {
            text += &format!("| {parts} {cost}\n");
        }
    }
    println!("{text}");
    let out = workspace::root().join(&args.out);
    section::write(&out, "Measured", "cargo xtask elastic-train", &text)?;
    println!("written: {}", out.display());
    Ok(())
}

/// The same training on a cluster that changes and on one that does not; what the
/// changes have cost.
fn compare(args: &Args, place: &Place, parts: u64) -> Result<Vec<String>> {
    step(&format!("{parts} parts a step, on a cluster that changes"));
    let changing = format!("changing-{parts}");
    let mut cluster = ElasticCluster::start(place, &format!("coordinator-{parts}"))?;
    cluster.server("server-1")?;
    let started = Instant::now();
    let mut training = Processes::default();
    training.start(
        place,
        train(args, place, &changing, Some((&cluster.registry, parts))),
        &changing,
    )?;
    change(args, place, &changing, &mut cluster, &mut training)?;
    training
        .none_ended()
        .context("the training was over before all changes were made; give more --steps")?;
    training.wait()?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    drop(cluster);

    let fixed = format!("fixed-{parts}");
    train_on_fixed(args, place, parts, &fixed)?;
    are_same(place, &changing, &fixed, parts)?;
    if parts == 1 {
        are_same(place, &changing, "plain", parts)?;
    }
    let log = fs::read_to_string(place.folder.join(format!("{changing}.log")))?;
    Ok(log.lines().filter_map(cost).collect())
}

/// Lets workers and servers join and leave while a training goes on.
fn change(
    args: &Args,
    place: &Place,
    name: &str,
    cluster: &mut ElasticCluster<'_>,
    training: &mut Processes,
) -> Result<()> {
    let mut reach = |twentieths: u64| -> Result<()> {
        let target = twentieths * args.steps / 20;
        while place.steps(name).is_none_or(|steps| steps < target) {
            training.none_ended()?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(())
    };
    let done = |what: &str| {
        let step = place.steps(name).unwrap_or_default();
        eprintln!("    {what} at step {step}");
    };
    reach(2)?;
    for name in ["worker-2", "worker-3", "worker-4"] {
        cluster.worker(name)?;
    }
    cluster.until("four workers", |top| top.contains("on 4 processes"))?;
    done("four workers");
    reach(8)?;
    cluster.server("server-2")?;
    cluster.server("server-3")?;
    cluster.until("three servers", |top| in_chains(top).len() == 3)?;
    done("three servers");
    reach(12)?;
    cluster.end("worker-3")?;
    cluster.end("worker-4")?;
    cluster.until("two workers", |top| top.contains("on 2 processes"))?;
    done("two workers");
    reach(16)?;
    cluster.end("server-1")?;
    cluster.until("two servers", |top| in_chains(top).len() == 2)?;
    done("two servers");
    Ok(())
}

fn train_on_fixed(args: &Args, place: &Place, parts: u64, name: &str) -> Result<()> {
    step(&format!("{parts} parts a step, on a cluster that does not"));
    let mut cluster = ElasticCluster::start(place, &format!("coordinator-fixed-{parts}"))?;
    cluster.server("server-1")?;
    cluster.server("server-2")?;
    cluster.worker("worker-2")?;
    let started = Instant::now();
    let training = train(args, place, name, Some((&cluster.registry, parts)));
    place.finish(training, name)?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Checks that two trainings have the same loss curve and the same model.
fn are_same(place: &Place, one: &str, other: &str, parts: u64) -> Result<()> {
    // A process tells the training loss of what it has computed itself.
    let columns: &[&str] = if parts == 1 { &["loss"] } else { &[] };
    let (first, second) = (curve(place, one, columns)?, curve(place, other, columns)?);
    ensure!(
        first == second && !first.is_empty(),
        "{one} and {other} have other loss curves"
    );
    ensure!(
        place.model(one)? == place.model(other)?,
        "{one} and {other} are other models"
    );
    Ok(())
}

fn train(args: &Args, place: &Place, name: &str, cluster: Option<(&str, u64)>) -> Command {
    let mut command = Command::new(&place.trainer);
    place.add_training(&mut command, name, args.steps, args.seed);
    if let Some((registry, parts)) = cluster {
        command.args(["--cluster", registry, "--executors", &parts.to_string()]);
    }
    command
}

/// A row of the table, of a line in which a training tells of a change.
fn cost(line: &str) -> Option<String> {
    let (change, rest) = line.split_once(" at step ")?;
    let (at, rest) = rest.split_once(": ")?;
    let (lost, rest) = rest.split_once(" s lost (a step takes ")?;
    let usual: f64 = rest.split_once(" s)")?.0.parse().ok()?;
    let change = change.split_once(": ").map_or(change, |(_, change)| change);
    Some(format!(
        "| {change} | {at} | {lost} | {:.0} |",
        1000.0 * usual
    ))
}

/// The servers that hold ranges, as `top` shows them.
fn in_chains(top: &str) -> BTreeSet<&str> {
    let ranges = top
        .lines()
        .skip_while(|line| !line.starts_with("ARRAY"))
        .skip(1);
    let rows = ranges.take_while(|line| !line.is_empty());
    let chains = rows.filter_map(|line| line.split("  ").filter(|cell| !cell.is_empty()).nth(3));
    chains
        .flat_map(|chain| chain.split(" > "))
        .map(str::trim)
        .collect()
}

/// Returns these columns of all validation records in the log, as they are written.
fn curve(place: &Place, name: &str, columns: &[&str]) -> Result<Vec<String>> {
    let path = place.training_log(name);
    let log = workspace::read(&path)?;
    let mut curve = Vec::new();
    for line in log.lines() {
        let record: serde_json::Value = serde_json::from_str(line)?;
        let kept = ["step", "validation_loss", "validation_agreement"]
            .iter()
            .chain(columns);
        curve.push(
            kept.map(|&column| format!("{column} {}", record[column]))
                .collect::<Vec<_>>()
                .join(", "),
        );
    }
    Ok(curve)
}

/// A coordinator that serves its registry, and what takes part.
struct ElasticCluster<'a> {
    place: &'a Place,
    registry: String,
    processes: Processes,
}

impl<'a> ElasticCluster<'a> {
    fn start(place: &'a Place, name: &str) -> Result<Self> {
        let mut processes = Processes::default();
        let mut command = Command::new(&place.trainer);
        command.args(["coordinator", "--serve", "127.0.0.1:0"]);
        processes.start(place, command, name)?;
        let log = place.folder.join(format!("{name}.log"));
        let registry = place.wait("registry", || {
            let said = fs::read_to_string(&log)?;
            let address = said
                .lines()
                .find_map(|line| line.split_once("registry at "));
            Ok(address.map(|(_, address)| address.to_owned()))
        })?;
        Ok(Self {
            place,
            registry,
            processes,
        })
    }

    fn server(&mut self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.place.trainer);
        command.args(["server", "--registry", &self.registry]);
        self.processes.start(self.place, command, name)
    }

    fn worker(&mut self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.place.trainer);
        command.args(["--threads", "1", "worker", "--registry", &self.registry]);
        self.processes.start(self.place, command, name)
    }

    /// Asks a process to leave, and waits until it has.
    fn end(&mut self, name: &str) -> Result<()> {
        self.processes.end(self.place, name)
    }

    /// Waits until `top` shows it.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
        self.place.wait(what, || {
            let mut command = Command::new(&self.place.trainer);
            command
                .args(["top", "--once", "--registry", &self.registry])
                .stderr(Stdio::null());
            let text = command.output().context("cannot start the trainer")?.stdout;
            Ok(is_so(&String::from_utf8_lossy(&text)).then_some(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_training_tells_becomes_a_row() {
        let line =
            "moving: server 1 left, worker 9 joined at step 11: 0.36 s lost (a step takes 0.020 s)";
        assert_eq!(
            cost(line).as_deref(),
            Some("| server 1 left, worker 9 joined | 11 | 0.36 | 20 |")
        );
        assert_eq!(cost("moving: checkpoint a/b"), None);
    }

    #[test]
    fn servers_in_chains_are_counted_once() {
        let top = "registry r, led by nobody\n\nSERVER  ADDRESS\n1       a:1\n\nARRAY  KEYS      \
            EPOCH  CHAIN  APPLIED\n\
                   1      [0, 50)   4      3 > 5  17\n1      [50, 99)  4      5      17\n\nWORKER \
                    KIND\n7  process\n";
        assert_eq!(in_chains(top), BTreeSet::from(["3", "5"]));
        assert!(in_chains("").is_empty());
    }
}
