//! Preparation of a training before its first step; errors in its inputs show here.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use parapet_decoder::{Agreement, OutputKind};
use parapet_encoder::{Code, Padding, build_encoder};
use parity_trainer::data::{Augment, DataSet, Samples};
use parity_trainer::deployed::{
    self, Deployed, DeployedModel as _, OpenOptions, QueryTimer, cached_outputs,
};
use parity_trainer::network::{Network, NetworkSpec, SlotNetwork};
use parity_trainer::{
    LearnedRun, Loss, ParityRun, TrainError, Trained, TrainingSet, Variants, ensure, group_shape,
    needs_mlps, split_validation, students, training_inputs, widest,
};

use serde::Serialize;

use super::padding;
use super::settings::Settings;
use crate::command::eval::few;
use crate::command::{check_classes, load_data, prepare_out};
use crate::progress::Progress;

/// Training samples and variants together, of codes whose variants are made before the training.
const POOL_SAMPLES: usize = 20_000;
/// Hidden units up to which an encoder takes the full learning rate. A wider one takes less in
/// proportion, since the steps of all its weights add up (Yang et al., "Tensor Programs V", arXiv
/// 2203.03466): at the full rate one for pairs of images of 28 x 28 learns nothing.
const ENCODER_WIDTH: f64 = 160.0;
/// Least side of an image for the network that is taken where none is known.
const LENET_SIDE: usize = 16;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Cost {
    /// Times that of a query, by ONNX Runtime on one thread.
    pub(super) time: f64,
    pub(super) multiply_adds: u64,
    /// Multiply-adds of a query, where the deployed model's network is known.
    #[serde(rename = "multiply_adds_deployed", skip_serializing_if = "Option::is_none")]
    pub(super) deployed: Option<u64>,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millions = |count: u64| count as f64 / 1e6;
        let (time, own) = (self.time, millions(self.multiply_adds));
        write!(f, "{time:.2} times a query's time, {own:.2} million multiply-adds")?;
        self.deployed.map_or(Ok(()), |deployed| write!(f, " (a query: {:.2})", millions(deployed)))
    }
}

#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) settings: Settings,
    pub(super) data: DataSet,
    pub(super) deployed: Deployed,
    pub(super) agreement: Agreement,
    /// For row 0, with the code adding raw outputs.
    pub(super) run: ParityRun,
    /// Lengths that sequences are padded to in serving, if samples are sequences.
    pub(super) padding: Option<Padding>,
    pub(super) digest: String,
}

/// Samples with the deployed model's outputs, for training and for validation.
pub(super) type Sets = (Arc<TrainingSet>, Arc<TrainingSet>);

impl Inputs {
    /// Reads data and model, and checks that they fit together and the code fits them. The deployed
    /// model is not asked about the samples yet.
    pub(super) fn check(settings: Settings, threads: usize) -> Result<Self, TrainError> {
        let code = settings.code();
        let k = Code::try_from(&code)?.k();
        let mut data = load_data(&settings.common.data)?;
        let scaling = settings.scaling();
        let fits = |shape: &[usize]| -> Result<(), TrainError> {
            if !settings.is_learned() {
                build_encoder(&code, shape)?;
            }
            scaling.check(shape)
        };
        fits(&data.train.shape)?;
        let deployed = open_deployed(&settings, threads, &data)?;
        let agreement = deployed.agreement()?;
        take_shape(&deployed, &mut data)?;
        fits(&data.train.shape)?;
        check_classes(&data, &deployed)?;
        let found = data.test.len();
        ensure!(k <= found, TrainError::TooFewSamples { found, k });
        let run = parity_run(&settings, &data, &deployed)?;
        let is_fit = run.network.is_of_sequences() == deployed.is_of_sequences;
        let problem = "--network: sequence6, sequence8, sequence8-strided and sequence14 are for a \
            deployed model with an axis of any length, and no others are";
        ensure!(settings.network.is_none() || is_fit, TrainError::Input(problem.to_owned()));
        let padding = padding::of(&settings, &data, &deployed)?;
        prepare_out(&settings.common.out, settings.common.json.as_deref())?;
        Ok(Self {
            digest: settings.digest(&[&data.sha256, &deployed.sha256])?,
            settings,
            data,
            deployed,
            agreement,
            run,
            padding,
        })
    }

    pub(super) fn answered(&self) -> Result<Sets, TrainError> {
        let (settings, data, k) = (&self.settings, &self.data, self.run.code.k);
        let seed = settings.common.seed;
        let (train, held) = split_validation(&data.train, settings.validation, k, seed)
            .ok_or(TrainError::TooFewSamples { found: data.train.len(), k })?;
        let augment = settings.common.augmentation(data);
        let copies = match self.run.variants.is_some() || augment == Augment::NONE {
            true => 0,
            false => (POOL_SAMPLES / train.len()).saturating_sub(1),
        };
        Ok((self.answer(&train, augment, copies)?, self.answer(&held, Augment::NONE, 0)?))
    }

