//! Each update rule against its formula, written down once more in f64 and one number at a time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use parapet_parameter_server::{
    AdaGrad, Adam, Add, Ftrl, KeyRange, Keys, Layout, MODERATE, Momentum, Sgd, Store, UpdateRule,
    Values,
};
use proptest::prelude::*;

/// The weight after each gradient, from `start`, through a store of one row.
fn run(rule: impl UpdateRule + 'static, start: f32, gradients: &[f32]) -> Vec<f64> {
    let layout = Layout::dense(1, rule).starting_from(move |_, row: &mut [f32]| row.fill(start));
    let range = KeyRange::new(0, 1);
    let mut store = Store::new(layout, range);
    gradients
        .iter()
        .map(|&g| {
            store.update(range, &Keys::All, &vec![g].into()).unwrap();
            let mut out = Vec::new();
            store.read(range, &Keys::All, &mut out);
            f64::from(out[0])
        })
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f - e).abs() <= 2e-4 * (1.0 + e.abs()),
            "step {i}: {f} where {e} is right"
        );
    }
}

fn gradients() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![Just(0.0f32), -2.0f32..2.0], 1..60)
}

proptest! {
    #[test]
    fn add_sgd_and_momentum(gradients in gradients(), start in -1.0f32..1.0, nesterov: bool) {
        let mut w = f64::from(start);
        let expected: Vec<f64> = gradients
            .iter()
            .map(|&g| {
                w += f64::from(g);
                w
            })
            .collect();
        assert_close(&run(Add, start, &gradients), &expected);

        let mut w = f64::from(start);
        let expected: Vec<f64> = gradients
            .iter()
            .map(|&g| {
                w -= 0.1 * (f64::from(g) + 0.01 * w);
                w
            })
            .collect();
        assert_close(
            &run(
                Sgd {
                    rate: 0.1,
                    decay: 0.01,
                },
                start,
                &gradients,
            ),
            &expected,
        );

        let (mut w, mut v) = (f64::from(start), 0.0);
        let expected: Vec<f64> = gradients
            .iter()
            .map(|&g| {
                let g = f64::from(g) + 0.01 * w;
                v = 0.9 * v + g;
                w -= 0.05 * if nesterov { g + 0.9 * v } else { v };
                w
            })
            .collect();
        assert_close(
            &run(
                Momentum {
                    rate: 0.05,
                    momentum: 0.9,
                    nesterov,
                    decay: 0.01,
                },
                start,
                &gradients,
            ),
            &expected,
        );
    }

    #[test]
    fn adam_and_adamw(gradients in gradients(), start in -1.0f32..1.0, decoupled: bool) {
        // An epsilon that is not tiny: after gradients of 0 the ratio m / sqrt(v) is
        // ill-conditioned in f32.
        let (rate, b1, b2, epsilon, decay) = (0.01, 0.9, 0.999, 1e-3, 0.1);
        let (mut w, mut m, mut v) = (f64::from(start), 0.0, 0.0);
        let expected: Vec<f64> = gradients
            .iter()
            .enumerate()
            .map(|(i, &g)| {
                let mut g = f64::from(g);
                if decoupled {
                    w -= rate * decay * w
                } else {
                    g += decay * w
                }
                m = b1 * m + (1.0 - b1) * g;
                v = b2 * v + (1.0 - b2) * g * g;
                let t = f64::from(u32::try_from(i).unwrap() + 1);
                w -= rate * (m / (1.0 - b1.powf(t))) / ((v / (1.0 - b2.powf(t))).sqrt() + epsilon);
                w
            })
            .collect();
        assert_close(
            &run(
                Adam {
                    rate: 0.01,
                    epsilon: 1e-3,
                    decay: 0.1,
                    decoupled,
                    ..Adam::default()
                },
                start,
                &gradients,
            ),
            &expected,
        );
    }

    #[test]
    fn adagrad(gradients in gradients(), start in -1.0f32..1.0) {
        let (mut w, mut n) = (f64::from(start), 0.0);
        let expected: Vec<f64> = gradients
            .iter()
            .map(|&g| {
                let g = f64::from(g);
                n += g * g;
                w -= 0.1 * g / (n.sqrt() + 1e-3);
                w
            })
            .collect();
        assert_close(
            &run(
                AdaGrad {
                    rate: 0.1,
                    epsilon: 1e-3,
                },
                start,
                &gradients,
            ),
            &expected,
        );
    }

    /// The reference is the leader itself: the minimum of `g.w + sum sigma (w - w_s)^2 / 2 + l1 |w|
    /// + l2 w^2 / 2`, with all past weights kept, found from its definition.
    #[test]
    fn ftrl(gradients in gradients()) {
        let (alpha, beta, l1, l2) = (0.1f64, 1.0f64, 0.5f64, 0.3f64);
        let (mut past, mut sum, mut squares, mut w): (Vec<(f64, f64)>, f64, f64, f64) =
            (Vec::new(), 0.0, 0.0, 0.0);
        let expected: Vec<f64> = gradients
            .iter()
            .map(|&g| {
                let g = f64::from(g);
                past.push((((squares + g * g).sqrt() - squares.sqrt()) / alpha, w));
                sum += g;
                squares += g * g;
                let pull = sum - past.iter().map(|(sigma, w)| sigma * w).sum::<f64>();
                let curvature =
                    past.iter().map(|(sigma, _)| sigma).sum::<f64>() + beta / alpha + l2;
                w = -pull.signum() * (pull.abs() - l1).max(0.0) / curvature;
                w
            })
            .collect();
        assert_close(
            &run(
                Ftrl {
                    alpha: 0.1,
                    beta: 1.0,
                    l1: 0.5,
                    l2: 0.3,
                },
                0.0,
                &gradients,
            ),
            &expected,
        );
    }
}

