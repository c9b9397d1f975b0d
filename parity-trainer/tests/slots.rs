//! Parity models with a slot for each query, from the command's defaults to the reconstructions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{SIDE, Workplace, assert_has, parity_run, trained};
use parapet_decoder::Agreement;
use parapet_encoder::{CodeSpec, EncoderKind};
use parity_trainer::backend::Place;
use parity_trainer::deployed::{self, DeployedModel, InputScaling, OpenOptions};
use parity_trainer::deployed::{QueryTimer, is_isolated};
use parity_trainer::network::{Network, SlotNetwork};
use parity_trainer::{TrainError, Trained, Trainer, TrainingSet, Variants};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEPLOYED: &str = "--network mlp:256,32 --epochs 8 --seed 5";
const TRAIN: &str = "train --model models/quarters --data . --seed 5 --augment none --out models";

fn network(name: &str, shape: &[usize], outputs: usize) -> Network {
    let mut rng = rand_chacha::rand_core::SeedableRng::seed_from_u64(3);
    Network::new(&name.parse().unwrap(), shape, outputs, &mut rng).unwrap()
}

fn samples(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 37 % 101) as f32 / 101.0).collect()
}

#[test]
fn defaults_train_a_parity_model_that_answers_for_all_members() {
    // Large enough that the time of a query is that of its arithmetic: networks are chosen by it.
    let deployed = "--network mlp:256,512,64 --epochs 8 --seed 5";
    let workplace = Workplace::with_model(400, 100, deployed);
    let ended = workplace.succeed(&format!("{TRAIN} --k 3 --steps 1200 --json report.json"));
    assert_has(&ended.errors, &["a parity query takes"]);
    assert_has(&ended.out, &["cost of a parity query", "million multiply-adds"]);
    let report = workplace.json("report.json");
    assert_eq!(report["code"], "stack-slots-k3-r1");
    let losses = report["by_losses"].as_array().unwrap();
    assert_eq!(losses.len(), 3, "all three may be missing");
    for loss in losses {
        assert!(loss["agreement"]["value"].as_f64() > Some(0.9), "{report}");
    }
    assert!(report["cost"]["time"].as_f64() > Some(0.0), "{report}");

    let card = workplace.toml("models/quarters-parity/model.toml");
    assert_eq!(card["inputs"][0]["shape"].to_string(), "[3, 1, 16, 16]");
    assert_eq!(card["outputs"][0]["shape"].to_string(), "[3, 4]");
    assert_eq!(card["code"]["decoding"].as_str(), Some("slots"));
    assert_eq!(card["code"]["isolated"].as_bool(), Some(true));
    let cost = card["training"]["cost"]["multiply_adds_deployed"].as_integer();
    assert_eq!(cost, Some(256 * 512 + 512 * 64 + 64 * 4));

    let eval = "eval --model models/quarters --data . --parity models/quarters-parity --out report";
    workplace.succeed(eval);
    let judged = &workplace.json("report/evaluation.json")["evaluation"]["by_losses"];
    let agreement = |by_losses: &serde_json::Value| by_losses[0]["agreement"]["value"].as_f64();
    let difference = agreement(judged).unwrap() - agreement(&report["by_losses"]).unwrap();
    assert!(difference.abs() < 0.05, "{judged}");
}

#[test]
fn rows_are_models_of_their_own() {
    let workplace = Workplace::with_model(200, 60, DEPLOYED);
    let few = "--k 2 --r 2 --steps 60 --network mlp:256,16 --json report.json";
    workplace.succeed(&format!("{TRAIN} {few}"));
    let weights = |row: usize| {
        let file = format!("models/quarters-parity-{row}/1/weights.safetensors");
        std::fs::read(workplace.at(&file)).unwrap()
    };
    assert_ne!(weights(0), weights(1));
    let losses = workplace.json("report.json")["by_losses"].clone();
    assert_eq!(losses.as_array().map(Vec::len), Some(2));
}

