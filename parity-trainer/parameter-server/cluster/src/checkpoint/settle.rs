//! When held servers have come to a cut: all shards contain each worker's updates up to the same clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parapet_parameter_server::{Clock, NodeId, Route, ShardRef, WorkerId};
use parapet_parameter_server_registry::{Registry, Revision};
use tokio::time::{Instant, sleep, timeout_at};

use super::held::Held;
use super::take::{Failure, shard};
use super::{ask_each, left};
use crate::control::{Control, ShardStatus};

/// Between looks at how far the servers are.
const LOOK: Duration = Duration::from_millis(50);
/// Workers that are behind and do nothing for so long are not waited for. Should one push while shards are written, the
/// shards are of different moments, and the next attempt may have more luck.
const IDLE: Duration = Duration::from_secs(1);
/// Shards that differ for so long, while nothing changes, will go on to.
const STUCK: Duration = Duration::from_secs(3);

/// Each worker's clock in each shard.
type Clocks = BTreeMap<ShardRef, BTreeMap<WorkerId, Clock>>;

/// How far the shards are.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// All workers are in all shards, up to the clock at which servers are held.
    Done,
    /// All shards contain the same, but this worker might still come to the clock.
    Behind(String),
    /// Two shards contain different updates.
    Uneven(String),
    /// A shard is not where the table says.
    Missing(String),
}

impl Standing {
    fn of(clocks: &Clocks, routes: &[Route], at: Clock) -> Self {
        let name = |at: ShardRef| format!("{}, keys {}", at.array, at.range);
        let mut first: Option<(ShardRef, &BTreeMap<WorkerId, Clock>)> = None;
        for here in routes.iter().map(shard) {
            let Some(own) = clocks.get(&here) else {
                return Self::Missing(format!("{} is not held by the tail of its chain", name(here)));
            };
            let &mut (there, other) = first.get_or_insert((here, own));
            let workers: BTreeSet<WorkerId> = own.keys().chain(other.keys()).copied().collect();
            if let Some(worker) = workers.into_iter().find(|worker| own.get(worker) != other.get(worker)) {
                let clock = |of: &BTreeMap<WorkerId, Clock>| {
                    of.get(&worker).map_or_else(|| "nothing".to_owned(), |clock| format!("clock {}", clock.0))
                };
                return Self::Uneven(format!(
                    "{worker} has come to {} in {}, to {} in {}",
                    clock(own),
                    name(here),
                    clock(other),
                    name(there)
                ));
            }
        }
        let behind = first.into_iter().flat_map(|(_, own)| own).find(|&(_, &clock)| clock < at);
        behind.map_or(Self::Done, |(worker, clock)| {
            Self::Behind(format!("{worker} is at clock {}, others at {}", clock.0, at.0))
        })
    }

    /// What is made of it if nothing has changed for so long; `None`: it is waited for.
    fn after(self, idle: Duration) -> Option<Result<(), Failure>> {
        match self {
            Self::Done => Some(Ok(())),
            Self::Behind(_) => (idle >= IDLE).then_some(Ok(())),
            Self::Missing(cause) => (idle >= IDLE).then_some(Err(Failure::Passing(cause))),
            Self::Uneven(cause) => (idle >= STUCK).then(|| {
                let advice = "arrays of different programs are written apart from each other (--array), and a worker must push \
                              all keys of an array in each of its clocks";
                Err(Failure::NoCut(format!("{cause}, and does nothing: {advice}")))
            }),
        }
    }

    fn cause(self) -> String {
        match self {
            Self::Done => String::new(),
            Self::Behind(cause) | Self::Uneven(cause) | Self::Missing(cause) => cause,
        }
    }
}

