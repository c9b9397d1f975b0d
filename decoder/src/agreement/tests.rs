use proptest::prelude::*;

use super::*;

fn agreement(kind: OutputKind, tolerance: Option<f32>, shape: &[usize]) -> Agreement {
    Agreement::of(Some(&OutputSpec { kind, tolerance }), shape).unwrap()
}

/// Kind, shape, approximation, truth and its error.
type Case<'a> = (OutputKind, &'a [usize], &'a [f32], &'a [f32], f32);

#[test]
fn each_kind_has_its_error() {
    let boxes = ([0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]);
    let cases: [Case<'_>; 14] = [
        (OutputKind::Classes, &[3], &[1.0, 3.0, 3.0], &[0.0, 1.0, 0.0], 0.0),
        (OutputKind::Classes, &[2], &[1.0, 0.0], &[0.0, 1.0], 1.0),
        (OutputKind::MultiLabel, &[4], &[0.5, 0.1, 0.9, 0.0], &[0.9, 0.0, 0.2, 0.0], 0.25),
        (OutputKind::Regression, &[1], &[3.0], &[5.5], 2.5),
        (OutputKind::Regression, &[], &[3.0], &[3.0], 0.0),
        (OutputKind::Embedding, &[2], &[2.0, 0.0], &[0.0, 3.0], 1.0),
        (OutputKind::Boxes, &[4], &boxes.0, &boxes.1, 1.0 - 2.0 / 6.0),
        (OutputKind::Boxes, &[4], &boxes.0, &[1.0, 1.0, 1.0, 1.0], 1.0),
        // Two classes at three positions; the last position differs.
        (OutputKind::Map, &[2, 3], &[0., 9., 1., 1., 0., 0.], &[0., 1., 0., 5., 0., 1.], 1. / 3.),
        (
            OutputKind::Embedding,
            &[2],
            &[2.0, 0.0],
            &[3.0, 3.0],
            1.0 - std::f32::consts::FRAC_1_SQRT_2,
        ),
        (OutputKind::Regression, &[2], &[1.0, 1.0], &[3.0, 3.0], 2.0),
        // Corners in the wrong order are no box.
        (OutputKind::Boxes, &[4], &[2.0, 2.0, 0.0, 0.0], &[0.0, 0.0, 2.0, 2.0], 1.0),
        (OutputKind::Boxes, &[4], &[0.0, 2.0, 2.0, 0.0], &[0.0, 0.0, 2.0, 2.0], 1.0),
        // Areas of 6, 2 of them in common.
        (OutputKind::Boxes, &[4], &[1.0, 2.0, 3.0, 5.0], &[2.0, 3.0, 4.0, 6.0], 0.8),
    ];
    for (kind, shape, made, truth, expected) in cases {
        let error = agreement(kind, Some(1.0), shape).error(made, truth);
        assert!((error - expected).abs() < 1e-6, "{kind:?}: {error}");
        let len = shape.iter().product::<usize>();
        assert_eq!(agreement(kind, Some(1.0), shape).output_len(), len);
    }
}

const KINDS: [OutputKind; 6] = [
    OutputKind::Classes,
    OutputKind::MultiLabel,
    OutputKind::Regression,
    OutputKind::Embedding,
    OutputKind::Boxes,
    OutputKind::Map,
];

fn shape(kind: OutputKind) -> &'static [usize] {
    match kind {
        OutputKind::Boxes => &[2, 4],
        OutputKind::Map => &[2, 2, 2],
        _ => &[8],
    }
}

proptest! {
    #[test]
    fn an_output_agrees_with_itself_and_nothing_does_with_what_is_no_number(
        corner in prop::collection::vec(0.1f32..1.0, 8),
    ) {
        let whole: Vec<f32> = corner.iter().enumerate()
            .map(|(at, value)| if at % 4 < 2 { *value } else { value + 1.0 })
            .collect();
        for kind in KINDS {
            let agreement = agreement(kind, Some(0.01), shape(kind));
            prop_assert!(agreement.all_agree(&whole, &whole), "{kind:?}");
            prop_assert!(!agreement.agrees(&whole[..7], &whole), "{kind:?}");
            prop_assert!(!agreement.agrees(&[f32::NAN; 8], &whole), "{kind:?}");
        }
    }
}

#[test]
fn kinds_are_named_as_they_are_parsed() {
    for kind in KINDS {
        let name = kind.to_string();
        for (text, tolerance) in [(name.clone(), None), (format!("{name}:0.25"), Some(0.25))] {
            assert_eq!(text.parse(), Ok(OutputSpec { kind, tolerance }));
        }
    }
    for wrong in ["", "class", "regression:", "regression:x"] {
        assert!(wrong.parse::<OutputSpec>().is_err(), "{wrong}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_field_and_fix() {
    let refused = |spec: Option<(OutputKind, Option<f32>)>, shape: &[usize]| {
        let spec = spec.map(|(kind, tolerance)| OutputSpec { kind, tolerance });
        let error = Agreement::of(spec.as_ref(), shape).unwrap_err();
        error.to_string()
    };
    let missing = refused(None, &[1]);
    assert!(missing.starts_with("output.kind: missing"), "{missing}");
    let shapes: [(OutputKind, &[usize]); 4] = [
        (OutputKind::Classes, &[1]),
        (OutputKind::Classes, &[1, 10]),
        (OutputKind::Boxes, &[5]),
        (OutputKind::Map, &[1, 4]),
    ];
    for (kind, shape) in shapes {
        let said = refused(Some((kind, None)), shape);
        assert!(said.starts_with("output.kind: \""), "{said}");
    }
    for tolerance in [None, Some(-1.0), Some(f32::NAN)] {
        let said = refused(Some((OutputKind::Regression, tolerance)), &[1]);
        assert!(said.starts_with("output.tolerance: "), "{said}");
    }
}

#[test]
fn top_class_takes_the_first_among_equals() {
    assert_eq!(top_class(&[1.0, 3.0, 3.0]), 1);
    assert_eq!(top_class(&[f32::NEG_INFINITY; 3]), 0);
}

#[test]
fn agreement_is_per_sample() {
    let two = agreement(OutputKind::Classes, None, &[2]);
    assert!(two.all_agree(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 1.0, 0.0]));
    assert!(!two.all_agree(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 0.0, 1.0]));
    assert!(!two.all_agree(&[0.0, 1.0], &[0.0, 1.0, 2.0]));
    assert!(!two.all_agree(&[0.0], &[0.0]), "no whole sample");
    assert!(!two.all_agree(&[], &[]), "nothing was compared");
}

#[test]
fn confidence_is_measured_or_the_top_class_s_probability() {
    let table = Calibration {
        score: Score::TopProbability,
        edges: Vec::new(),
        agreement: vec![0.7],
        error: Some(0.2),
    };
    let classes = agreement(OutputKind::Classes, None, &[2]);
    let values = agreement(OutputKind::Regression, Some(0.1), &[2]);
    assert_eq!(classes.confidence(None, &[0.0, 0.0]), Some(0.5));
    assert_eq!(classes.confidence(None, &[99.0, 0.0]), Some(0.99));
    assert_eq!(values.confidence(None, &[0.0, 0.0]), None);
    let score = |agreement: Agreement| agreement.score(Score::TopProbability, &[0.0, 0.0]);
    assert_eq!((score(classes), score(values)), (0.5, 0.0));
    for agreement in [classes, values] {
        assert_eq!(agreement.confidence(Some(&table), &[0.0, 0.0]), Some(0.7));
    }
}
