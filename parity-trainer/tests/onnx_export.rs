//! An exported network answers like the one that was trained.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ort::session::Session;
use ort::value::TensorRef;
use parity_trainer::deployed::DeployedModel as _;
use parity_trainer::network::{INPUT, LENGTHS, Network, NetworkSpec, OUTPUT, SlotNetwork};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SAMPLES: usize = 7;
const CLASSES: usize = 10;

/// All networks in one test: a process has one ONNX Runtime environment.
#[test]
fn onnx_runtime_answers_like_libtorch() {
    let library =
        std::env::var("ORT_DYLIB_PATH").expect("run tests with cargo, which sets ORT_DYLIB_PATH");
    let environment = ort::init_from(&library)
        .expect("run `cargo xtask setup` first")
        .build()
        .expect("an environment");

    let cases: [(&str, &[usize], usize); 19] = [
        ("mlp:784,200,100", &[1, 28, 28], CLASSES),
        ("mlp:64,32", &[64], CLASSES),
        ("mlp:12", &[1, 3, 4], CLASSES),
        ("lenet", &[1, 28, 28], CLASSES),
        ("lenet:8", &[3, 32, 32], CLASSES),
        ("lenet:4", &[2, 17, 23], CLASSES),
        ("lenet:4x3", &[2, 17, 10], CLASSES),
        ("resnet8:8", &[3, 32, 32], CLASSES),
        ("resnet8:4", &[1, 98, 40], CLASSES),
        ("resnet14:4", &[1, 28, 28], CLASSES),
        ("resnet20:4", &[2, 5, 3], CLASSES),
        ("resnet18:4", &[3, 32, 32], CLASSES),
        ("sequence8:4", &[1, 98, 40], CLASSES),
        ("vgg11:4", &[3, 32, 32], CLASSES),
        ("vgg11:4", &[1, 98, 40], CLASSES),
        ("vgg11:4", &[1, 1, 1], CLASSES),
        // A learned code's encoders, to images; its decoder.
        ("dilated:6", &[2, 14, 14], 14 * 14),
        ("dilated:3", &[6, 5, 9], 2 * 3 * 5 * 9),
        ("mlp:30,30,20", &[30], 20),
    ];
    sequences_are_answered_as_if_alone(&environment);
    for (name, shape, outputs) in cases {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let spec: NetworkSpec = name.parse().unwrap();
        let mut network = Network::new(&spec, shape, outputs, &mut rng).unwrap();
        let length = SAMPLES * shape.iter().product::<usize>();
        let inputs: Vec<f32> = (0..length).map(|_| rng.random_range(0.0..50.0)).collect();
        network.normalise(&inputs).unwrap();
        unsettle(&network, &inputs, &mut rng);

        let mut builder = Session::builder(&environment).unwrap();
        let mut session = builder.commit_from_memory(&network.to_onnx().unwrap()).unwrap();
        let dims: Vec<usize> = std::iter::once(SAMPLES).chain(shape.iter().copied()).collect();
        let tensor = TensorRef::from_array_view((dims, inputs.as_slice())).unwrap();
        let answer = session.run(ort::inputs![INPUT => tensor]).unwrap();
        let (answered_shape, answered) = answer[OUTPUT].try_extract_tensor::<f32>().unwrap();

        assert_eq!(**answered_shape, [SAMPLES as i64, outputs as i64], "{name}");
        let torch = network.infer(&inputs);
        assert!(torch.iter().any(|output| (output - torch[0]).abs() > 1e-2), "{name}: {torch:?}");
        for (onnx, torch) in answered.iter().zip(torch) {
            assert!((onnx - torch).abs() <= 1e-4, "{name} on {shape:?}: {onnx} against {torch}");
        }
    }
}

/// A parity model answers padded sequences as its network answers each alone, whatever the padding.
fn sequences_are_answered_as_if_alone(environment: &ort::environment::Environment) {
    const FEATURES: usize = 5;
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let spec: NetworkSpec = "sequence8-strided:4".parse().unwrap();
    let mut network = Network::new(&spec, &[1, 20, FEATURES], CLASSES, &mut rng).unwrap();
    let inputs: Vec<f32> =
        (0..SAMPLES * 20 * FEATURES).map(|_| rng.random_range(1.0..50.0)).collect();
    network.normalise(&inputs).unwrap();
    unsettle(&network, &inputs, &mut rng);
    let slots = SlotNetwork::new(network, 2, &[CLASSES], false);
    let mut builder = Session::builder(environment).unwrap();
    let mut session = builder.commit_from_memory(&slots.to_onnx().unwrap()).unwrap();
    for padded in [20, 13, 8, 1] {
        // Three queries of two sequences each.
        let lengths: Vec<i64> = [1, 8, 3, 13, 20, 5].map(|length: i64| length.min(padded)).to_vec();
        let mut values = Vec::new();
        for (sample, &length) in inputs.chunks(20 * FEATURES).zip(&lengths) {
            let mut sample = sample[..padded as usize * FEATURES].to_vec();
            sample[length as usize * FEATURES..].fill(0.0);
            values.extend(sample);
        }
        let dims = [3, 2, 1, padded as usize, FEATURES];
        let tensor = TensorRef::from_array_view((dims, values.as_slice())).unwrap();
        let own = TensorRef::from_array_view(([3_usize, 2], lengths.as_slice())).unwrap();
        let answer = session.run(ort::inputs![INPUT => tensor, LENGTHS => own]).unwrap();
        let (shape, answered) = answer[OUTPUT].try_extract_tensor::<f32>().unwrap();
        assert_eq!(**shape, [3, 2, CLASSES as i64]);
        let sequences = values.chunks(padded as usize * FEATURES).zip(&lengths);
        for ((sequence, &length), answered) in sequences.zip(answered.chunks(CLASSES)) {
            let own = tch::Tensor::from_slice(&sequence[..length as usize * FEATURES]);
            let torch = slots.network.forward(&own.view([1, 1, length, FEATURES as i64]));
            let torch: Vec<f32> = Vec::try_from(torch.view([-1])).unwrap();
            for (onnx, torch) in answered.iter().zip(torch) {
                assert!((onnx - torch).abs() <= 1e-4, "{padded}, {length}: {onnx} against {torch}");
            }
        }
    }
}

/// Moves all that a fresh network leaves at zero or one: scales, biases and the moments
/// of batch norms.
fn unsettle(network: &Network, inputs: &[f32], rng: &mut ChaCha8Rng) {
    tch::no_grad(|| {
        for (name, mut variable) in network.variables().variables() {
            let range = match name.as_str() {
                name if name.starts_with("norm") && name.ends_with("weight") => 0.5..1.0,
                name if name.ends_with("bias") => -0.2..0.2,
                _ => continue,
            };
            let values: Vec<f32> =
                (0..variable.numel()).map(|_| rng.random_range(range.clone())).collect();
            variable.copy_(&tch::Tensor::from_slice(&values));
        }
        let dims: Vec<i64> =
            [SAMPLES].iter().chain(network.input_shape()).map(|&dim| dim as i64).collect();
        let inputs = tch::Tensor::from_slice(inputs).view(dims.as_slice());
        for _ in 0..30 {
            let _ = network.forward_t(&inputs, true);
        }
    });
}
