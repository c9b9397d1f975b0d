//! Errors of an experiment, each told in one line.

use std::collections::BTreeSet;
use std::path::Path;

use parapet_config::faults::FaultProfile;

use super::file::{Experiment, FileError, Instances, Strategy, What};
use crate::target::TargetUrl;
use parapet_frontend_core::StrategyConfig;

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
        let Instances {
            deployed,
            redundant,
            ..
        } = self.instances;
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
        if (strategy.all_instances || kind == "approximate_backup") && redundant == 0 {
            let problem = format!("{kind} without redundant instances");
            return Err((
                "settings.kind",
                problem,
                "raise instances.redundant".to_owned(),
            ));
        }
        match kind {
            "approximate_backup" if strategy.backup_model.is_none() => Err((
                "backup_model",
                "none".to_owned(),
                "name the cheaper model".to_owned(),
            )),
            "coded" | "coded_hedged" => {
                let (k, r) = (
                    strategy.number("k").unwrap_or(0),
                    strategy.number("r").unwrap_or(1),
                );
                if k > deployed {
                    let problem = format!("k = {k} with {deployed} deployed instances");
                    let fix = "a group's members go to different instances: lower k or raise \
                        instances.deployed";
                    return Err(("settings.k", problem, fix.to_owned()));
                }
                let encoder = strategy
                    .settings
                    .get("encoder")
                    .and_then(toml::Value::as_str);
                if encoder == Some("learned") {
                    let problem =
                        "a learned code has no parity models to give instances to".to_owned();
                    let fix = "compare frontends that run already, by url";
                    return Err(("settings.encoder", problem, fix.to_owned()));
                }
                if strategy.parity_models.len() != r {
                    let problem = format!("{} models for r = {r}", strategy.parity_models.len());
                    return Err((
                        "parity_models",
                        problem,
                        "name one for each parity row".to_owned(),
                    ));
                }
                if redundant < r {
                    let problem = format!("r = {r} with {redundant} redundant instances");
                    return Err((
                        "settings.r",
                        problem,
                        "raise instances.redundant".to_owned(),
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
