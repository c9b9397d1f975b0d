//! Our optimisers step as libtorch's do.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use parity_trainer::backend::{
    InProcessBackend, OptimiserConfig, OptimiserSpec, ParameterBackend, ParameterSet, Schedule,
};
use tch::nn::{self, OptimizerConfig};
use tch::{Device, Kind, Tensor};

const STEPS: usize = 50;
const RATE: f64 = 0.02;

/// Minimises `sum (a * w^2 - b * w)` by libtorch and by us, from the same start, and compares
/// after each step.
fn compare(optimiser: OptimiserSpec, config: impl OptimizerConfig) {
    let start: Vec<f32> = (0..24).map(|index| (index as f32 - 11.5) / 7.0).collect();
    let curvature: Vec<f32> = (0..24).map(|index| 0.2 + index as f32 / 5.0).collect();
    let store = nn::VarStore::new(Device::Cpu);
    let weights = store.root().add("w", Tensor::from_slice(&start), true);
    let mut theirs = config.build(&store, RATE).unwrap();

    let mut own = ParameterSet { values: start, buffers: Vec::new() };
    let mut gradients = own.clone();
    let rule = OptimiserConfig {
        optimiser,
        learning_rate: RATE,
        schedule: Schedule::Constant,
        steps: STEPS as u64,
        clip: None,
    };
    let mut ours = InProcessBackend::new(rule, &own.values).unwrap();
    for step in 0..STEPS {
        let curvatures = Tensor::from_slice(&curvature);
        let loss = curvatures * &weights * &weights - &weights * 0.3;
        theirs.backward_step(&loss.sum(Kind::Float));

        let at = own.values.iter().zip(&curvature);
        for (gradient, (weight, curvature)) in gradients.values.iter_mut().zip(at) {
            *gradient = 2.0 * curvature * weight - 0.3;
        }
        ours.push_part(0, &gradients, Default::default(), 0).unwrap();
        ours.settle().unwrap();
        ours.pull(&mut own).unwrap();
        let expected = Vec::<f32>::try_from(weights.detach()).unwrap();
        for (ours, theirs) in own.values.iter().zip(expected) {
            let told = format!("{optimiser:?}, step {step}: {ours} against {theirs}");
            assert!((ours - theirs).abs() <= 1e-6, "{told}");
        }
    }
}

#[test]
fn adam_and_adamw_step_as_libtorchs() {
    for wd in [0.0, 0.05] {
        let adam = nn::Adam { wd, ..nn::Adam::default() };
        compare(OptimiserSpec::Adam { weight_decay: wd }, adam);
    }
    let adamw = nn::AdamW { wd: 0.1, ..nn::AdamW::default() };
    compare(OptimiserSpec::AdamW { weight_decay: 0.1 }, adamw);
}

#[test]
fn sgd_steps_as_libtorchs() {
    for (momentum, weight_decay) in [(0.0, 0.0), (0.9, 0.0), (0.8, 0.03)] {
        let ours = OptimiserSpec::Sgd { momentum, weight_decay };
        let theirs = nn::Sgd { momentum, wd: weight_decay, ..nn::Sgd::default() };
        compare(ours, theirs);
    }
}
