//! The frontend of one strategy: started here, or one that runs already.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use parapet_open_inference::ModelMetadata;

use super::frontend;
use super::processes::{Fleet, Process};
use crate::compare::{Measured, Redundancy};
use crate::experiment::{Arm, Experiment};
use crate::target::{AnyTransport, Target};

const REDUNDANT: &str = "parapet_redundant_requests_total";
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
        let configuration =
            frontend::configuration(experiment, arm, &fleet.places.repository, &fleet.addresses());
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
            run.measured.instances = instances(&scrape, &run.model);
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

    /// Waits until a frontend started here finds all its instances up; others stay as they are.
    pub(super) async fn settle(&self) -> anyhow::Result<()> {
        let (Some(_), Some(metrics)) = (&self.process, &self.metrics) else { return Ok(()) };
        let until = Instant::now() + SETTLE_LIMIT;
        while !all_up(&metrics.text("/metrics", ASK_LIMIT).await?) {
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
        let since = |(before, after)| combine(&after, &before, u64::saturating_sub);
        self.measured.redundancy = self.before.zip(self.counted().await?).map(since);
        Ok(self.measured)
    }

    /// Forgets a block that is to be measured again, and what was counted since `before` it.
    pub(super) async fn forget_block(&mut self, before: Option<Redundancy>) -> anyhow::Result<()> {
        // Where the block cannot be taken out, the whole count is worth nothing.
        let block = before.zip(self.counted().await?);
        let block = block.map(|(before, after)| combine(&after, &before, u64::saturating_sub));
        let whole = self.before.zip(block);
        self.before = whole.map(|(start, block)| combine(&start, &block, u64::saturating_add));
        self.measured.repeated_blocks += 1;
        Ok(())
    }

    /// `None` where a frontend that runs already does not say; one started here must.
    pub(super) async fn counted(&self) -> anyhow::Result<Option<Redundancy>> {
        let Some(metrics) = &self.metrics else { return Ok(None) };
        match metrics.text("/metrics", ASK_LIMIT).await {
            Ok(scrape) => Ok(Some(redundancy(&scrape, &self.model))),
            Err(_) if self.process.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn redundancy(scrape: &str, model: &str) -> Redundancy {
    let of_model = format!("model=\"{model}\"");
    let sum = |name: &str, label: &str| -> u64 {
        let lines = scrape.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with(['{', ' ']) && rest.contains(label) && rest.contains(&of_model)
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.map(|value| value as u64).sum()
    };
    let requests = |fate: &str| sum(REDUNDANT, &format!("fate=\"{fate}\""));
    Redundancy {
        issued: requests("issued"),
        won: requests("won"),
        wasted: requests("wasted"),
        shed: requests("shed"),
        failed: requests("failed"),
        unrecoverable: sum("parapet_late_unrecoverable_total", ""),
        groups: sum("parapet_coding_groups_total", "")
            + sum("parapet_coding_groups_spared_total", ""),
        upstream_requests: sum("parapet_upstream_request_duration_seconds_count", ""),
    }
}

fn combine(a: &Redundancy, b: &Redundancy, with: impl Fn(u64, u64) -> u64) -> Redundancy {
    Redundancy {
        issued: with(a.issued, b.issued),
        won: with(a.won, b.won),
        wasted: with(a.wasted, b.wasted),
        shed: with(a.shed, b.shed),
        failed: with(a.failed, b.failed),
        unrecoverable: with(a.unrecoverable, b.unrecoverable),
        groups: with(a.groups, b.groups),
        upstream_requests: with(a.upstream_requests, b.upstream_requests),
    }
}

fn instance_lines(scrape: &str) -> impl Iterator<Item = &str> {
    scrape.lines().filter(|line| line.starts_with("parapet_instance_up{"))
}

/// Instances that serve `model` in some way, each once; `None` in a scrape that knows of none.
fn instances(scrape: &str, model: &str) -> Option<usize> {
    let of_model = format!("model=\"{model}\"");
    let lines = instance_lines(scrape).filter(|line| line.contains(&of_model));
    let names = lines.filter_map(|line| line.split_once("instance=\"")?.1.split('"').next());
    let names: BTreeSet<&str> = names.collect();
    (!names.is_empty()).then_some(names.len())
}

fn all_up(scrape: &str) -> bool {
    let mut instances = instance_lines(scrape).peekable();
    instances.peek().is_some() && instances.all(|line| line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# TYPE parapet_redundant_requests_total counter\n\
        parapet_redundant_requests_total{model=\"m\",fate=\"issued\"} 12\n\
        parapet_redundant_requests_total{model=\"m\",fate=\"won\"} 3\n\
        parapet_coding_groups_total{model=\"m\",fillers=\"false\"} 5\n\
        parapet_coding_groups_total{model=\"m\",fillers=\"true\"} 2\n\
        parapet_coding_groups_spared_total{model=\"m\"} 4\n\
        parapet_coding_groups_total{model=\"other\",fillers=\"true\"} 9\n\
        parapet_instance_up{model=\"m\",pool=\"deployed\",instance=\"a\"} 1\n";

    #[test]
    fn instances_count_once() {
        let again = SCRAPE.replace("pool=\"deployed\"", "pool=\"parity\"");
        let other = SCRAPE.replace("instance=\"a\"", "instance=\"b\"");
        assert_eq!(instances(&format!("{SCRAPE}{again}{other}"), "m"), Some(2));
        assert_eq!(instances(SCRAPE, "other"), None);
    }

    #[test]
    fn totals_are_summed_over_labels() {
        let found = redundancy(SCRAPE, "m");
        assert_eq!((found.issued, found.won, found.groups), (12, 3, 11));
        let twice = combine(&found, &found, u64::saturating_add);
        assert_eq!(combine(&twice, &found, u64::saturating_sub), found);
        let down = SCRAPE.replace("\"a\"} 1", "\"a\"} 0");
        assert!(all_up(SCRAPE) && !all_up(&down) && !all_up(""));
    }
}
