//! Mistakes in an experiment, each named in one line.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use parapet_config::faults::FaultProfile;
use parapet_frontend_core::StrategyConfig;
use toml::Value;

use super::file::{Event, Experiment, Instances, Strategy, What};
use super::{Roles, strategy_names};
use crate::target::TargetUrl;

impl Experiment {
    /// Checks everything that needs no file but this; again after anything was changed.
    pub fn check(&self, path: &Path) -> anyhow::Result<()> {
        let checked = self.check_fields();
        checked.map_err(|mistake| anyhow!("{}: {mistake}", path.display()))
    }

    fn check_fields(&self) -> anyhow::Result<()> {
        let Self { rate, requests, .. } = self;
        ensure!(
            rate.is_finite() && *rate > 0.0,
            "rate: {rate}; give requests/s above 0"
        );
        let cluster = self.starts_processes();
        for (name, value, needed) in [
            ("instances.deployed", self.instances.deployed, cluster),
            ("instances.slots", self.instances.slots as usize, cluster),
            ("blocks", self.blocks, true),
        ] {
            ensure!(value > 0 || !needed, "{name}: 0; give at least 1");
        }
        ensure!(
            *requests >= self.blocks,
            "requests: {requests} requests for {} blocks; give at least one request to each block",
            self.blocks
        );
        ensure!(
            self.timeout_ms > 0,
            "timeout_ms: 0; give milliseconds above 0"
        );
        let faults = self.faults.validate();
        faults.map_err(|problem| anyhow!("faults: {problem}; see parapet-instance"))?;
        ensure!(
            !self.strategies.is_empty(),
            "strategies: none; add a [[strategies]] table"
        );
        let mut names = BTreeSet::new();
        for (index, strategy) in self.strategies.iter().enumerate() {
            let name = &strategy.name;
            ensure!(
                !name.is_empty() && names.insert(name.as_str()),
                "strategies[{index}].name: {name:?} is empty or there twice; name each strategy \
                 once"
            );
            let checked = self.check_strategy(strategy);
            checked.map_err(|mistake| anyhow!("strategies[{index}].{mistake}"))?;
        }
        ensure!(
            names.contains(self.baseline.as_str()),
            "baseline: no strategy is named {:?}; name one of [[strategies]]",
            self.baseline
        );
        self.check_given()?;
        for (index, event) in self.events.iter().enumerate() {
            let checked = self.check_event(event);
            checked.map_err(|mistake| anyhow!("events[{index}].{mistake}"))?;
        }
        Ok(())
    }

    fn check_event(&self, event: &Event) -> anyhow::Result<()> {
        let Event {
            block,
            after_s,
            what,
            instance,
            for_s,
        } = *event;
        let total = self.instances.deployed + self.instances.redundant;
        ensure!(
            instance < total,
            "instance: instance {instance} of {total}; count from 0, the redundant ones last"
        );
        let blocks = self.blocks;
        ensure!(
            block < blocks,
            "block: block {block} of {blocks}; count from 0"
        );
        let span = |seconds: f64| (0.0..=86_400.0).contains(&seconds);
        ensure!(
            span(after_s) && for_s.is_none_or(span),
            "after_s: no time; give after_s and for_s in seconds from 0"
        );
        ensure!(
            what != What::Freeze || for_s.is_some(),
            "for_s: a freeze without an end; give the seconds after which the instance goes on"
        );
        Ok(())
    }

    /// Refuses settings that frontends which run already cannot have.
    fn check_given(&self) -> anyhow::Result<()> {
        let mut strategies = self.strategies.iter();
        let Some(given) = strategies.find(|strategy| strategy.url.is_some()) else {
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

    fn check_strategy(&self, strategy: &Strategy) -> anyhow::Result<()> {
        for (part, url) in [
            ("url", &strategy.url),
            ("metrics_url", &strategy.metrics_url),
        ] {
            if let Some(url) = url {
                ensure!(
                    url.parse::<TargetUrl>().is_ok(),
                    "{part}: {url:?} is no address; give the frontend's as http://host:port"
                );
            }
        }
        if strategy.url.is_some() {
            let models = !strategy.parity_models.is_empty() || strategy.backup_model.is_some();
            ensure!(
                strategy.settings.is_empty() && !models,
                "url: beside settings or models; a frontend that runs has its own; remove them, or \
                 the url"
            );
            return Ok(());
        }
        ensure!(
            strategy.metrics_url.is_none(),
            "metrics_url: without url; give the url of a frontend that runs, or remove it"
        );
        self.check_settings(strategy)
    }

    /// Checks the settings as the engine would, before anything is started.
    fn check_settings(&self, strategy: &Strategy) -> anyhow::Result<()> {
        let kind = strategy.kind();
        ensure!(
            StrategyConfig::NAMES.contains(&kind),
            "settings.kind: unknown strategy {kind:?}; use one of {}",
            strategy_names()
        );
        ensure!(
            !strategy.all_instances || kind == "none",
            "all_instances: true, and {kind} uses the redundant instances itself; remove it; it is \
             for kind = \"none\""
        );
        let roles = Roles {
            instances: self.instances.deployed,
            redundant: self.instances.redundant,
        };
        ensure!(
            !strategy.all_instances || roles.redundant > 0,
            "all_instances: true without redundant instances; raise instances.redundant"
        );
        let wrong = |error| anyhow!("settings: {error}; change it, or the instances");
        let arm = strategy.arm().0.resolve(0, 1, roles).map_err(wrong)?;
        let pools = roles.pools(&arm).map_err(wrong)?;
        match arm.config {
            StrategyConfig::ApproximateBackup(_) if strategy.backup_model.is_none() => {
                bail!("backup_model: none; name the cheaper model")
            }
            StrategyConfig::Coded(_) | StrategyConfig::CodedHedged(_) => {
                let encoder = strategy.settings.get("encoder").and_then(Value::as_str);
                ensure!(
                    encoder != Some("learned"),
                    "settings.encoder: a learned code has no parity models to give instances to; \
                     compare frontends that run already, by url"
                );
                let (models, rows) = (strategy.parity_models.len(), pools.len() - 1);
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