    /// Samples, and variants of them, with the deployed model's outputs.
    fn answer(
        &self,
        samples: &Samples,
        augment: Augment,
        copies: usize,
    ) -> Result<Arc<TrainingSet>, TrainError> {
        let (settings, deployed) = (&self.settings, &self.deployed);
        let seed = settings.common.seed;
        let inputs = training_inputs(samples, augment, copies, &settings.scaling(), seed);
        let mut progress = Progress::new(&deployed.name, "samples answered");
        let at = |done, count| progress.at(done, count);
        let (answers, is_reused) = cached_outputs(&settings.cache(), deployed, &inputs, at)?;
        progress.finish();
        if is_reused {
            let count = answers.len() / self.agreement.output_len();
            let name = &deployed.name;
            eprintln!("{name}: reuses its outputs for {count} samples from an earlier run");
        }
        Ok(Arc::new(TrainingSet {
            shape: samples.shape.clone(),
            output_shape: deployed.model.output_shape().to_vec(),
            agreement: self.agreement,
            inputs,
            answers,
        }))
    }
}

/// The run without its code's transform.
fn parity_run(
    settings: &Settings,
    data: &DataSet,
    deployed: &Deployed,
) -> Result<ParityRun, TrainError> {
    let (network, learned) = if settings.is_learned() {
        let (encoder, learned) = learned(settings, data, deployed)?;
        (encoder, Some(learned))
    } else {
        let network = network(settings, deployed, &data.train.shape)?;
        // A stack's is chosen later, unless it is named.
        if settings.network.is_some() || !settings.has_slots() {
            trial(&network, &data.train.shape, deployed.model.outputs())?;
        }
        (network, None)
    };
    let augment = settings.common.augmentation(data);
    let is_varied = settings.has_slots() && augment != Augment::NONE;
    let variants = is_varied.then(|| Variants {
        deployed: Rc::clone(&deployed.model),
        augment,
        scaling: settings.scaling(),
    });
    let start = match settings.has_slots() {
        true => deployed::own_network(deployed, &few_samples(settings, data)),
        false => Ok(None),
    };
    let start = start.unwrap_or_else(|error| {
        eprintln!("warning: {error}: slots begin with fresh weights");
        None
    });
    let mut rule = settings.rule();
    if settings.common.learning_rate.is_none()
        && let (Some(_), NetworkSpec::Mlp { widths }) = (&learned, &network)
    {
        let hidden = widths.iter().skip(1).max().copied().unwrap_or_default();
        rule.learning_rate *= (ENCODER_WIDTH / hidden as f64).min(1.0);
    }
    let has_classes = deployed.agreement()?.kind() == OutputKind::Classes;
    let loss = if settings.has_slots() && has_classes { Loss::Kl } else { Loss::Mse };
    Ok(ParityRun {
        network,
        code: settings.code(),
        row: 0,
        groups: settings.common.batch as usize,
        validate_every: settings.validate_every(rule.steps),
        rule,
        learned,
        variants,
        start: start.map(Rc::new),
        loss: settings.loss.unwrap_or(loss),
        seed: settings.common.seed,
    })
}

/// The encoder's network, and what else a learned code's training needs.
fn learned(
    settings: &Settings,
    data: &DataSet,
    deployed: &Deployed,
) -> Result<(NetworkSpec, LearnedRun), TrainError> {
    let (k, r, outputs) = (settings.k, settings.r, deployed.model.outputs());
    let shape = group_shape(&data.train.shape, k);
    let inputs: usize = shape.iter().product();
    let (given, made) = ((k + r) * outputs, k * outputs);
    let named = |name: &Option<String>, default: String| name.clone().unwrap_or(default).parse();
    let encoder = named(&settings.network, format!("mlp:{inputs},{inputs}"))?;
    let decoder = named(&settings.decoder_network, format!("mlp:{given},{given},{made}"))?;
    // Serving runs them by ONNX Runtime.
    trial(&encoder, &shape, inputs / k * r)?.to_onnx()?;
    trial(&decoder, &[given], made)?.to_onnx()?;
    let through = deployed::differentiable(deployed, &few_samples(settings, data))?;
    Ok((encoder, LearnedRun { decoder, through }))
}

/// The deployed model's network, where it has a name that this trainer knows.
fn known_network(deployed: &Deployed) -> Option<NetworkSpec> {
    deployed.network.as_deref()?.parse().ok()
}

