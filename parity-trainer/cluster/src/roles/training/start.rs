//! The beginning of a training.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::optimiser::{OptimiserConfig, TrainingRule};
use parapet_parameter_server::{Clock, Consistency, Key, Keys, Values, WorkerId};

use super::deal::Deal;
use super::executors::{Executors, padded};
use super::mirrored::whole_rows;
use super::{Job, Training};
use crate::array::FilterSpec;
use crate::node::{NodeConfig, TaskError, TaskSpec, Transport};
use crate::registry::{Joining, Member, Membership, Registry, RegistryError, View};
use crate::roles::{ClusterError, Result, await_array, define};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub struct NewTraining<'a> {
    pub rule: OptimiserConfig,
    pub executors: usize,
    pub deal: Deal,
    /// Shards that the parameters are cut into, at most: with factors no more than there are
    /// servers, since each shard of a layer is sent all of the layer's inputs.
    pub shards: u64,
    /// Weights of fully connected layers: shards end where they do, if that leaves them large.
    pub layers: &'a [Range<usize>],
    pub weights: &'a [f32],
    /// The first row of them that is not learned, but measured: see [`TrainingRule`].
    pub measured_from: Option<Key>,
    /// Under every model but BSP each part's push is an update by itself.
    pub consistency: Consistency,
    pub filters: FilterSpec,
    /// Gradients are handed in piece by piece.
    pub wait_free: bool,
    /// Gradients of layers come as factors, where these are fewer numbers.
    pub factors: bool,
    /// Steps done before, and the optimiser's slots, as long as the learned parameters or longer.
    pub from: Option<(u64, &'a [Vec<f32>])>,
    /// Task and data, for the other processes; one line or more.
    pub task: &'a str,
}

/// Waits for the next training that this process could take part in: one other than `last`.
pub async fn next_job(registry: &Registry, last: Option<&Job>) -> Result<Job> {
    let mut views = registry.view();
    loop {
        let job = views.borrow_and_update().job.clone();
        if let Some(job) = job {
            let job = Job::parse(&job)?;
            if last.is_none_or(|last| last.array != job.array) {
                return Ok(job);
            }
        }
        views.changed().await.map_err(|_| RegistryError::Closed)?;
    }
}

impl Training {
    /// Begins a training and leads it: its parameters are on the servers when this returns.
    /// [`ClusterError::Busy`] if another one is led by a process that is there.
    pub async fn begin(
        registry: &Registry,
        cluster: &str,
        transport: Transport,
        new: NewTraining<'_>,
    ) -> Result<Self> {
        let view = Arc::clone(&registry.view().borrow());
        clear(registry, &view).await?;
        let (membership, host) = join(registry).await?;
        let count = new.executors.max(1) as u64;
        let executors = registry.add_executors(count, Clock(0)).await?;
        let (done, slots) = new.from.unwrap_or_default();
        let adds_up = new.consistency.adds_up_clocks();
        let updates = NonZeroU64::new(if adds_up { 1 } else { count });
        let mut job = Job {
            array: view.arrays.keys().next_back().map_or(0, |last| last.0) + 1,
            length: new.weights.len(),
            executors: executors.iter().map(|executor| executor.0).collect(),
            driver: host.0,
            filters: new.filters,
            wait_free: new.wait_free,
            factors: new.factors,
            training: TrainingRule {
                rule: new.rule,
                done,
                measured_from: new.measured_from,
                updates: updates.unwrap_or(NonZeroU64::MIN),
            },
            deal: new.deal,
            consistency: new.consistency,
            task: new.task.to_owned(),
        };
        let keys = job.keys();
        let servers = view.servers.values().filter(|server| server.weight > 0).count() as u64;
        let most = if new.factors { servers.max(1) } else { u64::MAX };
        let borders = new.layers.iter().map(whole_rows).flat_map(|rows| [rows.start, rows.end]);
        let borders = Vec::from_iter(borders);
        let shards = keys.cut_near(new.shards.clamp(1, most), &borders);
        loop {
            match define(registry, job.array(), keys, shards.clone(), &job.spec()).await {
                // A number that was used and forgotten here.
                Err(ClusterError::Registry(RegistryError::OtherArray(_))) => job.array += 1,
                other => break other?,
            }
        }
        await_array(registry, job.array(), PATIENCE).await?;
        let config = NodeConfig::new(cluster, transport);
        let mut executors = Executors::new(config, &membership, &job);
        let rows = std::iter::once(new.weights).chain(slots.iter().map(Vec::as_slice));
        for (clock, values) in (1..).zip(rows.take(job.training.set_up() as usize)) {
            set(&mut executors, &job, Clock(clock), values).await?;
        }
        let text = job.text()?;
        registry.set_job(Some(&text)).await?;
        // What is not in the view yet would be taken for ended.
        let is_seen = |view: &View| view.job.as_ref() == Some(&text);
        registry.until(is_seen).await?;
        Self::take_part(registry.clone(), membership, host, executors, job).await
    }

    pub async fn join(
        registry: &Registry,
        cluster: &str,
        transport: Transport,
        job: Job,
    ) -> Result<Self> {
        let (membership, host) = join(registry).await?;
        let config = NodeConfig::new(cluster, transport);
        let executors = Executors::new(config, &membership, &job);
        Self::take_part(registry.clone(), membership, host, executors, job).await
    }
}

async fn join(registry: &Registry) -> Result<(Arc<Membership>, WorkerId)> {
    let membership = Arc::new(registry.join(Joining::Host).await?);
    let Member::Worker(host) = membership.id() else {
        return Err(RegistryError::Closed.into());
    };
    tracing::info!(%host, "joined");
    Ok((membership, host))
}

/// Puts away what a training has left whose leader is gone.
async fn clear(registry: &Registry, view: &View) -> Result<()> {
    if let Some(text) = &view.job {
        let job = Job::parse(text)?;
        if view.present_workers.contains(&WorkerId(job.driver)) {
            return Err(ClusterError::Busy { driver: job.driver });
        }
        registry.set_job(None).await?;
        registry.give_up(job.array()).await?;
    }
    let left = Vec::from_iter(view.workers.listed());
    Ok(registry.drop_executors(&left).await?)
}

/// Sets every row of the array: the first executor pushes the values, the others none.
async fn set(executors: &mut Executors, job: &Job, clock: Clock, values: &[f32]) -> Result<()> {
    let failed = |error: TaskError| ClusterError::Task {
        what: "the first values",
        step: 0,
        cause: error.to_string(),
    };
    let spec = TaskSpec::new(job.array(), job.keys(), clock);
    let mut pushed = Vec::new();
    for place in 0..job.executors.len() {
        let (keys, values) = match place {
            0 => (Keys::All, padded(values.iter().copied(), job.length).into()),
            _ => (Keys::none(), Values::none()),
        };
        let worker = executors.worker(place);
        let push = worker.push(spec.clone().keys(keys), values).await;
        pushed.push(push.map_err(failed)?);
    }
    for push in pushed {
        push.await.map_err(failed)?;
    }
    Ok(())
}
