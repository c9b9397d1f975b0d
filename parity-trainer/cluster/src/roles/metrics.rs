//! A server's metrics, in Prometheus' text format; the only place that names them.
//!
//! Nothing is counted for them: each scrape looks into the server once, between two messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use parapet_net::server::Limits;
use parapet_parameter_server::{ArrayId, NodeId, Server, medians};
use tokio::net::TcpListener;

use crate::node::{Counters, ServerHandle};
use crate::registry::{Member, Registry, View};

const MESSAGES: &str = "parapet_parameter_server_messages_total";
const FILTERED: &str = "parapet_parameter_server_filter_bytes_total";
const CONNECTIONS: &str = "parapet_parameter_server_connections_total";
const SHARDS: &str = "parapet_parameter_server_shards";
const HEADS: &str = "parapet_parameter_server_heads";
const STOPPED: &str = "parapet_parameter_server_shards_stopped";
const ROWS: &str = "parapet_parameter_server_rows";
const MEMORY: &str = "parapet_parameter_server_memory_bytes";
const LOG: &str = "parapet_parameter_server_log_entries";
const APART: &str = "parapet_parameter_server_clocks_apart";
const REACHABLE: &str = "parapet_parameter_server_registry_reachable";
const LEADS: &str = "parapet_parameter_server_leads";
const TABLE: &str = "parapet_parameter_server_routing_version";
const HAND_OVERS: &str = "parapet_parameter_server_hand_overs";

const COUNTERS: [(&str, &str); 3] = [
    (MESSAGES, "Messages by what became of them."),
    (FILTERED, "Bytes before and after each filter."),
    (CONNECTIONS, "Connections that were made and lost."),
];

const SERVICE: &str = "parapet_parameter_server_service_seconds_per_row";
const PACE: &str = "parapet_parameter_server_worker_pace_seconds";
const PLANNED: &str = "parapet_parameter_server_load_plan_seconds";

const GAUGES: [(&str, &str); 14] = [
    (SHARDS, "Shards held here."),
    (HEADS, "Shards that this server heads."),
    (STOPPED, "Shards that take no pushes."),
    (ROWS, "Rows held here."),
    (MEMORY, "Bytes of rows and the optimiser's state."),
    (LOG, "Log entries not acknowledged by chains."),
    (APART, "Lead of the fastest worker, in clocks."),
    (REACHABLE, "1 while the registry answers."),
    (LEADS, "1 on the server that leads."),
    (TABLE, "Version of the routing table."),
    (HAND_OVERS, "Shards being copied in the cluster."),
    (SERVICE, "Time that a server takes for a row, as workers measure it."),
    (PACE, "Time that an executor's part takes a worker."),
    (PLANNED, "Slowest server's time of a step, before and after the last move of shards."),
];

const MAX_CONNECTIONS: usize = 16;

/// Part of one array that a server holds: gauges by their names.
type Held = BTreeMap<&'static str, u64>;

#[derive(Debug, Clone, Default)]
struct Found {
    node: NodeId,
    counters: Counters,
    arrays: BTreeMap<ArrayId, Held>,
}

impl Found {
    fn look(server: &Server, counters: Counters, view: &View) -> Self {
        let node = server.node();
        let mut arrays: BTreeMap<ArrayId, Held> = BTreeMap::new();
        for shard in server.shards() {
            let (array, range) = (shard.at.array, shard.at.range);
            let route = view.table.routing.route(array, range.start);
            let is_head = route.is_some_and(|route| route.head() == Some(node));
            let workers = shard.clocks.workers();
            let clocks = workers.filter_map(|worker| shard.clocks.lowest_of(worker, range));
            let (low, high) = clocks
                .fold((u64::MAX, 0), |(low, high), clock| (low.min(clock.0), high.max(clock.0)));
            let held = arrays.entry(array).or_default();
            let apart = held.entry(APART).or_default();
            *apart = high.saturating_sub(low).max(*apart);
            for (gauge, amount) in [
                (SHARDS, 1),
                (HEADS, u64::from(is_head)),
                (STOPPED, u64::from(!shard.accepts_pushes)),
                (ROWS, shard.store.rows() as u64),
                (MEMORY, shard.store.memory() as u64),
                (LOG, shard.applied.0.saturating_sub(shard.committed.0)),
            ] {
                *held.entry(gauge).or_default() += amount;
            }
        }
        Self { node, counters, arrays }
    }

