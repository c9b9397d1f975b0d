//! Mistakes in an experiment, each named in one line.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use parapet_config::faults::FaultProfile;
use parapet_frontend_core::StrategyConfig;
use serde_json::Value;

use super::{Arm, Event, Experiment, Instances, What};
use crate::target::TargetUrl;

impl Experiment {
    /// Checks everything that needs no file but this; again after anything was changed.
    pub fn check(&self, path: &Path) -> anyhow::Result<()> {
        self.check_fields().map_err(|mistake| anyhow!("{}: {mistake}", path.display()))
    }

    fn check_fields(&self) -> anyhow::Result<()> {
        let (rate, requests, blocks) = (self.rate, self.requests, self.blocks);
        ensure!(!self.model.is_empty(), "model: none; name the deployed model");
        ensure!(rate.is_finite() && rate > 0.0, "rate: {rate}; give requests/s above 0");
        let cluster = self.starts_processes();
        for (name, value, needed) in [
            ("instances.deployed", self.instances.deployed, cluster),
            ("instances.slots", self.instances.slots as usize, cluster),
            ("blocks", blocks, true),
        ] {
            ensure!(value > 0 || !needed, "{name}: 0; give at least 1");
        }
        ensure!(
            requests >= blocks,
            "requests: {requests} requests for {blocks} blocks; give at least one request to each \
             block"
        );
        ensure!(self.timeout_ms > 0, "timeout_ms: 0; give milliseconds above 0");
        let faults = self.faults.validate();
        faults.map_err(|problem| anyhow!("faults: {problem}; see parapet-instance"))?;
        ensure!(!self.strategies.is_empty(), "strategies: none; add a [[strategies]] table");
        let mut names = BTreeSet::new();
        for (index, arm) in self.strategies.iter().enumerate() {
            let name = &arm.name;
            ensure!(
                !name.is_empty() && names.insert(name.as_str()),
                "strategies[{index}].name: {name:?} is empty or there twice; name each strategy \
                 once"
            );
            self.check_arm(arm).map_err(|mistake| anyhow!("strategies[{index}].{mistake}"))?;
        }
        ensure!(
            names.contains(self.baseline.as_str()),
            "baseline: no strategy is named {:?}; name one of [[strategies]]",
            self.baseline
        );
        self.check_given()?;
        for (index, event) in self.events.iter().enumerate() {
            self.check_event(event).map_err(|mistake| anyhow!("events[{index}].{mistake}"))?;
        }
        Ok(())
    }

    fn check_event(&self, event: &Event) -> anyhow::Result<()> {
        let (instance, block, blocks) = (event.instance, event.block, self.blocks);
        let total = self.instances.deployed + self.instances.redundant;
        ensure!(
            instance < total,
            "instance: instance {instance} of {total}; count from 0, the redundant ones last"
        );
        ensure!(block < blocks, "block: block {block} of {blocks}; count from 0");
        let span = |seconds: f64| (0.0..=86_400.0).contains(&seconds);
        ensure!(
            span(event.after_s) && event.for_s.is_none_or(span),
            "after_s: no time; give after_s and for_s in seconds from 0"
        );
        ensure!(
            event.what != What::Freeze || event.for_s.is_some(),
            "for_s: a freeze without an end; give the seconds after which the instance goes on"
        );
        Ok(())
    }

    fn check_given(&self) -> anyhow::Result<()> {
        let Some(given) = self.strategies.iter().find(|arm| arm.url.is_some()) else {
            return Ok(());
        };
        ensure!(
            self.events.is_empty(),
            "events: strategy {:?} has a url, and events need instances started here; remove \
             them, or the url",
            given.name
        );
        for (name, there) in [
            ("instances", self.instances != Instances::default()),
            ("faults", self.faults != FaultProfile::default()),
        ] {
            ensure!(
                !there || self.starts_processes(),
                "{name}: every strategy has a url, so no instance is started here; remove the table"
            );
        }
        Ok(())
    }

    fn check_arm(&self, arm: &Arm) -> anyhow::Result<()> {
        for (part, url) in [("url", &arm.url), ("metrics_url", &arm.metrics_url)] {
            if let Some(url) = url {
                ensure!(
                    url.parse::<TargetUrl>().is_ok(),
                    "{part}: {url:?} is no address; give the frontend's as http://host:port"
                );
            }
        }
        if arm.url.is_some() {
            let models = !arm.parity_models.is_empty() || arm.backup_model.is_some();
            ensure!(
                arm.settings.is_empty() && !models,
                "url: beside settings or models; a frontend that runs has its own; remove them, or \
                 the url"
            );
            return Ok(());
        }
        ensure!(
            arm.metrics_url.is_none(),
            "metrics_url: without url; give the url of a frontend that runs, or remove it"
        );
        self.check_settings(arm)
    }

    fn check_settings(&self, arm: &Arm) -> anyhow::Result<()> {
        let kind = arm.kind();
        ensure!(
            StrategyConfig::NAMES.contains(&kind),
            "settings.kind: unknown strategy {kind:?}; use one of {}",
            StrategyConfig::NAMES.join(", ")
        );
        ensure!(
            !arm.all_instances || kind == "none",
            "all_instances: true, and {kind} uses the redundant instances itself; remove it; it is \
             for kind = \"none\""
        );
        ensure!(
            !arm.all_instances || self.instances.redundant > 0,
            "all_instances: true without redundant instances; raise instances.redundant"
        );
        let wrong = |error| anyhow!("settings: {error}; change it, or the instances");
        let resolved = arm.resolve(self.instances).map_err(wrong)?;
        match resolved.config {
            StrategyConfig::ApproximateBackup(_) if arm.backup_model.is_none() => {
                bail!("backup_model: none; name the cheaper model")
            }
            StrategyConfig::Coded(_) | StrategyConfig::CodedHedged(_) => {
                ensure!(
                    arm.settings.get("encoder").and_then(Value::as_str) != Some("learned"),
                    "settings.encoder: a learned code has no parity models to give instances to; \
                     compare frontends that run already, by url"
                );
                let (models, rows) = (arm.parity_models.len(), resolved.pools.len() - 1);
                ensure!(
                    models == rows,
                    "parity_models: {models} models for r = {rows}; name one for each parity row"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
