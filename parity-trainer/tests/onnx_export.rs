//! An exported network answers like the one that was trained.

use ort::session::Session;
use ort::value::TensorRef;
use parity_trainer::network::{INPUT, Network, NetworkSpec, OUTPUT};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SAMPLES: usize = 7;
const CLASSES: usize = 10;

/// All networks in one test: a process has one ONNX Runtime environment.
#[test]
fn onnx_runtime_answers_like_libtorch() {
    let library = std::env::var("ORT_DYLIB_PATH").expect("run tests with cargo, which sets ORT_DYLIB_PATH");
    let environment =
        ort::init_from(&library).expect("run `cargo xtask setup` first").build().expect("an environment");

    let cases: [(&str, &[usize]); 9] = [
        ("mlp:784,200,100", &[1, 28, 28]),
        ("mlp:64,32", &[64]),
        ("mlp:12", &[1, 3, 4]),
        ("lenet", &[1, 28, 28]),
        ("lenet:8", &[3, 32, 32]),
        ("lenet:4", &[2, 17, 23]),
        ("lenet:4x3", &[2, 17, 10]),
        ("cells:1x2:lenet:8x3", &[1, 28, 28]),
        ("cells:2x2:mlp:12,5", &[3, 4, 4]),
    ];
    for (name, shape) in cases {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let spec: NetworkSpec = name.parse().unwrap();
        let network = Network::new(&spec, shape, CLASSES, &mut rng).unwrap();
        let length = SAMPLES * shape.iter().product::<usize>();
        let inputs: Vec<f32> = (0..length).map(|_| rng.random()).collect();

        let mut builder = Session::builder(&environment).unwrap();
        let mut session = builder.commit_from_memory(&network.to_onnx().unwrap()).unwrap();
        let dims: Vec<usize> = std::iter::once(SAMPLES).chain(shape.iter().copied()).collect();
        let tensor = TensorRef::from_array_view((dims, inputs.as_slice())).unwrap();
        let answer = session.run(ort::inputs![INPUT => tensor]).unwrap();
        let (answered_shape, answered) = answer[OUTPUT].try_extract_tensor::<f32>().unwrap();

        assert_eq!(**answered_shape, [SAMPLES as i64, CLASSES as i64], "{name}");
        for (onnx, torch) in answered.iter().zip(network.infer(&inputs)) {
            assert!((onnx - torch).abs() <= 1e-4, "{name} on {shape:?}: {onnx} against {torch}");
        }
    }
}
