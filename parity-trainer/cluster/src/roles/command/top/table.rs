//! From a view and what the servers say to text.

use std::collections::{BTreeMap, BTreeSet};

use crate::registry::View;
use parapet_parameter_server::{Clock, NodeId, Route, WorkerId};

use crate::roles::control::Status;
use crate::roles::training::{Job, hosts_of};

pub(super) fn render(registry: &str, view: &View, statuses: &BTreeMap<NodeId, Status>) -> String {
    let leader = view
        .leader
        .map_or_else(|| "nobody".to_owned(), |leader| leader.member.to_string());
    let reached = if view.reachable {
        ""
    } else {
        " (away; what it said last)"
    };
    let mut text = format!("registry {registry}{reached}, led by {leader}\n\n");
    text.push_str(&align(&servers(view, statuses)));
    text.push('\n');
    text.push_str(&align(&ranges(view, statuses)));
    let workers = workers(view, statuses);
    if workers.len() > 1 {
        text.push('\n');
        text.push_str(&align(&workers));
    }
    if let Some(job) = &view.job {
        let told = Job::parse(job).map_or_else(
            |error| error.to_string(),
            |job| {
                let what = job
                    .task
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .trim_start_matches("# ")
                    .to_owned();
                let hosts = hosts_of(&job, view).len();
                format!(
                    "array {}: {what}, {} executors on {hosts} processes",
                    job.array,
                    job.executors.len()
                )
            },
        );
        text.push_str(&format!("\n{told}\n"));
    }
    text
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

fn servers(view: &View, statuses: &BTreeMap<NodeId, Status>) -> Vec<Vec<String>> {
    let heads = |node: NodeId| {
        view.table
            .routing
            .routes()
            .iter()
            .filter(|route| route.head() == Some(node))
            .count()
    };
    let mut rows = vec![row(&[
        "SERVER", "ADDRESS", "WEIGHT", "RANGES", "HEADS", "BYTES", "RECEIVED", "SENT", "DROPPED",
    ])];
    let routes = view
        .table
        .routing
        .routes()
        .iter()
        .flat_map(|route| route.chain.iter().copied());
    let known: BTreeSet<NodeId> = view.servers.keys().copied().chain(routes).collect();
    for node in known {
        let (address, weight) = view.servers.get(&node).map_or_else(
            || ("gone".to_owned(), String::new()),
            |server| (server.address.clone(), server.weight.to_string()),
        );
        let mut cells = vec![node.0.to_string(), address, weight];
        match statuses.get(&node) {
            Some(status) => cells.extend([
                status.shards.len().to_string(),
                heads(node).to_string(),
                bytes(status.shards.iter().map(|shard| shard.memory).sum()),
                status.received.to_string(),
                status.sent.to_string(),
                status.dropped.to_string(),
            ]),
            None => cells.push("does not answer".to_owned()),
        }
        rows.push(cells);
    }
    rows
}

fn ranges(view: &View, statuses: &BTreeMap<NodeId, Status>) -> Vec<Vec<String>> {
    let mut rows = vec![row(&[
        "ARRAY",
        "KEYS",
        "EPOCH",
        "CHAIN",
        "APPLIED",
        "IN CHAIN",
        "COPIES TO",
    ])];
    for route in view.table.routing.routes() {
        let held = route.head().and_then(|head| part(statuses, head, route));
        let told = |of: fn(&crate::roles::control::ShardStatus) -> u64| {
            held.map_or_else(|| "?".to_owned(), |shard| of(shard).to_string())
        };
        let chain: Vec<String> = route.chain.iter().map(|node| node.0.to_string()).collect();
        let copies: Vec<String> = view
            .table
            .hand_overs
            .iter()
            .filter(|hand_over| {
                hand_over.at.array == route.array && hand_over.at.range == route.range
            })
            .map(|hand_over| hand_over.to.0.to_string())
            .collect();
        rows.push(vec![
            route.array.0.to_string(),
            route.range.to_string(),
            route.epoch.0.to_string(),
            chain.join(" > "),
            told(|shard| shard.applied),
            told(|shard| shard.committed),
            copies.join(" "),
        ]);
    }
    rows
}

/// Of each worker the clock that all of its shards' heads have, and by how many it is
/// behind the foremost.
fn workers(view: &View, statuses: &BTreeMap<NodeId, Status>) -> Vec<Vec<String>> {
    let mut clocks: BTreeMap<WorkerId, Clock> = BTreeMap::new();
    for route in view.table.routing.routes() {
        let Some(shard) = route.head().and_then(|head| part(statuses, head, route)) else {
            continue;
        };
        for &(worker, clock) in &shard.clocks {
            let lowest = clocks.entry(worker).or_insert(clock);
            *lowest = clock.min(*lowest);
        }
    }
    let foremost = clocks.values().copied().max().unwrap_or_default();
    let mut rows = vec![row(&["WORKER", "KIND", "CLOCK", "BEHIND"])];
    let listed = view.workers.workers.iter().map(|&(worker, _)| worker);
    let known: BTreeSet<WorkerId> = listed.chain(view.present_workers.iter().copied()).collect();
    for worker in known {
        let kind = if view.workers.executors.contains(&worker) {
            "executor"
        } else if view
            .workers
            .workers
            .iter()
            .any(|&(other, _)| other == worker)
        {
            "worker"
        } else {
            "process"
        };
        let clock = clocks.get(&worker);
        rows.push(vec![
            worker.0.to_string(),
            kind.to_owned(),
            clock.map_or_else(String::new, |clock| clock.0.to_string()),
            clock.map_or_else(String::new, |clock| (foremost.0 - clock.0).to_string()),
        ]);
    }
    rows
}

fn part<'a>(
    statuses: &'a BTreeMap<NodeId, Status>,
    node: NodeId,
    route: &Route,
) -> Option<&'a crate::roles::control::ShardStatus> {
    let held = statuses.get(&node)?.shards.iter();
    held.into_iter()
        .find(|shard| shard.at.array == route.array && shard.at.range == route.range)
}

fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{:.1} kB", count as f64 / 1e3),
        10_000_000..=9_999_999_999 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// Columns as wide as their widest cell.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::registry::ServerInfo;
    use parapet_parameter_server::{ArrayId, Epoch, KeyRange, Routing, ShardRef};

    use super::*;
    use crate::roles::control::ShardStatus;

    #[test]
    fn nodes_ranges_and_staleness_are_told() {
        let range = KeyRange::new(0, 100);
        let chain = vec![NodeId(3), NodeId(5)];
        let route = Route {
            array: ArrayId(1),
            range,
            epoch: Epoch(4),
            chain,
        };
        let mut view = View {
            reachable: true,
            ..View::default()
        };
        view.table.routing = Routing::new(7, vec![route]).unwrap();
        let info = ServerInfo {
            address: "10.0.0.1:7000".into(),
            control: String::new(),
            weight: 1,
        };
        view.servers.insert(NodeId(3), info);
        view.workers.workers = vec![(WorkerId(8), Clock(0)), (WorkerId(9), Clock(0))];
        let shard = ShardStatus {
            at: ShardRef {
                array: ArrayId(1),
                range,
                epoch: Epoch(4),
            },
            applied: 12,
            committed: 11,
            memory: 4_000_000,
            clocks: vec![(WorkerId(8), Clock(12)), (WorkerId(9), Clock(10))],
        };
        let statuses = BTreeMap::from([(
            NodeId(3),
            Status {
                shards: vec![shard],
                ..Status::default()
            },
        )]);
        let text = render("parapet://a:1", &view, &statuses);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "registry parapet://a:1, led by nobody");
        let line = |start: &str| *lines.iter().find(|line| line.starts_with(start)).unwrap();
        assert_eq!(
            line("3 ").split_whitespace().collect::<Vec<_>>(),
            [
                "3",
                "10.0.0.1:7000",
                "1",
                "1",
                "1",
                "4000.0",
                "kB",
                "0",
                "0",
                "0"
            ]
        );
        assert!(line("5 ").contains("gone") && line("5 ").contains("does not answer"));
        assert!(line("1 ").contains("3 > 5") && line("1 ").contains("12"));
        assert!(line("8 ").ends_with('0') && line("9 ").ends_with('2'));
    }
}
