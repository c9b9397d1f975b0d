//! A node's end of the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parapet_parameter_server::{ArrayId, NodeId};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::array::ArraySpec;
use crate::registry::{self, ReportChange, View};

/// Reports on their way to the registry's membership; a node keeps what finds no room.
const REPORTS: usize = 1024;

/// A node's end of the registry.
#[derive(Debug, Clone)]
pub struct Membership {
    /// The newest view. It keeps its last value while the registry is away.
    pub view: watch::Receiver<Arc<View>>,
    /// Where reports go. What finds no room is tried again with the next heartbeat.
    pub reports: mpsc::Sender<ReportChange>,
}

impl Membership {
    /// Returns the end for the nodes of one member, whose reports are passed on until the task is
    /// dropped.
    pub fn of(member: Arc<registry::Membership>) -> (Self, AbortOnDropHandle<()>) {
        let (reports, mut inbox) = mpsc::channel(REPORTS);
        let view = member.registry().view();
        let task = tokio::spawn(async move {
            while let Some(change) = inbox.recv().await {
                let outcome = match change {
                    ReportChange::Made(report) => member.report(report),
                    ReportChange::Retracted(report) => {
                        member.retract(report);
                        Ok(())
                    }
                };
                if let Err(error) = outcome {
                    tracing::warn!(%error, ?change, "a report was lost");
                }
            }
        });
        (Self { view, reports }, AbortOnDropHandle::new(task))
    }

    /// Returns the end for a node whose word does not count: one that other processes may be, too.
    /// Each of them ends the others' connections, which says nothing about the servers.
    pub fn silent(&self) -> Self {
        let (reports, _) = mpsc::channel(1);
        Self {
            view: self.view.clone(),
            reports,
        }
    }
}

/// Arrays and addresses that a node has taken from views. A description never changes, so that each
/// is read once. A server that the registry misses, but the table still names, keeps its address:
/// the registry may have been away itself, and whether it is dead shows in its connections.
#[derive(Debug, Default)]
pub(super) struct KnownView {
    arrays: BTreeSet<ArrayId>,
    /// Addresses at which servers take messages.
    pub(super) addresses: BTreeMap<NodeId, String>,
}

impl KnownView {
    /// Takes over a view, and returns the arrays that are new.
    pub(super) fn update(&mut self, view: &View) -> Vec<(ArrayId, ArraySpec)> {
        let routes = view.table.routing.routes().iter();
        let named: BTreeSet<NodeId> = routes.flat_map(|route| route.chain.clone()).collect();
        self.addresses.retain(|server, _| named.contains(server));
        let reachable = view
            .servers
            .iter()
            .filter(|(_, info)| !info.address.is_empty());
        let reachable = reachable.map(|(&server, info)| (server, info.address.clone()));
        self.addresses.extend(reachable);
        let mut new = Vec::new();
        for (&array, info) in &view.arrays {
            if self.arrays.insert(array) && !info.description.is_empty() {
                match ArraySpec::parse(array, &info.description) {
                    Ok(spec) => new.push((array, spec)),
                    Err(error) => tracing::error!(%error, "this node cannot hold the array"),
                }
            }
        }
        new
    }
}
