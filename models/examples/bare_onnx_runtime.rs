//! ONNX Runtime without a server around it: `cargo xtask bench instance` compares with it.
//!
//! Runs a model on one row of zeros, again and again for so many seconds, and prints runs/s.

#![allow(clippy::unwrap_used, reason = "an example")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use ort::value::TensorRef;
use parapet_models::engine::OnnxRuntime;

#[derive(Debug, Parser)]
struct Cli {
    model: PathBuf,
    /// A sample's shape, such as 1,28,28
    #[arg(long, value_delimiter = ',')]
    shape: Vec<usize>,
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
}

fn main() {
    let cli = Cli::parse();
    let runtime = OnnxRuntime::load(None).unwrap();
    let mut session = runtime.session(1).unwrap().commit_from_file(&cli.model).unwrap();
    let shape = [&[1], cli.shape.as_slice()].concat();
    let values = vec![0.0f32; shape.iter().product()];
    let mut run = || {
        let input = TensorRef::from_array_view((shape.as_slice(), values.as_slice())).unwrap();
        let outputs = session.run(ort::inputs![input]).unwrap();
        assert!(outputs[0].try_extract_tensor::<f32>().unwrap().1[0].is_finite());
    };
    // The first ones set up.
    (0..100).for_each(|_| run());
    let (begun, mut runs) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs_f64(cli.seconds) {
        run();
        runs += 1;
    }
    println!("{:.1}", f64::from(runs) / begun.elapsed().as_secs_f64());
}
