//! The frontend of one strategy: started here, or one that runs already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parapet_open_inference::ModelMetadata;

use super::processes::{Fleet, Process};
use super::{counters, frontend};
use crate::compare::{Measured, Redundancy};
use crate::experiment::{Arm, Experiment};
use crate::target::{AnyTransport, Target};

const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const SETTLE_PERIOD: Duration = Duration::from_millis(50);
const ASK_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct StrategyRun {
    process: Option<Process>,
    model: String,
    metrics: Option<Target>,
    /// Metrics before the first block, and those of blocks that were forgotten.
    before: Option<Redundancy>,
    pub(super) transport: Arc<AnyTransport>,
    pub(super) measured: Measured,
}

impl StrategyRun {
    pub(super) async fn start(
        experiment: &Experiment,
        arm: &Arm,
        fleet: &Fleet,
    ) -> anyhow::Result<(Self, ModelMetadata)> {
        let repository = &fleet.places.repository;
        let configuration =
            frontend::configuration(experiment, arm, repository, &fleet.addresses());
        let process = fleet.frontend(&arm.name, &configuration)?;
        let url = format!("http://{}", process.address);
        let (mut run, target, metadata) = Self::new(experiment, arm, &url).await?;
        let pools = arm.resolve(experiment.instances)?.pools;
        run.measured.instances = Some(pools.iter().map(|(_, count)| count).sum());
        (run.process, run.metrics) = (Some(process), Some(target));
        Ok((run, metadata))
    }

    /// Finds the frontend at the arm's `url`, and its metrics, if they answer.
    pub(super) async fn given(
        experiment: &Experiment,
        arm: &Arm,
        url: &str,
    ) -> anyhow::Result<(Self, ModelMetadata)> {
        let (mut run, target, metadata) = Self::new(experiment, arm, url).await?;
        let metrics = match &arm.metrics_url {
            Some(url) => Target::first(&url.parse()?).await.ok(),
            None => Some(target),
        };
        if let Some(metrics) = metrics
            && let Ok(scrape) = metrics.text("/metrics", ASK_LIMIT).await
        {
            run.measured.instances = counters::instances(&scrape, &run.model);
            run.metrics = run.measured.instances.map(|_| metrics);
        }
        Ok((run, metadata))
    }

    async fn new(
        experiment: &Experiment,
        arm: &Arm,
        url: &str,
    ) -> anyhow::Result<(Self, Target, ModelMetadata)> {
        let model = &experiment.model;
        let (target, metadata) = Target::find(&url.parse()?, model, ASK_LIMIT).await?;
        let transport = AnyTransport::new(&target, model, experiment.encoding)?;
        let measured = Measured {
            name: arm.name.clone(),
            description: arm.description.clone(),
            ..Measured::default()
        };
        let run = Self {
            process: None,
            model: model.clone(),
            metrics: None,
            before: None,
            transport: Arc::new(transport),
            measured,
        };
        Ok((run, target, metadata))
    }

    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Waits until a frontend that was started here finds all its instances up. Others are taken
    /// as they are.
    pub(super) async fn settle(&self) -> anyhow::Result<()> {
        let (Some(_), Some(metrics)) = (&self.process, &self.metrics) else {
            return Ok(());
        };
        let until = Instant::now() + SETTLE_LIMIT;
        while !counters::all_up(&metrics.text("/metrics", ASK_LIMIT).await?) {
            ensure!(
                Instant::now() <= until,
                "strategy {}: not all of its instances came up within {} s; see the logs, which \
                 --work-dir keeps",
                self.measured.name,
                SETTLE_LIMIT.as_secs()
            );
            tokio::time::sleep(SETTLE_PERIOD).await;
        }
        Ok(())
    }

    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        self.before = self.counted().await?;
        Ok(())
    }

    pub(super) async fn finish(mut self) -> anyhow::Result<Measured> {
        let counted = self.before.zip(self.counted().await?);
        let since = |(before, after)| counters::combine(&after, &before, u64::saturating_sub);
        self.measured.redundancy = counted.map(since);
        Ok(self.measured)
    }

    /// Forgets a block that is to be measured again, and what was counted since `before` it.
    pub(super) async fn forget_block(&mut self, before: Option<Redundancy>) -> anyhow::Result<()> {
        // Where the block cannot be taken out, the whole count is worth nothing.
        let block = before.zip(self.counted().await?);
        let block =
            block.map(|(before, after)| counters::combine(&after, &before, u64::saturating_sub));
        let whole = self.before.zip(block);
        self.before =
            whole.map(|(start, block)| counters::combine(&start, &block, u64::saturating_add));
        self.measured.repeated_blocks += 1;
        Ok(())
    }

    /// `None` where a frontend that runs already does not say; one started here must.
    pub(super) async fn counted(&self) -> anyhow::Result<Option<Redundancy>> {
        let Some(metrics) = &self.metrics else {
            return Ok(None);
        };
        match metrics.text("/metrics", ASK_LIMIT).await {
            Ok(scrape) => Ok(Some(counters::redundancy(&scrape, &self.model))),
            Err(_) if self.process.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
