//! The backends against plain arithmetic.

pub(super) mod local;
mod optimiser;

use super::*;

#[test]
fn a_state_of_another_model_or_optimiser_is_refused() {
    let rule = OptimiserConfig {
        optimiser: OptimiserSpec::Adam { weight_decay: 0.0 },
        learning_rate: 0.1,
        schedule: Schedule::Constant,
        steps: 10,
        clip: None,
    };
    let fresh = |length: usize| {
        let shape = ParameterShape {
            name: "w".into(),
            shape: vec![length],
        };
        ParameterSet::zeroes(vec![shape])
    };
    let backends: [(&str, Box<dyn ParameterBackend>); 2] = [
        ("local", Box::new(local::LocalBackend::new(rule, fresh(5)))),
        (
            "embedded",
            Box::new(InProcessBackend::new(rule, fresh(5)).unwrap()),
        ),
    ];
    for (name, mut backend) in backends {
        let whole = backend.state().unwrap();
        backend.restore(&whole, &[]).unwrap();
        for place in 0..whole.arrays.len() {
            let mut short = whole.clone();
            short.arrays[place].1.pop();
            let error = backend.restore(&short, &[]).unwrap_err().to_string();
            assert!(
                error.contains(&whole.arrays[place].0) && error.contains("hold 4"),
                "{name}: {error}"
            );
            let mut less = whole.clone();
            less.arrays.remove(place);
            let error = backend.restore(&less, &[]).unwrap_err();
            assert!(
                matches!(error, BackendError::State { .. }),
                "{name}: {error}"
            );
        }
    }
}
