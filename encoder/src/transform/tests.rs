use super::*;
use proptest::prelude::*;

#[test]
fn names_and_defaults_are_those_of_files() {
    let domains = [OutputDomain::Deployed, OutputDomain::LogProbabilities];
    let names = domains.map(|domain| domain.to_string());
    assert_eq!(names, ["deployed", "log_probabilities"]);
    let read: OutputTransform = toml::from_str("kind = \"log_softmax\"").unwrap();
    assert_eq!(read, OutputTransform::LogSoftmax { floor: -20.0 });
    assert!(OutputTransform::Raw.is_raw() && !read.is_raw());
    assert!(read.validate(2).is_ok() && read.validate(1).is_err());
}

#[test]
fn deviations_must_be_normal_and_above_zero() {
    for value in [0.0, -0.0, -1.0, f32::MIN_POSITIVE / 2.0, f32::NAN, f32::INFINITY] {
        let transform = OutputTransform::Standardised { mean: vec![0.0], deviation: vec![value] };
        let refused = transform.check_numbers().unwrap_err();
        assert_eq!(refused.field, "transform.deviation", "{value}");
    }
}

fn transforms(output_len: usize) -> impl Strategy<Value = OutputTransform> {
    let standardised = |len| {
        let entries = |range| proptest::collection::vec(range, len);
        (entries(-50.0f32..50.0), entries(0.01f32..50.0))
            .prop_map(|(mean, deviation)| OutputTransform::Standardised { mean, deviation })
    };
    prop_oneof![
        Just(OutputTransform::Raw),
        standardised(1),
        standardised(output_len),
        (-30.0f32..-1.0).prop_map(|floor| OutputTransform::LogSoftmax { floor }),
    ]
}

proptest! {
    #[test]
    fn invert_undoes_apply_where_the_domain_is_the_deployed_models(
        transform in transforms(5),
        outputs in proptest::collection::vec(-100.0f32..100.0, 15),
    ) {
        prop_assert_eq!(transform.validate(5), Ok(()));
        let mut values = outputs.clone();
        transform.apply(&mut values, 5);
        let applied = values.clone();
        transform.invert(&mut values);
        match transform.output_domain() {
            OutputDomain::Deployed => {
                for (back, y) in values.iter().zip(&outputs) {
                    prop_assert!((back - y).abs() < 1e-3, "{back} for {y}");
                }
            }
            OutputDomain::LogProbabilities => prop_assert_eq!(values, applied),
        }
    }

    #[test]
    fn log_softmax_gives_log_probabilities_and_keeps_the_top_class(
        outputs in proptest::collection::vec(-100.0f32..100.0, 7),
    ) {
        let mut values = outputs.clone();
        OutputTransform::LogSoftmax { floor: -1e4 }.apply(&mut values, 7);
        let total: f64 = values.iter().map(|&y| f64::from(y).exp()).sum();
        prop_assert!((total - 1.0).abs() < 1e-4, "{total}");
        let mut clamped = outputs.clone();
        OutputTransform::LogSoftmax { floor: -20.0 }.apply(&mut clamped, 7);
        prop_assert!(clamped.iter().all(|&y| (-20.0..=1e-4).contains(&y)));
        let top = |values: &[f32]| {
            (0..7)
                .max_by(|&a, &b| values[a].total_cmp(&values[b]).then(b.cmp(&a)))
                .unwrap()
        };
        prop_assert_eq!(top(&clamped), top(&outputs));
    }

    #[test]
    fn adding_scaled_is_applying_scaling_and_adding(
        transform in transforms(4),
        outputs in proptest::collection::vec(-20.0f32..20.0, 12),
        weight in -3.0f32..3.0,
    ) {
        let mut sums = vec![0.5; 12];
        transform.add_scaled(weight, &outputs, 4, &mut sums);
        let mut applied = outputs;
        transform.apply(&mut applied, 4);
        for (sum, y) in sums.iter().zip(applied) {
            let expected = 0.5 + weight * y;
            prop_assert!(
                (sum - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                "{sum}, {expected}"
            );
        }
    }
}

proptest! {
    #[test]
    fn exponentials_are_exact_to_the_last_places(x in -86.9f32..=0.0) {
        let exact = f64::from(x).exp();
        let error = (f64::from(exp_below_zero(x)) - exact).abs() / exact;
        prop_assert!(error < 2.5e-7, "exp({x}) is off by {error}");
    }

    #[test]
    fn the_level_is_that_of_the_definition(
        outputs in proptest::collection::vec(-300.0f32..300.0, 1..40),
    ) {
        let top = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = outputs
            .iter()
            .map(|&y| (f64::from(y) - f64::from(top)).exp())
            .sum();
        let exact = f64::from(top) + sum.ln();
        let level = f64::from(log_sum_exp(&outputs));
        prop_assert!(
            (level - exact).abs() <= 4e-7 * exact.abs().max(1.0),
            "{level} for {exact}"
        );
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut outputs = [0.5f32; 11];
        outputs[3] = bad;
        assert!(!log_sum_exp(&outputs).is_finite(), "{bad}");
    }
    assert_eq!(exp_below_zero(-1e30), 0.0);
}

#[test]
fn what_does_not_fit_the_model_is_refused() {
    let standardised = |mean: &[f32], deviation: &[f32]| OutputTransform::Standardised {
        mean: mean.to_vec(),
        deviation: deviation.to_vec(),
    };
    let refused = |transform: OutputTransform, output_len| {
        let error = transform.validate(output_len).unwrap_err();
        error.field
    };
    for (mean, deviation, field) in [
        (&[0.0, 1.0][..], &[1.0, 1.0][..], "transform"),
        (&[0.0], &[], "transform"),
        (&[], &[], "transform"),
        (&[f32::NAN], &[1.0], "transform.mean"),
        (&[0.0, f32::NAN, 0.0], &[1.0; 3], "transform.mean[1]"),
    ] {
        assert_eq!(refused(standardised(mean, deviation), 3), field);
    }
    for deviation in [0.0, -1.0, f32::INFINITY, 1e-42] {
        let field = refused(standardised(&[0.0], &[deviation]), 3);
        assert_eq!(field, "transform.deviation");
    }
    for floor in [0.0, 1.0, f32::NEG_INFINITY, f32::NAN] {
        let field = refused(OutputTransform::LogSoftmax { floor }, 3);
        assert_eq!(field, "transform.floor");
    }
    let one_output = OutputTransform::LogSoftmax { floor: -20.0 };
    assert_eq!(refused(one_output, 1), "transform.kind");
}
