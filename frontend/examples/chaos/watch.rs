//! Looks at the frontends while they serve, and once they have nothing to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::Run;
use crate::check::Violation;
use crate::configuration::MAX_IN_FLIGHT;
use crate::frontends::Frontend;
use crate::metrics::{self, Metrics};

const EVERY: Duration = Duration::from_millis(500);
/// A frontend has taken what it needs by then.
const WARM: Duration = Duration::from_secs(10);
/// The most that it may hold more than it held then.
const MEMORY_KB: u64 = 64 * 1024;
/// Waits for late truths, and for instances that are frozen still, are over by then.
const REST: Duration = Duration::from_secs(20);

/// Looks at both, again and again.
pub async fn watch(run: Arc<Run>) {
    let mut warm: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        run.clock.pass(EVERY).await;
        for frontend in run.frontends.all() {
            let found = look(&run, &frontend, &mut warm).await;
            // One that stops has no admin listener in the end.
            if !frontend.stopping.load(Ordering::SeqCst) {
                let failed = |error| vec![("admin", format!("{error:#}"))];
                run.record.violated_all(found.unwrap_or_else(failed));
            }
        }
    }
}

async fn look(
    run: &Run,
    frontend: &Frontend,
    warm: &mut BTreeMap<String, u64>,
) -> Result<Vec<Violation>> {
    let metrics = scrape(frontend).await?;
    let mut found = metrics::at_any_time(&metrics);
    let groups = frontend.ask("GET", "/debug/groups").await?.body;
    found.extend(groups_of(&serde_json::from_slice(&groups)?));
    let state = serde_json::from_slice(&frontend.ask("GET", "/live/state").await?.body)?;
    let is_to_blame = |name: &String| {
        let instance = run.frontends.instance(name);
        instance.is_some_and(|instance| run.record.may_be_ejected(instance))
    };
    for name in ejected(&state).filter(|name| !is_to_blame(name)) {
        found.push(("blame", format!("{}: {name} is healthy, and ejected", frontend.name)));
    }
    let memory = frontend.memory_kb().unwrap_or_default();
    if frontend.started.elapsed() > WARM {
        let before = *warm.entry(frontend.name.clone()).or_insert(memory);
        if memory > before + MEMORY_KB {
            found.push(("bounds", format!("{}: {before} KB, now {memory}", frontend.name)));
        }
    }
    let mut noted = run.record.noted.lock();
    noted.looks += 1;
    let groups = metrics.sum("parapet_coding_groups_in_flight", &[]) as u64;
    noted.most_groups = noted.most_groups.max(groups);
    noted.most_memory_kb = noted.most_memory_kb.max(memory);
    Ok(found)
}

async fn scrape(frontend: &Frontend) -> Result<Metrics> {
    let text = frontend.ask("GET", "/metrics").await?.body;
    Ok(Metrics::parse(&String::from_utf8_lossy(&text)))
}

/// Names of the instances that `/live/state` shows as ejected.
fn ejected(state: &Value) -> impl Iterator<Item = String> {
    let models = state["models"].as_array().into_iter().flatten();
    let instances = models.flat_map(|model| model["instances"].as_array().into_iter().flatten());
    let ejected = instances.filter(|instance| instance["state"] == "ejected");
    ejected.map(|instance| instance["name"].as_str().unwrap_or_default().to_owned())
}

/// Returns violations of the conditions on the groups that `/debug/groups` shows.
fn groups_of(shown: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    for (model, shown) in shown["models"].as_object().into_iter().flatten() {
        let in_memory = shown["in_memory"].as_u64().unwrap_or(u64::MAX);
        if in_memory > MAX_IN_FLIGHT as u64 {
            found.push(("bounds", format!("{model}: {in_memory} groups in memory")));
        }
        for group in shown["groups"].as_array().into_iter().flatten() {
            let members = group["members"].as_array().map(|all| all.len() as u64);
            let is_sound = match (group["k"].as_u64(), members, group["sealed"].as_bool()) {
                (Some(k), Some(members), Some(true)) => members == k,
                (Some(k), Some(members), Some(false)) => members < k,
                _ => false,
            };
            if !is_sound {
                found.push(("CG-5", format!("{model}: a group like {group}")));
            }
        }
    }
    found
}

/// Waits until all is over once clients have stopped, and checks the sums.
pub async fn at_rest(run: &Run) -> Result<()> {
    for frontend in run.frontends.all() {
        let seen = frontend.seen.lock().clone();
        let since = Instant::now();
        let found = loop {
            let metrics = scrape(&frontend).await?;
            let mut found = metrics::at_any_time(&metrics);
            found.extend(metrics::at_rest(&metrics, &seen));
            if found.is_empty() || since.elapsed() > REST {
                break found;
            }
            tokio::time::sleep(EVERY).await;
        };
        let named = |(invariant, said)| (invariant, format!("{}: {said}", frontend.name));
        run.record.violated_all(found.into_iter().map(named));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ejected_instances_are_seen() {
        let instance = |(name, state)| json!({ "name": name, "state": state });
        let instances = [("a", "up"), ("b", "ejected"), ("c", "down")].map(instance);
        let state = json!({ "models": [{ "instances": instances }] });
        assert_eq!(ejected(&state).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn groups_that_cannot_be_are_seen() {
        for (in_memory, sealed, members, violations) in [
            (1, true, 2, 0),
            (1, false, 1, 0),
            (1, false, 0, 0),
            (1, true, 1, 1),
            (1, true, 3, 1),
            (1, false, 2, 1),
            (10_000, true, 2, 1),
        ] {
            let group = json!({ "k": 2, "sealed": sealed, "members": vec![0; members] });
            let model = json!({ "in_memory": in_memory, "groups": [group] });
            let found = groups_of(&json!({ "models": { "m": model } }));
            assert_eq!(found.len(), violations, "{model}");
        }
    }
}
