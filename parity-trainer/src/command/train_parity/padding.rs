//! Lengths that sequences are padded to in serving.

use parapet_encoder::{Code, Padding};
use parity_trainer::data::{DataSet, steps};
use parity_trainer::deployed::{self, Deployed};
use parity_trainer::{TrainError, ensure};

use super::settings::Settings;

/// The lengths that were named, or quarters of the training samples' and the longest's.
pub(super) fn of(
    settings: &Settings,
    data: &DataSet,
    deployed: &Deployed,
) -> Result<Option<Padding>, TrainError> {
    if !deployed.is_of_sequences {
        let problem = "--padding: the deployed model's axes are all fixed; leave it out";
        ensure!(settings.padding.is_none(), TrainError::Input(problem.to_owned()));
        return Ok(None);
    }
    let problem = "--encoder: sequences are coded with `stack`";
    ensure!(settings.has_slots(), TrainError::Input(problem.to_owned()));
    let problem = "--input-mean: zeros pad sequences, and would become others; leave it out";
    let has_mean = settings.scaling().mean.iter().any(|&mean| mean != 0.0);
    ensure!(!has_mean, TrainError::Input(problem.to_owned()));
    let (train, code) = (&data.train, Code::try_from(&settings.code())?);
    let lengths = settings.padding.clone().unwrap_or_else(|| {
        let features = train.shape.last().copied().unwrap_or(1);
        let mut lengths: Vec<usize> =
            (0..train.len()).map(|at| steps(train.sample(at), features)).collect();
        lengths.sort_unstable();
        let part = |quarter: usize| lengths[(lengths.len() - 1) * quarter / 4];
        let mut lengths: Vec<usize> = (1..=3).map(part).collect();
        // The longest query may be one that no data had.
        lengths.push(train.shape[1]);
        lengths.dedup();
        lengths
    });
    let padding = Padding::new(lengths, &code)?;
    for samples in [train, &data.test] {
        deployed::check_padding("--padding", &padding, &samples.values, &samples.shape)?;
    }
    Ok(Some(padding))
}
