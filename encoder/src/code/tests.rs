use super::*;

fn spec(encoder: EncoderKind, k: usize, r: usize) -> CodeSpec {
    CodeSpec::new(encoder, k, r)
}

#[test]
fn a_spec_has_one_row_and_the_raw_transform_where_it_names_none() {
    let read: CodeSpec = toml::from_str("encoder = \"sum\"\nk = 3").unwrap();
    assert_eq!(read, spec(EncoderKind::Sum, 3, 1));
    assert!(!toml::to_string(&read).unwrap().contains("transform"));
}

#[test]
fn stacks_and_slots_have_an_axis_of_k_in_front() {
    let shapes = |encoder| {
        let code = Code::try_from(&spec(encoder, 3, 1)).unwrap();
        (code.parity_input_shape(&[2, 5]), code.parity_output_shape(&[7]))
    };
    assert_eq!(shapes(EncoderKind::Stack), (vec![3, 2, 5], vec![3, 7]));
    assert_eq!(shapes(EncoderKind::Sum), (vec![2, 5], vec![7]));
}

#[test]
fn linear_codes_recover_as_many_as_outputs_and_slots_any_number_from_one() {
    let recovered = |decoding: Decoding, outputs| -> Vec<usize> {
        (0..5).filter(|&missing| decoding.can_recover(missing, outputs)).collect()
    };
    for outputs in 0..4 {
        let all: Vec<usize> = (0..=outputs).collect();
        assert_eq!(recovered(Decoding::Linear, outputs), all);
        let from_slots = if outputs == 0 { vec![0] } else { (0..5).collect() };
        assert_eq!(recovered(Decoding::Slots, outputs), from_slots);
    }
}

#[test]
fn a_code_keeps_the_transform_of_its_spec() {
    let transform = OutputTransform::LogSoftmax { floor: -3.0 };
    let code =
        Code::try_from(&CodeSpec { transform: transform.clone(), ..spec(EncoderKind::Sum, 2, 1) });
    assert_eq!(code.as_ref().map(Code::transform), Ok(&transform));
    assert_eq!(code.map(|code| code.to_spec().transform), Ok(transform));
}

#[test]
fn a_learned_code_weighs_nothing() {
    let code = Code::try_from(&spec(EncoderKind::Learned, 3, 2)).unwrap();
    assert!((0..2).all(|row| code.row(row) == [1.0; 3]));
    assert_eq!(code.to_spec().generator, None);
}

#[test]
fn concatenation_takes_one_row_of_ones() {
    let with = |r: usize, generator: Option<Vec<Vec<f32>>>| {
        Code::try_from(&CodeSpec { generator, ..spec(EncoderKind::Concat, 2, r) })
    };
    assert!(with(1, Some(vec![vec![1.0, 1.0]])).is_ok());
    for refused in [with(1, Some(vec![vec![1.0, 2.0]])), with(2, None)] {
        assert_eq!(refused.unwrap_err().field, "encoder");
    }
}

#[test]
fn default_generator_starts_with_ones() {
    let code = Code::try_from(&spec(EncoderKind::Sum, 3, 2)).unwrap();
    assert_eq!(code.row(0), [1.0, 1.0, 1.0]);
    assert_eq!(code.row(1).len(), 3);
    assert_eq!(code.label(), "sum-k3-r2");
}

#[test]
fn sizes_out_of_range_are_refused() {
    for (encoder, k, r, field) in [
        (EncoderKind::Sum, 1, 1, "k"),
        (EncoderKind::Sum, 99, 1, "k"),
        (EncoderKind::Sum, 2, 3, "r"),
        (EncoderKind::Sum, 2, 0, "r"),
        (EncoderKind::Concat, 4, 2, "encoder"),
    ] {
        let error = Code::try_from(&spec(encoder, k, r)).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn a_generator_that_cannot_recover_some_pattern_is_refused() {
    for (k, rows, field) in [
        (2, vec![vec![1.0, 1.0], vec![2.0, 2.0]], "generator"),
        (2, vec![vec![1.0, 0.0]], "generator[0][1]"),
        (3, vec![vec![1.0, 1.0]], "generator"),
    ] {
        let given =
            CodeSpec { generator: Some(rows.clone()), ..spec(EncoderKind::Sum, k, rows.len()) };
        let error = Code::try_from(&given).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn every_default_code_is_valid_and_spelling_its_generator_out_changes_nothing() {
    for k in 2..=K_MAX {
        for r in 1..=k.min(R_MAX) {
            let code = Code::try_from(&spec(EncoderKind::Sum, k, r)).unwrap();
            assert_eq!(Code::try_from(&code.to_spec()), Ok(code), "k = {k}, r = {r}");
        }
    }
}

#[test]
fn a_learned_code_is_sizes_and_a_transform() {
    let code = Code::try_from(&spec(EncoderKind::Learned, 3, 2)).unwrap();
    assert_eq!(code.label(), "learned-k3-r2");
    assert_eq!(code.to_spec(), spec(EncoderKind::Learned, 3, 2));
    let given =
        CodeSpec { generator: Some(vec![vec![1.0; 3]; 2]), ..spec(EncoderKind::Learned, 3, 2) };
    assert_eq!(Code::try_from(&given).unwrap_err().field, "generator");
    let networks = crate::build_encoder(&spec(EncoderKind::Learned, 2, 1), &[4]);
    assert_eq!(networks.unwrap_err(), CodeError::networks());
}

/// Parity models trained before the default changed have Vandermonde's rows in their metadata.
#[test]
fn vandermondes_rows_stay_valid_for_small_codes() {
    let mut given = spec(EncoderKind::Sum, 4, 2);
    given.generator = Some(vec![vec![1.0; 4], vec![1.0, 2.0, 3.0, 4.0]]);
    assert!(Code::try_from(&given).is_ok());
}
