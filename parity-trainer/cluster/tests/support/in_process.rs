//! A registry within one process that agrees to all it is told.

#![allow(dead_code, reason = "each test and example uses parts of it")]

use std::sync::Arc;

use parapet_cluster::node::wire::VERSION;
use parapet_cluster::node::{Membership, Reporter};
use parapet_cluster::registry::{Report, ServerInfo, Table, View, Workers};
use parapet_parameter_server::{Clock, HandOver, Routing, WorkerId};
use tokio::sync::watch;

/// A registry for tests, benchmarks and examples: it believes every suspicion, and is
/// not safe against two servers that suspect each other.
#[derive(Debug)]
pub(crate) struct InProcessRegistry {
    pub(crate) view: watch::Sender<Arc<View>>,
}

impl InProcessRegistry {
    /// With this view to begin with.
    pub(crate) fn new(view: View) -> Arc<Self> {
        let view = watch::Sender::new(Arc::new(view));
        Arc::new(Self { view })
    }

    /// The end for one node, as long as this is there.
    pub(crate) fn membership(self: &Arc<Self>) -> Membership {
        Membership { view: self.view.subscribe(), reporter: Arc::<Self>::downgrade(self) }
    }
}

impl Reporter for InProcessRegistry {
    fn report(&self, report: Report) {
        self.view.send_if_modified(|view| {
            let changed = decide(view, report).map(Arc::new);
            let is_new = changed.is_some();
            *view = changed.unwrap_or_else(|| Arc::clone(view));
            is_new
        });
    }

    fn retract(&self, _: Report) {}
}

/// Workers that are members from their clocks on, and a routing table.
pub(crate) fn view(routing: Routing, workers: Vec<(WorkerId, Clock)>) -> View {
    View {
        table: Table { routing, ..Table::default() },
        workers: Workers { version: 1, workers, ..Workers::default() },
        ..View::default()
    }
}

/// A server that takes messages at this address.
pub(crate) fn server(address: impl Into<String>) -> ServerInfo {
    let (address, protocol) = (address.into(), VERSION);
    ServerInfo { address, weight: 1, protocol, ..ServerInfo::default() }
}

/// The view after a report; `None` if it changes nothing.
fn decide(view: &View, report: Report) -> Option<View> {
    let mut next = view.clone();
    let routing = &mut next.table.routing;
    match report {
        Report::Propose(HandOver { at, to }) => {
            let route = routing.route(at.array, at.range.start)?;
            if route.chain.contains(&to) {
                return None;
            }
            let chain = route.chain.iter().copied().chain([to]).collect();
            let parts = vec![(at.range, chain)];
            *routing = routing.replace(at, parts).ok()?;
            let done = (at.array, at.range);
            let hand_overs = &mut next.table.hand_overs;
            hand_overs.retain(|other| (other.at.array, other.at.range) != done);
        }
        Report::Suspect(node) => {
            for route in view.table.routing.routes() {
                let rest = route.chain.iter().copied().filter(|&other| other != node);
                let parts = vec![(route.range, rest.collect())];
                if route.chain.contains(&node)
                    && let Ok(without) = routing.replace(route.at(), parts)
                {
                    // The last replica stays: no other one has the state.
                    *routing = without;
                }
            }
            if !next.table.holds(node) {
                next.servers.remove(&node);
            }
        }
        Report::Lost(_) | Report::Pace(_) | Report::Service(..) | Report::Steps(..) => {
            return None;
        }
    }
    (next != *view).then_some(next)
}
