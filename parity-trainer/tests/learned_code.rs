//! Learned codes: trained through a deployed model, written, judged.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::script::write_linear_module;
use common::{last_complaint, succeed, write_quarters};
use parapet_decoder::ClassAxis;
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_onnx::learned_code::{LearnedCode, Sizes};
use parapet_onnx::runtime::OnnxRuntime;
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use parity_trainer::deployed::{Deployed, OpenOptions, differentiable, open};
use parity_trainer::{CodeNetworks, LearnedRun, Loss, ParityRun, Trained, Trainer, TrainingSet};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

const INPUTS: usize = 6;
const OUTPUTS: usize = 3;

/// A linear model as TorchScript, `[INPUTS, OUTPUTS]`.
fn weight() -> Vec<f32> {
    (0..INPUTS * OUTPUTS)
        .map(|i| ((i * 7 % 11) as f32) / 5.0 - 1.0)
        .collect()
}

fn linear_module(folder: &Path) -> Deployed {
    let path = folder.join("linear.pt");
    write_linear_module(&path, INPUTS as u8, OUTPUTS as u8, &weight());
    open(
        &path,
        &OpenOptions::default(),
        &[INPUTS],
        &[0.5; 4 * INPUTS],
    )
    .unwrap()
}

fn classes() -> ClassAxis {
    ClassAxis::of(&[OUTPUTS]).unwrap()
}

fn samples(deployed: &Deployed, count: usize, seed: u64) -> Arc<TrainingSet> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let inputs: Vec<f32> = (0..count * INPUTS)
        .map(|_| rng.random_range(-2.0..2.0))
        .collect();
    let answers = deployed.model.infer(&inputs).unwrap();
    Arc::new(TrainingSet {
        shape: vec![INPUTS],
        classes: classes(),
        inputs,
        answers,
    })
}

fn run(deployed: &Deployed, k: usize, r: usize, steps: u64, loss: Loss) -> ParityRun {
    let through = differentiable(deployed, &[0.5; 4 * INPUTS]).unwrap();
    let decoder = format!("mlp:{0},{0},{1}", (k + r) * OUTPUTS, 64)
        .parse()
        .unwrap();
    let transform = OutputTransform::Standardised {
        mean: vec![0.0],
        deviation: vec![2.0],
    };
    ParityRun {
        network: format!("mlp:{},64", k * INPUTS).parse().unwrap(),
        code: CodeSpec {
            transform,
            ..CodeSpec::new(EncoderKind::Learned, k, r)
        },
        row: 0,
        groups: 32,
        rule: OptimiserConfig {
            optimiser: OptimiserSpec::AdamW { weight_decay: 0.0 },
            learning_rate: 5e-3,
            schedule: Schedule::Cosine,
            steps,
            clip: None,
        },
        validate_every: 1000,
        filler_share: 0.0,
        normalise: true,
        cell_targets: false,
        start: None,
        learned: Some(LearnedRun {
            decoder,
            loss,
            through,
        }),
        seed: 1,
    }
}

fn trained(deployed: &Deployed, run: ParityRun) -> (Trainer, f64) {
    let (train, validation) = (samples(deployed, 600, 1), samples(deployed, 200, 2));
    let rule = run.rule;
    let mut trainer = Trainer::parity(run, train, validation, &mut Trainer::local(rule)).unwrap();
    let mut agreement = 0.0;
    while !trainer.is_done() {
        if let Some(validation) = trainer.step().unwrap().validation {
            agreement = validation.agreement;
        }
    }
    (trainer, agreement)
}

#[test]
fn gradients_flow_through_a_torch_script_module_and_leave_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = linear_module(folder.path());
    let model = differentiable(&deployed, &[0.5; 4 * INPUTS]).unwrap();
    let input = Tensor::from_slice(&[0.25f32; INPUTS])
        .view([1, INPUTS as i64])
        .set_requires_grad(true);
    let output = model.forward(&input).unwrap();
    assert!(output.requires_grad());
    output.select(1, 2).sum(tch::Kind::Float).backward();
    let gradient = Vec::<f32>::try_from(input.grad().view([-1])).unwrap();
    let expected: Vec<f32> = weight().chunks(OUTPUTS).map(|row| row[2]).collect();
    assert_eq!(gradient, expected);
    let frozen = model
        .forward(&Tensor::from_slice(&[0.25f32; INPUTS]).view([1, INPUTS as i64]))
        .unwrap();
    assert!(
        !frozen.requires_grad(),
        "nothing in the module takes gradients"
    );
}

