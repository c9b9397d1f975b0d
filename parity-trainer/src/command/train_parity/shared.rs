//! A training that several processes share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parapet_cluster::registry::Address;
use parapet_encoder::OutputTransform;
use parity_trainer::backend::{
    BackendError, ClusterHandle, ParameterBackend, ParameterSet, RemoteBackend, RemotePlan,
};
use parity_trainer::{Loss, ParityRun, SetupError, TrainError, TrainingSet};
use serde::{Deserialize, Serialize};

use super::prepare;
use super::prepared::Prepared;
use super::settings::Settings;

/// Description of the task for the other processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SharedTask {
    /// Digest of all that the training goes by, data and deployed model included.
    digest: String,
    row: usize,
    transform: OutputTransform,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
    settings: Settings,
}

impl SharedTask {
    fn new(settings: &Settings, prepared: &Prepared, run: &ParityRun) -> Self {
        let mut settings = settings.clone();
        // Other processes may run in other folders.
        let cache = settings
            .cache
            .clone()
            .unwrap_or_else(|| settings.out.join(".cache"));
        settings.cache = Some(cache);
        let cache = settings.cache.iter_mut();
        let places = [&mut settings.model, &mut settings.data, &mut settings.out].into_iter();
        for place in places.chain(cache).chain(settings.start.iter_mut()) {
            *place = absolute(place);
        }
        Self {
            digest: prepared.digest.clone(),
            row: run.row,
            transform: run.code.transform.clone(),
            loss: run.learned.as_ref().map(|learned| learned.loss),
            settings,
        }
    }

    /// The first line is for people.
    fn text(&self, name: &str) -> Result<String, SetupError> {
        let text =
            toml::to_string(self).map_err(|error| SetupError::config(None, &error.to_string()))?;
        Ok(format!("# the training of {name}\n{text}"))
    }

    /// As [`SharedTask::text`] wrote it.
    ///
    /// # Errors
    /// If it was written by another version.
    pub(crate) fn parse(text: &str) -> Result<Self, SetupError> {
        let place = Path::new("the cluster's training");
        toml::from_str(text).map_err(|error| SetupError::config(Some(place), error.message()))
    }
}

fn absolute(place: &Path) -> PathBuf {
    std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf())
}

/// A training that was prepared: how, on what, judged by what.
pub(crate) type PreparedRun = (ParityRun, Arc<TrainingSet>, Arc<TrainingSet>);

/// Prepares a training that another process leads.
///
/// # Errors
/// If the data or the model are not here, or are others.
pub(crate) fn prepare_shared(task: &SharedTask, threads: usize) -> Result<PreparedRun, TrainError> {
    let checked = prepare::check(&task.settings, threads)?;
    if checked.digest != task.digest {
        let problem = "the data or the deployed model here are not those of the process that \
            leads the training";
        return Err(SetupError::config(Some(&task.settings.data), problem).into());
    }
    let prepared = checked.answered(&task.settings)?;
    let mut run = ParityRun {
        row: task.row,
        ..prepared.run
    };
    run.code.transform = task.transform.clone();
    if let (Some(learned), Some(loss)) = (&mut run.learned, task.loss) {
        learned.loss = loss;
    }
    Ok((run, prepared.train, prepared.validation))
}

/// A cluster for the training of `run`, where the settings name one.
///
/// # Errors
/// If its registry does not answer.
pub(super) fn connect(settings: &Settings) -> Result<Option<ClusterHandle>, TrainError> {
    let Some(address) = &settings.cluster else {
        return Ok(None);
    };
    let address: Address =
        address
            .parse()
            .map_err(|error: parapet_cluster::registry::RegistryError| {
                SetupError::config(None, &format!("--cluster: {error}"))
            })?;
    Ok(Some(ClusterHandle::connect(&address)?))
}

/// Begins the training of `run` on `cluster`.
pub(super) fn lead(
    cluster: ClusterHandle,
    settings: &Settings,
    prepared: &Prepared,
    run: &ParityRun,
    name: &str,
) -> Result<
    impl FnMut(ParameterSet) -> Result<Box<dyn ParameterBackend>, BackendError> + use<>,
    TrainError,
> {
    let plan = RemotePlan {
        rule: run.rule,
        executors: settings.executors(),
        consistency: settings.consistency.unwrap_or_default(),
        filters: settings.filters.unwrap_or_default(),
        task: SharedTask::new(settings, prepared, run).text(name)?,
    };
    Ok(move |weights: ParameterSet| {
        let backend = RemoteBackend::lead(cluster.clone(), plan.clone(), &weights)?;
        Ok(Box::new(backend) as Box<dyn ParameterBackend>)
    })
}
