//! Settings from flags and a TOML file, for every training.

use std::fs;
use std::path::{Path, PathBuf};

use parity_trainer::SetupError;
use parity_trainer::run::{RunError, RunFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// The flags of a training. A flag wins over the same setting of `--config`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags<O: clap::Args> {
    /// Take settings from this TOML file, such as the config.toml of an earlier run
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Go on with the run from its last checkpoint
    #[arg(long)]
    resume: bool,
    /// Go on with the run if it was begun, else begin it: one command for a job that its supervisor
    /// starts again
    #[arg(long, conflicts_with = "resume")]
    resume_if_begun: bool,
    #[command(flatten)]
    options: O,
}

impl<O: clap::Args + Serialize> Flags<O> {
    /// The file's settings, the flags laid over them, defaults for the rest.
    ///
    /// # Errors
    /// If the file cannot be read, or a setting is unknown, missing or out of range.
    pub(super) fn settings<S: Checked>(&self) -> Result<S, SetupError> {
        let settings: S = layered(self.config.as_deref(), &self.options)?;
        settings.check()?;
        Ok(settings)
    }

    /// Returns true if the caller is to go on with the run in `folder`.
    ///
    /// # Errors
    /// If that was asked for, and none was begun there.
    pub(super) fn resumes(&self, folder: &RunFolder) -> Result<bool, RunError> {
        if self.resume {
            folder.require()?;
        }
        Ok(self.resume || (self.resume_if_begun && folder.is_begun()))
    }
}

/// Settings whose values have limits.
pub(crate) trait Checked: DeserializeOwned {
    /// # Errors
    /// If a setting is missing or out of range.
    fn check(&self) -> Result<(), SetupError>;
}

/// Where a run is kept, and how often.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RunOptions {
    /// Folder of the run's log and checkpoints [default: .runs/NAME in the repository]
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// Seconds from one checkpoint to the next [default: 60]
    #[arg(long, value_name = "SECONDS")]
    checkpoint_every: Option<f64>,
    /// Steps from one checkpoint to the next, instead of seconds
    #[arg(long, value_name = "STEPS")]
    checkpoint_steps: Option<u32>,
}

/// The settings of the file `config`, `flags` laid over them, defaults for the rest.
///
/// # Errors
/// If the file cannot be read, or a setting is unknown or of the wrong kind.
fn layered<S: DeserializeOwned>(
    config: Option<&Path>,
    flags: &impl Serialize,
) -> Result<S, SetupError> {
    let mut table = match config {
        None => toml::Table::new(),
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|source| SetupError::Read {
                path: path.to_path_buf(),
                source,
            })?;
            toml::from_str(&text).map_err(|error| SetupError::config(config, error.message()))?
        }
    };
    let flags = toml::Table::try_from(flags)
        .map_err(|error| SetupError::config(None, &error.to_string()))?;
    table.extend(flags);
    table
        .try_into()
        .map_err(|error: toml::de::Error| SetupError::config(config, error.message()))
}

/// # Errors
/// If the settings cannot be written as TOML.
pub(crate) fn to_toml(settings: &impl Serialize) -> Result<String, SetupError> {
    toml::to_string(settings).map_err(|error| SetupError::config(None, &error.to_string()))
}

/// # Errors
/// If `value` is not one from `least` to `most`.
pub(crate) fn range(
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), SetupError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SetupError::Range {
        name,
        value,
        range: format!("from {least} to {most}"),
    })
}

/// # Errors
/// If a path that is needed is not given.
pub(crate) fn needed(paths: &[(&'static str, &Path)]) -> Result<(), SetupError> {
    let missing = paths.iter().find(|(_, path)| path.as_os_str().is_empty());
    missing.map_or(Ok(()), |&(name, _)| Err(SetupError::Needed { name }))
}

/// Digest of settings and of what else decides how a training goes.
pub(crate) fn digest(settings: &str, rest: &[&str]) -> String {
    let mut hash = Sha256::new();
    hash.update(settings);
    for part in rest {
        hash.update(format!("{part}\n"));
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A network by its name, if there is one.
pub(crate) mod optional_network {
    use parity_trainer::network::NetworkSpec;
    use serde::{Deserialize, Serialize};

    #[expect(clippy::ref_option, reason = "serde hands the field over as it is")]
    pub(crate) fn serialize<S: serde::Serializer>(
        network: &Option<NetworkSpec>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        network.as_ref().map(NetworkSpec::to_string).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Option<NetworkSpec>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}
