//! A server's metrics, in Prometheus' text format; the only place that names them.
//!
//! Nothing is counted for them: each scrape looks into the server once, between two messages.

use std::collections::BTreeMap;

use crate::node::{Counters, ServerHandle};
use crate::registry::{Member, Registry, View};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use parapet_net::server::{Limits, serve};
use parapet_parameter_server::{ArrayId, Server};
use tokio_util::task::AbortOnDropHandle;

use crate::roles::ClusterError;
use crate::roles::listening::Listening;

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

/// Connections of those who scrape, at most.
const SCRAPERS: usize = 16;

/// Part of one array that a server holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    shards: u32,
    heads: u32,
    /// Shards that take no pushes: they are copied, or another server has taken over.
    stopped: u32,
    rows: usize,
    memory: usize,
    /// Log entries that the chain has not acknowledged, of all shards.
    log: u64,
    /// Lead of the fastest worker over the slowest, in the shard where it is largest.
    apart: u64,
}

#[derive(Debug, Clone, Default)]
struct Found {
    node: u64,
    counters: Counters,
    arrays: BTreeMap<ArrayId, Held>,
}

impl Found {
    fn look(server: &Server, counters: Counters, view: &View) -> Self {
        let mut arrays: BTreeMap<ArrayId, Held> = BTreeMap::new();
        for shard in server.shards() {
            let held = arrays.entry(shard.at.array).or_default();
            let route = view
                .table
                .routing
                .route(shard.at.array, shard.at.range.start);
            let is_head = route.is_some_and(|route| route.head() == Some(server.node()));
            let clocks = shard
                .clocks
                .workers()
                .filter_map(|w| shard.clocks.lowest_of(w, shard.at.range));
            let (low, high) = clocks.fold((u64::MAX, 0), |(low, high), clock| {
                (low.min(clock.0), high.max(clock.0))
            });
            held.shards += 1;
            held.heads += u32::from(is_head);
            held.stopped += u32::from(!shard.accepts_pushes);
            held.rows += shard.store.rows();
            held.memory += shard.store.memory();
            held.log += shard.applied.0.saturating_sub(shard.committed.0);
            held.apart = held.apart.max(high.saturating_sub(low));
        }
        Self {
            node: server.node().0,
            counters,
            arrays,
        }
    }

    /// Prometheus' text. A recorder for each scrape, so that an array which is gone is
    /// gone here, too.
    fn render(&self, view: &View) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe();
            let Counters {
                received,
                sent,
                dropped,
                connected,
                lost,
                ref filtered,
                ref unfiltered,
            } = self.counters;
            for (what, count) in [("received", received), ("sent", sent), ("dropped", dropped)] {
                counter!(MESSAGES, "what" => what).absolute(count);
            }
            for (what, count) in [("made", connected), ("lost", lost)] {
                counter!(CONNECTIONS, "what" => what).absolute(count);
            }
            for (direction, traffic) in [("sent", filtered), ("received", unfiltered)] {
                // Those of trainings that are over would pile up.
                for (array, filter, bytes) in
                    traffic.iter().filter(|(a, ..)| self.arrays.contains_key(a))
                {
                    for (stage, bytes) in [("before", bytes.before), ("after", bytes.after)] {
                        let array = array.0.to_string();
                        let filter = filter.name();
                        counter!(FILTERED, "array" => array, "direction" => direction,
                            "filter" => filter, "stage" => stage)
                        .absolute(bytes);
                    }
                }
            }
            for (array, held) in &self.arrays {
                let set = |name: &'static str, value: f64| {
                    gauge!(name, "array" => array.0.to_string()).set(value)
                };
                set(SHARDS, f64::from(held.shards));
                set(HEADS, f64::from(held.heads));
                set(STOPPED, f64::from(held.stopped));
                set(ROWS, held.rows as f64);
                set(MEMORY, held.memory as f64);
                set(LOG, held.log as f64);
                set(APART, held.apart as f64);
            }
            let leads = view.leader.is_some_and(
                |leader| matches!(leader.member, Member::Server(node) if node.0 == self.node),
            );
            gauge!(REACHABLE).set(if view.reachable { 1.0 } else { 0.0 });
            gauge!(LEADS).set(if leads { 1.0 } else { 0.0 });
            gauge!(TABLE).set(view.table.routing.version() as f64);
            gauge!(HAND_OVERS).set(view.table.hand_overs.len() as f64);
        });
        recorder.handle().render()
    }
}

