//! Acts out what is planned.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::Run;
use crate::client::Client;
use crate::model::{CHEAP, DEPLOYED, PARITY as PARITY_MODELS};
use crate::plan::{Fault, PARITY, Planned, REPLICAS, is_relayed};
use crate::processes::Instance;
use crate::relay::Relay;

/// Time that a query takes when nothing is wrong: some milliseconds, and one in fifty much longer.
const SERVICE: &str = "service_time = { distribution = \"lognormal\", median_ms = 4.0, sigma = 0.3 }\n\
                       straggle = { probability = 0.02, min_ms = 40.0, max_ms = 150.0 }\n";

/// An instance, and the relay by way of which frontends reach it, if they do.
struct Faulty {
    instance: Mutex<Instance>,
    relay: Option<Relay>,
    /// Where frontends reach it.
    address: SocketAddr,
}

pub struct FaultyInstances(Vec<Faulty>);

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
        let parity = PARITY_MODELS.map(|(.., name)| name).join(",");
        let parity = format!("{parity},{CHEAP}");
        let mut instances = Vec::new();
        for number in 0..REPLICAS + PARITY {
            let models = if number < REPLICAS { DEPLOYED } else { &parity };
            let mut command = Command::new(programs.join("parapet-instance"));
            command.arg("--repository").arg(repository).args(["--model", models]);
            command.arg("--fault-profile").arg(&profile);
            command.args(["--fault-instance", &number.to_string()]);
            let instance = Instance::start(command, number as u8, folder).await?;
            let (mut address, mut relay) = (instance.address, None);
            if is_relayed(number) {
                let started = Relay::start(address, seed.wrapping_add(number as u64)).await?;
                (address, relay) = (started.address, Some(started));
            }
            instances.push(Faulty { instance: Mutex::new(instance), relay, address });
        }
        Ok(Self(instances))
    }

    /// Where frontends reach them.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|faulty| faulty.address).collect()
    }

    /// Answers that were spoilt.
    pub fn spoilt(&self) -> u64 {
        let relays = self.0.iter().filter_map(|faulty| faulty.relay.as_ref());
        relays.map(Relay::spoilt).sum()
    }
}

/// Waits for its time, does it, and makes it good.
pub async fn act(planned: Planned, run: Arc<Run>) {
    run.clock.until(planned.at).await;
    eprintln!("{planned}");
    let number = run.record.begins(planned.fault);
    if let Err(error) = done(planned, &run).await {
        let said = format!("{:?}: {error:#}", planned.fault);
        run.record.violated(("cluster", said));
    }
    run.record.ends(number);
}

async fn done(planned: Planned, run: &Arc<Run>) -> Result<()> {
    let over = planned.at + planned.lasts;
    let all = &run.cluster.0;
    match planned.fault {
        Fault::Frozen(number) => freeze(&all[number..=number], over, run).await,
        Fault::Killed(number) => kill(&all[number..=number], over, run).await?,
        Fault::ReplicasFrozen => freeze(&all[..REPLICAS], over, run).await,
        Fault::ParityLost { killed: true } => kill(&all[REPLICAS..], over, run).await?,
        Fault::ParityLost { killed: false } => freeze(&all[REPLICAS..], over, run).await,
        Fault::Spoilt(number, spoil, percent) => {
            let relay = all[number].relay.as_ref().context("no relay")?;
            relay.spoil(Some((spoil, percent)));
            run.clock.until(over).await;
            relay.spoil(None);
        }
        Fault::Reloaded(variant) => run.frontends.reload(variant).await?,
        Fault::Misconfigured(mistake) => {
            let violation = run.frontends.misconfigure(mistake).await?;
            run.record.violated_all(violation);
        }
        Fault::Rolled(place) => run.record.violated_all(run.frontends.roll(place).await?),
        Fault::Poisoned => poison(planned, run).await,
    }
    Ok(())
}

async fn freeze(frozen: &[Faulty], over: Duration, run: &Run) {
    for faulty in frozen {
        faulty.instance.lock().await.signal(SIGSTOP);
    }
    run.clock.until(over).await;
    for faulty in frozen {
        faulty.instance.lock().await.signal(SIGCONT);
    }
}

async fn kill(killed: &[Faulty], over: Duration, run: &Run) -> Result<()> {
    for faulty in killed {
        faulty.instance.lock().await.kill().await;
    }
    run.clock.until(over).await;
    for faulty in killed {
        faulty.instance.lock().await.revive().await?;
    }
    Ok(())
}

/// Poison queries of a burst, and the time from one to the next.
const BURST: usize = 24;
const BURST_EVERY: Duration = Duration::from_millis(500);
/// Poisoners are numbered from here, so that none draws what a client draws.
const FIRST_POISONER: usize = 1_000_000;

/// Bursts of queries that overflow the model, until the fault is over.
async fn poison(planned: Planned, run: &Arc<Run>) {
    let (seed, mut number) = (planned.at.as_nanos() as u64, FIRST_POISONER);
    while run.clock.elapsed() < planned.at + planned.lasts {
        let mut burst = JoinSet::new();
        for _ in 0..BURST {
            burst.spawn(Client::new(number, seed, Arc::clone(run)).poison());
            number += 1;
        }
        burst.join_all().await;
        run.clock.pass(BURST_EVERY).await;
    }
}
