//! Settings from flags and a TOML file, for every training.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use parapet_config::toml_file;
use parity_trainer::data::{Augment, DataSet};
use parity_trainer::network::NetworkSpec;
use parity_trainer::run::RunFolder;
use parity_trainer::{TrainError, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The flags of a training. A flag wins over the same setting of `--config`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags<S: clap::Args> {
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
    /// The flags' values, and the defaults of those that were not given.
    #[command(flatten)]
    values: S,
}

pub(crate) trait Checked: clap::Args + Serialize + DeserializeOwned {
    fn check(&self) -> Result<(), TrainError>;
}

impl<S: Checked> Flags<S> {
    /// The flags that `matches` has, laid over the file's settings, laid over the defaults.
    pub(super) fn settings(&self, matches: &ArgMatches) -> Result<S, TrainError> {
        let place = self.config.as_deref();
        let wrong = |problem: &str| TrainError::settings(place, problem);
        let table = toml::Table::try_from(&self.values);
        let mut table = table.map_err(|error| TrainError::settings(None, &error.to_string()))?;
        let known = S::augment_args(clap::Command::new(""));
        for (name, value, line) in place.map_or(Ok(Vec::new()), read)? {
            let id = name.replace('-', "_");
            let is_known = known.get_arguments().any(|argument| *argument.get_id() == id);
            ensure!(is_known, wrong(&format!("line {line}: unknown setting `{name}`")));
            if matches.value_source(&id) != Some(ValueSource::CommandLine) {
                table.insert(name.clone(), value);
                let one = toml_file::convert::<S>(table.clone());
                one.map_err(|mistake| {
                    // Those of settings that several trainings share do not say which one it is.
                    let own = format!("{name}: ");
                    wrong(&format!("line {line}: {own}{}", mistake.trim_start_matches(&own)))
                })?;
            }
        }
        let settings: S = toml_file::convert(table).map_err(|mistake| wrong(&mistake))?;
        settings.check()?;
        Ok(settings)
    }

    /// Returns true if the caller is to go on with the run in `folder`. Fails if that was asked
    /// for, and none was begun there.
    pub(super) fn resumes(&self, folder: &RunFolder) -> Result<bool, TrainError> {
        if self.resume {
            folder.require()?;
        }
        Ok(self.resume || (self.resume_if_begun && folder.is_begun()))
    }
}

/// The settings of a file, each with its line.
fn read(config: &Path) -> Result<Vec<(String, toml::Value, usize)>, TrainError> {
    let unread = |error| TrainError::settings(Some(config), &format!("cannot read: {error}"));
    let text = fs::read_to_string(config).map_err(unread)?;
    let table = toml_file::parse::<BTreeMap<String, toml::Spanned<toml::Value>>>(&text);
    let table = table.map_err(|mistake| TrainError::settings(Some(config), &mistake))?;
    let line = |at: usize| text.get(..at).unwrap_or_default().split('\n').count();
    let setting = |(name, value): (String, toml::Spanned<toml::Value>)| {
        let line = line(value.span().start);
        (name, value.into_inner(), line)
    };
    Ok(table.into_iter().map(setting).collect())
}

#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Common {
    /// Data like those that the model is asked about, labelled to train a deployed model: a folder
    /// with IDX, CIFAR or image files, or a file .npz, .safetensors, .tar or .tar.gz
    #[arg(long, value_name = "PATH", default_value = "")]
    #[arg(hide_default_value = true, value_parser = path())]
    pub(crate) data: PathBuf,
    /// Samples a step; of a code that is not a stack, coding groups
    #[arg(long, default_value_t = 64)]
    pub(crate) batch: u32,
    /// Peak learning rate [default: 0.003; of a stack 0.02 with batch norm, 0.01 without for
    /// classes; less for the wide encoder of a learned code]
    #[arg(long)]
    pub(crate) learning_rate: Option<f64>,
    /// Weight decay
    #[arg(long, default_value_t = 1e-2)]
    pub(crate) weight_decay: f64,
    /// Augmentation of images: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as
    /// `crop+flip` [default: shift for images]
    #[arg(long)]
    pub(super) augment: Option<Augment>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// The model repository
    #[arg(long, value_name = "REPOSITORY", default_value = "")]
    #[arg(hide_default_value = true, value_parser = path())]
    pub(crate) out: PathBuf,
    /// Name of the new entry; one of that name is replaced. A parity model's is by default the
    /// deployed model's and `-parity`
    #[arg(long, value_parser = model_name)]
    pub(crate) name: Option<String>,
    /// Write the evaluation here too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Folder of the run's log and checkpoints [default: .runs/NAME in the repository]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) run: Option<PathBuf>,
    /// Seconds from one checkpoint to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(crate) checkpoint_every: f64,
    /// Steps from one checkpoint to the next, instead of seconds
    #[arg(long, value_name = "STEPS")]
    pub(crate) checkpoint_steps: Option<u32>,
}

