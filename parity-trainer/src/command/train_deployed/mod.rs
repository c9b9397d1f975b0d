//! `parity-trainer train-deployed`.

mod settings;

use std::sync::Arc;
use std::time::Instant;

use parity_trainer::data::DataError;
use parity_trainer::run::CurveLabels;
use parity_trainer::{TrainError, Trained, Trainer, accuracy, write_entry};
use serde::Serialize;

use super::interrupt::Interrupt;
use super::training_loop::{self, Pace, TrainingLoop};
use super::{
    augmentation, load_data, lock_training, prepare_out, provenance, rounded, run_folder,
    write_json,
};
use crate::report;
pub(crate) use settings::Args;
use settings::Settings;

#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a str,
    network: String,
    seconds: f64,
    test_samples: usize,
    accuracy_deployed: f64,
}

/// Trains, evaluates and writes the entry.
pub(crate) fn run(args: &Args) -> Result<(), TrainError> {
    let settings: Settings = args.settings()?;
    let interrupt = Interrupt::listen()?;
    let name = settings.name.as_str();
    let folder = run_folder(settings.run.as_ref(), &settings.out, name);
    let resume = args.resumes(&folder)?;
    let data = load_data(&settings.data)?;
    if !data.is_labelled() {
        let (path, purpose) = (settings.data.clone(), "train a model to be deployed");
        return Err(DataError::Unlabelled { path, purpose }.into());
    }
    if data.classes < 2 {
        return Err(DataError::OneClass {
            path: settings.data.clone(),
        }
        .into());
    }
    prepare_out(&settings.out, settings.json.as_deref())?;
    let run = settings.deployed_run(augmentation(settings.augment, &data))?;
    let digest = settings.digest(&data.sha256)?;
    let mut environment = training_loop::environment(settings.seed, &data.sha256, &digest);
    environment.insert("network".to_owned(), run.network.to_string().into());
    let mut training = provenance(settings.seed, &data);
    training.insert("epochs".to_owned(), i64::from(settings.epochs).into());

    let begun = Instant::now();
    let rule = run.rule(data.train.len());
    let trainer = Trainer::deployed(
        &run,
        Arc::new(data.train),
        data.classes,
        &mut Trainer::local(rule),
    )?;
    let _locks = lock_training(&folder, &settings.out, name)?;
    let drive = TrainingLoop {
        name,
        folder: &folder,
        digest: &digest,
        config: &settings.to_toml()?,
        environment: &environment,
        resume,
        pace: Pace::new(settings.checkpoint_every, settings.checkpoint_steps),
        interrupt: &interrupt,
        labels: CurveLabels {
            title: name,
            loss: "cross-entropy",
            rate: "accuracy",
        },
    };
    let (trained, _) = drive.run(trainer)?;
    let seconds = begun.elapsed().as_secs_f64();
    let Trained::Model(network) = trained else {
        return Ok(());
    };
    let accuracy = accuracy(&network, &data.test)?;

    training.insert("accuracy_deployed".to_owned(), rounded(accuracy));
    interrupt.wait_for_step();
    let place = write_entry(&settings.out, name, &network, None, training)?;
    write_json(
        settings.json.as_deref(),
        &Report {
            model: name,
            network: network.spec().to_string(),
            seconds,
            test_samples: data.test.len(),
            accuracy_deployed: accuracy,
        },
    )?;
    report::print(&[
        ("A_a, accuracy", report::percent(accuracy)),
        ("trained in", format!("{seconds:.1} s")),
        ("written to", place.display().to_string()),
    ]);
    Ok(())
}
