//! The published schemas are those of the types, and what is written keeps them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::path::Path;

use parapet_loadgen::compare::{Bootstrap, SweepPoint, SweepReport, analyse};
use parapet_loadgen::report::{Settings, schemas, summarise};
use serde_json::{Value, json};
use synthetic::{KINDS, Size, comparison};

fn published(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    for (name, schema) in schemas() {
        let current = serde_json::to_value(&schema).unwrap();
        assert_eq!(published(name), current, "{name}: cargo run -p parapet-loadgen --example write_schemas");
    }
}

/// As much of JSON Schema as the published ones use; an unknown word fails.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
    let Value::Object(words) = schema else { return Ok(()) };
    for (word, rule) in words {
        let met = match word.as_str() {
            "$schema"
            | "$defs"
            | "title"
            | "description"
            | "format"
            | "items"
            | "properties"
            | "additionalProperties" => true,
            "type" => match rule {
                Value::Array(types) => types.iter().any(|kind| is(value, kind)),
                kind => is(value, kind),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "required" => {
                rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                check(value, target, root, place)?;
                true
            }
            "anyOf" | "oneOf" => {
                let choices = rule.as_array().unwrap();
                choices.iter().any(|choice| check(value, choice, root, place).is_ok())
            }
            unknown => panic!("{unknown} in a schema: teach it to this test"),
        };
        if !met {
            return Err(format!("{place}: {value} breaks {word} {rule}"));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], root, &format!("{place}/{number}"))?;
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let known = words.get("properties").and_then(|known| known.get(name));
        let rule = known.or_else(|| words.get("additionalProperties"));
        if words.contains_key("properties") && rule.is_none() {
            return Err(format!("{place}: {name} is not in the schema"));
        }
        check(member, rule.unwrap_or(&Value::Null), root, &format!("{place}/{name}"))?;
    }
    Ok(())
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        unknown => panic!("{unknown}"),
    }
}

fn reports() -> [(&'static str, Value); 3] {
    let measured = comparison(&KINDS, Size { blocks: 3, block_s: 2.0, ..Size::default() });
    let report = analyse(&measured, "spread", Bootstrap { resamples: 20, seed: 1 }).unwrap();
    let point = SweepPoint::new(BTreeMap::from([("rate".to_owned(), 270.0)]), &report);
    let sweep = SweepReport::new("spread".to_owned(), vec![point], false);
    let made = &measured.settings;
    let settings = Settings {
        target: "http://127.0.0.1:8000".to_owned(),
        model: made.model.clone(),
        seed: made.seed,
        arrivals: Some(made.arrivals),
        trace: None,
        rate: made.rate,
        timeout_ms: made.timeout_ms,
        encoding: made.encoding,
        allow_approximate: None,
        deadline_ms: None,
        images: made.images.clone(),
        labels: None,
    };
    let run = summarise(settings, &measured.strategies[1].blocks[2].recording);
    [("run-1.json", json!(run)), ("compare-1.json", json!(report)), ("sweep-1.json", json!(sweep))]
}

#[test]
fn reports_keep_their_schema() {
    for (name, report) in reports() {
        let schema = published(name);
        check(&report, &schema, &schema, name).unwrap();
        for broken in ["schema", "partial"] {
            let mut report = report.clone();
            report[broken] = json!("another");
            assert!(check(&report, &schema, &schema, name).is_err(), "{name} {broken}");
        }
        let mut short = report;
        short.as_object_mut().unwrap().remove("schema");
        assert!(check(&short, &schema, &schema, name).is_err());
    }
}
