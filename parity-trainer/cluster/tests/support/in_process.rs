//! A registry within one process that agrees to all it is told.

#![allow(dead_code, reason = "each test and example uses parts of it")]

use std::sync::Arc;

use parapet_cluster::node::Membership;
use parapet_cluster::registry::{Report, ReportChange, ServerInfo, Table, View, Workers};
use parapet_parameter_server::{Clock, NodeId, Routing, ShardRef, WorkerId};
use tokio::sync::{mpsc, watch};

/// Reports on their way at once.
const REPORTS: usize = 1024;

/// A registry for tests, benchmarks and examples: it believes every suspicion, and is
/// not safe against two servers that suspect each other.
#[derive(Debug)]
pub(crate) struct InProcessRegistry {
    view: watch::Sender<Arc<View>>,
    inbox: mpsc::Receiver<ReportChange>,
    reports: mpsc::Sender<ReportChange>,
}

impl InProcessRegistry {
    /// With this view to begin with.
    pub(crate) fn new(view: View) -> Self {
        let (reports, inbox) = mpsc::channel(REPORTS);
        Self {
            view: watch::Sender::new(Arc::new(view)),
            inbox,
            reports,
        }
    }

    /// The end for one node.
    pub(crate) fn membership(&self) -> Membership {
        Membership {
            view: self.view.subscribe(),
            reports: self.reports.clone(),
        }
    }

    /// Sender through which a caller changes the view while [`InProcessRegistry::run`] runs.
    pub(crate) fn view(&self) -> watch::Sender<Arc<View>> {
        self.view.clone()
    }

    /// Takes reports until the task is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(report) = self.inbox.recv().await {
            tracing::debug!(?report, "report");
            self.view.send_if_modified(|view| {
                let changed = decide(view, report);
                let is_new = changed.is_some();
                if let Some(changed) = changed {
                    *view = Arc::new(changed);
                }
                is_new
            });
        }
    }
}

/// Workers that are members from their clocks on, and a routing table.
pub(crate) fn view(routing: Routing, workers: Vec<(WorkerId, Clock)>) -> View {
    View {
        table: Table {
            routing,
            ..Table::default()
        },
        workers: Workers {
            version: 1,
            workers,
            ..Workers::default()
        },
        ..View::default()
    }
}

/// A server that takes messages at this address.
pub(crate) fn server(address: impl Into<String>) -> ServerInfo {
    ServerInfo {
        address: address.into(),
        control: String::new(),
        weight: 1,
    }
}

/// The view after a report; `None` if it changes nothing.
fn decide(view: &View, change: ReportChange) -> Option<View> {
    let mut next = view.clone();
    let routing = &mut next.table.routing;
    match change {
        ReportChange::Made(Report::Propose(hand_over)) => {
            let at = hand_over.at;
            let route = routing
                .route(at.array, at.range.start)
                .filter(|route| !route.chain.contains(&hand_over.to))?;
            let chain = route.chain.iter().copied().chain([hand_over.to]).collect();
            *routing = routing
                .replace(at.array, at.range, at.epoch, vec![(at.range, chain)])
                .ok()?;
            let is_other =
                |at: ShardRef, other: ShardRef| (other.array, other.range) != (at.array, at.range);
            next.table.hand_overs.retain(|other| is_other(at, other.at));
        }
        ReportChange::Made(Report::Suspect(node)) => {
            for route in view.table.routing.routes() {
                let chain: Vec<NodeId> = route
                    .chain
                    .iter()
                    .copied()
                    .filter(|&other| other != node)
                    .collect();
                if chain.len() < route.chain.len() {
                    // The last replica stays: no other one has the state.
                    let without = routing.replace(
                        route.array,
                        route.range,
                        route.epoch,
                        vec![(route.range, chain)],
                    );
                    *routing = without.unwrap_or(routing.clone());
                }
            }
            if !routing
                .routes()
                .iter()
                .any(|route| route.chain.contains(&node))
            {
                next.servers.remove(&node);
            }
        }
        ReportChange::Made(Report::Lost(_)) | ReportChange::Retracted(_) => return None,
    }
    (next != *view).then_some(next)
}
