//! Errors of an experiment, each told in one line.

use std::collections::BTreeSet;
use std::path::Path;

use parapet_config::faults::FaultProfile;

use super::file::{Experiment, FileError, Instances, Strategy, What};
use crate::target::TargetUrl;
use parapet_frontend_core::StrategyConfig;
use toml::Value;

use super::{ExperimentError, Roles};

/// A field of a strategy, what is wrong with it, and what to do.
type Mistake = (&'static str, String, String);

impl Experiment {
    /// Checks everything that needs no file but this; again after anything was changed.
    ///
    /// # Errors
    /// [`FileError::Field`].
    pub fn check(&self, path: &Path) -> Result<(), FileError> {
        let field = |field: &str, problem: String, fix: &str| FileError::Field {
            path: path.to_owned(),
            field: field.to_owned(),
            problem,
            fix: fix.to_owned(),
        };
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return Err(field(
                "rate",
                self.rate.to_string(),
                "give requests/s above 0",
            ));
        }
        let cluster = self.starts_processes();
        for (name, value, needed) in [
            ("instances.deployed", self.instances.deployed, cluster),
            ("instances.slots", self.instances.slots as usize, cluster),
            ("blocks", self.blocks, true),
        ] {
            if needed && value == 0 {
                return Err(field(name, "0".to_owned(), "give at least 1"));
            }
        }
        if self.requests < self.blocks {
            let problem = format!("{} requests for {} blocks", self.requests, self.blocks);
            return Err(field(
                "requests",
                problem,
                "give at least one request to each block",
            ));
        }
        if self.timeout_ms == 0 {
            return Err(field(
                "timeout_ms",
                "0".to_owned(),
                "give milliseconds above 0",
            ));
        }
        self.faults
            .validate()
            .map_err(|problem| field("faults", problem, "see parapet-instance"))?;
        if self.strategies.is_empty() {
            return Err(field(
                "strategies",
                "none".to_owned(),
                "add a [[strategies]] table",
            ));
        }
        let mut names = BTreeSet::new();
        for (index, strategy) in self.strategies.iter().enumerate() {
            let name = |part: &str| format!("strategies[{index}].{part}");
            if strategy.name.is_empty() || !names.insert(strategy.name.as_str()) {
                let problem = format!("{:?} is empty or there twice", strategy.name);
                return Err(field(&name("name"), problem, "name each strategy once"));
            }
            self.check_strategy(strategy)
                .map_err(|(part, problem, fix)| field(&name(part), problem, &fix))?;
        }
        if !names.contains(self.baseline.as_str()) {
            let problem = format!("no strategy is named {:?}", self.baseline);
            return Err(field("baseline", problem, "name one of [[strategies]]"));
        }
        self.check_given()
            .map_err(|(name, problem, fix)| field(name, problem, fix))?;
        let total = self.instances.deployed + self.instances.redundant;
        for (index, event) in self.events.iter().enumerate() {
            let name = |part: &str| format!("events[{index}].{part}");
            if event.instance >= total {
                let problem = format!("instance {} of {total}", event.instance);
                return Err(field(
                    &name("instance"),
                    problem,
                    "count from 0, the redundant ones last",
                ));
            }
            if event.block >= self.blocks {
                let problem = format!("block {} of {}", event.block, self.blocks);
                return Err(field(&name("block"), problem, "count from 0"));
            }
            let span = |seconds: f64| (0.0..=86_400.0).contains(&seconds);
            if !span(event.after_s) || !event.for_s.is_none_or(span) {
                return Err(field(
                    &name("after_s"),
                    "no time".to_owned(),
                    "give after_s and for_s in seconds from 0",
                ));
            }
            if event.what == What::Freeze && event.for_s.is_none() {
                let fix = "give the seconds after which the instance goes on";
                return Err(field(
                    &name("for_s"),
                    "a freeze without an end".to_owned(),
                    fix,
                ));
            }
        }
        Ok(())
    }

    /// Returns settings that frontends which run already cannot have.
    fn check_given(&self) -> Result<(), (&'static str, String, &'static str)> {
        let given = self
            .strategies
            .iter()
            .find(|strategy| strategy.url.is_some());
        if let Some(Strategy { name, .. }) = given
            && !self.events.is_empty()
        {
            let problem =
                format!("strategy {name:?} has a url, and events need instances started here");
            return Err(("events", problem, "remove them, or the url"));
        }
        if given.is_none() || self.starts_processes() {
            return Ok(());
        }
        for (name, there) in [
            ("instances", self.instances != Instances::default()),
            ("faults", self.faults != FaultProfile::default()),
        ] {
            if there {
                let problem = "every strategy has a url, so no instance is started here".to_owned();
                return Err((name, problem, "remove the table"));
            }
        }
        Ok(())
    }

    fn check_strategy(&self, strategy: &Strategy) -> Result<(), Mistake> {
        for (part, url) in [
            ("url", &strategy.url),
            ("metrics_url", &strategy.metrics_url),
        ] {
            if let Some(url) = url
                && url.parse::<TargetUrl>().is_err()
            {
                let fix = "give the frontend's as http://host:port";
                return Err((part, format!("{url:?} is no address"), fix.to_owned()));
            }
        }
        let Strategy {
            settings,
            parity_models,
            backup_model,
            url,
            metrics_url,
            ..
        } = strategy;
        if url.is_some() {
            if !settings.is_empty() || !parity_models.is_empty() || backup_model.is_some() {
                let fix = "a frontend that runs has its own; remove them, or the url";
                return Err((
                    "url",
                    "beside settings or models".to_owned(),
                    fix.to_owned(),
                ));
            }
            return Ok(());
        }
        if metrics_url.is_some() {
            let fix = "give the url of a frontend that runs, or remove it";
            return Err(("metrics_url", "without url".to_owned(), fix.to_owned()));
        }
        self.check_settings(strategy)
    }

    /// Checks the settings as the engine would, before anything is started.
    fn check_settings(&self, strategy: &Strategy) -> Result<(), Mistake> {
        let kind = strategy.kind();
        if !StrategyConfig::NAMES.contains(&kind) {
            let kinds = StrategyConfig::NAMES.join(", ");
            return Err((
                "settings.kind",
                format!("unknown strategy {kind:?}"),
                format!("use one of {kinds}"),
            ));
        }
        if strategy.all_instances && kind != "none" {
            let problem = format!("true, and {kind} uses the redundant instances itself");
            let fix = "remove it; it is for kind = \"none\"".to_owned();
            return Err(("all_instances", problem, fix));
        }
        let roles = Roles {
            instances: self.instances.deployed,
            redundant: self.instances.redundant,
        };
        if strategy.all_instances && roles.redundant == 0 {
            let problem = "true without redundant instances".to_owned();
            let fix = "raise instances.redundant".to_owned();
            return Err(("all_instances", problem, fix));
        }
        let wrong = |error: ExperimentError| {
            let fix = "change it, or the instances".to_owned();
            ("settings", error.to_string(), fix)
        };
        let (arm, _) = strategy.arm();
        let arm = arm.resolve(0, 1, roles).map_err(wrong)?;
        let pools = roles.pools(&arm).map_err(wrong)?;
        match arm.config {
            StrategyConfig::ApproximateBackup(_) if strategy.backup_model.is_none() => Err((
                "backup_model",
                "none".to_owned(),
                "name the cheaper model".to_owned(),
            )),
            StrategyConfig::Coded(_) | StrategyConfig::CodedHedged(_) => {
                let encoder = strategy.settings.get("encoder").and_then(Value::as_str);
                if encoder == Some("learned") {
                    let problem =
                        "a learned code has no parity models to give instances to".to_owned();
                    let fix = "compare frontends that run already, by url";
                    return Err(("settings.encoder", problem, fix.to_owned()));
                }
                let (models, rows) = (strategy.parity_models.len(), pools.len() - 1);
                if models != rows {
                    let problem = format!("{models} models for r = {rows}");
                    let fix = "name one for each parity row".to_owned();
                    return Err(("parity_models", problem, fix));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
