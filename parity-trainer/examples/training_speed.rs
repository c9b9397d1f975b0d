//! Steps per second of the trainer's own loop on made-up images;
//! `benches/pytorch_speed.py` does the same in PyTorch's Python.
//!
//! `training_speed NETWORK BATCH STEPS THREADS`: everything that a step of `parity-trainer train`
//! does is in it: drawing and encoding groups (k = 2, concatenated), forward, backward, AdamW, and
//! the agreement after decoding.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use parapet_encoder::{CodeSpec, EncoderKind};
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Place, Schedule};
use parity_trainer::{Loss, ParityRun, Trainer, TrainingSet};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Channels, height, width.
const SHAPE: [usize; 3] = [1, 28, 28];
const OUTPUTS: usize = 10;
const SAMPLES: usize = 4096;
/// Steps before the clock starts.
const WARM_UP: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, batch, steps, threads] = arguments.as_slice() else {
        return Err("give NETWORK BATCH STEPS THREADS".into());
    };
    let (groups, steps): (usize, u64) = (batch.parse()?, steps.parse()?);
    tch::set_num_threads(threads.parse()?);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random()).collect() };
    let set = Arc::new(TrainingSet {
        shape: SHAPE.to_vec(),
        output_shape: vec![OUTPUTS],
        agreement: parapet_decoder::Agreement::of(None, &[OUTPUTS])?,
        inputs: values(SAMPLES * SHAPE.iter().product::<usize>()),
        answers: values(SAMPLES * OUTPUTS),
    });
    let rule = OptimiserConfig {
        optimiser: OptimiserSpec::AdamW { weight_decay: 0.01 },
        learning_rate: 1e-3,
        schedule: Schedule::Constant,
        steps: u64::MAX,
        clip: None,
    };
    let run = ParityRun {
        network: network.parse()?,
        code: CodeSpec::new(EncoderKind::Concat, 2, 1),
        row: 0,
        groups,
        rule,
        validate_every: u64::MAX,
        learned: None,
        variants: None,
        start: None,
        loss: Loss::Mse,
        seed: 1,
    };
    let mut trainer = Trainer::parity(run, Arc::clone(&set), set, Place::InProcess)?;
    for _ in 0..WARM_UP {
        trainer.step()?;
    }
    let begun = Instant::now();
    for _ in 0..steps {
        trainer.step()?;
    }
    println!("{}", steps as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