/// Waits until all shards contain each worker's updates up to the same clock, and none are on their way.
pub(super) async fn settle(
    held: &Held,
    routes: &[Route],
    registry: &Registry,
    table: Revision,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut last: (Clocks, Instant) = (Clocks::new(), Instant::now());
    loop {
        if registry.view().borrow().table.revision != table {
            return Err(Failure::Passing("the routing table has changed".into()));
        }
        let late = |cause: String| Failure::NoCut(format!("{cause}: let pushes wait longer (--stall)"));
        let clocks = timeout_at(deadline, look(held, routes)).await;
        let clocks = clocks.map_err(|_| late("a server has not said how far it is".into()))??;
        if clocks != last.0 {
            last = (clocks, Instant::now());
        }
        let standing = Standing::of(&last.0, routes, held.at);
        if left(deadline) < LOOK && standing != Standing::Done {
            return Err(late(standing.cause()));
        }
        if let Some(settled) = standing.after(last.1.elapsed()) {
            return settled;
        }
        sleep(LOOK).await;
    }
}

/// What the tails contain.
async fn look(held: &Held, routes: &[Route]) -> Result<Clocks, Failure> {
    let tails: BTreeSet<NodeId> = routes.iter().filter_map(Route::tail).collect();
    let asked = held.controls().iter().filter(|(node, _)| tails.contains(node));
    let asked = asked.map(|(&node, control)| (node, control.clone())).collect();
    let statuses = ask_each(&asked, |control: Control| async move { control.status().await }).await?;
    let mut clocks = Clocks::new();
    for (node, status) in statuses {
        let of_tail = |held: &&ShardStatus| {
            routes.iter().any(|route| route.tail() == Some(node) && shard(route) == held.at)
        };
        let shards = status.shards.iter().filter(of_tail);
        clocks.extend(shards.map(|shard| (shard.at, shard.clocks.iter().copied().collect())));
    }
    Ok(clocks)
}

#[cfg(test)]
mod tests {
    use parapet_parameter_server::{ArrayId, Epoch, KeyRange};

    use super::*;

    /// Two shards of an array, and one of another.
    fn routes() -> Vec<Route> {
        let route = |(array, start)| Route {
            array: ArrayId(array),
            range: KeyRange::new(start, start + 10),
            epoch: Epoch(1),
            chain: vec![NodeId(1)],
        };
        [(1, 0), (1, 10), (2, 0)].map(route).to_vec()
    }

    /// What each shard contains of workers 4 and 5.
    fn clocks(of: [(u64, u64); 3]) -> Clocks {
        let own = |(one, other)| [(WorkerId(4), Clock(one)), (WorkerId(5), Clock(other))].into();
        routes().iter().map(shard).zip(of.map(own)).collect()
    }

    fn standing(of: [(u64, u64); 3]) -> Standing {
        Standing::of(&clocks(of), &routes(), Clock(9))
    }

    #[test]
    fn a_cut_has_all_workers_at_one_clock_each() {
        assert_eq!(standing([(9, 9), (9, 9), (9, 9)]), Standing::Done);
        assert!(
            standing([(9, 9), (9, 9), (9, 9)]).after(Duration::ZERO).is_some_and(|settled| settled.is_ok())
        );
        let behind = standing([(9, 3), (9, 3), (9, 3)]);
        assert!(behind.after(Duration::ZERO).is_none(), "the worker may come");
        let behind = standing([(9, 3), (9, 3), (9, 3)]).after(IDLE);
        assert!(behind.is_some_and(|settled| settled.is_ok()), "it is in no shard");
        let mut fewer = clocks([(9, 9), (9, 9), (9, 9)]);
        fewer.pop_last();
        let missing = Standing::of(&fewer, &routes(), Clock(9)).after(IDLE);
        assert!(matches!(missing, Some(Err(Failure::Passing(_)))));
    }

    #[test]
    fn shards_that_stay_different_are_given_up_and_named() {
        // A worker that pushes some keys alone; one of another program, which has an array of its own.
        for of in [[(9, 9), (9, 8), (9, 9)], [(9, 9), (9, 9), (9, 0)]] {
            assert!(standing(of).after(IDLE).is_none());
            let Some(Err(Failure::NoCut(cause))) = standing(of).after(STUCK) else { unreachable!("{of:?}") };
            assert!(cause.starts_with("worker 5 has come to clock"), "{cause}");
            assert!(cause.contains("array 1, keys [0, 10)") && cause.contains("--array"), "{cause}");
        }
    }
}
