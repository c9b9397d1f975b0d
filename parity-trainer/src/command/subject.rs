//! Subject of an evaluation: a deployed model and a test set.

use std::fs;
use std::path::{Path, PathBuf};

use parity_trainer::TrainError;
use parity_trainer::data::{DataSet, Samples};
use parity_trainer::deployed::{self, Deployed, InputScaling, OpenOptions};

use super::load_data;

/// Resamples for the intervals.
pub(super) const RESAMPLES: usize = 1000;
/// Samples that models are tried on.
const TRIAL_SAMPLES: usize = 16;

/// Arguments of every evaluation.
#[derive(Debug, clap::Args)]
pub(super) struct SubjectArgs {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// The data whose test set is asked about; without labels there is agreement only
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// The deployed model's input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    input: Option<String>,
    /// The deployed model's output, of a model with several
    #[arg(long, value_name = "TENSOR")]
    output: Option<String>,
    /// Folder for the report: JSON, Markdown, plots
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Seed of the groups and of the resamples
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
}

impl SubjectArgs {
    /// Reads the data.
    pub(super) fn load(&self) -> Result<DataSet, TrainError> {
        load_data(&self.data)
    }

    /// Scales the test set and opens the deployed model for it.
    pub(super) fn open(
        &self,
        data: &mut DataSet,
        scaling: &InputScaling,
        threads: usize,
    ) -> Result<Deployed, TrainError> {
        scaling.check(&data.test.shape)?;
        scaling.apply(&data.test.shape, &mut data.test.values);
        let (input, output) = (self.input.clone(), self.output.clone());
        let options = OpenOptions {
            input,
            output,
            onnxruntime: None,
            threads,
        };
        let deployed = deployed::open(&self.model, &options, &data.test.shape, few(&data.test))?;
        deployed.classes()?;
        if data.classes > deployed.model.outputs() {
            return Err(TrainError::Classes {
                classes: data.classes,
                outputs: deployed.model.outputs(),
            });
        }
        Ok(deployed)
    }

    /// The folder for the report, which is made.
    pub(super) fn report_folder(&self) -> Result<Option<&Path>, TrainError> {
        if let Some(folder) = &self.out {
            fs::create_dir_all(folder).map_err(|source| TrainError::Write {
                path: folder.clone(),
                source,
            })?;
        }
        Ok(self.out.as_deref())
    }
}

/// Some samples that models are tried on.
pub(super) fn few(samples: &Samples) -> &[f32] {
    let few = TRIAL_SAMPLES.min(samples.len()) * samples.sample_len();
    samples.values.get(..few).unwrap_or_default()
}

/// Writes a file of the report.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), TrainError> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|source| TrainError::Write { path, source })
}
