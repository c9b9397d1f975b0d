//! Leader's loop: changes the table.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{Change, Coordinator, CoordinatorConfig, NodeId, ShardRef};
use tokio::time::{Instant, sleep_until};

use crate::registry::backoff::Backoff;
use crate::registry::store::Revision;
use crate::registry::{Member, Membership, RegistryError, Report, Table, Term, View};

/// Settings of [`lead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaderConfig {
    pub coordinator: CoordinatorConfig,
}

struct LeaderTerm {
    term: Term,
    coordinator: Coordinator,
    /// Revision written last: a view without it is outdated.
    written: Revision,
    told: BTreeSet<ShardRef>,
}

/// Takes part in the election of a leader, and leads while elected, until the registry is closed.
///
/// Run it in as many processes as may fail together, and one more: servers do it beside their work.
/// A member that suspects the leader to be dead ([`Report::Suspect`]) campaigns against it at once;
/// its lease would take two seconds and more. So does a server whose suspicion of another has led
/// to nothing within twice the time after which it must be believed ([`CoordinatorConfig::doubt`]):
/// the leader hangs, or is a coordinator that is dead, which no connection tells of. Neither is a
/// danger: each change is made on the condition that its author still leads.
///
/// # Errors
/// [`RegistryError::Closed`] at the end.
pub async fn lead(membership: &Membership, config: LeaderConfig) -> Result<(), RegistryError> {
    let mut views = membership.registry().view();
    let mut backoff = Backoff::default();
    let mut leader_term: Option<LeaderTerm> = None;
    let mut suspicions = SuspicionTimer::default();
    let start = Instant::now();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let mut timer = None;
        let patience = config.coordinator.doubt.saturating_mul(2);
        let suspicion = LeaderSuspicion::of(&view, membership.id());
        let gives_up = suspicions.until(&view, suspicion, start.elapsed(), patience);
        let outcome = match view.leader {
            Some(leader) if leader.member == membership.id() => {
                let current = leader_term
                    .take()
                    .filter(|leader_term| leader_term.term == leader.term);
                let leader_term = leader_term
                    .insert(current.unwrap_or_else(|| LeaderTerm::begin(leader.term, &config)));
                let outcome = leader_term.rule(membership, &view, start).await;
                timer = leader_term.coordinator.next_timer();
                outcome
            }
            Some(leader)
                if suspicion == LeaderSuspicion::Dead
                    || gives_up.is_some_and(|due| start.elapsed() >= due) =>
            {
                suspicions = SuspicionTimer::default();
                membership.campaign(Some(leader.term)).await.map(|_| ())
            }
            Some(_) => {
                timer = gives_up;
                Ok(())
            }
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

/// Reason for this member to suspect the leader.
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
            let Member::Server(of) = of else { return false };
            view.reports
                .values()
                .any(|&(reporter, report)| reporter == by && report == Report::Suspect(of))
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

/// Logs changes, for operators who ask how a cluster came to be as it is.
fn tell_changes(table: &Table, change: &Change) {
    let old = &table.routing;
    for route in change.routing.routes() {
        if old.route(route.array, route.range.start) != Some(route) {
            tracing::debug!(array = %route.array, keys = %route.range, epoch = route.epoch.0,
                chain = ?route.chain, "changed");
        }
    }
    for new in change
        .hand_overs
        .iter()
        .filter(|new| !table.hand_overs.contains(new))
    {
        tracing::debug!(array = %new.at.array, keys = %new.at.range, epoch = new.at.epoch.0,
            to = %new.to, "to be copied");
    }
}

/// Since when a grievance is borne, and the leader has done nothing about it.
#[derive(Debug, Default)]
struct SuspicionTimer {
    /// The leader and the table that have not changed since.
    since: Option<(Term, Revision, Duration)>,
}

impl SuspicionTimer {
    /// Until when this is borne; `None` if there is nothing to bear.
    fn until(
        &mut self,
        view: &View,
        suspicion: LeaderSuspicion,
        now: Duration,
        patience: Duration,
    ) -> Option<Duration> {
        let leader = view
            .leader
            .filter(|_| view.reachable && suspicion == LeaderSuspicion::Tolerated);
        let current = leader.map(|leader| (leader.term, view.table.revision));
        let since = match (self.since, current) {
            (Some((term, table, since)), Some(current)) if (term, table) == current => since,
            _ => now,
        };
        self.since = current.map(|(term, table)| (term, table, since));
        current.map(|_| since + patience)
    }
}

/// Returns true if a server suspects one that should leave a chain then: one with others in it.
/// Reports of a suspected member need not be believed.
fn is_overdue(view: &View, own: Member) -> bool {
    let Member::Server(node) = own else {
        return false;
    };
    let suspicions = || {
        view.reports
            .values()
            .filter_map(|&(by, report)| match report {
                Report::Suspect(of) => Some((by, of)),
                Report::Propose(_) | Report::Lost(_) => None,
            })
    };
    let should_leave = |of: NodeId| {
        view.table
            .routing
            .routes()
            .iter()
            .any(|route| route.chain.len() > 1 && route.chain.contains(&of))
    };
    suspicions().all(|(_, of)| of != node)
        && suspicions().any(|(by, of)| by == own && should_leave(of))
}

impl LeaderTerm {
    fn begin(term: Term, config: &LeaderConfig) -> Self {
        tracing::info!(?term, "leads from now on");
        let coordinator = Coordinator::new(config.coordinator);
        Self {
            term,
            coordinator,
            written: Revision(0),
            told: BTreeSet::new(),
        }
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
                    "{}, keys {}: all servers that held it are gone: go on from the training's \
                        checkpoint (--resume)",
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
            tell_changes(table, &change);
            self.written = registry
                .change(self.term, table.revision, routing, hand_overs)
                .await?;
        }
        if !change.gone_workers.is_empty() {
            registry
                .drop_workers(self.term, &change.gone_workers)
                .await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::{ArrayId, Epoch, KeyRange, Route, Routing};

    use super::*;
    use crate::registry::Leader;

    const PATIENCE: Duration = Duration::from_millis(600);

    fn server(node: u64) -> Member {
        Member::Server(NodeId(node))
    }

    /// Led by a coordinator; one shard under this chain, and these suspicions.
    fn view(chain: &[u64], suspicions: &[(u64, u64)]) -> View {
        let chain = chain.iter().copied().map(NodeId).collect();
        let route = Route {
            array: ArrayId(1),
            range: KeyRange::new(0, 9),
            epoch: Epoch(1),
            chain,
        };
        let routing = Routing::new(1, vec![route]).unwrap();
        let report = |&(by, of): &(u64, u64)| {
            (
                format!("{by}/{of}"),
                (server(by), Report::Suspect(NodeId(of))),
            )
        };
        View {
            reachable: true,
            table: Table {
                revision: Revision(7),
                routing,
                hand_overs: Vec::new(),
            },
            leader: Some(Leader {
                term: Term(Revision(3)),
                member: Member::Coordinator(9),
            }),
            reports: suspicions.iter().map(report).collect(),
            ..View::default()
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_leader_is_borne_until_it_had_time_to_act() {
        let mut timer = SuspicionTimer::default();
        let until = |timer: &mut SuspicionTimer, now, view: &View| {
            timer.until(
                view,
                LeaderSuspicion::of(view, server(1)),
                ms(now),
                PATIENCE,
            )
        };
        let same = view(&[1, 2], &[(1, 2)]);
        assert_eq!(until(&mut timer, 100, &same), Some(ms(700)));
        assert_eq!(until(&mut timer, 650, &same), Some(ms(700)));
        // It has done something, and may do more.
        let mut changed = same.clone();
        changed.table.revision = Revision(8);
        assert_eq!(until(&mut timer, 680, &changed), Some(ms(1_280)));
        assert_eq!(until(&mut timer, 700, &view(&[1], &[(1, 2)])), None);
        assert_eq!(until(&mut timer, 800, &same), Some(ms(1_400)));
    }

    #[test]
    fn only_who_must_be_believed_is_neglected() {
        let asks = |own, chain, suspicions| is_overdue(&view(chain, suspicions), own);
        assert!(asks(server(1), &[1, 2], &[(1, 2)]));
        assert!(
            !asks(server(3), &[1, 2], &[(1, 2)]),
            "the suspicion is another's"
        );
        assert!(!asks(Member::Coordinator(4), &[1, 2], &[(1, 2)]));
        assert!(
            !asks(server(1), &[1, 2], &[(1, 2), (2, 1)]),
            "it is suspected, too"
        );
        assert!(
            !asks(server(1), &[2], &[(1, 2)]),
            "nobody could take the dead one's place"
        );
        assert!(!asks(server(1), &[1, 3], &[(1, 2)]), "it has left already");
        let away = View {
            reachable: false,
            ..view(&[1, 2], &[(1, 2)])
        };
        assert_eq!(
            SuspicionTimer::default().until(&away, LeaderSuspicion::Tolerated, ms(0), PATIENCE),
            None
        );
    }

    #[test]
    fn a_leader_that_is_dead_is_not_borne_but_one_that_says_the_same_is() {
        let led = |suspicions| {
            let leader = Some(Leader {
                term: Term(Revision(3)),
                member: server(2),
            });
            View {
                leader,
                ..view(&[1, 2], suspicions)
            }
        };
        assert_eq!(
            LeaderSuspicion::of(&led(&[(1, 2)]), server(1)),
            LeaderSuspicion::Dead
        );
        assert_eq!(
            LeaderSuspicion::of(&led(&[(1, 2), (2, 1)]), server(1)),
            LeaderSuspicion::Tolerated
        );
        assert_eq!(
            LeaderSuspicion::of(&led(&[(2, 1)]), server(1)),
            LeaderSuspicion::None
        );
        assert_eq!(
            LeaderSuspicion::of(&led(&[]), server(1)),
            LeaderSuspicion::None
        );
    }
}