#[test]
fn student_answers_a_query_as_the_slots_of_the_first_row_do() {
    let workplace = Workplace::with_model(200, 60, DEPLOYED);
    let few = "--k 2 --r 2 --steps 60 --network mlp:256,16 --student student";
    workplace.succeed(&format!("{TRAIN} {few}"));
    let samples = samples(2 * SIDE * SIDE);
    let answers = |entry: &str, shape: &[usize]| {
        let file = workplace.at(&format!("models/{entry}/1/model.onnx"));
        let opened = deployed::open(&file, &OpenOptions::default(), shape, &samples).unwrap();
        opened.model.infer(&samples).unwrap()
    };
    let alone = answers("student", &[1, SIDE, SIDE]);
    assert_eq!(alone, answers("quarters-parity-0", &[2, 1, SIDE, SIDE]));
    assert_ne!(alone, answers("quarters-parity-1", &[2, 1, SIDE, SIDE]));
}

/// A model that counts how often it is asked.
#[derive(Debug)]
struct Counted(Network, Arc<AtomicUsize>);

impl DeployedModel for Counted {
    fn input_shape(&self) -> &[usize] {
        self.0.input_shape()
    }

    fn output_shape(&self) -> &[usize] {
        self.0.output_shape()
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, TrainError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.infer(samples))
    }
}

