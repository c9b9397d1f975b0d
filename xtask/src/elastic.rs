//! `cargo xtask elastic-train`: one training, while workers and servers join and leave, and the
//! same one on a cluster that stays as it is: both must have the same loss curve and end with the
//! same model, byte for byte. With one part a step both are those of one process, too.

use crate::bench::report;
use crate::prelude::*;
use crate::training::{TrainingCluster, Trainings};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Steps of each training
    #[arg(long, default_value_t = 6000)]
    steps: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    build_trainer()?;
    let trainer = debug("parity-trainer");
    let trainings = Trainings::new("elastic-train", &trainer, args.steps)?;
    step("plain training, in one process");
    train(&mut TrainingCluster::new(&trainings, None)?, "plain", &[])?;
    let mut text = format!(
        "### Workers and servers that come and go during a training\n\n1, 4, 2 workers (the \
         process that leads is one of them) and 1, 3, 2 servers (two replicas where there are \
         two), as processes; {} steps of `lenet:8`, k = 2. The loss curve and the model are those \
         of a cluster that stays as it is, bit for bit; with one part a step, those of plain \
         training, too.\n\n\
         | parts a step | change | at step | lost, s | a step takes, ms |\n|---|---|---|---|---|\n",
        args.steps
    );
    for parts in [1, 4] {
        for cost in compare(&trainings, parts)? {
            text += &format!("| {parts} {cost}\n");
        }
    }
    println!("{text}");
    let name = "cargo xtask elastic-train";
    report::write(report::PARAMETER_SERVER, name, &text)
}

/// The same training on a cluster that changes and on one that does not; what the
/// changes have cost.
fn compare(trainings: &Trainings, parts: u64) -> Result<Vec<String>> {
    step(&format!("{parts} parts a step, on a cluster that changes"));
    let (changing, executors) = (format!("changing-{parts}"), parts.to_string());
    let executors = ["--executors", &executors];
    let mut cluster = coordinated(trainings, &changing)?;
    members(&mut cluster, "server", 1..=1)?;
    cluster.start_training(&Place::Anywhere, &changing, &executors)?;
    change(&changing, &mut cluster)?;
    let ended = cluster.processes.none_ended("");
    ended.context("over before all changes; give more --steps")?;
    cluster.processes.wait(&changing)?;
    let said = shell()?.read_file(cluster.processes.log(&changing))?;
    drop(cluster);

    step(&format!("{parts} parts a step, on a cluster that does not"));
    let fixed = format!("fixed-{parts}");
    let mut cluster = coordinated(trainings, &fixed)?;
    members(&mut cluster, "server", 1..=2)?;
    members(&mut cluster, "worker", 2..=2)?;
    train(&mut cluster, &fixed, &executors)?;
    are_same(trainings, &changing, &fixed, parts)?;
    if parts == 1 {
        are_same(trainings, &changing, "plain", parts)?;
    }
    Ok(said.lines().filter_map(cost).collect())
}

/// A coordinator that serves its registry, without members.
fn coordinated<'a>(trainings: &'a Trainings, name: &str) -> Result<TrainingCluster<'a>> {
    let (sh, mut cluster) = (shell()?, TrainingCluster::new(trainings, None)?);
    let trainer = &trainings.trainer;
    let coordinator = cmd!(sh, "{trainer} coordinator --serve 127.0.0.1:0");
    let (name, said) = (format!("coordinator-{name}"), "registry at ");
    cluster.registry = Some(cluster.processes.start_ready(&name, coordinator, said)?);
    Ok(cluster)
}

fn members(
    cluster: &mut TrainingCluster<'_>,
    role: &str,
    mut numbers: RangeInclusive<u32>,
) -> Result<()> {
    numbers.try_for_each(|number| cluster.start(&Place::Anywhere, (role, &number.to_string()), &[]))
}

fn train(cluster: &mut TrainingCluster<'_>, name: &str, more: &[&str]) -> Result<()> {
    cluster.start_training(&Place::Anywhere, name, more)?;
    cluster.processes.wait(name)
}

