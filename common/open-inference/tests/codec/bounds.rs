//! Bounds on texts, lists, numbers and depth.

use super::*;

/// Requests with `long` in each place that has text.
fn with_text(long: &str) -> Vec<String> {
    vec![
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP31","shape":[1],"data":[1]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP32","shape":[2],"data":[1]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP32","shape":[1]}}]}}"#),
        input(long, "[1]", "[1]"),
        input("FP32", &format!("\"{long}\""), "[1]"),
        input("FP32", &format!("[\"{long}\"]"), "[1]"),
        input("FP32", "[1]", &format!("[\"{long}\"]")),
        input("FP32", "[1]", &format!("\"{long}\"")),
        format!(r#"{{"inputs":"{long}"}}"#),
        format!(r#"{{"inputs":["{long}"]}}"#),
        format!(r#"{{"inputs":[],"outputs":"{long}"}}"#),
        format!(
            r#"{{"inputs":[],"outputs":[{{"name":"{long}","parameters":{{"shared_memory_region":1}}}}]}}"#
        ),
        format!(r#"{{"inputs":[],"outputs":[{{"name":"y","parameters":"{long}"}}]}}"#),
        format!(r#"{{"inputs":[],"parameters":"{long}"}}"#),
        format!(r#"{{"inputs":[],"parameters":{{"{long}":[]}}}}"#),
        format!(r#""{long}""#),
    ]
}

#[test]
fn an_error_is_short_whatever_text_its_message_has() {
    for character in ["\u{200b}", "\\u0007", "x", "ä"] {
        for length in [300, 100_000] {
            for body in with_text(&character.repeat(length)) {
                let refused = error(&body);
                assert!(refused.len() < 5000, "{} bytes of {}", refused.len(), &body[..70]);
                assert!(refused.chars().count() < 2500, "{refused}");
            }
        }
    }
}

#[test]
fn a_long_text_is_refused_by_its_length_wherever_it_is() {
    for body in with_text(&"x".repeat(100_000)) {
        let refused = error(&body);
        let is_data = refused.contains("\"data\" is not valid");
        assert!(
            refused.contains("a text of 100000 bytes") || is_data,
            "{}: {refused}",
            &body[..70]
        );
    }
}

#[test]
fn an_error_keeps_the_place_of_a_mistake_behind_a_long_text() {
    let refused = error(&input("FP32", &format!("\"{}\"", "x".repeat(300)), "[1]"));
    assert!(
        refused.contains("invalid type: string") && refused.ends_with("column 344"),
        "{refused}"
    );
}

#[test]
fn a_text_beyond_four_kilobytes_is_refused_where_it_would_be_copied() {
    let long = |length: usize| "x".repeat(length);
    let id = |length| decode(&format!(r#"{{"inputs":[],"id":"{}"}}"#, long(length)));
    assert_eq!(id(4096).unwrap().id.unwrap().len(), 4096);
    let refused = id(4097).unwrap_err().to_string();
    assert!(refused.contains("a text of 4097 bytes; at most 4096"));
    let parameter = |length| {
        let long = long(length);
        decode(&format!(r#"{{"inputs":[],"parameters":{{"a":"{long}"}}}}"#))
    };
    assert!(parameter(4096).is_ok() && parameter(4097).is_err());
    let element = input("BYTES", "[1]", &format!("[\"{}\"]", long(100_000)));
    let length = decode(&element).unwrap().inputs[0].data.len();
    assert_eq!(length, 100_004, "contents are no names");
}

#[test]
fn lists_and_shapes_are_refused_while_they_are_read() {
    let shape = |axes: usize| {
        let shape = format!("[{}]", vec!["1"; axes].join(","));
        decode(&input("FP32", &shape, "[1]"))
    };
    assert_eq!(shape(16).unwrap().inputs[0].shape, [1; 16]);
    for (axes, named) in [(17, "17 axes; at most 16"), (1_000_000, "a list of more than 1024")] {
        let refused = shape(axes).unwrap_err().to_string();
        assert!(refused.contains(named) && refused.len() < 200);
    }
    let tensor = r#"{"name":"x","datatype":"FP32","shape":[1],"data":[1]}"#;
    let inputs = |number: usize| {
        let tensors = vec![tensor; number].join(",");
        format!(r#"{{"inputs":[{tensors}]}}"#)
    };
    assert_eq!(decode(&inputs(1024)).unwrap().inputs.len(), 1024);
    let outputs = vec![r#"{"name":""}"#; 1025].join(",");
    let outputs = format!(r#"{{"inputs":[],"outputs":[{outputs}]}}"#);
    for body in [inputs(1025), outputs] {
        let refused = error(&body);
        assert!(refused.contains("a list of more than 1024"), "{refused}");
    }
}

#[test]
fn a_long_header_is_refused_if_it_is_deep() {
    let with = |unknown: &str| decode(&format!(r#"{{"inputs":[],"unknown":{unknown}}}"#));
    let padding = "x".repeat(100_000);
    let nested = |depth: usize| format!("{}\"{padding}\"{}", "[".repeat(depth), "]".repeat(depth));
    assert!(with(&nested(63)).is_ok());
    let refused = with(&nested(64)).unwrap_err();
    assert!(matches!(refused, ProtocolError::Deep { limit: 64 }));
    let text = format!(r#"[[["{}\"{}"]]]"#, "[".repeat(100), "{".repeat(100_000));
    assert!(with(&text).is_ok(), "brackets in a text are no depth");
    let side_by_side = vec!["[{}]"; 50_000].join(",");
    assert!(with(&format!("[{side_by_side}]")).is_ok());
}

#[test]
fn long_text_is_refused_unread_except_in_tensor_data() {
    let escapes = r"\u0007".repeat(100_000);
    let name = format!(r#"{{"inputs":[{{"name":"{escapes}"}}]}}"#);
    let refused = decode(&name).unwrap_err();
    let ProtocolError::LongText { length, limit } = refused else {
        panic!("{refused}");
    };
    assert_eq!((length, limit), (600_000, 4096));
    let key = format!(r#"{{"inputs":[],"parameters":{{"{escapes}":1}}}}"#);
    assert!(matches!(decode(&key), Err(ProtocolError::LongText { .. })));
    let element = input("BYTES", "[1]", &format!("[\"{escapes}\"]"));
    assert_eq!(decode(&element).unwrap().inputs[0].data.len(), 100_004);
}

#[test]
fn long_numbers_are_refused_unread() {
    let digits = "9".repeat(100_000);
    for long in [digits.clone(), format!("-{digits}"), format!("0.{digits}"), format!("1e{digits}")]
    {
        for body in
            [long.clone(), input("FP64", "[1]", &format!("[{long}]")), input("FP64", "[1]", &long)]
        {
            let refused = error(&body);
            assert!(refused.contains("characters; at most 2048"), "{refused}");
        }
    }
    let many = vec!["-1.5e-3"; 10_000].join(",");
    assert!(decode(&input("FP64", "[10000]", &format!("[{many}]"))).is_ok());
    let exact = format!("{:.1077}", f64::from_bits(1));
    let spaces = " ".repeat(100_000);
    let least = decode(&input("FP64", "[1]", &format!("[{spaces}{exact}]"))).unwrap();
    assert_eq!(least.inputs[0].data[..], f64::from_bits(1).to_le_bytes());
}

#[test]
fn long_strings_are_refused_unread_where_numbers_are_wanted() {
    for text in [r"\u0007".repeat(100_000), format!(r"\n{}", "n".repeat(100_000))] {
        let refused = error(&input("FP32", "[1]", &format!("[\"{text}\"]")));
        assert!(refused.contains("an element is a string, not a FP32 value"), "{refused}");
    }
}
