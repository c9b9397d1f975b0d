//! Options, contents and inputs of requests.

use super::*;
use parapet_open_inference::{Datatype, Tensor};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

fn options(parameters: Value) -> Result<Options, ServeError> {
    let Value::Object(parameters) = parameters else { panic!("an object") };
    Options::parse(&parameters, SECOND, 10 * SECOND)
}

#[test]
fn options_have_defaults_and_bounds() {
    assert_eq!(options(json!({})).unwrap(), Options { timeout: SECOND, allow_approximate: true });
    let asked = options(json!({"timeout": 2_500, "allow_approximate": false})).unwrap();
    assert_eq!(asked, Options { timeout: Duration::from_micros(2_500), allow_approximate: false });
    assert_eq!(options(json!({"timeout": 3_600_000_000_u64})).unwrap().timeout, 10 * SECOND);
}

#[test]
fn of_a_timeout_and_a_deadline_the_earlier_counts() {
    let both = |timeout: u64, deadline: u64| {
        options(json!({"timeout": timeout, "deadline_unix_ms": deadline})).unwrap().timeout
    };
    let far = 4_000_000_000_000; // in 2096
    assert_eq!(both(1_000, far), Duration::from_millis(1));
    assert_eq!(options(json!({"deadline_unix_ms": far})).unwrap().timeout, 10 * SECOND);
}

#[test]
fn a_deadline_in_the_past_is_refused() {
    for past in [json!({"timeout": 0}), json!({"deadline_unix_ms": 1_000})] {
        assert!(matches!(options(past), Err(ServeError::Rejected(Rejected::DeadlinePassed))));
    }
}

#[test]
fn parameters_of_the_wrong_type_are_refused() {
    for wrong in [
        json!({"timeout": "fast"}),
        json!({"timeout": -1}),
        json!({"deadline_unix_ms": null}),
        json!({"allow_approximate": "yes"}),
    ] {
        assert!(matches!(options(wrong), Err(ServeError::Input(_))));
    }
}

fn spec() -> TensorSpec {
    TensorSpec { name: "input".to_owned(), datatype: Datatype::Fp32, shape: vec![2, 2].into() }
}

fn check(tensors: Vec<Tensor>) -> Result<usize, String> {
    take_inputs(&[spec()], tensors, 4).map(|(_, rows)| rows)
}

#[test]
fn contents_are_bounded_by_the_most_samples_of_the_model() {
    let spec = |datatype, shape: &[i64]| TensorSpec {
        name: "input".to_owned(),
        datatype,
        shape: shape.to_vec().try_into().unwrap(),
    };
    let (image, mask) = (spec(Datatype::Fp32, &[3, 100, 100]), spec(Datatype::Bool, &[100, 100]));
    assert_eq!(max_contents(&[image, mask], 10), 10 * (120_000 + 10_000));
    assert_eq!(max_contents(&[spec(Datatype::Fp32, &[4])], 64), SMALL_CONTENTS);
    for unbounded in [spec(Datatype::Bytes, &[1]), spec(Datatype::Fp32, &[-1, 4])] {
        assert_eq!(max_contents(&[unbounded], 64), usize::MAX);
    }
}

#[test]
fn a_mistake_repeats_little_of_a_long_text() {
    let long = "\u{200b}".repeat(1 << 20);
    let refused = options(json!({"timeout": long})).unwrap_err().to_string();
    assert!(refused.len() < 2200, "{} bytes", refused.len());
    let extra = vec![
        Tensor::from_f32("input", [1, 2, 2], &[0.5; 4]).unwrap(),
        Tensor::from_f32(long, [1], &[0.5]).unwrap(),
    ];
    let refused = check(extra).unwrap_err();
    assert!(refused.len() < 2200, "{} bytes", refused.len());
}

#[test]
fn inputs_must_be_the_models() {
    let tensor = |name: &str, shape: &[usize], value: f32| {
        let count = shape.iter().product();
        Tensor::from_f32(name, shape, &vec![value; count]).unwrap()
    };
    assert_eq!(check(vec![tensor("input", &[3, 2, 2], 0.5)]), Ok(3));
    let refused = |tensors: Vec<Tensor>, expected: &str| {
        let error = check(tensors).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    refused(vec![], "\"input\" is missing");
    refused(vec![tensor("other", &[1, 2, 2], 0.5)], "\"input\" is missing");
    refused(vec![tensor("input", &[1, 2, 2], 0.5), tensor("input", &[1, 2, 2], 0.5)], "twice");
    refused(vec![tensor("input", &[2, 2], 0.5)], "expected [batch, 2, 2]");
    refused(vec![tensor("input", &[1, 4], 0.5)], "expected [batch, 2, 2]");
    refused(vec![tensor("input", &[0, 2, 2], 0.5)], "1 to 4");
    refused(vec![tensor("input", &[5, 2, 2], 0.5)], "1 to 4");
    refused(vec![tensor("input", &[1, 2, 2], f32::NAN)], "NaN");
    refused(vec![tensor("input", &[1, 2, 2], f32::INFINITY)], "infinity");
    let ints = Tensor::new("input", Datatype::Int32, vec![1, 2, 2], vec![0; 16].into()).unwrap();
    refused(vec![ints], "datatype INT32");
}
