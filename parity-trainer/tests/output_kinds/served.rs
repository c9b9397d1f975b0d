//! From the training to the client: real instances and a real frontend, a replica of which freezes.

use std::fs;

use nix::sys::signal::Signal;
use parapet_decoder::{Agreement, OutputSpec};
use serde_json::Value;

use crate::common::serving::{Process, infer, program, values};
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
    let root = workplace.at("models");
    let instance = program("parapet-instance", "parapet-models");
    let start = |number: usize, model: &str| {
        let flags = ["--repository", root.to_str().unwrap(), "--model", model];
        let flags = [&flags[..], &["--listen", "127.0.0.1:0"]].concat();
        Process::start(&instance, &flags, &workplace.at(&format!("instance-{number}.log")))
    };
    let replicas = [start(0, "deployed"), start(1, "deployed")];
    let parity = start(2, "parity");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[repository]\npath = {root:?}\n\
         [[models]]\nname = \"deployed\"\ninstances = [{:?}, {:?}]\ntimeout_ms = 15000\n\
         slots_per_instance = 64\n\
         [models.health]\nsuspect_after_ms = 60000\ntimeout_ms = 60000\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"stack\"\nk = 2\nflush_after_ms = 5\n\
         hold_back = {{ fixed_ms = 50 }}\n\
         [[models.strategy.parity]]\nmodel = \"parity\"\ninstances = [{:?}]\n",
        replicas[0].1, replicas[1].1, parity.1
    );
    let config = workplace.at("parapet.toml");
    fs::write(&config, text).unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let frontend = program("parapet-frontend", "parapet-frontend");
    let frontend = Process::start(&frontend, &flags, &workplace.at("frontend.log"));

    let images = fs::read(workplace.at("t10k-images-idx3-ubyte")).unwrap();
    let light = |bytes: &[u8]| bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
    let images = images[IDX_HEADER..].chunks(SIDE * SIDE);
    let samples: Vec<Vec<f32>> = images.take(QUERIES).map(light).collect();
    let ask = |sample: &Vec<f32>| infer(&frontend.1, "deployed", &[1, SIDE, SIDE], sample);
    let truth: Vec<Value> = samples.iter().map(ask).collect();
    replicas[0].signal(Signal::SIGSTOP);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let asked = samples.iter().map(|sample| scope.spawn(|| ask(sample)));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    replicas[0].signal(Signal::SIGCONT);
    let spec: OutputSpec = kind.parse().unwrap();
    let agreement = Agreement::of(Some(&spec), shape).unwrap();
    let answers = answers.into_iter().zip(&truth);
    let reconstructed =
        answers.filter(|(answer, _)| answer["parameters"]["provenance"] == "reconstructed");
    reconstructed
        .map(|(answer, truth)| {
            let agrees = agreement.agrees(&values(&answer), &values(truth));
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
