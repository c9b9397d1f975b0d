//! Interpolation: exact where a point is known, better for smooth functions the more queries a group has, and without a
//! pole whatever is missing.

#![allow(clippy::unwrap_used, reason = "tests")]

use parapet_decoder::{BerrutDecoder, DecodeError, Decoder, SystematicBerrutDecoder, build_decoder};
use parapet_encoder::berrut::{member_point, parity_point};
use parapet_encoder::{BerrutEncoder, Code, CodeSpec, EncoderKind, OutputTransform, build_encoder};
use proptest::prelude::*;

fn views(outputs: &[Option<Vec<f32>>]) -> Vec<Option<&[f32]>> {
    outputs.iter().map(Option::as_deref).collect()
}

fn systematic(k: usize, r: usize, output_len: usize) -> Box<dyn Decoder> {
    build_decoder(&CodeSpec::new(EncoderKind::Berrut, k, r), output_len).unwrap()
}

fn papers(k: usize, spare: usize, output_len: usize) -> BerrutDecoder {
    BerrutDecoder::new(k, spare, OutputTransform::Raw, output_len).unwrap()
}

/// A smooth model of one input: two outputs.
fn smooth(x: f32) -> Vec<f32> {
    vec![(1.5 * x).sin() + 0.3 * x, (0.8 * x).exp()]
}

/// The worst error over all patterns of one missing prediction when the queries are values of a smooth curve, so that the
/// answers are smooth over the points, too.
fn worst_error_of_the_systematic_form(k: usize) -> f32 {
    let spec = CodeSpec::new(EncoderKind::Berrut, k, 1);
    let encoder = build_encoder(&spec, &[1]).unwrap();
    let decoder = systematic(k, 1, 2);
    let queries: Vec<[f32; 1]> = (0..k).map(|slot| [member_point(k, slot) as f32]).collect();
    let queries: Vec<&[f32]> = queries.iter().map(<[f32; 1]>::as_slice).collect();
    let mut coded = [0.0];
    encoder.encode(0, &queries, &mut coded).unwrap();
    let parity = Some(smooth(coded[0]));
    (0..k)
        .map(|missing| {
            let predictions: Vec<_> =
                (0..k).map(|slot| (slot != missing).then(|| smooth(queries[slot][0]))).collect();
            let mut out = [0.0; 2];
            decoder.decode(&views(&predictions), &[parity.as_deref()], missing, &mut out).unwrap();
            out.iter().zip(smooth(queries[missing][0])).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        })
        .fold(0.0, f32::max)
}

fn worst_error_of_the_papers_form(k: usize, spare: usize) -> f32 {
    let encoder = BerrutEncoder::new(k, spare, &[1]).unwrap();
    let decoder = papers(k, spare, 2);
    let queries: Vec<[f32; 1]> = (0..k).map(|slot| [member_point(k, slot) as f32]).collect();
    let queries: Vec<&[f32]> = queries.iter().map(<[f32; 1]>::as_slice).collect();
    let answers: Vec<Vec<f32>> = (0..encoder.workers())
        .map(|worker| {
            let mut coded = [0.0];
            encoder.encode(worker, &queries, &mut coded).unwrap();
            smooth(coded[0])
        })
        .collect();
    let patterns = (0..encoder.workers()).flat_map(|missing| (0..k).map(move |slot| (missing, slot)));
    patterns
        .map(|(missing, slot)| {
            let outputs: Vec<_> =
                answers.iter().enumerate().map(|(i, y)| (i != missing).then_some(y.as_slice())).collect();
            let mut out = [0.0; 2];
            decoder.decode(&outputs, slot, &mut out).unwrap();
            out.iter().zip(smooth(queries[slot][0])).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        })
        .fold(0.0, f32::max)
}

#[test]
fn the_error_falls_for_smooth_functions_as_groups_grow() {
    for error in [worst_error_of_the_systematic_form, |k| worst_error_of_the_papers_form(k, 1)] {
        let errors = [4usize, 8, 16].map(error);
        assert!(errors[1] < 0.7 * errors[0] && errors[2] < 0.7 * errors[1], "{errors:?}");
    }
}

#[test]
fn transforms_are_applied_to_coded_outputs_too() {
    let transform = OutputTransform::Standardised { mean: vec![-30.0], deviation: vec![20.0] };
    let spec = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Berrut, 4, 1) };
    let decoder = build_decoder(&spec, 2).unwrap();
    let every = BerrutDecoder::new(4, 1, spec.transform.clone(), 2).unwrap();
    // All outputs equal: whatever is missing, the interpolant is that output.
    let output: &[f32] = &[-12.0, 7.0];
    let mut out = [0.0; 2];
    decoder.decode(&[None, Some(output), Some(output), Some(output)], &[Some(output)], 0, &mut out).unwrap();
    assert!(out.iter().zip(output).all(|(a, b)| (a - b).abs() < 1e-3), "{out:?}");
    every.decode(&[Some(output), None, Some(output), Some(output), Some(output)], 0, &mut out).unwrap();
    assert!(out.iter().zip(output).all(|(a, b)| (a - b).abs() < 1e-3), "{out:?}");
    let transform = OutputTransform::LogSoftmax { floor: -20.0 };
    assert!(BerrutDecoder::new(4, 1, transform, 1).is_err(), "of one output");
}

