//! From the training to the client: real instances and a real frontend, a replica of which freezes.

use std::fs;

use parapet_decoder::{Agreement, OutputSpec};
use serde_json::Value;

use crate::common::serving::{Served, infer, kind_of, values};
use crate::common::{SIDE, Workplace};
use crate::models;

/// Samples that are asked about while a replica is frozen: about half of them meet it.
const QUERIES: usize = 24;
/// Bytes before the pixels of an IDX file.
const IDX_HEADER: usize = 16;

/// Trains for the model in `models/deployed` with so many steps and serves both; returns the
/// reconstructions, and for each of them whether it agrees with the model's own answer.
fn reconstructions(
    workplace: &Workplace,
    kind: &str,
    shape: &[usize],
    steps: usize,
) -> Vec<(Value, bool)> {
    workplace.succeed(&format!(
        "train --model models/deployed --data . --k 2 --augment none --seed 5 --steps {steps} \
         --network mlp:256,32 --learning-rate 0.003 --out models --name parity"
    ));
    let served = Served::start(workplace);
    let images = fs::read(workplace.at("t10k-images-idx3-ubyte")).unwrap();
    let light = |bytes: &[u8]| bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
    let images = images[IDX_HEADER..].chunks(SIDE * SIDE);
    let samples: Vec<Vec<f32>> = images.take(QUERIES).map(light).collect();
    let ask =
        |frontend: &str, sample: &Vec<f32>| infer(frontend, "deployed", &[1, SIDE, SIDE], sample);
    let pairs = served.before_and_while_frozen(&samples, ask);
    let spec: OutputSpec = kind.parse().unwrap();
    let agreement = Agreement::of(Some(&spec), shape).unwrap();
    let reconstructed = pairs.into_iter().filter(|(_, answer)| kind_of(answer) == "reconstructed");
    reconstructed
        .map(|(truth, answer)| {
            let agrees = agreement.agrees(&values(&answer), &values(&truth));
            (answer, agrees)
        })
        .collect()
}

#[test]
fn each_kind_is_served_and_reconstructed_while_a_replica_is_frozen() {
    let workplace = Workplace::new(3000, 100);
    for (kind, shape, onnx) in models() {
        // Of one sample, without the slots.
        let shape: Vec<usize> = serde_json::from_str::<Vec<usize>>(shape).unwrap().split_off(1);
        let (name, tolerance) = kind.split_once(':').unwrap_or((kind, ""));
        let tolerance = match tolerance {
            "" => String::new(),
            given => format!("tolerance = {given}\n"),
        };
        let text = format!(
            "name = \"deployed\"\nplatform = \"onnxruntime_onnx\"\n\
             [[inputs]]\nname = \"input\"\ndatatype = \"FP32\"\nshape = [1, {SIDE}, {SIDE}]\n\
             [[outputs]]\nname = \"output\"\ndatatype = \"FP32\"\nshape = {shape:?}\n\
             [output]\nkind = \"{name}\"\n{tolerance}"
        );
        fs::create_dir_all(workplace.at("models/deployed/1")).unwrap();
        fs::write(workplace.at("models/deployed/model.toml"), text).unwrap();
        fs::write(workplace.at("models/deployed/1/model.onnx"), onnx).unwrap();
        let [untrained, trained] =
            [1, 1200].map(|steps| reconstructions(&workplace, kind, &shape, steps));
        let share = |made: &[(Value, bool)]| {
            assert!(made.len() > 4, "{kind}: {} reconstructions", made.len());
            made.iter().filter(|(_, agrees)| *agrees).count() as f64 / made.len() as f64
        };
        assert!(share(&trained) > 0.8, "{kind}: {trained:?}");
        assert!(share(&untrained) < 0.8, "{kind}: {}", share(&untrained));
        for (answer, _) in &trained {
            let told = &answer["parameters"];
            assert!(told["confidence"].as_f64() > Some(0.8), "{kind}: {told}");
            assert!(told["expected_error"].is_number(), "{kind}: {told}");
        }
    }
}