impl Common {
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        needed("data", &self.data)?;
        needed("out", &self.out)?;
        names(&self.name)?;
        range("batch", f64::from(self.batch), 1.0, f64::from(u32::MAX))?;
        range("learning-rate", self.learning_rate.unwrap_or(LEARNING_RATE), 1e-12, 1e3)?;
        range("weight-decay", self.weight_decay, 0.0, 1e3)?;
        range("checkpoint-every", self.checkpoint_every, 0.0, 1e9)
    }

    /// The same without places, names and pace of checkpoints, which do not decide a training.
    pub(crate) fn bare(&self) -> Self {
        Self {
            data: PathBuf::new(),
            out: PathBuf::new(),
            name: None,
            json: None,
            run: None,
            checkpoint_every: 0.0,
            checkpoint_steps: None,
            ..self.clone()
        }
    }

    /// Images are shifted unless the user says otherwise; mirroring is theirs to ask for, as it
    /// spoils digits and letters.
    pub(crate) fn augmentation(&self, data: &DataSet) -> Augment {
        let is_image = data.train.shape.len() == 3;
        self.augment.unwrap_or(if is_image { Augment::SHIFT } else { Augment::NONE })
    }
}

/// Takes a path that may be left out of the flags where the file has it.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Takes a name that the model repository takes.
pub(crate) fn model_name(name: &str) -> Result<String, String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(allowed) {
        return Ok(name.to_owned());
    }
    let problem =
        "a model's name has letters, digits, '-', '_' and '.', and begins with a letter or digit";
    Err(problem.to_owned())
}

pub(crate) fn names<'a>(all: impl IntoIterator<Item = &'a String>) -> Result<(), TrainError> {
    for name in all {
        let wrong = |problem| TrainError::settings(None, &format!("{name:?}: {problem}"));
        model_name(name).map_err(wrong)?;
    }
    Ok(())
}

pub(crate) fn network(name: &str) -> Result<String, String> {
    name.parse::<NetworkSpec>().map(|spec| spec.to_string()).map_err(|error| error.to_string())
}

pub(crate) fn to_toml(settings: &impl Serialize) -> Result<String, TrainError> {
    toml::to_string(settings).map_err(|error| TrainError::settings(None, &error.to_string()))
}

pub(crate) fn range(name: &str, value: f64, least: f64, most: f64) -> Result<(), TrainError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(TrainError::Input(format!(
        "--{name} {value}: out of range; give a number from {least} to {most}"
    )))
}

pub(crate) fn needed(name: &str, path: &Path) -> Result<(), TrainError> {
    if !path.as_os_str().is_empty() {
        return Ok(());
    }
    Err(TrainError::Input(format!(
        "--{name} is needed, here or as `{name}` in the file that --config names"
    )))
}

/// Peak learning rate, unless `--learning-rate` says otherwise.
pub(crate) const LEARNING_RATE: f64 = 3e-3;
/// Version of the order that checkpoints have the weights in: that of the layers.
const ORDER: &str = "weights by layer, variants for four passes";

/// Digest of settings and of what else decides how a training goes.
pub(crate) fn digest(settings: &impl Serialize, rest: &[&str]) -> Result<String, TrainError> {
    let mut hash = Sha256::new_with_prefix(to_toml(settings)?);
    for part in [&[ORDER], rest].concat() {
        hash.update(format!("{part}\n"));
    }
    Ok(format!("{:x}", hash.finalize()))
}
