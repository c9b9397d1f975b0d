//! Leader's loop: changes the table.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    ClusterState, Coordinator, CoordinatorConfig, LoadPlan, NodeId, ShardRef,
};
use tokio::time::{Instant, sleep_until};

use crate::node::wire::VERSION;
use crate::registry::store::{Backoff, Revision};
use crate::registry::{Member, Membership, RegistryError, Result, Term, View};

/// Takes part in the election of a leader, and leads while elected, until the registry is closed.
///
/// Run it in as many processes as may fail together, and one more: servers do it beside their work.
/// A member that suspects the leader to be dead ([`crate::registry::Report::Suspect`]) campaigns
/// against it at once; its lease would take two seconds and more. So does a server whose suspicion
/// of another has led to nothing within twice the time after which it must be believed
/// ([`CoordinatorConfig::doubt`]): the leader hangs, or is a dead coordinator, which no connection
/// tells of. Neither is a danger: each change is made on condition that its author still leads.
pub async fn lead(membership: &Membership, config: CoordinatorConfig) -> Result<()> {
    let mut views = membership.registry().view();
    let mut backoff = Backoff::default();
    let mut leader_term: Option<LeaderTerm> = None;
    let mut suspicions = SuspicionTimer::default();
    let start = Instant::now();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let patience = config.doubt.saturating_mul(2);
        let suspicion = LeaderSuspicion::of(&view, membership.id());
        let mut timer = suspicions.until(&view, suspicion, start.elapsed(), patience);
        let is_dead =
            suspicion == LeaderSuspicion::Dead || timer.is_some_and(|due| start.elapsed() >= due);
        let outcome = match view.leader {
            Some(leader) if leader.member == membership.id() => {
                let current = leader_term.take().filter(|term| term.term == leader.term);
                let current = current.unwrap_or_else(|| LeaderTerm::begin(leader.term, config));
                let current = leader_term.insert(current);
                let outcome = current.rule(membership, &view, start).await;
                timer = current.coordinator.next_timer();
                outcome
            }
            Some(leader) if is_dead => {
                (suspicions, timer) = (SuspicionTimer::default(), None);
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
        tokio::select! {
            changed = views.changed() => changed.map_err(|_| RegistryError::Closed)?,
            () = sleep_until(start + timer.unwrap_or_default()), if timer.is_some() => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaderSuspicion {
    None,
    /// It is borne for a while: the leader may not have had time, or says the same of this member.
    Tolerated,
    Dead,
}

impl LeaderSuspicion {
    fn of(view: &View, own: Member) -> Self {
        let Some(leader) = view.leader else {
            return Self::None;
        };
        let suspects = |by: Member, of: Member| {
            let mut suspicions = view.suspicions();
            suspicions.any(|(reporter, node)| reporter == by && Member::Server(node) == of)
        };
        match (suspects(own, leader.member), suspects(leader.member, own)) {
            (true, false) => Self::Dead,
            // Were neither of two to bear the other, they would depose each other without end.
            (true, true) => Self::Tolerated,
            (false, _) if is_overdue(view, own) => Self::Tolerated,
            (false, _) => Self::None,
        }
    }
}

/// Time at which this member first suspected the leader that has done nothing since.
#[derive(Debug, Default)]
struct SuspicionTimer {
    /// The leader and the table that have not changed since.
    since: Option<(Term, Revision, Duration)>,
}

impl SuspicionTimer {
    /// Time until which a suspicion is tolerated; `None` if there is none.
    fn until(
        &mut self,
        view: &View,
        suspicion: LeaderSuspicion,
        now: Duration,
        patience: Duration,
    ) -> Option<Duration> {
        let is_tolerated = view.reachable && suspicion == LeaderSuspicion::Tolerated;
        let leader = view.leader.filter(|_| is_tolerated);
        self.since = leader.map(|leader| match self.since {
            Some((term, table, since)) if (term, table) == (leader.term, view.table.revision) => {
                (term, table, since)
            }
            _ => (leader.term, view.table.revision, now),
        });
        self.since.map(|(_, _, since)| since + patience)
    }
}

/// Returns true if a server suspects one in a chain with others, and is not suspected itself.
fn is_overdue(view: &View, own: Member) -> bool {
    let Member::Server(node) = own else {
        return false;
    };
    let mut routes = view.table.routing.routes().iter();
    let mut suspicions = view.suspicions();
    let suspects = |of| view.suspicions().any(|suspicion| suspicion == (own, of));
    let should_leave = |chain: &[_]| chain.len() > 1 && chain.iter().any(|&of| suspects(of));
    suspicions.all(|(_, of)| of != node) && routes.any(|route| should_leave(&route.chain))
}

struct LeaderTerm {
    term: Term,
    coordinator: Coordinator,
    /// Revision written last: a view without it is outdated.
    written: Revision,
    logged: BTreeSet<ShardRef>,
    /// Servers of which it was said that they speak another version.
    strangers: BTreeSet<NodeId>,
}

impl LeaderTerm {
    fn begin(term: Term, config: CoordinatorConfig) -> Self {
        tracing::info!(?term, "leads from now on");
        Self {
            term,
            coordinator: Coordinator::new(config),
            written: Revision(0),
            logged: BTreeSet::new(),
            strangers: BTreeSet::new(),
        }
    }

    /// The cluster in which servers that speak another version are to hold nothing.
    fn cluster(&mut self, view: &View) -> ClusterState {
        let mut cluster = view.cluster();
        for (&node, info) in &view.servers {
            if info.weight == 0 || info.protocol == VERSION {
                continue;
            }
            cluster.servers.insert(node, 0);
            if self.strangers.insert(node) {
                let (address, protocol) = (&info.address, info.protocol);
                tracing::warn!(
                    "{node} at {address} speaks protocol version {protocol}, not {VERSION}, and \
                     gets no shards: run the same release on all nodes"
                );
            }
        }
        cluster
    }

    async fn rule(&mut self, membership: &Membership, view: &View, start: Instant) -> Result<()> {
        if view.table.revision < self.written {
            return Ok(());
        }
        let cluster = self.cluster(view);
        let change = self.coordinator.decide(start.elapsed(), &cluster);
        for &at in &change.unrecoverable {
            if self.logged.insert(at) {
                let (array, keys) = (at.array, at.range);
                tracing::error!(
                    "{array}, keys {keys}: all servers that held it are gone: go on from the \
                        training's checkpoint (--resume)"
                );
            }
        }
        self.logged.retain(|at| change.unrecoverable.contains(at));
        let registry = membership.registry();
        let table = &view.table;
        let (routing, hand_overs, plan) = (&change.routing, &change.hand_overs, &change.plan);
        let before = (&table.routing, &table.hand_overs, &table.plan);
        if before != (routing, hand_overs, plan) {
            tracing::debug!(?routing, ?hand_overs, "changed");
            let written = registry.change(self.term, table.revision, routing, hand_overs, plan);
            self.written = written.await?;
            if *plan != table.plan {
                let LoadPlan { taken_back, moved, before_us, after_us, .. } = plan;
                let why = match (taken_back, plan.standbys.cmp(&table.plan.standbys)) {
                    (true, _) => "shards move back: their last move has saved nothing",
                    (false, Ordering::Equal) => "shards move away from slow servers",
                    (false, _) => "other standbys hold shards",
                };
                tracing::info!(moved, before_us, after_us, standbys = ?plan.standbys, "{why}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::{ArrayId, Epoch, KeyRange, NodeId, Route, Routing};

    use super::*;
    use crate::registry::{Leader, Report};

    /// Suspicions: by which server, and of which.
    type Suspicions = &'static [(u64, u64)];

    const PATIENCE: Duration = Duration::from_millis(600);

    fn server(node: u64) -> Member {
        Member::Server(NodeId(node))
    }

    /// Led by this member; one shard under this chain, and these suspicions.
    fn view(member: Member, chain: &[u64], suspicions: &[(u64, u64)]) -> View {
        let route = Route {
            array: ArrayId(1),
            range: KeyRange::new(0, 9),
            epoch: Epoch(1),
            chain: chain.iter().copied().map(NodeId).collect(),
        };
        let report = |&(by, of): &(u64, u64)| {
            let report = Report::Suspect(NodeId(of));
            (format!("{by}/{of}"), (server(by), report))
        };
        let term = Term(Revision(3));
        let mut view = View {
            reachable: true,
            leader: Some(Leader { term, member }),
            reports: suspicions.iter().map(report).collect(),
            ..View::default()
        };
        view.table.revision = Revision(7);
        view.table.routing = Routing::new(1, vec![route]).unwrap();
        view
    }

    fn led_by_coordinator(chain: &[u64], suspicions: &[(u64, u64)]) -> View {
        view(Member::Coordinator(9), chain, suspicions)
    }

    #[test]
    fn leader_is_tolerated_until_it_had_time_to_act() {
        let mut timer = SuspicionTimer::default();
        let mut until = |now, view: &View| {
            let suspicion = LeaderSuspicion::of(view, server(1));
            let until = timer.until(view, suspicion, Duration::from_millis(now), PATIENCE);
            until.map(|until| until.as_millis())
        };
        let same = led_by_coordinator(&[1, 2], &[(1, 2)]);
        assert_eq!([100, 650].map(|now| until(now, &same)), [Some(700); 2]);
        // It has done something, and may do more.
        let mut changed = same.clone();
        changed.table.revision = Revision(8);
        assert_eq!(until(680, &changed), Some(1_280));
        assert_eq!(until(700, &led_by_coordinator(&[1], &[(1, 2)])), None);
        assert_eq!(until(800, &same), Some(1_400));
        let away = View { reachable: false, ..same };
        assert_eq!(until(900, &away), None);
    }

    #[test]
    fn leader_is_overdue_only_with_a_suspicion_that_must_be_believed() {
        let cases: [(Member, &[u64], Suspicions, bool, &str); 6] = [
            (server(1), &[1, 2], &[(1, 2)], true, "it must be believed"),
            (server(3), &[1, 2], &[(1, 2)], false, "the suspicion is another's"),
            (Member::Coordinator(4), &[1, 2], &[(1, 2)], false, "it is no server"),
            (server(1), &[1, 2], &[(1, 2), (2, 1)], false, "it is suspected, too"),
            (server(1), &[2], &[(1, 2)], false, "none could take the dead one's place"),
            (server(1), &[1, 3], &[(1, 2)], false, "it has left already"),
        ];
        for (own, chain, suspicions, expected, reason) in cases {
            let view = led_by_coordinator(chain, suspicions);
            assert_eq!(is_overdue(&view, own), expected, "{reason}");
        }
    }

    #[test]
    fn dead_leader_is_not_tolerated_but_one_that_suspects_back_is() {
        let cases: [(Suspicions, LeaderSuspicion); 4] = [
            (&[(1, 2)], LeaderSuspicion::Dead),
            (&[(1, 2), (2, 1)], LeaderSuspicion::Tolerated),
            (&[(2, 1)], LeaderSuspicion::None),
            (&[], LeaderSuspicion::None),
        ];
        for (suspicions, expected) in cases {
            let view = view(server(2), &[1, 2], suspicions);
            assert_eq!(LeaderSuspicion::of(&view, server(1)), expected, "{suspicions:?}");
        }
    }
}
