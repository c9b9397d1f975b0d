//! A user's TorchScript module is trained like any network, and every network can be written as
//! one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::is_close;
use common::script::write_linear_module;
use parity_trainer::network::{Network, NetworkSpec};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::nn::OptimizerConfig;
use tch::{CModule, Tensor, nn};

const SHAPE: [usize; 3] = [1, 2, 2];
const WEIGHT: [f32; 8] = [1.0, -1.0, 2.0, 0.5, 0.0, 3.0, -2.0, 1.0];
const SAMPLES: [f32; 12] = [1.0, 2.0, 3.0, 4.0, 0.5, 0.0, -1.0, 2.0, 9.0, 9.0, 9.0, 9.0];

fn build(name: &str, shape: &[usize], outputs: usize) -> Result<Network, String> {
    let spec: NetworkSpec = name.parse().unwrap();
    Network::new(&spec, shape, outputs, &mut ChaCha8Rng::seed_from_u64(1))
        .map_err(|error| error.to_string())
}

#[test]
fn a_module_is_where_training_begins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("linear.pt");
    let weights = folder.path().join("weights.safetensors");
    write_linear_module(&file, 4, 2, &WEIGHT);
    let name = format!("script:{}", file.display());
    let network = build(&name, &SHAPE, 2).unwrap();
    assert_eq!(network.infer(&SAMPLES[..4]), [-3.0, 13.0]);

    let mut optimizer = nn::Sgd::default().build(network.variables(), 0.01).unwrap();
    let input = Tensor::from_slice(&SAMPLES).view([3, 1, 2, 2]);
    let outputs = || network.forward_t(&input, true);
    let loss = || outputs().square().mean(tch::Kind::Float);
    let before = loss().double_value(&[]);
    for _ in 0..20 {
        optimizer.backward_step(&loss());
    }
    assert!(loss().double_value(&[]) < 0.1 * before);

    network.save(&weights).unwrap();
    let loaded = Network::load(network.spec(), &SHAPE, 2, &weights).unwrap();
    assert_eq!(loaded.infer(&SAMPLES), network.infer(&SAMPLES));
    let refused = network.to_onnx().unwrap_err().to_string();
    common::assert_has(
        &refused,
        &["cannot be written as ONNX; write it as TorchScript"],
    );
}

#[test]
fn every_network_can_be_a_module() {
    let folder = tempfile::tempdir().unwrap();
    let linear = folder.path().join("linear.pt");
    let file = folder.path().join("network.pt");
    write_linear_module(&linear, 4, 2, &WEIGHT);
    let script = format!("script:{}", linear.display());
    let cases: [(&str, &[usize]); 6] = [
        (&script, &SHAPE),
        (&format!("cells:1x2:{script}"), &[1, 2, 4]),
        ("mlp:5,4", &[5]),
        ("lenet:2x3", &[1, 12, 12]),
        ("resnet8:2", &[3, 8, 8]),
        ("cells:2x2:vgg11:2", &[3, 8, 8]),
    ];
    for (name, shape) in cases {
        let mut network = build(name, shape, 2).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let samples: Vec<f32> = (0..5 * shape.iter().product::<usize>())
            .map(|_| rng.random_range(0.0..9.0))
            .collect();
        network.normalise(&samples).unwrap();
        network.save_torch_script(&file).unwrap();
        let mut dims = vec![5];
        dims.extend(shape.iter().map(|&dim| dim as i64));
        let input = Tensor::from_slice(&samples).view(dims.as_slice());
        let answer = CModule::load(&file).unwrap().forward_ts(&[input]);
        let answer = Vec::<f32>::try_from(answer.unwrap().view([-1])).unwrap();
        let is_same = is_close(&answer, &network.infer(&samples));
        assert!(is_same, "{name}: {answer:?}");
        let weights = network.variables().trainable_variables();
        assert!(weights.iter().all(Tensor::requires_grad), "{name}");
    }
}

#[test]
fn module_that_does_not_fit_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("linear.pt");
    write_linear_module(&file, 4, 2, &WEIGHT);
    let broken = folder.path().join("broken.pt");
    fs::write(&broken, b"PK no module").unwrap();
    let name = format!("script:{}", file.display());
    let broken = format!("script:{}", broken.display());
    let refused = |name: &str, shape: &[usize], outputs, parts: &[&str]| {
        let message = build(name, shape, outputs).unwrap_err();
        assert_eq!(message.lines().count(), 1, "{message}");
        common::assert_has(&message, parts);
    };
    let answers = "linear.pt: answers 2 samples";
    refused(&name, &SHAPE, 3, &[answers, "wanted Float of shape [2, 3]"]);
    refused(
        &name,
        &[5],
        2,
        &["linear.pt: does not take samples of shape [5]"],
    );
    refused(
        "script:/nowhere.pt",
        &SHAPE,
        2,
        &["/nowhere.pt: no such file"],
    );
    refused(&broken, &SHAPE, 2, &["broken.pt: not a TorchScript module"]);
}
