//! A training that several processes share.

use std::path::Path;

use parapet_cluster::registry::{Address, RegistryError};
use parity_trainer::backend::{ClusterHandle, Place, RemotePlan};
use parity_trainer::{ParityRun, TrainError, Trainer, ensure};
use serde::{Deserialize, Serialize};

use super::choose::Candidate;
use super::prepare::{Inputs, Sets};
use super::settings::Settings;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SharedTask {
    /// Digest of all that the training goes by, data and deployed model included.
    digest: String,
    row: usize,
    chosen: Candidate,
    settings: Settings,
}

impl SharedTask {
    /// Reads a task that was written by the same version.
    pub(crate) fn parse(text: &str) -> Result<Self, TrainError> {
        let wrong = |error: toml::de::Error| {
            TrainError::settings(Some(Path::new("the cluster's training")), error.message())
        };
        toml::from_str(text).map_err(wrong)
    }

    /// Prepares the training, which another process leads. Fails without the same data and model.
    pub(crate) fn prepare(self, threads: usize) -> Result<(ParityRun, Sets), TrainError> {
        let inputs = Inputs::check(self.settings, threads)?;
        let problem = "the data or the deployed model here are not those of the process that leads \
            the training";
        let data = Some(inputs.settings.common.data.as_path());
        ensure!(inputs.digest == self.digest, TrainError::settings(data, problem));
        let sets = inputs.answered()?;
        let mut run = inputs.run;
        run.row = self.row;
        self.chosen.apply(&mut run, &inputs.settings);
        Ok((run, sets))
    }
}

pub(super) fn connect(settings: &Settings) -> Result<Option<ClusterHandle>, TrainError> {
    let Some(address) = &settings.cluster else { return Ok(None) };
    let wrong = |error: RegistryError| TrainError::settings(None, &format!("--cluster: {error}"));
    let address: Address = address.parse().map_err(wrong)?;
    let cluster = ClusterHandle::connect(&address);
    cluster.map(Some).map_err(|error| TrainError::Failed(format!("--cluster: {error}")))
}

/// Makes the trainer of `run`: on a cluster, where the settings name one, and leads it there.
pub(super) fn trainer(
    inputs: &Inputs,
    (train, validation): Sets,
    run: ParityRun,
    name: &str,
) -> Result<Trainer, TrainError> {
    let settings = &inputs.settings;
    let Some(cluster) = connect(settings)? else {
        return Trainer::parity(run, train, validation, Place::InProcess);
    };
    let task = toml::to_string(&SharedTask {
        digest: inputs.digest.clone(),
        row: run.row,
        chosen: Candidate::of(&run),
        settings: settings.absolute(),
    });
    let task = task.map_err(|error| TrainError::settings(None, &error.to_string()))?;
    let plan = RemotePlan {
        rule: run.rule,
        executors: settings.executors() as usize,
        deal: settings.deal.unwrap_or_default(),
        consistency: settings.consistency.unwrap_or_default(),
        filters: settings.filters.unwrap_or_default(),
        wait_free: settings.is_wait_free(),
        factors: settings.factors,
        // The first line is for people.
        task: format!("# the training of {name}\n{task}"),
    };
    let trainer = Trainer::parity(run, train, validation, Place::Lead(cluster, plan))?;
    if settings.explain_communication {
        trainer.traffic().iter().for_each(|layer| println!("{name}: {layer}"));
    }
    Ok(trainer)
}
