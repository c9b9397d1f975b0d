//! Samples with lengths of their own: trained, evaluated, and served in groups of padded length.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::fs;

use common::serving::{Served, infer, kind_of, values};
use common::{SIDE, Workplace, write_sequences};
use parapet_onnx::GraphBuilder;

const TRAIN: &str = "train --model models/deployed --data . --k 2 --seed 5 \
    --augment none --out models --name parity";

fn workplace(network: &str) -> Workplace {
    let workplace = Workplace::empty();
    write_sequences(workplace.path(), 1500, 100);
    workplace.succeed(&format!(
        "train-deployed --data . --augment none --epochs 4 --network {network} --out models \
         --name deployed"
    ));
    workplace
}

/// Classes of the test samples that a frontend answers while a replica is frozen, with the kind of
/// each answer, beside those before it froze.
fn asked_twice(workplace: &Workplace) -> Vec<(usize, usize, String)> {
    let served = Served::start(workplace);
    let bytes = fs::read(workplace.at("t10k-images-idx3-ubyte")).unwrap();
    let samples = bytes[16..].chunks(SIDE * SIDE).take(24);
    // As a client has them: without padding.
    let own = |sample: &[u8]| -> Vec<f32> {
        let steps = sample.iter().rposition(|&byte| byte > 0).unwrap() / SIDE + 1;
        sample[..steps * SIDE].iter().map(|&byte| f32::from(byte) / 255.0).collect()
    };
    let samples: Vec<Vec<f32>> = samples.map(own).collect();
    let ask = |frontend: &str, sample: &Vec<f32>| {
        let answer = infer(frontend, "deployed", &[1, sample.len() / SIDE, SIDE], sample);
        let scores = values(&answer);
        let best = (0..4).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        (best, kind_of(&answer).to_owned())
    };
    let pairs = served.before_and_while_frozen(&samples, ask).into_iter();
    pairs.map(|((truth, _), (class, kind))| (truth, class, kind)).collect()
}

#[test]
fn sequences_are_learned_evaluated_and_reconstructed_in_serving() {
    let workplace = workplace("sequence8:8");
    let card = workplace.toml("models/deployed/model.toml");
    assert_eq!(card["inputs"][0]["shape"].to_string(), "[1, -1, 16]");
    workplace.succeed(&format!("{TRAIN} --steps 900 --json report.json"));
    let report = workplace.json("report.json");
    assert!(report["agreement"].as_f64() > Some(0.9), "{report}");
    assert!(report["network"].as_str().unwrap().starts_with("sequence"), "{report}");
    let card = workplace.toml("models/parity/model.toml");
    assert_eq!(card["inputs"][0]["shape"].to_string(), "[2, 1, -1, 16]");
    assert_eq!(card["inputs"][1]["name"].as_str(), Some("lengths"));
    let padding = card["code"]["padding"].as_array().unwrap();
    assert!(padding.len() > 2 && padding.last().unwrap().as_integer() == Some(16), "{padding:?}");
    assert_eq!(card["code"]["isolated"].as_bool(), Some(true));

    let eval = "eval --model models/deployed --data . --parity models/parity --out report";
    workplace.succeed(eval);
    let figures = &workplace.json("report/evaluation.json")["evaluation"];
    let alone = &figures["by_losses"][0]["agreement"]["value"];
    let difference = alone.as_f64().unwrap() - report["agreement"].as_f64().unwrap();
    // Groups of another seed, and fewer of them.
    assert!(difference.abs() < 0.05, "{alone} against {report}");

    let answers = asked_twice(&workplace);
    let made: Vec<_> = answers.iter().filter(|(.., kind)| kind == "reconstructed").collect();
    let agreeing = made.iter().filter(|(truth, class, _)| truth == class).count();
    assert!(made.len() > 4 && agreeing * 10 > made.len() * 8, "{answers:?}");
}

/// As other frameworks export it: `[steps, features]`, and no class scores.
#[test]
fn a_model_of_another_origin_is_learned_in_its_own_shape() {
    let workplace = Workplace::empty();
    write_sequences(workplace.path(), 600, 100);
    let start = GraphBuilder::new("x", &[SIDE, SIDE]).sequences().sequence_image();
    let onnx = start.global_average_pool().flatten().gemm(&[50.0], &[-8.0]).finish("y").unwrap();
    fs::create_dir_all(workplace.at("models/light/1")).unwrap();
    fs::write(workplace.at("models/light/1/model.onnx"), onnx).unwrap();
    let toml = "name = \"light\"\nplatform = \"onnxruntime_onnx\"\n\
        [[inputs]]\nname = \"x\"\ndatatype = \"FP32\"\nshape = [-1, 16]\n\
        [[outputs]]\nname = \"y\"\ndatatype = \"FP32\"\nshape = [1]\n\
        [output]\nkind = \"regression\"\ntolerance = 0.5\n";
    fs::write(workplace.at("models/light/model.toml"), toml).unwrap();
    workplace.succeed(
        "train --model models/light --data . --k 3 --seed 5 --steps 900 --augment none \
         --network sequence6:4 --out models --name parity --student slot --json report.json",
    );
    let report = workplace.json("report.json");
    assert!(report["agreement"].as_f64() > Some(0.8), "{report}");
    for (entry, shape) in [("parity", "[3, -1, 16]"), ("slot", "[-1, 16]")] {
        let card = workplace.toml(&format!("models/{entry}/model.toml"));
        assert_eq!(card["inputs"][0]["shape"].to_string(), shape);
    }
    for (model, parity) in [("light", "parity"), ("slot", "parity")] {
        workplace.succeed(&format!(
            "eval --model models/{model} --data . --parity models/{parity} --out {model} \
             --output-kind regression:0.5"
        ));
        let figures = &workplace.json(&format!("{model}/evaluation.json"))["evaluation"];
        let agreement = figures["by_losses"][0]["agreement"]["value"].as_f64();
        // A slot is its own network, asked about the sequence alone.
        let least = if model == "slot" { 1.0 } else { 0.8 };
        assert!(agreement >= Some(least), "{model}: {agreement:?}");
    }
}

#[test]
fn mistakes_are_told_in_one_line_with_the_fix() {
    let workplace = workplace("sequence6:2");
    for (more, parts) in [
        ("--padding 4,8", &["--padding: ends at 8, and a sample has 16 steps; add a length"][..]),
        ("--padding 16,8", &["code.padding: [16, 8]; give 1 to 64 lengths that rise"]),
        ("--network lenet:4x3", &["--network: sequence6", "no others are"]),
        ("--encoder sum --network sequence6", &["--encoder: sequences are coded with `stack`"]),
        ("--input-mean 0.5", &["--input-mean: zeros pad sequences"]),
    ] {
        workplace.refused(&format!("{TRAIN} --steps 9 {more}"), parts);
    }
    workplace.succeed(&format!("{TRAIN} --steps 1 --padding 16"));
    let card = workplace.read("models/parity/model.toml");
    let short = card.replace("padding = [16]", "padding = [8]");
    fs::write(workplace.at("models/parity/model.toml"), short).unwrap();
    workplace.refused(
        "eval --model models/deployed --data . --parity models/parity",
        &["models/parity/model.toml: code.padding: ends at 8, and a sample has 16 steps"],
    );
    workplace.succeed(
        "train-deployed --data . --network lenet:4 --epochs 1 --out models --name deployed",
    );
    for (more, part) in
        [("--padding 16", "--padding: the deployed"), ("--network sequence6", "--network")]
    {
        workplace.refused(&format!("{TRAIN} --steps 9 {more}"), &[part]);
    }
}
