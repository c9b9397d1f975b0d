//! Each update rule against its formula, written down once more in f64 and one number at a time.

use std::sync::Arc;

use crate::support::*;

const SGD: Sgd = Sgd { rate: 0.1, decay: 0.01 };
const MOMENTUM: Momentum = Momentum { rate: 0.05, momentum: 0.9, decay: 0.01 };

/// Compares the weight after each gradient, from `start`, through a store of one row.
fn check(
    rule: impl UpdateRule + 'static,
    start: f32,
    gradients: &[f32],
    mut formula: impl FnMut(f64) -> f64,
) {
    let range = KeyRange::new(0, 1);
    let mut store = Store::new(Layout::dense(1, rule), range);
    let mut rows = store.extract(range, 1);
    rows.values = vec![start].into();
    store.insert(&rows);
    for (i, &g) in gradients.iter().enumerate() {
        store.update(range, &Keys::All, &vec![g].into()).unwrap();
        let (found, right) = (f64::from(read(&store, range)[0]), formula(g.into()));
        let is_close = (found - right).abs() <= 2e-4 * (1.0 + right.abs());
        assert!(is_close, "step {i}: {found} where {right} is right");
    }
}

fn gradients() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![Just(0.0f32), -2.0f32..2.0], 1..60)
}

proptest! {
    #[test]
    fn add_sgd_and_momentum_follow_their_formulas(
        gradients in gradients(),
        start in -1.0f32..1.0,
    ) {
        let mut w = f64::from(start);
        check(Add, start, &gradients, |g| {
            w += g;
            w
        });
        let mut w = f64::from(start);
        check(SGD, start, &gradients, |g| {
            w -= 0.1 * (g + 0.01 * w);
            w
        });
        let (mut w, mut v) = (f64::from(start), 0.0);
        check(MOMENTUM, start, &gradients, |g| {
            v = 0.9 * v + g + 0.01 * w;
            w -= 0.05 * v;
            w
        });
    }

    #[test]
    fn adam_and_adamw_follow_their_formulas(
        gradients in gradients(),
        start in -1.0f32..1.0,
        decoupled: bool,
    ) {
        // An epsilon that is not tiny: after gradients of 0 the ratio m / sqrt(v) is
        // ill-conditioned in f32.
        let rule = Adam {
            rate: 0.01,
            epsilon: 1e-3,
            decay: 0.1,
            decoupled,
            ..Adam::default()
        };
        let (b1, b2) = (0.9f64, 0.999f64);
        let (mut w, mut m, mut v, mut t) = (f64::from(start), 0.0, 0.0, 0.0);
        check(rule, start, &gradients, |mut g| {
            t += 1.0;
            if decoupled {
                w -= 0.01 * 0.1 * w
            } else {
                g += 0.1 * w
            }
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            w -= 0.01 * (m / (1.0 - b1.powf(t))) / ((v / (1.0 - b2.powf(t))).sqrt() + 1e-3);
            w
        });
    }

    /// The reference is the leader itself: the minimum of `g.w + sum sigma (w - w_s)^2 / 2 + l1 |w|
    /// + l2 w^2 / 2`, with all past weights kept, found from its definition.
    #[test]
    fn ftrl_follows_the_leader(gradients in gradients()) {
        let (mut past, mut sum, mut squares, mut w) = (Vec::new(), 0.0f64, 0.0f64, 0.0);
        check(FTRL, 0.0, &gradients, |g| {
            past.push((((squares + g * g).sqrt() - squares.sqrt()) / 0.1, w));
            sum += g;
            squares += g * g;
            let pull = sum - past.iter().map(|(sigma, w)| sigma * w).sum::<f64>();
            let sigmas = past.iter().map(|(sigma, _)| sigma).sum::<f64>();
            w = -pull.signum() * (pull.abs() - 0.5).max(0.0) / (sigmas + 1.0 / 0.1 + 0.3);
            w
        });
    }
}

/// Any finite number, of any magnitude.
fn number() -> impl Strategy<Value = f32> {
    any::<f32>().prop_map(|x| if x.is_finite() { x } else { 0.0 })
}

/// Rules with constants that are usual, and some that are not.
fn rules() -> impl Strategy<Value = Arc<dyn UpdateRule>> {
    let constant = || prop_oneof![4 => 1e-8f32..1.0, 1 => number()];
    let constants = prop::array::uniform4(constant());
    (0..5, constants, any::<bool>()).prop_map(|(kind, [a, b, c, d], decoupled)| {
        let rule: Arc<dyn UpdateRule> = match kind {
            0 => Arc::new(Add),
            1 => Arc::new(Sgd { rate: a, decay: b }),
            2 => Arc::new(Momentum { rate: a, momentum: b, decay: d }),
            3 => Arc::new(Adam { rate: a, beta1: b, beta2: c, epsilon: d, decay: a, decoupled }),
            _ => Arc::new(Ftrl { alpha: a, beta: b, l1: c, l2: d }),
        };
        rule
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
        let layout = Layout { width: 1, sparse, rule };
        let mut store = Store::new(layout, range);
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
        rule.apply(step, &gradient, &mut value, &mut state[..rule.slots()]);
        let mut numbers = [value, first, second].into_iter().flatten();
        prop_assert!(numbers.all(f32::is_finite) || !rule.keeps_moderate_finite());
    }
}

#[test]
fn usual_rules_need_no_trial_and_unusual_ones_do() {
    let adam = Adam::default();
    let usual: [&dyn UpdateRule; 5] = [&Add, &SGD, &MOMENTUM, &adam, &FTRL];
    assert!(usual.iter().all(|rule| rule.keeps_moderate_finite()));
    fn changed<R>(mut rule: R, change: fn(&mut R)) -> R {
        change(&mut rule);
        rule
    }
    let unusual: [&dyn UpdateRule; 14] = [
        &changed(SGD, |sgd| sgd.rate = 1e38),
        &changed(SGD, |sgd| sgd.decay = 1e38),
        &changed(MOMENTUM, |rule| rule.rate = 1e38),
        &changed(MOMENTUM, |rule| rule.momentum = 1e38),
        &changed(MOMENTUM, |rule| rule.decay = 1e38),
        &changed(adam, |adam| adam.rate = 1e38),
        &changed(adam, |adam| adam.epsilon = 0.0),
        &changed(adam, |adam| adam.beta1 = 1.0),
        &changed(adam, |adam| adam.beta2 = 1.0),
        &changed(adam, |adam| adam.decay = 1e38),
        &changed(adam, |adam| (adam.decay, adam.rate, adam.decoupled) = (1e30, 1.0, true)),
        &changed(FTRL, |ftrl| ftrl.alpha = 0.0),
        &changed(FTRL, |ftrl| ftrl.beta = -1.0),
        &changed(FTRL, |ftrl| (ftrl.beta, ftrl.l2) = (0.0, 0.0)),
    ];
    for rule in unusual {
        assert!(!rule.keeps_moderate_finite(), "{rule:?}");
    }
}

#[test]
fn ftrl_keeps_weak_features_at_exactly_zero() {
    let rule = Ftrl { l1: 1.0, l2: 0.0, ..FTRL };
    let (mut weight, [mut sums, mut squares]) = ([0.0], [[0.0]; 2]);
    for gradient in [0.3, -0.2, 0.4] {
        rule.apply(0, &[gradient], &mut weight, &mut [&mut sums, &mut squares]);
        assert_eq!(weight, [0.0]);
    }
}

#[test]
fn first_step_of_adam_is_its_rate() {
    check(Adam::default(), 1.0, &[123.0], |_| 0.999);
}
