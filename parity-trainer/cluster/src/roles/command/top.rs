//! `top`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{Clock, LoadPlan, NodeId, Route, ShardRef, WorkerId, medians};
use tokio::time::timeout;

use super::{RegistryArgs, Stop};
use crate::registry::View;
use crate::roles::Result;
use crate::roles::control::{Control, ShardStatus, Status};
use crate::roles::training::{Job, hosts_of};

/// Time that a server may take to answer: the user wants to see the others now.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    registry: RegistryArgs,
    /// Look once
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(args: &Args, stop: Stop) -> Result<()> {
    let address = &args.registry.registry;
    let registry = address.open().await?;
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    let is_screen = std::io::stdout().is_terminal() && !args.once;
    let mut asked = std::pin::pin!(stop.asked());
    loop {
        tokio::select! {
            () = &mut asked => return Ok(()),
            _ = looks.tick() => {}
        }
        let view = Arc::clone(&registry.view().borrow());
        let statuses = ask(&view).await;
        let text = render(&address.to_string(), &view, &statuses);
        let clear = if is_screen { "\x1b[H\x1b[2J" } else { "" };
        let mut out = std::io::stdout().lock();
        let written = write!(out, "{clear}{text}").and_then(|()| out.flush());
        // The reader has seen enough.
        if args.once || written.is_err() {
            return Ok(());
        }
    }
}

type Statuses = BTreeMap<NodeId, Status>;

/// Asks the servers for their status; those that do not answer are left out.
async fn ask(view: &View) -> Statuses {
    let mut asked = tokio::task::JoinSet::new();
    for (&node, server) in &view.servers {
        let control = Control::new(node, server.control.clone());
        asked.spawn(async move { (node, timeout(PATIENCE, control.status()).await) });
    }
    let answers = asked.join_all().await.into_iter();
    let answers = answers.filter_map(|(node, answer)| Some((node, answer.ok()?.ok()?)));
    answers.collect()
}

fn render(registry: &str, view: &View, statuses: &Statuses) -> String {
    let leader = view.leader.map(|leader| leader.member.to_string());
    let leader = leader.unwrap_or_else(|| "nobody".to_owned());
    let away = match view.reachable {
        true => "",
        false => " (away; what it said last)",
    };
    let mut parts = vec![format!("registry {registry}{away}, led by {leader}\n")];
    let tables = [servers(view, statuses), ranges(view, statuses)];
    parts.extend(tables.iter().map(align));
    let LoadPlan { taken_back, moved, before_us, after_us, .. } = view.table.plan;
    let [before, after] = [before_us, after_us].map(|micros| micros as f64 / 1e3);
    if taken_back {
        parts.push(format!(
            "a move of ranges for load was taken back: steps took {before:.1} ms after it, \
             {after:.1} before\n"
        ));
    } else if moved > 0 {
        parts.push(format!(
            "{moved} ranges were moved for load: the slowest server takes {after:.1} ms a step \
             instead of {before:.1}, as predicted\n"
        ));
    }
    let workers = workers(view, statuses);
    if workers.len() > 1 {
        parts.push(align(&workers));
    }
    parts.extend(view.job.as_deref().map(|job| match Job::parse(job) {
        Ok(job) => {
            let task = job.task.lines().next().unwrap_or_default();
            let task = task.trim_start_matches("# ");
            let (executors, hosts) = (job.executors.len(), hosts_of(&job, view).len());
            let array = job.array();
            format!("{array}: {task}, {executors} executors on {hosts} processes\n")
        }
        Err(error) => format!("{error}\n"),
    }));
    parts.join("\n")
}

type Rows = Vec<Vec<String>>;

/// A table that has only its head yet.
fn table(head: &str) -> Rows {
    vec![head.split('|').map(str::to_owned).collect()]
}

fn servers(view: &View, statuses: &Statuses) -> Rows {
    let mut rows = table(
        "SERVER|ADDRESS|WEIGHT|RANGES|HEADS|BYTES|RECEIVED|SENT|DROPPED|US A PUSHED ROW|US A READ ROW",
    );
    let services = medians(view.services());
    let routes = view.table.routing.routes();
    let named = routes.iter().flat_map(|route| route.chain.iter().copied());
    let known: BTreeSet<NodeId> = view.servers.keys().copied().chain(named).collect();
    for node in known {
        let mut cells = vec![node.0.to_string()];
        match view.servers.get(&node) {
            Some(server) => {
                let is_spare = server.standby && !view.table.plan.standbys.contains(&node);
                let weight = server.weight.to_string();
                let weight = if is_spare { "standby".to_owned() } else { weight };
                cells.extend([server.address.clone(), weight]);
            }
            None => cells.extend(["gone".to_owned(), String::new()]),
        }
        match statuses.get(&node) {
            Some(status) => {
                let heads = routes.iter().filter(|route| route.head() == Some(node));
                let memory = status.shards.iter().map(|shard| shard.memory).sum();
                cells.extend([
                    status.shards.len().to_string(),
                    heads.count().to_string(),
                    bytes(memory),
                    status.received.to_string(),
                    status.sent.to_string(),
                    status.dropped.to_string(),
                ]);
                let times = services.get(&node).map(|time| [time.push_ns, time.read_ns]);
                let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1e3);
                cells.extend(times.into_iter().flatten().map(micros));
            }
            None => cells.push("does not answer".to_owned()),
        }
        rows.push(cells);
    }
    rows
}

