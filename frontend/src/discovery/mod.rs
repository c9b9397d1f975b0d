//! Where instances are, while it changes: a [`Discovery`] names the whole set of addresses again
//! and again, [`follow`] keeps the last one known, and [`difference`] says who joined and who left.
//!
//! ```text
//!   DNS, etcd, Kubernetes --Discovery::next--> follow --View--> difference --> joins and leaves
//! ```
//!
//! A backend that is lost, or that suddenly knows no instance at all, changes nothing: the
//! instances that were known are kept, and whether they are well is for health checks to say. So no
//! outage of a registry takes serving down.

mod dns;
mod etcd;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod settings;

pub use dns::Dns;
pub use etcd::Etcd;
pub use settings::{EtcdSettings, KubernetesSettings, Scheme, Settings};

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::sleep;

/// Most instances of one pool; the rest of a longer list is left out.
pub const MAX_INSTANCES: usize = 1024;
/// Pauses after failures in a row: from the first to the last, twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub address: SocketAddr,
    /// The host name by which it was found, which its certificate has to have: in ASCII, and
    /// without the dot at its end.
    pub host: Option<Arc<str>>,
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self { address, host: None }
    }
}

pub type Addresses = BTreeSet<Place>;

/// Places without a known instance, and instances whose place was not found any more. One that has
/// another name now leaves, and joins under that.
pub fn difference<Id: Copy>(
    known: &BTreeMap<Place, Id>,
    found: &Addresses,
) -> (Vec<Place>, Vec<(Place, Id)>) {
    let joined = found.iter().filter(|place| !known.contains_key(place));
    let left = known.iter().filter(|(place, _)| !found.contains(place));
    (joined.cloned().collect(), left.map(|(place, id)| (place.clone(), *id)).collect())
}

pub trait Discovery: Send + 'static {
    /// The whole set, as soon as there may be news: the first time at once. It may be the same
    /// again. After an error the next call begins anew. Every wait but that for news has a bound.
    fn next(&mut self) -> impl Future<Output = Result<Addresses, DiscoveryError>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{backend}: {reason}")]
pub struct DiscoveryError {
    pub backend: String,
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub addresses: Addresses,
    /// True if the backend answers, and knows any instance. If not, the addresses are from before.
    pub is_current: bool,
}

/// Follows `discovery` in a task of its own until every receiver is dropped. `name` says in logs
/// whose instances these are.
pub fn follow<D: Discovery>(mut discovery: D, name: String) -> watch::Receiver<View> {
    let (sender, receiver) = watch::channel(View::default());
    tokio::spawn(async move {
        let following = async {
            let mut failures = 0;
            loop {
                let found = discovery.next().await;
                failures = if found.is_ok() { 0 } else { failures + 1 };
                learn(&sender, &name, found);
                sleep(pause(failures)).await;
            }
        };
        tokio::select! {
            () = sender.closed() => {}
            () = following => {}
        }
    });
    receiver
}

/// Takes in the addresses that were found; none at all counts as an outage of the backend's
/// writers, and changes nothing.
fn learn(view: &watch::Sender<View>, name: &str, found: Result<Addresses, DiscoveryError>) {
    let reason = match found {
        Ok(found) if !found.is_empty() => {
            if found.len() > MAX_INSTANCES {
                let (found, used) = (found.len(), MAX_INSTANCES);
                tracing::warn!(pool = name, found, used, "too many instances found");
            }
            let addresses: Addresses = found.into_iter().take(MAX_INSTANCES).collect();
            let instances = addresses.len();
            let found = View { addresses, is_current: true };
            if view.send_if_modified(|view| std::mem::replace(view, found) != *view) {
                tracing::info!(pool = name, instances, "instances found");
            }
            return;
        }
        Ok(_) => "no instance found".to_owned(),
        Err(error) => error.to_string(),
    };
    let was_current = view.send_if_modified(|view| std::mem::take(&mut view.is_current));
    let kept = view.borrow().addresses.len();
    if was_current || kept == 0 {
        tracing::warn!(pool = name, kept, reason, "where instances are is not known now");
    } else {
        tracing::debug!(pool = name, kept, reason, "where instances are is still not known");
    }
}

/// After so many failures in a row; jittered, so that many frontends do not ask in step.
fn pause(failures: u32) -> Duration {
    let Some(before) = failures.checked_sub(1) else { return Duration::ZERO };
    let longest = FIRST_PAUSE.saturating_mul(1 << before.min(10)).min(LAST_PAUSE);
    longest.mul_f64(rand::rng().random_range(0.5..1.0))
}

/// Sleeps for an interval, a tenth more or less, so that many frontends do not ask in step.
pub(crate) async fn sleep_about(interval: Duration) {
    let jitter = rand::rng().random_range(0.9..1.1);
    sleep(interval.mul_f64(jitter)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn place((last, host): (u8, u8)) -> Place {
        let host = (host > 0).then(|| format!("host-{host}").into());
        let address = ([10, 0, 0, last], 9000).into();
        Place { address, host }
    }

    proptest! {
        /// Joins and leaves turn the known into the found, and leave the others alone.
        #[test]
        fn brings_the_known_to_the_found(
            rounds in prop::collection::vec(prop::collection::btree_map(0u8..12, 0u8..3, 0..8),
                1..20),
        ) {
            let mut known: BTreeMap<Place, u32> = BTreeMap::new();
            let mut next = 0;
            for found in rounds {
                let found: Addresses = found.into_iter().map(place).collect();
                let before = known.clone();
                let (joined, left) = difference(&known, &found);
                for (place, id) in &left {
                    prop_assert_eq!(known.remove(place), Some(*id));
                }
                for place in joined {
                    next += 1;
                    prop_assert_eq!(known.insert(place, next), None);
                }
                prop_assert_eq!(&known.keys().cloned().collect::<Addresses>(), &found);
                let mut stayed = before.iter().filter(|(place, _)| found.contains(place));
                prop_assert!(stayed.all(|(place, id)| known.get(place) == Some(id)));
            }
        }
    }
}
