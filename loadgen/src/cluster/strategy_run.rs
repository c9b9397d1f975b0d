//! The frontend of one strategy: started here, or one that runs already.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parapet_open_inference::ModelMetadata;

use super::error::ClusterError;
use super::limits::{ASK_LIMIT, SETTLE_LIMIT, SETTLE_PERIOD};
use super::processes::{Fleet, Places, Process};
use super::{counters, frontend};
use crate::compare::{Measured, Redundancy};
use crate::experiment::{Experiment, Strategy};
use crate::target::{AnyTransport, TargetError, TargetUrl};

pub(super) struct StrategyRun {
    /// Ends with the lane.
    process: Option<Process>,
    model: String,
    metrics: Option<Metrics>,
    /// Metrics before the first block.
    before: Option<Redundancy>,
    pub(super) transport: Arc<AnyTransport>,
    pub(super) measured: Measured,
}

/// Where a frontend's metrics are.
struct Metrics {
    target: TargetUrl,
    address: SocketAddr,
}

impl Metrics {
    async fn scrape(&self) -> Result<String, TargetError> {
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
        let process = fleet.frontend(&strategy.name, &configuration)?;
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
    ) -> Result<(Self, ModelMetadata), ClusterError> {
        let of_strategy = |source| ClusterError::Given {
            strategy: strategy.name.clone(),
            source: Box::new(source),
        };
        let target: TargetUrl = url.parse().map_err(of_strategy)?;
        let (address, metadata) = target
            .metadata(&experiment.model, ASK_LIMIT)
            .await
            .map_err(of_strategy)?;
        let transport = AnyTransport::new(&target, address, &experiment.model, experiment.encoding)
            .map_err(of_strategy)?;
        let elsewhere: Option<TargetUrl> = strategy
            .metrics_url
            .as_ref()
            .map(|url| url.parse())
            .transpose()
            .map_err(of_strategy)?;
        let metrics = match elsewhere {
            Some(target) => target
                .address()
                .await
                .ok()
                .map(|address| Metrics { target, address }),
            None => Some(Metrics { target, address }),
        };
        let mut strategy_run = Self::new(experiment, strategy, transport, metrics);
        let scrape = match &strategy_run.metrics {
            Some(metrics) => metrics.scrape().await.ok(),
            None => None,
        };
        strategy_run.measured.instances =
            scrape.and_then(|scrape| counters::instances(&scrape, &experiment.model));
        if strategy_run.measured.instances.is_none() {
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

    /// Returns true if the metrics could be found.
    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// Waits until a frontend that was started here finds all its instances up. Others are taken
    /// as they are.
    pub(super) async fn settle(&self, places: Option<&Places>) -> Result<(), ClusterError> {
        let (Some(_), Some(metrics)) = (&self.process, &self.metrics) else {
            return Ok(());
        };
        let until = Instant::now() + SETTLE_LIMIT;
        while !counters::all_up(&metrics.scrape().await?) {
            if Instant::now() > until {
                return Err(ClusterError::NotReady {
                    strategy: self.measured.name.clone(),
                    logs: places
                        .map_or_else(String::new, |places| places.work.display().to_string()),
                });
            }
            tokio::time::sleep(SETTLE_PERIOD).await;
        }
        Ok(())
    }

    /// Notes what was counted before the first block.
    pub(super) async fn begin(&mut self) -> Result<(), ClusterError> {
        self.before = self.counted().await?;
        Ok(())
    }

    /// Returns the measurements, with the counts since [`Self::begin`].
    pub(super) async fn finish(mut self) -> Result<Measured, ClusterError> {
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
    ) -> Result<(), ClusterError> {
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
    pub(super) async fn counted(&self) -> Result<Option<Redundancy>, ClusterError> {
        let Some(metrics) = &self.metrics else {
            return Ok(None);
        };
        match metrics.scrape().await {
            Ok(scrape) => Ok(Some(counters::redundancy(&scrape, &self.model))),
            Err(_) if self.process.is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
