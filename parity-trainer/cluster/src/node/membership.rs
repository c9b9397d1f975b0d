//! Views that a node gets from the registry, and its reports to it. The registry itself is none of
//! the data plane's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use parapet_parameter_server::{
    ArrayConfig, ArrayFilters, ArrayId, Clock, NodeId, Routing, ShardRef, WorkerId,
};
use tokio::sync::{mpsc, watch};

/// An array that has been defined since the node was started.
#[derive(Debug, Clone)]
pub struct Defined {
    pub config: ArrayConfig,
    /// Filters on what a node sends of it (those that the receiver undoes).
    pub filters: ArrayFilters,
}

/// Arrays that have been defined since the servers were started. An array never changes, so that
/// two of these are equal if they have the same numbers.
#[derive(Debug, Clone, Default)]
pub struct Arrays(pub Arc<BTreeMap<ArrayId, Defined>>);

impl PartialEq for Arrays {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}

impl Eq for Arrays {}

/// All that a node needs to know of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// Arrays beside those that nodes were started with.
    pub arrays: Arrays,
    pub routing: Routing,
    /// Where the servers take messages.
    pub servers: BTreeMap<NodeId, String>,
    /// The version of the list of workers, and the workers with the clocks they joined at.
    pub workers: (u64, Vec<(WorkerId, Clock)>),
    /// Shards that their tails are to copy to these servers.
    pub hand_overs: Vec<(ShardRef, NodeId)>,
}

/// Report of a node to the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// This server has all of the shard: append it to the chain.
    Propose {
        /// The shard, at its epoch.
        at: ShardRef,
        add: NodeId,
    },
    /// This server was named for a shard whose state never came.
    Lost {
        by: NodeId,
        /// The shard, at its epoch.
        at: ShardRef,
    },
    /// The connection to this server was reset, or it is silent, or it cannot be reached.
    Suspect(NodeId),
    /// It answers again.
    Trust(NodeId),
}

/// A node's end of the registry.
#[derive(Debug)]
pub struct Membership {
    /// The newest view. It keeps its last value while the registry is away.
    pub view: watch::Receiver<Arc<View>>,
    /// Where reports go. What finds no room is tried again with the next heartbeat.
    pub reports: mpsc::Sender<Report>,
}

/// Reports on their way at once.
const REPORTS: usize = 1024;

/// A registry for tests and for clusters within one process: it believes every suspicion, and is
/// not safe against two servers that suspect each other.
#[derive(Debug)]
pub struct InProcessRegistry {
    view: watch::Sender<Arc<View>>,
    inbox: mpsc::Receiver<Report>,
    reports: mpsc::Sender<Report>,
}

impl InProcessRegistry {
    /// With this view to begin with.
    pub fn new(view: View) -> Self {
        let (reports, inbox) = mpsc::channel(REPORTS);
        Self {
            view: watch::Sender::new(Arc::new(view)),
            inbox,
            reports,
        }
    }

    /// The end for one node.
    pub fn membership(&self) -> Membership {
        Membership {
            view: self.view.subscribe(),
            reports: self.reports.clone(),
        }
    }

    /// Sender through which a caller changes the view while [`InProcessRegistry::run`] runs.
    pub fn view(&self) -> watch::Sender<Arc<View>> {
        self.view.clone()
    }

    /// Takes reports until the task is dropped.
    pub async fn run(mut self) {
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

/// The view after a report; `None` if it changes nothing.
fn decide(view: &View, report: Report) -> Option<View> {
    let mut next = view.clone();
    match report {
        Report::Propose { at, add } => {
            let route = view
                .routing
                .route(at.array, at.range.start)
                .filter(|route| !route.chain.contains(&add))?;
            let chain = route.chain.iter().copied().chain([add]).collect();
            next.routing = view
                .routing
                .replace(at.array, at.range, at.epoch, vec![(at.range, chain)])
                .ok()?;
            next.hand_overs
                .retain(|(other, _)| (other.array, other.range) != (at.array, at.range));
        }
        Report::Lost { by, at } => {
            let route = view.routing.route(at.array, at.range.start)?;
            let chain: Vec<NodeId> = route
                .chain
                .iter()
                .copied()
                .filter(|&node| node != by)
                .collect();
            next.routing = view
                .routing
                .replace(at.array, at.range, at.epoch, vec![(at.range, chain)])
                .ok()?;
        }
        Report::Suspect(node) => {
            for route in view
                .routing
                .routes()
                .iter()
                .filter(|route| route.chain.contains(&node))
            {
                let chain: Vec<NodeId> = route
                    .chain
                    .iter()
                    .copied()
                    .filter(|&other| other != node)
                    .collect();
                // The last replica stays: no other one has the state.
                let without = next.routing.replace(
                    route.array,
                    route.range,
                    route.epoch,
                    vec![(route.range, chain)],
                );
                next.routing = without.unwrap_or(next.routing);
            }
            let held = next
                .routing
                .routes()
                .iter()
                .any(|route| route.chain.contains(&node));
            if !held {
                next.servers.remove(&node);
            }
        }
        Report::Trust(_) => return None,
    }
    (next != *view).then_some(next)
}