    /// Prometheus' text, by a new recorder, so that an array which is gone is gone here, too.
    fn render(&self, view: &View) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for (name, text) in COUNTERS {
                describe_counter!(name, text);
            }
            for (name, text) in GAUGES {
                describe_gauge!(name, text);
            }
            self.count();
            for (array, held) in &self.arrays {
                for (&name, &value) in held {
                    gauge!(name, "array" => array.0.to_string()).set(value as f64);
                }
            }
            let own = Member::Server(self.node);
            let leads = view.leader.is_some_and(|leader| leader.member == own);
            gauge!(REACHABLE).set(f64::from(u8::from(view.reachable)));
            gauge!(LEADS).set(f64::from(u8::from(leads)));
            gauge!(TABLE).set(view.table.routing.version() as f64);
            gauge!(HAND_OVERS).set(view.table.hand_overs.len() as f64);
            for (node, time) in medians(view.services()) {
                for (rows, nanos) in [("pushed", time.push_ns), ("read", time.read_ns)] {
                    let server = node.0.to_string();
                    gauge!(SERVICE, "server" => server, "rows" => rows).set(nanos as f64 / 1e9);
                }
            }
            for &worker in &view.present_workers {
                if let Some(micros) = view.pace(worker) {
                    gauge!(PACE, "worker" => worker.0.to_string()).set(micros as f64 / 1e6);
                }
            }
            let plan = &view.table.plan;
            for (when, micros) in [("before", plan.before_us), ("after", plan.after_us)] {
                if plan.moved > 0 {
                    gauge!(PLANNED, "when" => when).set(micros as f64 / 1e6);
                }
            }
        });
        recorder.handle().render()
    }

    fn count(&self) {
        let counters = &self.counters;
        for (name, what, count) in [
            (MESSAGES, "received", counters.received),
            (MESSAGES, "sent", counters.sent),
            (MESSAGES, "dropped", counters.dropped),
            (CONNECTIONS, "made", counters.connected),
            (CONNECTIONS, "lost", counters.lost),
        ] {
            counter!(name, "what" => what).absolute(count);
        }
        let (sent, received) = (&counters.filtered, &counters.unfiltered);
        for (direction, traffic) in [("sent", sent), ("received", received)] {
            // Those of trainings that are over would pile up.
            let is_held = |array: &ArrayId| self.arrays.contains_key(array);
            for (array, filter, bytes) in traffic.iter().filter(|(array, ..)| is_held(array)) {
                for (stage, bytes) in [("before", bytes.before), ("after", bytes.after)] {
                    counter!(FILTERED, "array" => array.0.to_string(), "direction" => direction,
                        "filter" => <&str>::from(filter), "stage" => stage)
                    .absolute(bytes);
                }
            }
        }
    }
}

pub(super) async fn serve(listener: TcpListener, handle: ServerHandle, registry: Registry) {
    let scrape = move || scrape(handle.clone(), registry.clone());
    let app = Router::new().route("/metrics", get(scrape));
    let limits = Limits { max_connections: MAX_CONNECTIONS, ..Limits::default() };
    let forever = std::future::pending();
    let server = parapet_net::server::Server::new(app, limits);
    server.run(listener, forever, Duration::ZERO).await;
}

async fn scrape(handle: ServerHandle, registry: Registry) -> Response {
    let view = Arc::clone(&registry.view().borrow());
    let seen = Arc::clone(&view);
    let look = handle.look(move |server, counters| Found::look(server, counters, &seen));
    match look.await {
        Some(found) => {
            let format = (header::CONTENT_TYPE, "text/plain; version=0.0.4");
            ([format], found.render(&view)).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "the server has stopped\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use parapet_parameter_server::{Filter, Traffic};

    use super::*;

    /// Names and labels are a promise to the users' dashboards.
    #[test]
    fn metrics_have_these_names_and_labels() {
        let mut filtered = Traffic::default();
        filtered.count(ArrayId(9), Filter::Lz4, 400, 300);
        filtered.count(ArrayId(8), Filter::Lz4, 400, 300);
        let mut unfiltered = Traffic::default();
        unfiltered.count(ArrayId(9), Filter::Precision, 200, 100);
        let counters = Counters {
            received: 5,
            sent: 4,
            dropped: 1,
            connected: 3,
            lost: 2,
            filtered,
            unfiltered,
        };
        let gauges = [SHARDS, HEADS, STOPPED, ROWS, MEMORY, LOG, APART];
        let held = gauges.into_iter().zip(1..).collect();
        let found = Found { node: NodeId(4), counters, arrays: [(ArrayId(9), held)].into() };
        let text = found.render(&View::default());
        let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut lines: Vec<String> = samples
            .filter_map(|line| line.strip_prefix("parapet_parameter_server_"))
            .map(|line| line.replace('"', ""))
            .collect();
        lines.sort_unstable();
        let expected = [
            "clocks_apart{array=9} 7",
            "connections_total{what=lost} 2",
            "connections_total{what=made} 3",
            "filter_bytes_total{array=9,direction=received,filter=precision,stage=after} 100",
            "filter_bytes_total{array=9,direction=received,filter=precision,stage=before} 200",
            "filter_bytes_total{array=9,direction=sent,filter=lz4,stage=after} 300",
            "filter_bytes_total{array=9,direction=sent,filter=lz4,stage=before} 400",
            "hand_overs 0",
            "heads{array=9} 2",
            "leads 0",
            "log_entries{array=9} 6",
            "memory_bytes{array=9} 5",
            "messages_total{what=dropped} 1",
            "messages_total{what=received} 5",
            "messages_total{what=sent} 4",
            "registry_reachable 0",
            "routing_version 0",
            "rows{array=9} 4",
            "shards_stopped{array=9} 3",
            "shards{array=9} 1",
        ];
        assert_eq!(lines, expected);
        assert_eq!(text.matches("# HELP").count(), 14);
    }
}