#[test]
fn variants_are_shown_in_four_passes_and_asked_about_once() {
    const BATCH: usize = 8;
    let shape = [1, SIDE, SIDE];
    let set = |count: usize| {
        let inputs = samples(count * SIDE * SIDE);
        Arc::new(TrainingSet {
            shape: shape.to_vec(),
            output_shape: vec![3],
            agreement: Agreement::of(None, &[3]).unwrap(),
            answers: network("mlp:256,4", &shape, 3).infer(&inputs),
            inputs,
        })
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let trainer = || {
        let deployed = Counted(network("mlp:256,4", &shape, 3), Arc::clone(&asked));
        let code = CodeSpec::new(EncoderKind::Stack, 2, 1);
        let mut run = common::parity_run("mlp:256,8", code, 40);
        run.groups = BATCH;
        run.variants = Some(Variants {
            deployed: Rc::new(deployed),
            augment: "crop".parse().unwrap(),
            scaling: InputScaling::default(),
        });
        Trainer::parity(run, set(4 * BATCH), set(8), Place::InProcess).unwrap()
    };
    let (mut one, mut calls) = (trainer(), Vec::new());
    let mut half = None;
    while !one.is_done() {
        if one.steps_done() == 22 {
            half = Some(one.state().unwrap());
        }
        one.step().unwrap();
        calls.push(asked.load(Ordering::Relaxed));
    }
    assert_eq!([3, 15, 16, 19, 31, 32].map(|step| calls[step]), [4, 4, 5, 8, 8, 9]);
    // One that goes on from there asks again about those that it shows, and learns the same.
    let mut other = trainer();
    other.restore(half.unwrap()).unwrap();
    while !other.is_done() {
        other.step().unwrap();
    }
    assert_eq!(other.state().unwrap(), one.state().unwrap());
}

#[test]
fn variants_of_one_seed_are_the_same() {
    let workplace = Workplace::with_model(200, 60, DEPLOYED);
    let train = TRAIN.replace(" --augment none", "");
    let line = format!("{train} --k 2 --network mlp:256,16 --steps 40");
    let weights = |more: &str| {
        workplace.succeed(&format!("{line} {more}"));
        let file = "models/quarters-parity/1/weights.safetensors";
        std::fs::read(workplace.at(file)).unwrap()
    };
    let first = weights("--augment crop");
    assert_eq!(weights("--augment crop"), first);
    assert_ne!(weights("--augment none"), first);
    // Black pixels come in at the border of the images as they were, whatever the model is fed.
    assert_ne!(weights("--augment crop --input-mean 0.5"), first);
}

#[test]
fn agreement_shows_a_parity_model_of_one_step() {
    let workplace = Workplace::with_model(400, 100, DEPLOYED);
    let agreement = |name, network| {
        let one = "--k 2 --steps 1 --json report.json";
        workplace.succeed(&format!("{TRAIN} {one} --name {name} --network {network}"));
        workplace.json("report.json")["agreement"].as_f64().unwrap()
    };
    let other = agreement("other", "mlp:256,16,16");
    assert!(other < 0.8, "{other}");
    let same = agreement("same", "mlp:256,32");
    assert!(same > 0.97, "it begins with the deployed model's weights: {same}");
}

#[test]
fn deployed_weights_of_another_graph_are_not_begun_with() {
    let workplace = Workplace::with_model(200, 60, DEPLOYED);
    let other = "train-deployed --data . --augment none --out others --name quarters --seed 6 \
        --network mlp:256,32 --epochs 1";
    workplace.succeed(other);
    let file = "models/quarters/1/weights.safetensors";
    std::fs::copy(workplace.at("others/quarters/1/weights.safetensors"), workplace.at(file))
        .unwrap();
    let ended = workplace.succeed(&format!("{TRAIN} --k 2 --steps 1 --network mlp:256,32"));
    let warning = ["warning", "holds other weights than its graph", "fresh weights"];
    assert_has(&ended.errors, &warning);
}

/// The softmax of the deployed model's outputs, by a graph of our own.
#[test]
fn a_deployed_model_that_gives_probabilities_is_learned_as_such() {
    let workplace = Workplace::new(400, 100);
    // Each class is a quarter of the image.
    let is_in = |class: usize, at: usize| {
        let (right, low) = (at % SIDE >= SIDE / 2, at / SIDE >= SIDE / 2);
        class == usize::from(right) + 2 * usize::from(low)
    };
    let weight =
        |at: usize| f32::from(u8::from(is_in(at / (SIDE * SIDE), at % (SIDE * SIDE)))) / 8.0;
    let weights: Vec<f32> = (0..4 * SIDE * SIDE).map(weight).collect();
    let graph = parapet_onnx::GraphBuilder::new("input", &[1, SIDE, SIDE]).flatten();
    let graph = graph.gemm(&weights, &[0.0; 4]).softmax().finish("output");
    std::fs::write(workplace.at("model.onnx"), graph.unwrap()).unwrap();
    let train = "train --model model.onnx --data . --augment none --out models --name parity";
    workplace.succeed(&format!("{train} --k 2 --steps 300 --json report.json"));
    let report = workplace.json("report.json");
    assert!(report["agreement"].as_f64() > Some(0.95), "{report}");
    let options = OpenOptions::default();
    let samples = samples(2 * SIDE * SIDE);
    let shape = [2, 1, SIDE, SIDE];
    let file = workplace.at("models/parity/1/model.onnx");
    let parity = deployed::open(&file, &options, &shape, &samples).unwrap();
    for slot in parity.model.infer(&samples).unwrap().chunks(4) {
        assert!((slot.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{slot:?}");
    }
}

#[test]
fn slots_are_isolated_and_mixed_outputs_are_not() {
    let samples = samples(5 * 64);
    let own = SlotNetwork::new(network("lenet:4x3", &[1, 10, 10], 3), 2, &[3], false);
    let images: Vec<f32> = samples.iter().copied().cycle().take(500).collect();
    assert!(is_isolated(&own.to_onnx().unwrap(), &[2, 1, 10, 10], &images).unwrap());
    // The same shapes, and every output from all of the input.
    let mixed = parapet_onnx::GraphBuilder::new("input", &[2, 8]).flatten();
    let weights: Vec<f32> = samples.iter().copied().cycle().take(6 * 16).collect();
    let mixed = mixed.gemm(&weights, &[0.0; 6]).finish("output").unwrap();
    assert!(!is_isolated(&mixed, &[2, 8], &samples).unwrap());
}

#[test]
fn a_wider_network_costs_more() {
    let workplace = Workplace::with_model(60, 20, DEPLOYED);
    let samples = samples(256);
    let model = workplace.at("models/quarters");
    let options = OpenOptions::default();
    let deployed = deployed::open(Path::new(&model), &options, &[1, 16, 16], &samples).unwrap();
    let timer = QueryTimer::new(&deployed, &options, &samples).unwrap();
    let cost = |name: &str| {
        let slots = SlotNetwork::new(network(name, &[1, 16, 16], 4), 2, &[4], false);
        timer.ratio(&slots.to_onnx().unwrap(), &[2, 1, 16, 16]).unwrap()
    };
    let [narrow, wide] = ["mlp:256,8", "mlp:256,4096,4096"].map(cost);
    assert!(wide > 3.0 * narrow, "{wide} {narrow}");
    let adds = network("lenet:2", &[1, 16, 16], 4).multiply_adds();
    // 12 x 12 and 2 x 2 positions of the kernels, then the layers.
    assert_eq!(adds, 144 * 2 * 25 + 4 * 4 * 2 * 25 + 4 * 16 + 16 * 4);
}

#[test]
fn mistakes_are_told_in_a_line() {
    let workplace = Workplace::with_model(60, 20, DEPLOYED);
    std::fs::write(workplace.at("seeds.toml"), "seeds = 1000").unwrap();
    for (more, parts) in [
        ("--max-cost 0", ["max-cost"]),
        ("--encoder sum --loss kl", ["--loss: a weighted sum"]),
        ("--encoder sum --minutes 1", ["--minutes: only a stack"]),
        ("--encoder sum --max-cost 1", ["--max-cost: only a stack"]),
        ("--encoder sum --student a", ["--student: only a stack"]),
        ("--clip 1 --wait-free true", ["--wait-free: --clip needs the whole gradient"]),
        ("--wait-free false", ["--wait-free: only a cluster has it"]),
        ("--clip 1 --factors", ["--factors: --clip needs the whole gradient"]),
        ("--factors", ["--factors: only a cluster has it"]),
        ("--explain-communication", ["--explain-communication: only a cluster has it"]),
        ("--config seeds.toml", ["--seeds"]),
        ("--seeds 2 --cluster 127.0.0.1:1", ["--seeds: a cluster has one training"]),
        ("--generator 1,1", ["takes none"]),
        ("--network mlp:512,8", ["takes samples of 512 values"]),
    ] {
        workplace.refused(&format!("{TRAIN} {more}"), &parts);
    }
    let ended = workplace.run(&format!("{TRAIN} --cluster parapet://127.0.0.1:1"));
    assert_eq!(ended.code, Some(1));
    // Before the deployed model is asked and networks are tried.
    let lines: Vec<&str> = ended.errors.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("data: "), "{lines:?}");
    assert_has(lines[1], &["--cluster: ", "127.0.0.1:1 does not answer"]);
}

/// One learning rate suits numbers of any scale: at that of slots, boxes from 0 to 1 were unlearned
/// again, as its steps were too long for weights that give small numbers.
#[test]
fn numbers_of_any_scale_are_learned_alike() {
    let agreements = [1.0_f32, 1e-3].map(|scale| {
        let set = |count: usize, seed: u64| {
            let mut rng: ChaCha8Rng = SeedableRng::seed_from_u64(seed);
            let inputs: Vec<f32> = (0..8 * count).map(|_| rng.random_range(0.0..1.0)).collect();
            let answer = |x: &[f32]| [scale * (5.0 + x[0] - x[1]), scale * (5.0 + x[2] * x[3])];
            let spec = format!("regression:{}", 0.2 * scale).parse().unwrap();
            Arc::new(TrainingSet {
                shape: vec![8],
                output_shape: vec![2],
                agreement: Agreement::of(Some(&spec), &[2]).unwrap(),
                answers: inputs.chunks(8).flat_map(answer).collect(),
                inputs,
            })
        };
        let mut run = parity_run("mlp:8,32", CodeSpec::new(EncoderKind::Stack, 2, 1), 800);
        run.rule.learning_rate = 1e-2;
        let (trainer, last) = trained(run, set(1000, 1), set(200, 2));
        let (Trained::Slots(slots), _) = trainer.finish().unwrap() else { panic!("slots") };
        // The scale is in the weights.
        let unseen = set(2, 3);
        let (made, wanted) = (slots.infer(&unseen.inputs).unwrap(), &unseen.answers);
        let mut pairs = made.iter().zip(wanted);
        assert!(pairs.all(|(made, wanted)| (made - wanted).abs() < 0.5 * scale), "{made:?}");
        last.agreement
    });
    let [large, small] = agreements;
    assert!(large > 0.9 && (large - small).abs() < 0.02, "{agreements:?}");
}
