//! Acts out what is planned.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::check::Violation;
use crate::client::Client;
use crate::clock::Clock;
use crate::frontends::Frontends;
use crate::model::{CHEAP, DEPLOYED, PARITY as PARITY_MODELS};
use crate::outcome::Record;
use crate::plan::{Fault, PARITY, Planned, REPLICAS, is_relayed};
use crate::processes::Instance;
use crate::relay::Relay;

/// Time that a query takes when nothing is wrong: some milliseconds, and one in fifty much longer.
const SERVICE: &str = "service_time = { distribution = \"lognormal\", median_ms = 4.0, sigma = 0.3 }\n\
                       straggle = { probability = 0.02, min_ms = 40.0, max_ms = 150.0 }\n";

pub struct FaultyInstances {
    instances: Vec<Mutex<Instance>>,
    /// Of those that are reached by way of one.
    relays: Vec<Option<Relay>>,
    addresses: Vec<SocketAddr>,
}

impl FaultyInstances {
    pub async fn start(
        programs: &Path,
        folder: &Path,
        repository: &Path,
        seed: u64,
    ) -> Result<Self> {
        let profile = folder.join("faults.toml");
        fs::write(&profile, format!("seed = {seed}\n{SERVICE}"))
            .context("cannot write the fault profile")?;
        let (profile, repository) = (
            profile.display().to_string(),
            repository.display().to_string(),
        );
        let parity: Vec<&str> = PARITY_MODELS
            .iter()
            .map(|(_, name)| *name)
            .chain([CHEAP])
            .collect();
        let parity = parity.join(",");
        let mut cluster = Self {
            instances: Vec::new(),
            relays: Vec::new(),
            addresses: Vec::new(),
        };
        for number in 0..REPLICAS + PARITY {
            let models = if number < REPLICAS { DEPLOYED } else { &parity };
            let own = number.to_string();
            let arguments = [
                "--repository",
                &repository,
                "--model",
                models,
                "--fault-profile",
                &profile,
                "--fault-instance",
                &own,
            ];
            let program = programs.join("parapet-instance");
            let instance = Instance::start(&program, &arguments, number as u8, folder).await?;
            let mut address = instance.address;
            let mut relay = None;
            if is_relayed(number) {
                let started = Relay::start(address, seed.wrapping_add(number as u64)).await?;
                address = started.address;
                relay = Some(started);
            }
            cluster.instances.push(Mutex::new(instance));
            cluster.relays.push(relay);
            cluster.addresses.push(address);
        }
        Ok(cluster)
    }

    /// Where frontends reach them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers that were spoilt.
    pub fn spoilt(&self) -> u64 {
        self.relays.iter().flatten().map(Relay::spoilt).sum()
    }

    async fn freeze(&self, number: usize, frozen: bool) {
        if let Some(instance) = self.instances.get(number) {
            instance.lock().await.freeze(frozen);
        }
    }

    async fn kill(&self, number: usize) {
        if let Some(instance) = self.instances.get(number) {
            instance.lock().await.kill().await;
        }
    }

    async fn revive(&self, number: usize) -> Result<()> {
        match self.instances.get(number) {
            Some(instance) => instance.lock().await.revive().await,
            None => Ok(()),
        }
    }
}

/// Waits for its time, does it, and makes it good.
pub async fn act(
    planned: Planned,
    cluster: &FaultyInstances,
    frontends: &Arc<Frontends>,
    record: &Arc<Record>,
    clock: &Clock,
) {
    clock.until(planned.at).await;
    eprintln!("{planned}");
    let number = record.begins(planned.fault);
    if let Err(error) = done(planned, cluster, frontends, record, clock).await {
        record.violated(Violation::new(
            "cluster",
            format!("{:?}: {error:#}", planned.fault),
        ));
    }
    record.ends(number);
}

async fn done(
    planned: Planned,
    cluster: &FaultyInstances,
    frontends: &Arc<Frontends>,
    record: &Arc<Record>,
    clock: &Clock,
) -> Result<()> {
    let over = planned.at + planned.lasts;
    let violation = match planned.fault {
        Fault::Frozen(instance) => {
            cluster.freeze(instance, true).await;
            clock.until(over).await;
            cluster.freeze(instance, false).await;
            None
        }
        Fault::Killed(instance) => {
            cluster.kill(instance).await;
            clock.until(over).await;
            cluster.revive(instance).await?;
            None
        }
        Fault::Spoilt(instance, spoil, percent) => {
            let relay = cluster
                .relays
                .get(instance)
                .and_then(Option::as_ref)
                .context("no relay")?;
            relay.spoil(Some((spoil, percent)));
            clock.until(over).await;
            relay.spoil(None);
            None
        }
        Fault::ParityLost { killed } => {
            for instance in REPLICAS..REPLICAS + PARITY {
                if killed {
                    cluster.kill(instance).await
                } else {
                    cluster.freeze(instance, true).await
                }
            }
            clock.until(over).await;
            for instance in REPLICAS..REPLICAS + PARITY {
                if killed {
                    cluster.revive(instance).await?
                } else {
                    cluster.freeze(instance, false).await
                }
            }
            None
        }
        Fault::Reloaded { variant } => frontends.reload(variant).await.map(|()| None)?,
        Fault::Misconfigured(mistake) => frontends.misconfigure(mistake).await?,
        Fault::Rolled(place) => frontends.roll(place).await?,
        Fault::Poisoned => {
            poison(planned, frontends, record, clock).await;
            None
        }
    };
    violation
        .into_iter()
        .for_each(|violation| record.violated(violation));
    Ok(())
}

/// Poison queries of a burst, and the time from one to the next.
const BURST: usize = 24;
const BURST_EVERY: Duration = Duration::from_millis(500);
/// Poisoners are numbered from here, so that none draws what a client draws.
const FIRST_POISONER: usize = 1_000_000;

/// Bursts of queries that overflow the model, until the fault is over.
async fn poison(planned: Planned, frontends: &Arc<Frontends>, record: &Arc<Record>, clock: &Clock) {
    let (seed, mut number) = (planned.at.as_nanos() as u64, FIRST_POISONER);
    while clock.elapsed() < planned.at + planned.lasts {
        let mut burst = JoinSet::new();
        for _ in 0..BURST {
            let client = Client::new(
                number,
                seed,
                clock.clone(),
                Arc::clone(frontends),
                Arc::clone(record),
            );
            burst.spawn(client.poison());
            number += 1;
        }
        burst.join_all().await;
        clock.pass(BURST_EVERY).await;
    }
}
