//! Whoever leads changes the table.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use parapet_parameter_server::{Coordinator, CoordinatorConfig, ShardRef};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::store::Revision;
use crate::{Leader, Member, Membership, RegistryError, Report, Term, View};

/// Settings of [`lead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaderConfig {
    /// What the leader decides by.
    pub coordinator: CoordinatorConfig,
}

struct Reign {
    term: Term,
    coordinator: Coordinator,
    /// What was written last: a view without it is outdated.
    written: Revision,
    told: BTreeSet<ShardRef>,
}

/// Takes part in the election of a leader, and leads while elected, until the registry is closed.
///
/// Run it in as many processes as may fail together, and one more: servers do it beside their work. Whoever suspects the
/// leader to be dead ([`Report::Suspect`]) campaigns against it at once; its lease would take two seconds and more.
///
/// # Errors
/// [`RegistryError::Closed`] at the end.
pub async fn lead(membership: &Membership, config: LeaderConfig) -> Result<(), RegistryError> {
    let mut views = membership.registry().view();
    let mut backoff = Backoff::default();
    let mut reign: Option<Reign> = None;
    let start = Instant::now();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let mut timer = None;
        let outcome = match view.leader {
            Some(leader) if leader.member == membership.id() => {
                let current = reign.take().filter(|reign| reign.term == leader.term);
                let reign = reign.insert(current.unwrap_or_else(|| Reign::begin(leader.term, &config)));
                let outcome = reign.rule(membership, &view, start).await;
                timer = reign.coordinator.next_timer();
                outcome
            }
            Some(leader) if is_suspected(&view, membership.id(), leader) => {
                membership.campaign(Some(leader.term)).await.map(|_| ())
            }
            Some(_) => Ok(()),
            None => membership.campaign(None).await.map(|_| ()),
        };
        match outcome {
            Ok(()) => backoff.reset(),
            Err(error @ (RegistryError::Conflict | RegistryError::Deposed)) => {
                tracing::debug!(%error, "the leader was overtaken");
            }
            Err(error) => {
                tracing::warn!(%error, "the leader cannot change the routing table");
                backoff.pause().await;
                continue;
            }
        }
        let due = async {
            match timer {
                Some(timer) => sleep_until(start + timer).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = views.changed() => changed.map_err(|_| RegistryError::Closed)?,
            () = due => {}
        }
    }
}

fn is_suspected(view: &View, by: Member, leader: Leader) -> bool {
    let Member::Server(node) = leader.member else { return false };
    view.reports.values().any(|&(reporter, report)| reporter == by && report == Report::Suspect(node))
}

impl Reign {
    fn begin(term: Term, config: &LeaderConfig) -> Self {
        tracing::info!(?term, "leads from now on");
        let coordinator = Coordinator::new(config.coordinator);
        Self { term, coordinator, written: Revision(0), told: BTreeSet::new() }
    }

    /// Changes what should be changed.
    async fn rule(
        &mut self,
        membership: &Membership,
        view: &View,
        start: Instant,
    ) -> Result<(), RegistryError> {
        if view.table.revision < self.written {
            return Ok(());
        }
        let change = self.coordinator.decide(start.elapsed(), &view.cluster());
        for &at in &change.unrecoverable {
            if self.told.insert(at) {
                tracing::error!(
                    "{}, keys {}: all servers that held it are gone: restore a checkpoint",
                    at.array,
                    at.range
                );
            }
        }
        self.told.retain(|at| change.unrecoverable.contains(at));
        let registry = membership.registry();
        let table = &view.table;
        if change.routing != table.routing || change.hand_overs != table.hand_overs {
            let (routing, hand_overs) = (&change.routing, &change.hand_overs);
            self.written = registry.change(self.term, table.revision, routing, hand_overs).await?;
        }
        if !change.gone_workers.is_empty() {
            registry.drop_workers(self.term, &change.gone_workers).await?;
        }
        Ok(())
    }
}
