//! The backend in this process against plain arithmetic.

use parapet_parameter_server::optimiser::norm;
use proptest::prelude::*;

use super::in_process::ROW;
use super::*;

const LENGTH: usize = 2 * ROW + 7;

fn set(values: &[f32]) -> ParameterSet {
    ParameterSet { values: values.to_vec(), buffers: Vec::new() }
}

fn values(value: impl Fn(usize) -> f32) -> Vec<f32> {
    (0..LENGTH).map(value).collect()
}

/// Gradients of zero but for the fourth.
fn fourth(gradient: f32) -> Vec<f32> {
    values(|index| if index == 3 { gradient } else { 0.0 })
}

fn rule(optimiser: OptimiserSpec) -> OptimiserConfig {
    OptimiserConfig {
        optimiser,
        learning_rate: 0.05,
        schedule: Schedule::Cosine,
        steps: 9,
        clip: Some(0.5),
    }
}

fn sgd(momentum: f64, learning_rate: f64, clip: Option<f64>) -> OptimiserConfig {
    let weight_decay = 0.0;
    OptimiserConfig {
        learning_rate,
        schedule: Schedule::Constant,
        clip,
        ..rule(OptimiserSpec::Sgd { momentum, weight_decay })
    }
}

fn backend(rule: OptimiserConfig, weights: &[f32]) -> InProcessBackend {
    InProcessBackend::new(rule, weights).unwrap()
}

fn step(backend: &mut InProcessBackend, gradients: &[f32]) -> Result<Tick, BackendError> {
    backend.push_part(0, &set(gradients), FactoredGradients::default(), 0)?;
    Ok(backend.settle()?.unwrap())
}

fn weights(backend: &mut InProcessBackend) -> Vec<f32> {
    let mut into = set(&vec![0.0; backend.state().unwrap().weights.len()]);
    backend.pull(&mut into).unwrap();
    into.values
}

fn assert_one_line(error: &BackendError, parts: &[&str]) {
    let message = error.to_string();
    let has_all = parts.iter().all(|part| message.contains(part));
    assert!(has_all && !message.contains('\n'), "{message}");
}

/// Weights and optimiser as plain arrays: training without a parameter server, to compare with.
fn plain(rule: OptimiserConfig, start: &[f32], steps: &[Vec<f32>]) -> (Vec<f32>, Vec<Vec<f32>>) {
    let mut weights = start.to_vec();
    let mut slots = vec![vec![0.0; LENGTH]; rule.optimiser.slots()];
    for (done, gradients) in steps.iter().enumerate() {
        let (_, scale) = rule.scale(gradients, 1);
        let scaled: Vec<f32> = gradients.iter().map(|value| value * scale as f32).collect();
        let state = &mut slots.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>();
        let step = done as u32 + 1;
        rule.optimiser.at(rule.rate(done as u64), |rule| {
            rule.apply(step, &scaled, &mut weights, state);
        });
    }
    (weights, slots)
}

fn optimisers() -> impl Strategy<Value = OptimiserSpec> {
    let sgd = OptimiserSpec::Sgd { momentum: 0.9, weight_decay: 0.001 };
    prop_oneof![
        Just(OptimiserSpec::Adam { weight_decay: 0.01 }),
        Just(OptimiserSpec::AdamW { weight_decay: 0.1 }),
        Just(sgd),
    ]
}

proptest! {
    #[test]
    fn server_gives_the_bits_of_plain_training_and_goes_on_from_its_state(
        optimiser in optimisers(),
        seeds in proptest::collection::vec(0.1f32..9.0, 1..9),
        cut in 0usize..9,
    ) {
        let start = values(|index| (index as f32 * 0.37).sin());
        let gradients = |seed: &f32| values(|index| (index as f32 * seed).cos());
        let steps: Vec<Vec<f32>> = seeds.iter().map(gradients).collect();
        let mut served = backend(rule(optimiser), &start);
        for (at, gradients) in steps.iter().enumerate() {
            if at == cut {
                let state = served.state().unwrap();
                served = backend(rule(optimiser), &values(|_| 0.0));
                served.restore(&state, &[]).unwrap();
            }
            let tick = step(&mut served, gradients).unwrap();
            prop_assert_eq!(tick.learning_rate, rule(optimiser).rate(at as u64));
            prop_assert!(served.settle().unwrap().is_none(), "no gradients, no step");
        }
        let (weights, slots) = plain(rule(optimiser), &start, &steps);
        let clock = steps.len() as u64;
        prop_assert_eq!(served.state().unwrap(), BackendState { clock, weights, slots });
    }

    #[test]
    fn clipped_step_is_never_longer_and_keeps_its_direction(
        gradients in proptest::collection::vec(-50.0f32..50.0, 1..40),
        longest in 0.01f64..20.0,
    ) {
        let mut backend = backend(sgd(0.0, 1.0, Some(longest)), &vec![0.0; gradients.len()]);
        let tick = step(&mut backend, &gradients).unwrap();
        let step = weights(&mut backend);
        prop_assert!(norm(&step) <= longest * 1.0001);
        let scale = (longest / tick.gradient_norm.max(1e-9)).min(1.0);
        for (step, gradient) in step.iter().zip(&gradients) {
            prop_assert!((f64::from(-step) - scale * f64::from(*gradient)).abs() < 1e-3);
        }
    }
}

#[test]
fn step_that_is_not_finite_is_refused_and_the_weights_stay() {
    let adam = rule(OptimiserSpec::AdamW { weight_decay: 0.0 });
    for (rule, gradient, parts) in [
        (sgd(0.9, 10.0, None), f32::MAX, ["lower the learning rate", "gradient of step 1"]),
        (adam, f32::NAN, ["gradient of step 1", ""]),
    ] {
        let mut backend = backend(rule, &values(|_| 1.0));
        assert_one_line(&step(&mut backend, &fourth(gradient)).unwrap_err(), &parts);
        assert_eq!(weights(&mut backend), values(|_| 1.0));
    }
}

#[test]
fn gradients_of_another_model_are_refused() {
    let mut backend = backend(sgd(0.0, 1.0, None), &[5.0]);
    let error = step(&mut backend, &[1.0, 2.0]).unwrap_err();
    assert_one_line(&error, &["hold 2 values, the model has 1"]);
    let error = backend.pull(&mut set(&[0.0; 6])).unwrap_err();
    assert_one_line(&error, &["hold 1 values, the model has 6"]);
}

#[test]
fn state_of_another_model_or_optimiser_is_refused() {
    let mut backend = backend(rule(OptimiserSpec::Adam { weight_decay: 0.0 }), &[0.0; 5]);
    let whole = backend.state().unwrap();
    backend.restore(&whole, &[]).unwrap();
    let (mut fewer_weights, mut fewer_moments) = (whole.clone(), whole.clone());
    fewer_weights.weights.pop();
    fewer_moments.slots[1].pop();
    for short in [fewer_weights, fewer_moments] {
        let error = backend.restore(&short, &[]).unwrap_err();
        assert_one_line(&error, &["the state's arrays hold 4"]);
    }
    let mut less = whole;
    less.slots.pop();
    let error = backend.restore(&less, &[]).unwrap_err();
    assert_one_line(&error, &["written by another optimiser"]);
}
