//! Learned codes: trained through a deployed model, written, judged.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::script::write_linear_module;
use common::{Workplace, assert_has};
use parapet_decoder::{Agreement, top_class};
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_onnx::learned_code::{LearnedCode, Sizes};
use parapet_onnx::runtime::OnnxRuntime;
use parity_trainer::deployed::{Deployed, OpenOptions, differentiable, open};
use parity_trainer::{LearnedRun, Loss, ParityRun, Trained, Trainer, TrainingSet};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

const INPUTS: usize = 6;
const OUTPUTS: usize = 3;

/// A linear model as TorchScript, `[INPUTS, OUTPUTS]`.
fn weight() -> Vec<f32> {
    (0..INPUTS * OUTPUTS).map(|i| ((i * 7 % 11) as f32) / 5.0 - 1.0).collect()
}

fn linear_module(folder: &Path) -> Deployed {
    let path = folder.join("linear.pt");
    write_linear_module(&path, INPUTS as u8, OUTPUTS as u8, &weight());
    let samples = [0.5; 4 * INPUTS];
    open(&path, &OpenOptions::default(), &[INPUTS], &samples).unwrap()
}

fn classes() -> Agreement {
    Agreement::of(None, &[OUTPUTS]).unwrap()
}

fn samples(deployed: &Deployed, count: usize, seed: u64) -> Arc<TrainingSet> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let inputs: Vec<f32> = (0..count * INPUTS).map(|_| rng.random_range(-2.0..2.0)).collect();
    let answers = deployed.model.infer(&inputs).unwrap();
    Arc::new(TrainingSet {
        shape: vec![INPUTS],
        output_shape: vec![OUTPUTS],
        agreement: classes(),
        inputs,
        answers,
    })
}

fn run(deployed: &Deployed, k: usize, r: usize, steps: u64, loss: Loss) -> ParityRun {
    let transform = OutputTransform::Standardised { mean: vec![0.0], deviation: vec![2.0] };
    let code = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Learned, k, r) };
    let decoder = format!("mlp:{0},{0},64", (k + r) * OUTPUTS);
    let learned = LearnedRun {
        decoder: decoder.parse().unwrap(),
        through: differentiable(deployed, &[0.5; 4 * INPUTS]).unwrap(),
    };
    let mut run = common::parity_run(&format!("mlp:{},64", k * INPUTS), code, steps);
    run.rule.learning_rate = 5e-3;
    ParityRun { learned: Some(learned), loss, seed: 1, ..run }
}

fn trained(deployed: &Deployed, run: ParityRun) -> (Trainer, f64) {
    let (train, validation) = (samples(deployed, 600, 1), samples(deployed, 200, 2));
    let (trainer, validation) = common::trained(run, train, validation);
    (trainer, validation.agreement)
}

#[test]
fn gradients_flow_through_a_torch_script_module_and_leave_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = linear_module(folder.path());
    let model = differentiable(&deployed, &[0.5; 4 * INPUTS]).unwrap();
    let input =
        Tensor::from_slice(&[0.25f32; INPUTS]).view([1, INPUTS as i64]).set_requires_grad(true);
    let output = model.forward(&input).unwrap();
    assert!(output.requires_grad());
    output.select(1, 2).sum(tch::Kind::Float).backward();
    let gradient = Vec::<f32>::try_from(input.grad().view([-1])).unwrap();
    let expected: Vec<f32> = weight().chunks(OUTPUTS).map(|row| row[2]).collect();
    assert_eq!(gradient, expected);
    let frozen =
        model.forward(&Tensor::from_slice(&[0.25f32; INPUTS]).view([1, INPUTS as i64])).unwrap();
    assert!(!frozen.requires_grad(), "no weight takes gradients");
}

#[test]
fn code_is_learned_through_a_torch_script_module_with_every_loss() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = linear_module(folder.path());
    for loss in [Loss::Mse, Loss::Kl] {
        let (_, agreement) = trained(&deployed, run(&deployed, 2, 1, 800, loss));
        assert!(agreement > 0.85, "{loss}: {agreement}");
    }
}

/// The inputs of one slot, of groups of three.
fn of_slot(inputs: &[f32], slot: usize) -> Vec<f32> {
    let slots = inputs.chunks(INPUTS).skip(slot).step_by(3);
    slots.flatten().copied().collect()
}

/// Training with libtorch computes the same as serving with ONNX Runtime, zeros for missing outputs
/// and all: r = 2, so that rows, patterns and slots have a chance to be mixed up.
#[test]
fn code_is_served_as_it_was_trained() {
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
    let (encoder_onnx, decoder_onnx) = (encoder.to_onnx().unwrap(), decoder.to_onnx().unwrap());
    let sizes = Sizes { spec: &spec, sample_len: INPUTS, output_len: OUTPUTS };
    let runtime = OnnxRuntime::load(None).unwrap();
    let files = (&encoder_onnx[..], &decoder_onnx[..]);
    let code = LearnedCode::from_onnx(&runtime, sizes, Path::new("here"), files).unwrap();

    let set = samples(&deployed, 3 * 50, 3);
    let slots = [0, 1, 2].map(|slot| of_slot(&set.inputs, slot));
    let views: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
    let rows = [0, 1].map(|row| {
        let mut parity = vec![0.0; 50 * INPUTS];
        code.encoder().encode(row, &views, &mut parity).unwrap();
        parity
    });
    // [groups, rows, inputs], as libtorch gives them.
    let by_torch = encoder.infer(&set.inputs);
    for (group, expected) in by_torch.chunks(2 * INPUTS).enumerate() {
        let own = |row: &Vec<f32>| row[group * INPUTS..(group + 1) * INPUTS].to_vec();
        let served = rows.iter().flat_map(own);
        let is_close = served.zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(is_close, "group {group}");
    }

    let infer = |queries: &Vec<f32>| deployed.model.infer(queries).unwrap();
    let (exact, answers) = (slots.each_ref().map(infer), rows.each_ref().map(infer));
    let parity = answers.each_ref().map(|answer| Some(answer.as_slice()));
    let mut right = 0;
    for missing in [[0, 1], [0, 2], [1, 2]] {
        let known =
            [0, 1, 2].map(|slot| (!missing.contains(&slot)).then(|| exact[slot].as_slice()));
        for slot in missing {
            let mut out = vec![0.0; 50 * OUTPUTS];
            let decoded = code.decoder().decode(&known, &parity, slot, &mut out);
            decoded.unwrap();
            let samples = out.chunks(OUTPUTS).zip(exact[slot].chunks(OUTPUTS));
            let is_right = samples.map(|(made, wanted)| top_class(made) == top_class(wanted));
            right += is_right.filter(|is_right| *is_right).count();
        }
    }
    assert!(right > 200, "two of three missing: {right} of 300");
}