/// Any finite number, of any magnitude.
fn number() -> impl Strategy<Value = f32> {
    any::<f32>().prop_map(|x| if x.is_finite() { x } else { 0.0 })
}

/// Rules with constants that are usual, and some that are not.
fn rules() -> impl Strategy<Value = Arc<dyn UpdateRule>> {
    let constant = || prop_oneof![4 => 1e-8f32..1.0, 1 => number()];
    (0..6, constant(), constant(), constant(), constant()).prop_map(|(kind, a, b, c, d)| match kind
    {
        0 => Arc::new(Add) as Arc<dyn UpdateRule>,
        1 => Arc::new(Sgd { rate: a, decay: b }),
        2 => Arc::new(Momentum {
            rate: a,
            momentum: b,
            nesterov: c > 0.5,
            decay: d,
        }),
        3 => Arc::new(Adam {
            rate: a,
            beta1: b,
            beta2: c,
            epsilon: d,
            decay: a,
            decoupled: false,
        }),
        4 => Arc::new(AdaGrad {
            rate: a,
            epsilon: b,
        }),
        _ => Arc::new(Ftrl {
            alpha: a,
            beta: b,
            l1: c,
            l2: d,
        }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// PS-7, and that an update is made as a whole or not at all.
    #[test]
    fn update_leaves_finite_numbers_or_is_refused_and_changes_nothing(
        rule in rules(),
        sparse: bool,
        pushes in prop::collection::vec((number(), -1.0f32..1.0), 1..8),
    ) {
        let range = KeyRange::new(0, 2);
        let mut store = Store::new(
            Layout {
                rule,
                sparse,
                ..Layout::dense(1, Add)
            },
            range,
        );
        for (large, small) in pushes {
            let before = store.extract(range, usize::MAX);
            let result = store.update(range, &Keys::All, &vec![small, large].into());
            let after = store.extract(range, usize::MAX);
            let finite = |values: &Values| values.to_f32().iter().all(|value| value.is_finite());
            prop_assert!(finite(&after.values) && finite(&after.state), "{after:?}");
            prop_assert!(result.is_ok() || after == before, "{before:?} {after:?}");
        }
    }

    /// The bounds by which the store does without a trial.
    #[test]
    fn rule_that_keeps_moderate_numbers_finite_does(
        rule in rules(),
        step in 1u32..40,
        signs in prop::array::uniform4(prop_oneof![Just(-1.0f32), Just(1.0), Just(0.0),
            -1.0f32..1.0]),
    ) {
        let [mut value, mut first, mut second, gradient] = signs.map(|sign| [sign * MODERATE]);
        let mut state = [&mut first[..], &mut second[..]];
        rule.apply(
            step,
            &gradient,
            &mut value,
            state.get_mut(..rule.slots()).unwrap(),
        );
        let finite = [value, first, second]
            .iter()
            .flatten()
            .all(|number| number.is_finite());
        prop_assert!(finite || !rule.keeps_moderate_finite());
    }
}

#[test]
fn usual_rules_need_no_trial() {
    let ftrl = Ftrl {
        alpha: 0.1,
        beta: 1.0,
        l1: 0.5,
        l2: 0.3,
    };
    let momentum = Momentum {
        rate: 0.1,
        momentum: 0.9,
        nesterov: true,
        decay: 0.01,
    };
    let rules: [&dyn UpdateRule; 6] = [
        &Add,
        &Sgd {
            rate: 0.1,
            decay: 0.01,
        },
        &momentum,
        &Adam::default(),
        &AdaGrad {
            rate: 0.1,
            epsilon: 1e-8,
        },
        &ftrl,
    ];
    assert!(rules.iter().all(|rule| rule.keeps_moderate_finite()));
    assert!(
        !Adam {
            rate: 1e38,
            ..Adam::default()
        }
        .keeps_moderate_finite()
    );
    assert!(
        !AdaGrad {
            rate: 0.1,
            epsilon: 0.0
        }
        .keeps_moderate_finite()
    );
}

#[test]
fn ftrl_keeps_weak_features_at_exactly_zero() {
    let weights = run(
        Ftrl {
            alpha: 0.1,
            beta: 1.0,
            l1: 1.0,
            l2: 0.0,
        },
        0.0,
        &[0.3, -0.2, 0.4],
    );
    assert_eq!(weights, [0.0; 3]);
}

#[test]
fn the_first_step_of_adam_is_its_rate() {
    let found = run(Adam::default(), 1.0, &[123.0]);
    assert!((found[0] - 0.999).abs() < 1e-6, "{found:?}");
}
