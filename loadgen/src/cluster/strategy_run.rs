//! The frontend of one strategy: started here, or one that runs already.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parapet_open_inference::ModelMetadata;

use super::processes::{Fleet, Places, Process};
use super::{ClusterError, counters, frontend};
use crate::compare::{Measured, Redundancy};
use crate::experiment::{Experiment, Strategy};
use crate::target::{AnyTransport, TargetUrl};

/// Time that everything may take to be up before a block.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const SETTLE_PERIOD: Duration = Duration::from_millis(50);
const ASK_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct StrategyRun {
    /// Ends with this.
    process: Option<Process>,
    model: String,
    metrics: Option<Metrics>,
    /// Metrics before the first block.
    before: Option<Redundancy>,
    pub(super) transport: Arc<AnyTransport>,
    pub(super) measured: Measured,
}

struct Metrics {
    target: TargetUrl,
    address: SocketAddr,
}

impl Metrics {
    async fn scrape(&self) -> anyhow::Result<String> {
        self.target.text(self.address, "/metrics", ASK_LIMIT).await
    }
}

impl StrategyRun {
    /// Starts a frontend over the instances of `fleet`.
    pub(super) async fn start(
        experiment: &Experiment,
        strategy: &Strategy,
        fleet: &Fleet,
        places: &Places,
    ) -> Result<(Self, ModelMetadata), ClusterError> {
        let configuration =
            frontend::configuration(experiment, strategy, &places.repository, &fleet.addresses());
        let process = fleet.frontend(&strategy.name, &configuration);
        let process = process.map_err(ClusterError::Input)?;
        let target: TargetUrl = format!("http://{}", process.address).parse()?;
        let (address, metadata) = target.metadata(&experiment.model, ASK_LIMIT).await?;
        let transport =
            AnyTransport::new(&target, address, &experiment.model, experiment.encoding)?;
        let metrics = Some(Metrics { target, address });
        let mut strategy_run = Self::new(experiment, strategy, transport, metrics);
        strategy_run.measured.instances = Some(experiment.instances_used(strategy));
        strategy_run.process = Some(process);
        Ok((strategy_run, metadata))
    }

    /// Finds the frontend at the strategy's `url`, and its metrics, if they answer.
    pub(super) async fn given(
        experiment: &Experiment,
        strategy: &Strategy,
        url: &str,
    ) -> anyhow::Result<(Self, ModelMetadata)> {
        let target: TargetUrl = url.parse()?;
        let model = &experiment.model;
        let (address, metadata) = target.metadata(model, ASK_LIMIT).await?;
        let transport = AnyTransport::new(&target, address, model, experiment.encoding)?;
        let metrics = match &strategy.metrics_url {
            Some(url) => {
                let target: TargetUrl = url.parse()?;
                let address = target.address().await.ok();
                address.map(|address| Metrics { target, address })
            }
            None => Some(Metrics { target, address }),
        };
        let mut strategy_run = Self::new(experiment, strategy, transport, metrics);
        let scrape = match &strategy_run.metrics {
            Some(metrics) => metrics.scrape().await.ok(),
            None => None,
        };
        let instances = scrape.and_then(|scrape| counters::instances(&scrape, model));
        strategy_run.measured.instances = instances;
        if instances.is_none() {
            strategy_run.metrics = None;
        }
        Ok((strategy_run, metadata))
    }

    fn new(
        experiment: &Experiment,
        strategy: &Strategy,
        transport: AnyTransport,
        metrics: Option<Metrics>,
    ) -> Self {
        let measured = Measured {
            name: strategy.name.clone(),
            description: strategy.description.clone(),
            instances: None,
            blocks: Vec::new(),
            repeated_blocks: 0,
            stalled_repeats: 0,
            redundancy: None,
        };
        let (model, transport) = (experiment.model.clone(), Arc::new(transport));
        Self {
            process: None,
            model,
            metrics,
            before: None,
            transport,
            measured,
        }
    }

    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Waits until a frontend that was started here finds all its instances up. Others are taken
    /// as they are.
    pub(super) async fn settle(&self, places: Option<&Places>) -> anyhow::Result<()> {
        let (Some(_), Some(metrics)) = (&self.process, &self.metrics) else {
            return Ok(());
        };
        let until = Instant::now() + SETTLE_LIMIT;
        while !counters::all_up(&metrics.scrape().await?) {
            let logs = places.map(|places| places.work.display().to_string());
            ensure!(
                Instant::now() <= until,
                "strategy {}: not all of its instances came up within {} s; see the logs in {}",
                self.measured.name,
                SETTLE_LIMIT.as_secs(),
                logs.unwrap_or_default()
            );
            tokio::time::sleep(SETTLE_PERIOD).await;
        }
        Ok(())
    }

    /// Notes what was counted before the first block.
    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        self.before = self.counted().await?;
        Ok(())
    }

    /// Returns the measurements, with the counts since [`Self::begin`].
    pub(super) async fn finish(mut self) -> anyhow::Result<Measured> {
        let after = self.counted().await?;
        let counted = self.before.as_ref().zip(after.as_ref());
        self.measured.redundancy =
            counted.map(|(before, after)| counters::difference(before, after));
        Ok(self.measured)
    }

    /// Forgets a block that is to be measured again, and what was counted since `before` it. It was
    /// `disturbed` by the machine, or the generator was late.
    pub(super) async fn forget_block(
        &mut self,
        before: Option<Redundancy>,
        disturbed: bool,
    ) -> anyhow::Result<()> {
        let after = self.counted().await?;
        // Where the block cannot be taken out, the whole count is worth nothing.
        self.before = match (self.before.take(), before, after) {
            (Some(start), Some(before), Some(after)) => Some(counters::sum(
                &start,
                &counters::difference(&before, &after),
            )),
            _ => None,
        };
        self.measured.repeated_blocks += 1;
        self.measured.stalled_repeats += usize::from(disturbed);
        Ok(())
    }

    /// `None` where a frontend that runs already does not say; one started here must.
    pub(super) async fn counted(&self) -> anyhow::Result<Option<Redundancy>> {
        let Some(metrics) = &self.metrics else {
            return Ok(None);
        };
        match metrics.scrape().await {
            Ok(scrape) => Ok(Some(counters::redundancy(&scrape, &self.model))),
            Err(_) if self.process.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