#[test]
fn a_code_is_learned_through_a_torch_script_module_with_every_loss() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = linear_module(folder.path());
    for loss in [Loss::Mse, Loss::Kl, Loss::CrossEntropy] {
        let (_, agreement) = trained(&deployed, run(&deployed, 2, 1, 800, loss));
        assert!(agreement > 0.85, "{loss}: {agreement}");
    }
}

/// Training with libtorch computes the same as serving with ONNX Runtime, zeros for missing outputs
/// and all: r = 2, so that rows, patterns and slots have a chance to be mixed up.
/// The inputs of one slot, of groups of three.
fn of_slot(inputs: &[f32], slot: usize) -> Vec<f32> {
    inputs
        .chunks(INPUTS)
        .skip(slot)
        .step_by(3)
        .flatten()
        .copied()
        .collect()
}

#[test]
fn what_was_trained_is_what_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = linear_module(folder.path());
    let run = run(&deployed, 3, 2, 900, Loss::Mse);
    let spec = run.code.clone();
    let (trainer, agreement) = trained(&deployed, run);
    assert!(agreement > 0.8, "{agreement}");
    let (Trained::LearnedCode { encoder, decoder }, calibration) = trainer.finish().unwrap() else {
        panic!("a learned code was trained");
    };
    assert!(calibration.is_some());
    let networks = CodeNetworks {
        encoder: &encoder,
        decoder: &decoder,
    };
    let (encoder_onnx, decoder_onnx) = networks.to_onnx().unwrap();
    let sizes = Sizes {
        spec: &spec,
        sample_len: INPUTS,
        output_len: OUTPUTS,
    };
    let runtime = OnnxRuntime::load(None).unwrap();
    let files = (&encoder_onnx[..], &decoder_onnx[..]);
    let code = LearnedCode::from_onnx(&runtime, sizes, Path::new("here"), files).unwrap();

    let set = samples(&deployed, 3 * 50, 3);
    let slots = [0, 1, 2].map(|slot| of_slot(&set.inputs, slot));
    let views: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
    let rows: Vec<Vec<f32>> = (0..2)
        .map(|row| {
            let mut parity = vec![0.0; 50 * INPUTS];
            code.encoder().encode(row, &views, &mut parity).unwrap();
            parity
        })
        .collect();
    // [groups, rows, inputs], as libtorch gives them.
    let by_torch = encoder.infer(&set.inputs);
    for (group, expected) in by_torch.chunks(2 * INPUTS).enumerate() {
        let served = rows
            .iter()
            .flat_map(|row| &row[group * INPUTS..(group + 1) * INPUTS]);
        assert!(
            served.zip(expected).all(|(a, b)| (a - b).abs() < 1e-4),
            "group {group}"
        );
    }

    let exact: Vec<Vec<f32>> = slots
        .iter()
        .map(|slot| deployed.model.infer(slot).unwrap())
        .collect();
    let answers: Vec<Vec<f32>> = rows
        .iter()
        .map(|row| deployed.model.infer(row).unwrap())
        .collect();
    let parity: Vec<Option<&[f32]>> = answers
        .iter()
        .map(|answer| Some(answer.as_slice()))
        .collect();
    let mut right = 0;
    for missing in [[0, 1], [0, 2], [1, 2]] {
        let known: Vec<Option<&[f32]>> = (0..3)
            .map(|slot| (!missing.contains(&slot)).then(|| exact[slot].as_slice()))
            .collect();
        for slot in missing {
            let mut out = vec![0.0; 50 * OUTPUTS];
            code.decoder()
                .decode(&known, &parity, slot, &mut out)
                .unwrap();
            let samples = classes().samples(&out).zip(classes().samples(&exact[slot]));
            right += samples
                .filter(|(made, wanted)| made.top_class() == wanted.top_class())
                .count();
        }
    }
    assert!(right > 200, "two of three missing: {right} of 300");
}