/// A folder with a deployed model, and the command that trains a learned code for it.
fn workplace(train: usize, test: usize, model: &str) -> (Workplace, String) {
    let line =
        "train --model models/quarters --data . --encoder learned --augment none --out models";
    (Workplace::with_model(train, test, model), line.to_owned())
}

#[test]
fn wide_encoder_takes_a_lower_learning_rate() {
    let (workplace, train) = workplace(60, 20, "--network mlp:256,8 --epochs 1");
    let rate = |flags: &str| {
        workplace.succeed(&format!("{train} --steps 1 --loss mse --transform raw {flags}"));
        let log = workplace.read("models/.runs/quarters-code/log.jsonl");
        let step: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        step["learning_rate"].as_f64().unwrap()
    };
    let narrow = rate("--network mlp:512,160");
    assert!((rate("--network mlp:512,320") / narrow - 0.5).abs() < 1e-9);
    assert!((rate("--network mlp:512,320 --learning-rate 0.003") / narrow - 1.0).abs() < 1e-9);
}

#[test]
fn code_is_trained_written_and_judged_by_the_command() {
    let (workplace, train) = workplace(400, 120, "--network mlp:256,32 --epochs 8");
    let settings = "--network mlp:512,64 --steps 400 --json report.json";
    let ended = workplace.succeed(&format!("{train} {settings}"));
    assert_has(&ended.out, &["learned-k2-r1"]);
    assert_has(&ended.errors, &["loss kl: ", "loss mse: "]);
    let report = workplace.json("report.json");
    let reconstructed = report["accuracy_reconstructed"].as_f64().unwrap();
    assert!(reconstructed > 0.8, "{report}");

    let card = workplace.toml("models/quarters-code/model.toml");
    let code = &card["code"];
    assert_eq!(card["platform"].as_str(), Some("parapet_learned_code"));
    assert_eq!(code["encoder"].as_str(), Some("learned"));
    assert_eq!(code["deployed"].as_str(), Some("quarters"));
    assert!(code.get("calibration").is_some() && code.get("generator").is_none());
    for file in ["encoder.onnx", "decoder.onnx", "weights.safetensors"] {
        let path = workplace.at("models/quarters-code/1").join(file);
        assert!(path.is_file(), "{file}");
    }
    let choice = workplace.read("models/.runs/quarters-code/choice.toml");
    assert_has(&choice, &["loss = "]);

    let eval = "eval --model models/quarters --data . --parity models/quarters-code";
    workplace.succeed(&format!("{eval} --out report"));
    let report = workplace.json("report/evaluation.json");
    let losses = |of: &str| report[of]["by_losses"][0].clone();
    let accuracy = |of: &str| losses(of)["accuracy"]["value"].as_f64().unwrap();
    assert_eq!(losses("evaluation")["reconstructions"], 120);
    assert!((accuracy("evaluation") - reconstructed).abs() < 0.06, "{report}");
    assert!(accuracy("evaluation") >= 0.9, "{report}");
    let line = format!("{eval},models/quarters-code");
    workplace.refused(&line, &["a learned code stands alone"]);
}

#[test]
fn mistakes_in_a_learned_codes_training_are_told_in_one_line() {
    let (workplace, train) = workplace(400, 120, "--network mlp:256,32 --epochs 1");
    // The file alone says nothing of its weights.
    let model = workplace.at("models/quarters/1/model.onnx");
    fs::copy(model, workplace.at("other.onnx")).unwrap();
    let other = train.replace("models/quarters", "other.onnx");
    let parts = ["gradients cannot flow through ONNX Runtime", "TorchScript"];
    workplace.refused(&other, &parts);
    let sum = train.replace("learned", "sum");
    workplace.refused(&format!("{train} --network mlp:7"), &["write `mlp:512,...`"]);
    let only_learned = "--loss: a weighted sum is learned";
    workplace.refused(&format!("{sum} --loss kl"), &[only_learned]);
}

#[test]
fn convolutional_encoder_is_trained_and_judged() {
    let (workplace, train) = workplace(120, 40, "--network lenet:4 --epochs 1");
    let settings = "--network dilated:6 --steps 12 --batch 8 --loss mse --transform standardised \
        --name conv";
    let table = workplace.succeed(&format!("{train} {settings}")).out;
    assert_has(&table, &["learned-k2-r1"]);
    let card = workplace.toml("models/conv/model.toml");
    let network = card["training"]["encoder_network"].as_str();
    assert_eq!(network, Some("dilated:6"));
}