fn ranges(view: &View, statuses: &Statuses) -> Rows {
    let mut rows = table("ARRAY|KEYS|EPOCH|CHAIN|APPLIED|IN CHAIN|COPIES TO");
    let names = |nodes: &[NodeId], separator| {
        let names: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
        names.join(separator)
    };
    for route in view.table.routing.routes() {
        let held = at_head(statuses, route);
        let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let hand_overs = view.table.hand_overs.iter();
        let copies = hand_overs.filter(|new| is_at(new.at, route));
        let copies = Vec::from_iter(copies.map(|new| new.to));
        rows.push(vec![
            route.array.0.to_string(),
            route.range.to_string(),
            route.epoch.0.to_string(),
            names(&route.chain, " > "),
            count(held.map(|shard| shard.applied)),
            count(held.map(|shard| shard.committed)),
            names(&copies, " "),
        ]);
    }
    rows
}

/// Clock of each worker that all heads have, and its distance to the foremost.
fn workers(view: &View, statuses: &Statuses) -> Rows {
    let mut clocks: BTreeMap<WorkerId, Clock> = BTreeMap::new();
    let heads = view.table.routing.routes().iter();
    for shard in heads.filter_map(|route| at_head(statuses, route)) {
        for &(worker, clock) in &shard.clocks {
            let lowest = clocks.entry(worker).or_insert(clock);
            *lowest = clock.min(*lowest);
        }
    }
    let foremost = clocks.values().copied().max().unwrap_or_default();
    let job = view.job.as_deref().and_then(|job| Job::parse(job).ok());
    let mut rows = table("WORKER|KIND|CLOCK|BEHIND|EXECUTORS|PACE");
    let listed: BTreeSet<WorkerId> = view.workers.listed().collect();
    for worker in &listed | &view.present_workers {
        let kind = match listed.contains(&worker) {
            true => "executor",
            false => "process",
        };
        let mut cells = vec![worker.0.to_string(), kind.to_owned()];
        if let Some(clock) = clocks.get(&worker) {
            cells.extend([clock.0, foremost.0 - clock.0].map(|clock| clock.to_string()));
        }
        if let Some(job) = job.as_ref().filter(|_| view.present_workers.contains(&worker)) {
            let pace = view.pace(worker).map(|micros| format!("{:.1} ms", micros as f64 / 1e3));
            cells.resize(4, "-".to_owned());
            cells.push(job.executors_of(worker, view).len().to_string());
            cells.push(pace.unwrap_or_else(|| "not told".to_owned()));
        }
        rows.push(cells);
    }
    rows
}

/// The head's part of a shard, if the head has answered.
fn at_head<'a>(statuses: &'a Statuses, route: &Route) -> Option<&'a ShardStatus> {
    let mut shards = statuses.get(&route.head()?)?.shards.iter();
    shards.find(|shard| is_at(shard.at, route))
}

fn is_at(at: ShardRef, route: &Route) -> bool {
    (at.array, at.range) == (route.array, route.range)
}

fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{:.1} kB", count as f64 / 1e3),
        10_000_000..=9_999_999_999 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

fn align(rows: &Rows) -> String {
    let mut widths = vec![0; rows.iter().map(Vec::len).max().unwrap_or_default()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells = Vec::from_iter(cells.map(|(cell, &width)| format!("{cell:width$}")));
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::{ArrayId, Epoch, KeyRange, Routing};

    use super::*;
    use crate::registry::ServerInfo;

    #[test]
    fn nodes_ranges_and_staleness_are_shown() {
        let (array, range, epoch) = (ArrayId(1), KeyRange::new(0, 100), Epoch(4));
        let route = Route { array, range, epoch, chain: vec![NodeId(3), NodeId(5)] };
        let mut view = View { reachable: true, ..View::default() };
        view.table.routing = Routing::new(7, vec![route]).unwrap();
        let info =
            ServerInfo { address: "10.0.0.1:7000".into(), weight: 1, ..ServerInfo::default() };
        view.servers.insert(NodeId(3), info);
        view.workers.workers = vec![(WorkerId(8), Clock(0)), (WorkerId(9), Clock(0))];
        let shard = ShardStatus {
            at: ShardRef { array, range, epoch },
            applied: 12,
            committed: 11,
            memory: 4_000_000,
            clocks: vec![(WorkerId(8), Clock(12)), (WorkerId(9), Clock(10))],
        };
        let status = Status { shards: vec![shard], ..Status::default() };
        let text = render("parapet://a:1", &view, &BTreeMap::from([(NodeId(3), status)]));
        let head = "registry parapet://a:1, led by nobody\n";
        assert!(text.starts_with(head), "{text}");
        let words = |line: &str| Vec::from_iter(line.split_whitespace()).join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "3 10.0.0.1:7000 1 1 1 4000.0 kB 0 0 0",
            "5 gone does not answer",
            "1 [0, 100) 4 3 > 5 12 11",
            "8 executor 12 0",
            "9 executor 10 2",
        ] {
            let is_there = lines.iter().any(|line| line == expected);
            assert!(is_there, "{expected}: {text}");
        }
    }
}
