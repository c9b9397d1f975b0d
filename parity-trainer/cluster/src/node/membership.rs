//! A node's end of the registry.

use std::fmt;
use std::sync::{Arc, Weak};

use parapet_parameter_server::Peer;
use tokio::sync::watch;

use crate::registry::{self, Report, View};

/// Takes a node's reports; it does not wait.
pub trait Reporter: fmt::Debug + Send + Sync {
    fn report(&self, report: Report);

    fn retract(&self, report: Report);
}

impl Reporter for registry::Membership {
    fn report(&self, report: Report) {
        if let Err(error) = Self::report(self, report) {
            tracing::warn!(%error, ?report, "a report was lost");
        }
    }

    fn retract(&self, report: Report) {
        Self::retract(self, report);
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
        Self { view, reporter: Weak::<registry::Membership>::new() }
    }

    /// Tells of a connection to a server that is there again, or was lost. The registry hears of
    /// workers from themselves.
    pub(super) fn tell(&self, peer: Peer, is_up: bool) {
        let Peer::Server(node) = peer else { return };
        match self.reporter.upgrade() {
            Some(reporter) if is_up => reporter.retract(Report::Suspect(node)),
            Some(reporter) => reporter.report(Report::Suspect(node)),
            None => {}
        }
    }

    pub(super) fn report(&self, report: Report) {
        if let Some(reporter) = self.reporter.upgrade() {
            reporter.report(report);
        }
    }
}