fn describe() {
    describe_counter!(
        MESSAGES,
        "Messages by what became of them; dropped ones found no connection or room."
    );
    describe_counter!(
        FILTERED,
        "Bytes of keys and values before and after each filter, by array; the difference is what \
            it saves."
    );
    describe_counter!(CONNECTIONS, "Connections that were made and lost.");
    describe_gauge!(SHARDS, "Shards held here, by array.");
    describe_gauge!(HEADS, "Shards that this server heads, by array.");
    describe_gauge!(
        STOPPED,
        "Shards that take no pushes: they are copied, or were taken over, by array."
    );
    describe_gauge!(ROWS, "Rows held here, by array.");
    describe_gauge!(
        MEMORY,
        "Bytes that rows take with the optimiser's state, by array."
    );
    describe_gauge!(
        LOG,
        "Log entries that chains have not acknowledged, by array."
    );
    describe_gauge!(
        APART,
        "Clocks between the fastest and the slowest worker where they are most, by array."
    );
    describe_gauge!(REACHABLE, "1 while the registry answers.");
    describe_gauge!(LEADS, "1 on the server that leads.");
    describe_gauge!(
        TABLE,
        "The version of the routing table; each change raises it."
    );
    describe_gauge!(
        HAND_OVERS,
        "Shards that are being copied, in the whole cluster."
    );
}

/// A listener for scrapes of `/metrics`.
#[derive(Debug)]
pub(crate) struct MetricsServer(Listening);

impl MetricsServer {
    pub(crate) async fn bind(listen: &str) -> Result<Self, ClusterError> {
        Ok(Self(Listening::at(listen).await?))
    }

    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Answers until the task is dropped.
    pub(crate) fn start(self, handle: ServerHandle, registry: Registry) -> AbortOnDropHandle<()> {
        let scrape = move || scrape(handle.clone(), registry.clone());
        let app = Router::new().route("/metrics", get(scrape));
        let limits = Limits {
            max_connections: SCRAPERS,
            ..Limits::default()
        };
        AbortOnDropHandle::new(tokio::spawn(async move {
            serve(
                self.0.listener,
                app,
                limits,
                std::future::pending(),
                std::time::Duration::ZERO,
            )
            .await;
        }))
    }
}

async fn scrape(handle: ServerHandle, registry: Registry) -> Response {
    let view = std::sync::Arc::clone(&registry.view().borrow());
    let seen = std::sync::Arc::clone(&view);
    let found = handle
        .look(move |server, counters| Found::look(server, counters, &seen))
        .await;
    match found {
        Some(found) => (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
            found.render(&view),
        )
            .into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the server has stopped\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use parapet_parameter_server::{Filter, Traffic};

    use super::*;

    /// Names and labels are a promise to the users' dashboards.
    #[test]
    fn metrics_are_named_like_this() {
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
        let held = Held {
            shards: 2,
            heads: 1,
            stopped: 1,
            rows: 10,
            memory: 80,
            log: 7,
            apart: 3,
        };
        let found = Found {
            node: 4,
            counters,
            arrays: [(ArrayId(9), held)].into(),
        };
        let text = found.render(&View::default());
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect();
        lines.sort_unstable();
        let expected = [
            "parapet_parameter_server_clocks_apart{array=\"9\"} 3",
            "parapet_parameter_server_connections_total{what=\"lost\"} 2",
            "parapet_parameter_server_connections_total{what=\"made\"} 3",
            "parapet_parameter_server_filter_bytes_total{array=\"9\",direction=\"received\",filter=\"precision\",stage=\"after\"} 100",
            "parapet_parameter_server_filter_bytes_total{array=\"9\",direction=\"received\",filter=\"precision\",stage=\"before\"} 200",
            "parapet_parameter_server_filter_bytes_total{array=\"9\",direction=\"sent\",filter=\"lz4\",stage=\"after\"} 300",
            "parapet_parameter_server_filter_bytes_total{array=\"9\",direction=\"sent\",filter=\"lz4\",stage=\"before\"} 400",
            "parapet_parameter_server_hand_overs 0",
            "parapet_parameter_server_heads{array=\"9\"} 1",
            "parapet_parameter_server_leads 0",
            "parapet_parameter_server_log_entries{array=\"9\"} 7",
            "parapet_parameter_server_memory_bytes{array=\"9\"} 80",
            "parapet_parameter_server_messages_total{what=\"dropped\"} 1",
            "parapet_parameter_server_messages_total{what=\"received\"} 5",
            "parapet_parameter_server_messages_total{what=\"sent\"} 4",
            "parapet_parameter_server_registry_reachable 0",
            "parapet_parameter_server_routing_version 0",
            "parapet_parameter_server_rows{array=\"9\"} 10",
            "parapet_parameter_server_shards_stopped{array=\"9\"} 1",
            "parapet_parameter_server_shards{array=\"9\"} 2",
        ];
        assert_eq!(lines, expected);
        assert_eq!(text.matches("# HELP").count(), 14);
    }
}
