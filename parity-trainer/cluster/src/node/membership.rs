//! A node's end of the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use parapet_parameter_server::{ArrayId, NodeId};
use tokio::sync::watch;

use crate::array::ArraySpec;
use crate::registry::{self, Report, ReportChange, View};

/// Takes a node's reports; it does not wait.
pub trait Reporter: fmt::Debug + Send + Sync {
    fn report(&self, change: ReportChange);
}

impl Reporter for registry::Membership {
    fn report(&self, change: ReportChange) {
        let outcome = match change {
            ReportChange::Made(report) => self.report(report),
            ReportChange::Retracted(report) => {
                self.retract(report);
                Ok(())
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, ?change, "a report was lost");
        }
    }
}

#[derive(Debug, Clone)]
pub struct Membership {
    /// The newest view. It keeps its last value while the registry is away.
    pub view: watch::Receiver<Arc<View>>,
    /// It may be gone: then the node's word does not count.
    pub reporter: Weak<dyn Reporter>,
}

impl Membership {
    /// Returns the end for the nodes of one member.
    pub fn of(member: &Arc<registry::Membership>) -> Self {
        Self {
            view: member.registry().view(),
            reporter: Arc::<registry::Membership>::downgrade(member),
        }
    }

    /// Returns the end for a node whose word does not count: one that other processes may be, too.
    /// Each of them ends the others' connections, which says nothing about the servers.
    pub fn silent(view: watch::Receiver<Arc<View>>) -> Self {
        Self {
            view,
            reporter: Weak::<registry::Membership>::new(),
        }
    }

    /// Tells of a connection to a server that is there again, or was lost.
    pub(super) fn tell(&self, node: NodeId, is_up: bool) {
        let suspicion = Report::Suspect(node);
        self.report(match is_up {
            true => ReportChange::Retracted(suspicion),
            false => ReportChange::Made(suspicion),
        });
    }

    pub(super) fn report(&self, change: ReportChange) {
        if let Some(reporter) = self.reporter.upgrade() {
            reporter.report(change);
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
        let servers = view.servers.iter();
        let reachable = servers.filter(|(_, info)| !info.address.is_empty());
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
