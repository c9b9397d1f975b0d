//! Preparation of a training before its first step; errors in its inputs show here.

use std::sync::Arc;

use parapet_decoder::ClassAxis;
use parapet_encoder::build_encoder;
use parity_trainer::data::{Augment, DataSet, Samples};
use parity_trainer::deployed::{self, Deployed, OpenOptions, OutputCache, Reuse};
use parity_trainer::network::{Network, NetworkSpec};
use parity_trainer::{ParityRun, TrainError, TrainingSet, split_validation, training_inputs};

use super::prepared::Prepared;
use super::settings::Settings;
use crate::command::subject::few;
use crate::command::{augmentation, load_data, prepare_out};
use crate::progress::Counter;

/// Training samples and their variants together, unless `--copies` says otherwise.
const POOL_SAMPLES: usize = 20_000;
/// Least side of an image for the network that is taken where none is known.
const LENET_SIDE: usize = 16;
/// Validations of a run, unless `--validate-every` says otherwise.
const VALIDATIONS: u32 = 20;

/// Inputs that fit together; the deployed model has not been asked about the samples yet.
#[derive(Debug)]
pub(super) struct Checked {
    data: DataSet,
    pub(super) deployed: Deployed,
    /// Classes that the deployed model's output scores.
    classes: ClassAxis,
    run: ParityRun,
    pub(super) digest: String,
}