impl Inputs {
    /// The widest network of each architecture whose parity query costs no more than allowed; the
    /// cheapest if none is that cheap.
    pub(super) fn students(&self) -> Result<Vec<NetworkSpec>, TrainError> {
        let (settings, data, deployed) = (&self.settings, &self.data, &self.deployed);
        let samples = few_samples(settings, data);
        let (timer, mut found) = (self.timer()?, Vec::<(NetworkSpec, f64)>::new());
        let known = known_network(deployed);
        let shape = &data.train.shape;
        let most = settings.max_cost();
        for family in students(shape, known.as_ref(), deployed.is_of_sequences) {
            let is_mlp = matches!(family[..], [NetworkSpec::Mlp { .. }, ..]);
            if is_mlp && !needs_mlps(&found, most, known.as_ref()) {
                continue;
            }
            let cost = |network: &NetworkSpec| {
                let mut network = trial(network, &data.train.shape, deployed.model.outputs())?;
                network.normalise(&samples)?;
                let shape = deployed.model.output_shape();
                let slots = SlotNetwork::new(network, self.run.code.k, shape, false);
                timer.ratio(&slots.to_onnx()?, slots.input_shape())
            };
            found.extend(widest(&family, most, cost)?);
        }
        found.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let within = found.iter().filter(|(_, cost)| *cost <= most).count();
        found.truncate(within.max(1));
        for (network, cost) in &found {
            eprintln!("{network}: a parity query takes {cost:.2} times as long as a query");
        }
        if within == 0 {
            eprintln!("warning: no network is within --max-cost {most}; the cheapest is taken");
        }
        Ok(found.into_iter().map(|(network, _)| network).collect())
    }

    fn timer(&self) -> Result<QueryTimer, TrainError> {
        let (data, options) = (&self.data, options(&self.settings, 1));
        let samples = few_samples(&self.settings, data);
        let sample = samples.get(..data.train.sample_len()).unwrap_or_default();
        QueryTimer::new(&self.deployed, &options, sample)
    }

    /// Returns true if the parity model's slots are isolated.
    pub(super) fn is_isolated(&self, trained: &Trained) -> Result<bool, TrainError> {
        let Trained::Slots(slots) = trained else { return Ok(false) };
        let samples = few_samples(&self.settings, &self.data);
        deployed::is_isolated(&slots.to_onnx()?, slots.input_shape(), &samples)
    }

    /// Cost of a query to the parity model that was trained, if there is one.
    pub(super) fn cost(&self, trained: &Trained) -> Result<Option<Cost>, TrainError> {
        let (onnx, shape, network) = match trained {
            Trained::Slots(slots) => (slots.to_onnx()?, slots.input_shape(), &slots.network),
            Trained::Model(network) => (network.to_onnx()?, network.input_shape(), network),
            Trained::LearnedCode { .. } => return Ok(None),
        };
        let (data, deployed) = (&self.data.train, &self.deployed);
        let known = known_network(deployed);
        let known = known.map(|known| trial(&known, &data.shape, deployed.model.outputs()));
        let samples = shape.iter().product::<usize>() / data.sample_len();
        Ok(Some(Cost {
            time: self.timer()?.ratio(&onnx, shape)?,
            multiply_adds: samples as u64 * network.multiply_adds(),
            deployed: known.transpose()?.map(|network| network.multiply_adds()),
        }))
    }
}

/// Makes a network, to be thrown away: one that does not take the samples should not show after the
/// deployed model has answered them all.
fn trial(network: &NetworkSpec, shape: &[usize], outputs: usize) -> Result<Network, TrainError> {
    let mut any = rand_chacha::rand_core::SeedableRng::seed_from_u64(0);
    Network::new(network, shape, outputs, &mut any)
}

fn open_deployed(
    settings: &Settings,
    threads: usize,
    data: &DataSet,
) -> Result<Deployed, TrainError> {
    let options = options(settings, threads);
    let samples = few_samples(settings, data);
    let mut deployed = deployed::open(&settings.model, &options, &data.train.shape, &samples)?;
    if let Some(name) = &settings.deployed {
        deployed.name.clone_from(name);
    }
    Ok(deployed)
}

fn options(settings: &Settings, threads: usize) -> OpenOptions {
    OpenOptions {
        input: settings.input.clone(),
        output: settings.output.clone(),
        kind: settings.output_kind,
        lengths: None,
        threads,
    }
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
    // Networks take sequences as images of one channel.
    let image = [&[1], shape].concat();
    let shape = if deployed.is_of_sequences && shape.len() == 2 { &image } else { shape };
    if shape == data.train.shape {
        return Ok(());
    }
    // Networks want features, or an image with its channels in front.
    ensure!(
        matches!(shape, [_] | [_, _, _]),
        deployed::wrong_shape(&deployed.file, &format!("{shape:?}"), &data.train.shape)
    );
    data.train.shape = shape.to_vec();
    data.test.shape = shape.to_vec();
    Ok(())
}

/// The network that was named, else the deployed model's, where this trainer made it.
fn network(
    settings: &Settings,
    deployed: &Deployed,
    shape: &[usize],
) -> Result<NetworkSpec, TrainError> {
    let fallback = match shape {
        &[_, height, width] if height.min(width) >= LENET_SIDE => "lenet".to_owned(),
        shape => format!("mlp:{},800,400", shape.iter().product::<usize>()),
    };
    settings.network.as_ref().or(deployed.network.as_ref()).unwrap_or(&fallback).parse()
}
