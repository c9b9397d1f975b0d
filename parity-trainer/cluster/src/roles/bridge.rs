//! Between a node and the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::node::membership::{self as node, Arrays, Defined};
use crate::registry;
use parapet_parameter_server::{ArrayId, HandOver, NodeId};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::roles::spec::ArraySpec;

/// Reports on their way to the registry's membership; a node keeps what finds no room.
const REPORTS: usize = 1024;

/// Shows a node the registry's view, and tells the registry what the node reports. While the
/// registry is away, the view keeps its last value and reports wait. Ends when it is dropped.
#[derive(Debug)]
pub struct Bridge {
    view: watch::Receiver<Arc<node::View>>,
    reports: mpsc::Sender<node::Report>,
    _task: AbortOnDropHandle<()>,
}

impl Bridge {
    /// For the nodes of one member.
    pub fn new(membership: Arc<registry::Membership>) -> Self {
        let mut views = membership.registry().view();
        let mut arrays = Known::default();
        let first = Arc::clone(&views.borrow_and_update());
        let (sender, view) = watch::channel(Arc::new(arrays.node_view(&first)));
        let (reports, mut inbox) = mpsc::channel(REPORTS);
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = views.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        let view = Arc::clone(&views.borrow_and_update());
                        let next = arrays.node_view(&view);
                        sender.send_if_modified(|held| {
                            let changed = **held != next;
                            if changed {
                                *held = Arc::new(next);
                            }
                            changed
                        });
                    }
                    Some(report) = inbox.recv() => tell(&membership, report),
                }
            }
        }));
        Self {
            view,
            reports,
            _task: task,
        }
    }

    /// The end for one node.
    pub fn membership(&self) -> node::Membership {
        node::Membership {
            view: self.view.clone(),
            reports: self.reports.clone(),
        }
    }

    /// The end for a node whose word does not count: one that other processes may be, too. Each of
    /// them ends the others' connections, which says nothing about the servers.
    pub fn silent(&self) -> node::Membership {
        let (reports, _) = mpsc::channel(1);
        node::Membership {
            view: self.view.clone(),
            reports,
        }
    }
}

fn tell(membership: &registry::Membership, report: node::Report) {
    let told = match report {
        node::Report::Propose { at, add } => {
            membership.report(registry::Report::Propose(HandOver { at, to: add }))
        }
        node::Report::Lost { at, .. } => membership.report(registry::Report::Lost(at)),
        node::Report::Suspect(server) => membership.report(registry::Report::Suspect(server)),
        node::Report::Trust(server) => {
            membership.retract(registry::Report::Suspect(server));
            Ok(())
        }
    };
    if let Err(error) = told {
        tracing::warn!(%error, ?report, "a report was lost");
    }
}

/// Arrays and addresses that the registry has reported. Descriptions of arrays never change, so
/// that each is read once. One that the registry misses, but the table still names, keeps its
/// place: the registry may have been away itself, and whether it is dead shows in its connections.
#[derive(Debug, Default)]
struct Known {
    arrays: Arrays,
    unreadable: BTreeSet<ArrayId>,
    addresses: BTreeMap<NodeId, String>,
}

impl Known {
    fn node_view(&mut self, view: &registry::View) -> node::View {
        self.learn(view);
        self.remember(view);
        node::View {
            arrays: self.arrays.clone(),
            routing: view.table.routing.clone(),
            servers: self.addresses.clone(),
            workers: (view.workers.version, view.workers.workers.clone()),
            hand_overs: view
                .table
                .hand_overs
                .iter()
                .map(|hand_over| (hand_over.at, hand_over.to))
                .collect(),
        }
    }

    fn remember(&mut self, view: &registry::View) {
        let listening = view
            .servers
            .iter()
            .filter(|(_, server)| !server.address.is_empty());
        let named: BTreeSet<NodeId> = view
            .table
            .routing
            .routes()
            .iter()
            .flat_map(|route| route.chain.iter().copied())
            .collect();
        self.addresses.retain(|server, _| named.contains(server));
        self.addresses
            .extend(listening.map(|(&server, info)| (server, info.address.clone())));
    }

    fn learn(&mut self, view: &registry::View) {
        let is_new = |array: &ArrayId| {
            !self.arrays.0.contains_key(array) && !self.unreadable.contains(array)
        };
        let new: Vec<ArrayId> = view.arrays.keys().copied().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let mut arrays: BTreeMap<ArrayId, Defined> = (*self.arrays.0).clone();
        for array in new {
            let Some(info) = view.arrays.get(&array) else {
                continue;
            };
            match ArraySpec::parse(array, &info.description) {
                Ok(spec) => {
                    arrays.insert(
                        array,
                        Defined {
                            config: spec.server(),
                            filters: spec.filters.into(),
                        },
                    );
                }
                Err(error) => {
                    tracing::error!(%error, "this server cannot hold the array");
                    self.unreadable.insert(array);
                }
            }
        }
        self.arrays = Arrays(Arc::new(arrays));
    }
}
