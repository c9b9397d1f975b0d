//! The backend against plain optimisers.

use proptest::prelude::*;

use super::*;
use crate::backend::tests::local::LocalBackend;
use crate::backend::{ParameterShape, Schedule};

const LENGTH: usize = 2 * ROW + 7;

fn set(values: impl Fn(usize) -> f32) -> ParameterSet {
    let mut set = ParameterSet::zeroes(vec![ParameterShape {
        name: "w".into(),
        shape: vec![LENGTH],
    }]);
    for (index, value) in set.values_mut().iter_mut().enumerate() {
        *value = values(index);
    }
    set
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

fn optimisers() -> impl Strategy<Value = OptimiserSpec> {
    prop_oneof![
        Just(OptimiserSpec::Adam { weight_decay: 0.01 }),
        Just(OptimiserSpec::AdamW { weight_decay: 0.1 }),
        Just(OptimiserSpec::Sgd {
            momentum: 0.9,
            weight_decay: 0.001
        }),
    ]
}

fn models() -> impl Strategy<Value = Consistency> {
    prop_oneof![
        Just(Consistency::Bsp),
        Just(Consistency::BoundedDelay(1)),
        Just(Consistency::Ssp(2)),
        Just(Consistency::EagerSsp(1)),
        Just(Consistency::Eventual),
    ]
}

proptest! {
    #[test]
    fn the_server_gives_the_bits_of_plain_training(
        optimiser in optimisers(),
        model in models(),
        seeds in proptest::collection::vec(0.1f32..9.0, 1..9),
        cut in 0usize..9,
        pushes in 1usize..3,
    ) {
        let start = set(|index| (index as f32 * 0.37).sin());
        let mut plain = LocalBackend::new(rule(optimiser), start.clone());
        let mut served = InProcessBackend::under(model, rule(optimiser), start.clone())
            .unwrap();
        for (step, seed) in seeds.iter().enumerate() {
            if step == cut {
                let state = served.state().unwrap();
                served = InProcessBackend::under(model, rule(optimiser), start.zeroes_like())
                    .unwrap();
                served.restore(&state, &[]).unwrap();
            }
            for push in 0..pushes {
                let gradients = set(|index| (index as f32 * seed + push as f32).cos());
                plain.push(&gradients).unwrap();
                served.push(&gradients).unwrap();
            }
            prop_assert_eq!(plain.clock().unwrap(), served.clock().unwrap());
            prop_assert_eq!(
                plain.clock().unwrap(),
                served.clock().unwrap(),
                "no gradients, no step"
            );
            let (mut one, mut other) = (start.zeroes_like(), start.zeroes_like());
            plain.pull(&mut one).unwrap();
            served.pull(&mut other).unwrap();
            prop_assert_eq!(one, other);
        }
        prop_assert_eq!(plain.state().unwrap(), served.state().unwrap());
    }
}

#[test]
fn step_whose_update_overflows_is_refused_and_the_weights_stay() {
    let optimiser = OptimiserSpec::Sgd {
        momentum: 0.9,
        weight_decay: 0.0,
    };
    let unclipped = OptimiserConfig {
        clip: None,
        learning_rate: 10.0,
        ..rule(optimiser)
    };
    let mut backend = InProcessBackend::new(unclipped, set(|_| 1.0)).unwrap();
    backend
        .push(&set(|index| if index == 3 { f32::MAX } else { 0.0 }))
        .unwrap();
    let message = backend.clock().unwrap_err().to_string();
    assert!(
        message.contains("lower the learning rate") && !message.contains('\n'),
        "{message}"
    );
    let mut weights = set(|_| 0.0);
    backend.pull(&mut weights).unwrap();
    assert!(weights.values().iter().all(|&weight| weight == 1.0));
}

#[test]
fn what_does_not_fit_is_refused_and_the_weights_stay() {
    let optimiser = OptimiserSpec::AdamW { weight_decay: 0.0 };
    let mut backend = InProcessBackend::new(rule(optimiser), set(|_| 1.0)).unwrap();
    backend
        .push(&set(|index| if index == 3 { f32::NAN } else { 0.0 }))
        .unwrap();
    let message = backend.clock().unwrap_err().to_string();
    assert!(
        message.contains("gradient of step 1") && !message.contains('\n'),
        "{message}"
    );
    let mut weights = set(|_| 0.0);
    backend.pull(&mut weights).unwrap();
    assert!(weights.values().iter().all(|&weight| weight == 1.0));

    let mut state = backend.state().unwrap();
    state.arrays.pop();
    assert!(matches!(
        backend.restore(&state, &[]),
        Err(BackendError::State { .. })
    ));
    state.arrays[0].1.pop();
    assert!(matches!(
        backend.restore(&state, &[]),
        Err(BackendError::Layout { .. })
    ));
}