#[test]
fn a_code_is_trained_written_and_judged_by_the_command() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    write_quarters(folder, 400, 120);
    succeed(
        folder,
        "train-deployed --data . --network mlp:256,32 --epochs 8 --augment none --out models \
            --name quarters",
    );
    let train =
        "train --model models/quarters --data . --encoder learned --augment none --out models";
    let table = succeed(
        folder,
        &format!("{train} --network mlp:512,64 --steps 400 --json report.json"),
    );
    assert!(table.contains("learned-k2-r1"), "{table}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("report.json")).unwrap()).unwrap();
    let reconstructed = report["accuracy_reconstructed"].as_f64().unwrap();
    assert!(reconstructed > 0.8, "{report}");

    let entry = folder.join("models/quarters-code");
    let card: toml::Table = fs::read_to_string(entry.join("model.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(card["platform"].as_str(), Some("parapet_learned_code"));
    assert_eq!(card["code"]["encoder"].as_str(), Some("learned"));
    assert_eq!(card["code"]["deployed"].as_str(), Some("quarters"));
    assert!(card["code"].get("calibration").is_some() && card["code"].get("generator").is_none());
    for file in ["encoder.onnx", "decoder.onnx", "weights.safetensors"] {
        assert!(entry.join("1").join(file).is_file(), "{file}");
    }
    let choice =
        fs::read_to_string(folder.join("models/.runs/quarters-code/transform.toml")).unwrap();
    assert!(
        choice.contains("loss = \"kl\"") && choice.contains("loss = \"mse\""),
        "{choice}"
    );

    let eval = "eval --model models/quarters --data . --parity models/quarters-code";
    succeed(folder, &format!("{eval} --out report"));
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("report/evaluation.json")).unwrap())
            .unwrap();
    let figure = |who: &str| {
        report[who]["by_losses"][0]["accuracy"]["value"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(report["evaluation"]["by_losses"][0]["reconstructions"], 120);
    assert!(
        (figure("evaluation") - reconstructed).abs() < 0.06,
        "{report}"
    );
    // On data as easy as these the deployed model itself may decode a sum without an error.
    assert!(
        figure("evaluation") >= figure("untrained_control").max(0.9),
        "{report}"
    );
    let message = last_complaint(folder, &format!("{eval},models/quarters-code"));
    assert!(message.contains("a learned code stands alone"), "{message}");
}

#[test]
fn mistakes_in_a_learned_codes_training_are_told_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    write_quarters(folder, 400, 120);
    succeed(
        folder,
        "train-deployed --data . --network mlp:256,32 --epochs 1 --augment none --out models \
            --name quarters",
    );
    let train =
        "train --model models/quarters --data . --encoder learned --augment none --out models";
    // The file alone says nothing of its weights.
    fs::copy(
        folder.join("models/quarters/1/model.onnx"),
        folder.join("other.onnx"),
    )
    .unwrap();
    let message = last_complaint(
        folder,
        "train --model other.onnx --data . --encoder learned --augment none --out models",
    );
    assert!(
        message.contains("gradients cannot flow through ONNX Runtime")
            && message.contains("TorchScript"),
        "{message}"
    );
    let message = last_complaint(folder, &format!("{train} --network mlp:7"));
    assert!(message.contains("write `mlp:512,...`"), "{message}");
    let message = last_complaint(folder, &format!("{train} --row 0"));
    assert!(
        message.contains("--row: a learned code has one encoder"),
        "{message}"
    );
    let sum = train.replace("learned", "sum");
    let message = last_complaint(folder, &format!("{sum} --loss kl"));
    assert!(
        message.contains("--loss: only a learned code has it"),
        "{message}"
    );
}

#[test]
fn a_convolutional_encoder_is_trained_and_judged() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    write_quarters(folder, 120, 40);
    succeed(
        folder,
        "train-deployed --data . --network lenet:4 --epochs 1 --augment none --out models --name \
            quarters",
    );
    let table = succeed(
        folder,
        "train --model models/quarters --data . --encoder learned --network dilated:6 --steps 12 \
            --batch 8 --loss mse --transform standardised --augment none --out models --name conv",
    );
    assert!(table.contains("learned-k2-r1"), "{table}");
    let card = fs::read_to_string(folder.join("models/conv/model.toml")).unwrap();
    assert!(card.contains("encoder_network = \"dilated:6\""), "{card}");
}
