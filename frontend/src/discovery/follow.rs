//! Asks a backend until the last receiver is gone, and keeps its latest answer.

use std::time::Duration;

use rand::Rng;
use tokio::sync::watch;

use crate::discovery::{Addresses, Discovery, DiscoveryError, MAX_INSTANCES};

/// Pauses after failures in a row: from the first to the last, twice as long each time.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Latest addresses of instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Their addresses: the last ones that were found.
    pub addresses: Addresses,
    /// True if the backend answers, and knows any instance. If not, the addresses are
    /// those from before.
    pub is_current: bool,
}

/// Follows `discovery` in a task of its own until every receiver is dropped. `name` says in logs
/// whose instances these are.
pub fn follow<D: Discovery>(mut discovery: D, name: String) -> watch::Receiver<View> {
    let (sender, receiver) = watch::channel(View::default());
    tokio::spawn(async move {
        let mut failures = 0;
        loop {
            let found = tokio::select! {
                () = sender.closed() => return,
                found = discovery.next() => found,
            };
            let failed = found.is_err();
            learn(&sender, &name, found);
            failures = if failed { failures + 1 } else { 0 };
            if failed {
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(pause(failures)) => {}
                }
            }
        }
    });
    receiver
}

/// Takes in the addresses that were found; none at all counts as an outage of the backend's
/// writers, and changes nothing.
fn learn(view: &watch::Sender<View>, name: &str, found: Result<Addresses, DiscoveryError>) {
    let was_current = view.borrow().is_current;
    match found {
        Ok(mut found) if !found.is_empty() => {
            if found.len() > MAX_INSTANCES {
                tracing::warn!(
                    pool = name,
                    found = found.len(),
                    used = MAX_INSTANCES,
                    "too many instances found"
                );
                found = found.take(MAX_INSTANCES);
            }
            let found = View {
                addresses: found,
                is_current: true,
            };
            let changed = view.send_if_modified(|view| {
                let changed = *view != found;
                *view = found;
                changed
            });
            if changed {
                tracing::info!(
                    pool = name,
                    instances = view.borrow().addresses.len(),
                    "instances found"
                );
            }
        }
        lost => {
            let reason = lost
                .err()
                .map_or_else(|| "no instance found".to_owned(), |error| error.to_string());
            view.send_if_modified(|view| std::mem::take(&mut view.is_current));
            let kept = view.borrow().addresses.len();
            if was_current || kept == 0 {
                tracing::warn!(
                    pool = name,
                    kept,
                    reason,
                    "where instances are is not known now"
                );
            } else {
                tracing::debug!(
                    pool = name,
                    kept,
                    reason,
                    "where instances are is still not known"
                );
            }
        }
    }
}

/// After so many failures in a row; jittered, so that many frontends do not ask in step.
fn pause(failures: u32) -> Duration {
    let (first, last) = PAUSE;
    let longest = first
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(last);
    longest.mul_f64(rand::rng().random_range(0.5..1.0))
}