fn change(name: &str, cluster: &mut TrainingCluster<'_>) -> Result<()> {
    let steps = cluster.trainings.steps;
    cluster.reach(name, steps / 10)?;
    members(cluster, "worker", 2..=4)?;
    until(cluster, "four workers", |top| {
        top.contains("on 4 processes")
    })?;
    cluster.reach(name, steps * 4 / 10)?;
    members(cluster, "server", 2..=3)?;
    until(cluster, "three servers", |top| in_chains(top).len() == 3)?;
    cluster.reach(name, steps * 6 / 10)?;
    cluster.processes.end("worker-3")?;
    cluster.processes.end("worker-4")?;
    until(cluster, "two workers", |top| top.contains("on 2 processes"))?;
    cluster.reach(name, steps * 8 / 10)?;
    cluster.processes.end("server-1")?;
    until(cluster, "two servers", |top| in_chains(top).len() == 2)
}

/// Waits until `top` shows that it is so.
fn until(cluster: &TrainingCluster<'_>, what: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
    let registry = cluster.registry.as_deref().unwrap_or_default();
    wait_for(what, LIMIT, || {
        let shown = cluster.trainings.top(&Place::Anywhere, registry)?;
        Ok(is_so(&shown).then_some(()))
    })
}

fn are_same(trainings: &Trainings, one: &str, other: &str, parts: u64) -> Result<()> {
    let mut columns = vec!["step", "validation_loss", "validation_agreement"];
    if parts == 1 {
        // Of several, a process tells the training loss of what it has computed itself.
        columns.push("loss");
    }
    let curve = |name: &str| -> Vec<Vec<Value>> {
        let row = |record: Value| {
            columns
                .iter()
                .map(|&column| record[column].clone())
                .collect()
        };
        trainings.records(name).into_iter().map(row).collect()
    };
    let first = curve(one);
    let is_same = first == curve(other) && !first.is_empty();
    ensure!(is_same, "{one} and {other} have other loss curves");
    let is_same = trainings.model(one)? == trainings.model(other)?;
    ensure!(is_same, "{one} and {other} are other models");
    Ok(())
}

/// A row of the table, of a line in which a training tells of a change.
fn cost(line: &str) -> Option<String> {
    let (change, rest) = line.split_once(" at step ")?;
    let (at, rest) = rest.split_once(": ")?;
    let (lost, rest) = rest.split_once(" s lost (a step takes ")?;
    let usual: f64 = rest.split_once(" s)")?.0.parse().ok()?;
    let change = change.split_once(": ").map_or(change, |(_, change)| change);
    let usual = 1000.0 * usual;
    Some(format!("| {change} | {at} | {lost} | {usual:.0} |"))
}

fn in_chains(top: &str) -> BTreeSet<&str> {
    let ranges = top.lines().skip_while(|line| !line.starts_with("ARRAY"));
    let rows = ranges.skip(1).take_while(|line| !line.is_empty());
    let chains = rows.filter_map(|row| row.split("  ").filter(|cell| !cell.is_empty()).nth(3));
    let servers = chains.flat_map(|chain| chain.split(" > "));
    servers.map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_cost_of_a_change_becomes_a_row() {
        let line =
            "moving: server 1 left, worker 9 joined at step 11: 0.36 s lost (a step takes 0.020 s)";
        let row = "| server 1 left, worker 9 joined | 11 | 0.36 | 20 |";
        assert_eq!(cost(line).as_deref(), Some(row));
        assert_eq!(cost("moving: checkpoint a/b"), None);
    }

    #[test]
    fn servers_in_chains_are_counted_once() {
        let top = "registry r, led by nobody\n\nSERVER  ADDRESS\n1       a:1\n\n\
            ARRAY  KEYS      EPOCH  CHAIN  APPLIED\n1      [0, 50)   4      3 > 5  17\n\
            1      [50, 99)  4      5      17\n\nWORKER KIND\n7  process\n";
        assert_eq!(in_chains(top), BTreeSet::from(["3", "5"]));
        assert!(in_chains("").is_empty());
    }
}