/// Reads data and model, and checks that they fit together and the code fits them.
pub(super) fn check(settings: &Settings, threads: usize) -> Result<Checked, TrainError> {
    let code = settings.code();
    let (k, r) = (code.k, parapet_encoder::Code::try_from(&code)?.r());
    if let Some(row) = settings.row.filter(|&row| row >= r) {
        return Err(TrainError::Row {
            row,
            last: r - 1,
            r,
        });
    }
    let mut data = load_data(&settings.data)?;
    let fits = |shape: &[usize]| {
        if settings.is_learned() {
            Ok(())
        } else {
            build_encoder(&code, shape).map(drop)
        }
    };
    fits(&data.train.shape)?;
    let scaling = settings.scaling();
    scaling.check(&data.train.shape)?;
    let deployed = open_deployed(settings, threads, &data)?;
    let classes = deployed.classes()?;
    take_shape(&deployed, &mut data)?;
    fits(&data.train.shape)?;
    scaling.check(&data.train.shape)?;
    if data.classes > deployed.model.outputs() {
        let outputs = deployed.model.outputs();
        return Err(TrainError::Classes {
            classes: data.classes,
            outputs,
        });
    }
    if k > data.test.len() {
        return Err(TrainError::TooFewSamples {
            found: data.test.len(),
            k,
        });
    }
    let mut digested = vec![data.sha256.clone(), deployed.sha256.clone()];
    let run = parity_run(settings, &data, &deployed, &mut digested)?;
    prepare_out(&settings.out, settings.json.as_deref())?;

    let digest = settings.digest(&digested.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(Checked {
        data,
        deployed,
        classes,
        run,
        digest,
    })
}

/// The run without its code's transform; adds the file that it starts from to what is `digested`.
fn parity_run(
    settings: &Settings,
    data: &DataSet,
    deployed: &Deployed,
    digested: &mut Vec<String>,
) -> Result<ParityRun, TrainError> {
    let start = settings
        .start
        .as_deref()
        .map(deployed::weights_file)
        .transpose()?;
    let (network, learned) = if settings.is_learned() {
        let few = few_samples(settings, data);
        let (encoder, learned) =
            super::learned::prepare(settings, deployed, &data.train.shape, &few)?;
        (encoder, Some(learned))
    } else {
        let network = network(settings, deployed, &data.train.shape)?;
        // A network that does not take the samples should not show after the deployed model has
        // answered them all.
        let mut any = rand_chacha::rand_core::SeedableRng::seed_from_u64(0);
        let mut trial = Network::new(
            &network,
            &data.train.shape,
            deployed.model.outputs(),
            &mut any,
        )?;
        if let Some(path) = &start {
            trial.start_from(path)?;
            digested.push(deployed::file_sha256(path)?);
        }
        (network, None)
    };
    let steps = settings.steps;
    Ok(ParityRun {
        network,
        code: settings.code(),
        row: 0,
        groups: settings.batch as usize,
        rule: settings.rule(),
        validate_every: u64::from(
            settings
                .validate_every
                .unwrap_or(steps.div_ceil(VALIDATIONS)),
        ),
        filler_share: settings.filler_share,
        normalise: settings.normalise,
        cell_targets: settings.cell_targets,
        start,
        learned,
        seed: settings.seed,
    })
}

impl Checked {
    /// Asks the deployed model about all training samples.
    pub(super) fn answered(self, settings: &Settings) -> Result<Prepared, TrainError> {
        let Self {
            data,
            deployed,
            classes,
            run,
            digest,
        } = self;
        let k = run.code.k;
        let (train, held) = split_validation(&data.train, settings.validation, k, settings.seed)
            .ok_or(TrainError::TooFewSamples {
                found: data.train.len(),
                k,
            })?;
        let augment = augmentation(settings.augment, &data);
        let enough = (POOL_SAMPLES / train.len()).saturating_sub(1);
        let copies = settings
            .copies
            .unwrap_or(if augment == Augment::NONE { 0 } else { enough });
        Ok(Prepared {
            train: answered(settings, (&deployed, classes), &train, augment, copies)?,
            validation: answered(settings, (&deployed, classes), &held, Augment::NONE, 0)?,
            data,
            deployed,
            run,
            digest,
        })
    }
}

fn open_deployed(
    settings: &Settings,
    threads: usize,
    data: &DataSet,
) -> Result<Deployed, TrainError> {
    let options = OpenOptions {
        input: settings.input.clone(),
        output: settings.output.clone(),
        onnxruntime: None,
        threads,
    };
    let samples = few_samples(settings, data);
    let mut deployed = deployed::open(&settings.model, &options, &data.train.shape, &samples)?;
    if let Some(name) = &settings.deployed {
        deployed.name.clone_from(name);
    }
    Ok(deployed)
}

/// Some training samples, as the deployed model takes them.
fn few_samples(settings: &Settings, data: &DataSet) -> Vec<f32> {
    let mut samples = few(&data.train).to_vec();
    settings.scaling().apply(&data.train.shape, &mut samples);
    samples
}

/// Gives the samples the shape in which the deployed model, and so its clients, have them: a parity
/// model takes the same queries. The values lie in memory as before.
fn take_shape(deployed: &Deployed, data: &mut DataSet) -> Result<(), TrainError> {
    let shape = deployed.model.input_shape();
    if shape != data.train.shape {
        // Networks want features, or an image with its channels in front.
        if !matches!(shape, [_] | [_, _, _]) {
            let (path, data) = (deployed.file.clone(), data.train.shape.clone());
            return Err(deployed::DeployedError::Shape {
                path,
                model: format!("{shape:?}"),
                data,
            }
            .into());
        }
        data.train.shape = shape.to_vec();
        data.test.shape = shape.to_vec();
    }
    Ok(())
}

/// The deployed model's architecture, where this trainer made it.
fn network(
    settings: &Settings,
    deployed: &Deployed,
    shape: &[usize],
) -> Result<NetworkSpec, TrainError> {
    if let Some(network) = &settings.network {
        return Ok(network.clone());
    }
    let fallback = match shape {
        &[_, height, width] if height.min(width) >= LENET_SIDE => "lenet".to_owned(),
        shape => format!("mlp:{},800,400", shape.iter().product::<usize>()),
    };
    Ok(deployed.network.as_ref().unwrap_or(&fallback).parse()?)
}

/// Samples, and variants of them, with the deployed model's outputs.
fn answered(
    settings: &Settings,
    (deployed, classes): (&Deployed, ClassAxis),
    samples: &Samples,
    augment: Augment,
    copies: usize,
) -> Result<Arc<TrainingSet>, TrainError> {
    let inputs = training_inputs(samples, augment, copies, &settings.scaling(), settings.seed);
    let folder = settings
        .cache
        .clone()
        .unwrap_or_else(|| settings.out.join(".cache"));
    let mut progress = Counter::new(&deployed.name, "samples answered");
    let cache = OutputCache::new(folder);
    let (answers, reuse) =
        cache.outputs(deployed, &inputs, |done, count| progress.at(done, count))?;
    progress.finish();
    if reuse == Reuse::Cached {
        let count = answers.len() / classes.count();
        eprintln!(
            "{}: reuses its outputs for {count} samples from an earlier run",
            deployed.name
        );
    }
    Ok(Arc::new(TrainingSet {
        shape: samples.shape.clone(),
        classes,
        inputs,
        answers,
    }))
}
