//! Settings from flags and a TOML file, for every training.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};
use parity_trainer::SetupError;
use parity_trainer::run::{RunError, RunFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// The flags of a training. A flag wins over the same setting of `--config`.
#[derive(Debug, Clone)]
pub(crate) struct Flags<S> {
    how: RunFlags,
    /// The flags' values, and the defaults of those that were not given.
    values: S,
    /// Names of the flags that were given.
    given: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
struct RunFlags {
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
}

impl<S: FromArgMatches> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let given = matches.ids().filter(is_given);
        Ok(Self {
            how: RunFlags::from_arg_matches(matches)?,
            values: S::from_arg_matches(matches)?,
            given: given.map(|id| id.as_str().replace('_', "-")).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: clap::Args> clap::Args for Flags<S> {
    fn augment_args(command: clap::Command) -> clap::Command {
        S::augment_args(RunFlags::augment_args(command))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<S: Checked> Flags<S> {
    /// The flags that were given, laid over the file's settings, laid over the defaults.
    ///
    /// # Errors
    /// If the file cannot be read, or a setting is unknown, missing or out of range.
    pub(super) fn settings(&self) -> Result<S, SetupError> {
        let place = self.how.config.as_deref();
        let mut table = toml::Table::try_from(&self.values)
            .map_err(|error| SetupError::config(None, &error.to_string()))?;
        for (name, value) in place.map_or(Ok(toml::Table::new()), read)? {
            if !self.given.contains(&name) {
                table.insert(name, value);
            }
        }
        let settings: S = table
            .try_into()
            .map_err(|error: toml::de::Error| SetupError::config(place, error.message()))?;
        settings.check()?;
        Ok(settings)
    }

    /// Returns true if the caller is to go on with the run in `folder`.
    ///
    /// # Errors
    /// If that was asked for, and none was begun there.
    pub(super) fn resumes(&self, folder: &RunFolder) -> Result<bool, RunError> {
        if self.how.resume {
            folder.require()?;
        }
        Ok(self.how.resume || (self.how.resume_if_begun && folder.is_begun()))
    }
}

fn read(config: &Path) -> Result<toml::Table, SetupError> {
    let text = fs::read_to_string(config).map_err(|source| SetupError::Read {
        path: config.to_path_buf(),
        source,
    })?;
    toml::from_str(&text).map_err(|error| SetupError::config(Some(config), error.message()))
}

/// Settings whose values have limits.
pub(crate) trait Checked: Serialize + DeserializeOwned {
    /// # Errors
    /// If a setting is missing or out of range.
    fn check(&self) -> Result<(), SetupError>;
}

/// Takes a path that may be left out of the flags where the file has it.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
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