#[test]
fn what_cannot_be_interpolated_is_refused() {
    let one: &[f32] = &[1.0];
    let mut out = [7.0];
    let decoder = systematic(3, 2, 1);
    assert_eq!(
        decoder.decode(&[None, None, Some(one)], &[None, Some(one)], 0, &mut out),
        Err(DecodeError::Unrecoverable { missing: 2, available: 1 })
    );
    assert_eq!(
        decoder.decode(&[None, Some(one), Some(one)], &[Some(one), None], 1, &mut out),
        Err(DecodeError::NotMissing { slot: 1 })
    );
    let every = papers(2, 1, 1);
    assert_eq!(
        every.decode(&[None, Some(one), None], 0, &mut out),
        Err(DecodeError::TooFewOutputs { wanted: 2, available: 1 })
    );
    assert!(matches!(every.decode(&[Some(one); 2], 0, &mut out), Err(DecodeError::GroupShape { .. })));
    assert!(matches!(
        every.decode(&[Some(one), Some(one), Some(&[1.0, 2.0])], 0, &mut out),
        Err(DecodeError::UnequalLength { .. })
    ));
    assert_eq!(out, [7.0]);
    let spec = CodeSpec { generator: Some(vec![vec![1.0; 3]]), ..CodeSpec::new(EncoderKind::Berrut, 3, 1) };
    assert!(Code::try_from(&spec).is_err());
    let code = Code::try_from(&CodeSpec::new(EncoderKind::Berrut, 3, 1)).unwrap();
    assert_eq!(Code::try_from(&code.to_spec()).unwrap(), code);
    assert!(SystematicBerrutDecoder::new(code, 1).is_ok());
}

proptest! {
    /// Every pattern of u <= r missing predictions and enough coded outputs: the result stays within a moderate multiple of
    /// what is there, which a pole nearby would not allow, and is exact for outputs that are all the same.
    #[test]
    fn any_pattern_of_the_systematic_form_decodes_without_a_pole(
        k in 2usize..=16,
        r in 1usize..=4,
        missing_seed in any::<u64>(),
        answered_seed in any::<u64>(),
        values in proptest::collection::vec(-1.0f32..1.0, 20),
    ) {
        let r = r.min(k);
        let mut missing: Vec<bool> = (0..k).map(|slot| missing_seed >> slot & 1 == 1).collect();
        let mut allowed = 1 + (missing_seed >> 32) as usize % r;
        missing.iter_mut().for_each(|missing| { *missing &= allowed > 0; allowed -= usize::from(*missing); });
        if missing.iter().all(|missing| !missing) {
            missing[answered_seed as usize % k] = true;
        }
        let u = missing.iter().filter(|missing| **missing).count();
        let mut answered: Vec<bool> = (0..r).map(|row| answered_seed >> row & 1 == 1).collect();
        for row in 0..r {
            if answered.iter().filter(|answered| **answered).count() < u {
                answered[row] = true;
            }
        }
        let decoder = systematic(k, r, 2);
        let output = |index: usize| vec![values[index], 3.0];
        let predictions: Vec<_> = (0..k).map(|slot| (!missing[slot]).then(|| output(slot))).collect();
        let parity: Vec<_> = (0..r).map(|row| answered[row].then(|| output(k.min(16) + row))).collect();
        for slot in (0..k).filter(|&slot| missing[slot]) {
            let mut out = [f32::NAN; 2];
            decoder.decode(&views(&predictions), &views(&parity), slot, &mut out).unwrap();
            prop_assert!((out[1] - 3.0).abs() < 1e-3, "{out:?}");
            prop_assert!(out[0].abs() < 20.0, "{out:?}");
        }
    }

    #[test]
    fn any_k_outputs_of_the_papers_form_decode_without_a_pole(
        k in 2usize..=16,
        spare in 1usize..=4,
        missing in proptest::collection::vec(any::<prop::sample::Index>(), 4),
        values in proptest::collection::vec(-1.0f32..1.0, 20),
    ) {
        let decoder = papers(k, spare, 2);
        let mut outputs: Vec<Option<Vec<f32>>> =
            (0..k + spare).map(|worker| Some(vec![values[worker], -2.0])).collect();
        for index in missing.iter().take(spare) {
            outputs[index.index(k + spare)] = None;
        }
        for slot in 0..k {
            let mut out = [f32::NAN; 2];
            decoder.decode(&views(&outputs), slot, &mut out).unwrap();
            prop_assert!((out[1] + 2.0).abs() < 1e-3 && out[0].abs() < 40.0, "{out:?}");
        }
    }

    /// If the point of a query happens to be that of an output which is there, that output is the answer.
    #[test]
    fn exact_at_interpolation_points(k in 1usize..=7, values in proptest::collection::vec(-5.0f32..5.0, 20)) {
        // With k odd and k + s even both forms of points have 0 among them.
        let (k, spare) = (2 * k + 1, 1);
        let decoder = papers(k, spare, 2);
        let outputs: Vec<Option<Vec<f32>>> = (0..k + spare).map(|worker| Some(vec![values[worker]])).collect();
        let mut out = [f32::NAN];
        decoder.decode(&views(&outputs), k / 2, &mut out).unwrap();
        prop_assert_eq!(out[0], values[(k + spare) / 2]);
        prop_assert!(parity_point(k, 1, 0).abs() > 1e-3);
    }
}
