//! The schemas that the program prints, and reports that keep them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "common/program.rs"]
mod program;
#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use std::ops::ControlFlow;
use std::path::Path;

use parapet_loadgen::compare::{Bootstrap, analyse};
use parapet_loadgen::experiment::Experiment;
use parapet_loadgen::report::schemas;
use parapet_loadgen::simulate::{SCHEMA, SimulationReport, Simulator, simulations};
use program::run;
use serde_json::{Value, json};
use synthetic::{KINDS, Size, comparison, run_of};

/// The schema that the program prints.
fn published(report: &str) -> Value {
    let ended = run(Path::new("."), &format!("schema {report}")).succeeded();
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn schema_command_prints_the_schema_of_each_report_and_refuses_others() {
    for (report, schema) in schemas() {
        assert_eq!(published(report), json!(schema), "{report}");
    }
    run(Path::new("."), "schema alien").refused("run, compare, simulation");
}

/// As much of JSON Schema as the published ones use; an unknown word fails.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
    let Value::Object(words) = schema else {
        return Ok(());
    };
    for (word, rule) in words {
        let list = || rule.as_array().unwrap().iter();
        let number = || value.as_f64().zip(rule.as_f64());
        let met = match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" | "items" => true,
            "properties" | "additionalProperties" | "default" => true,
            "type" if rule.is_array() => list().any(|kind| is(value, kind)),
            "type" => is(value, rule),
            "const" => value == rule,
            "enum" => list().any(|choice| choice == value),
            "minimum" => number().is_none_or(|(number, least)| number >= least),
            "maximum" => number().is_none_or(|(number, most)| number <= most),
            "required" => list().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                check(value, root.pointer(pointer).unwrap(), root, place)?;
                true
            }
            "anyOf" | "oneOf" => list().any(|choice| check(value, choice, root, place).is_ok()),
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
        let rule = rule.unwrap_or(&Value::Null);
        check(member, rule, root, &format!("{place}/{name}"))?;
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

/// An experiment with everything that a report may have.
fn experiment() -> Experiment {
    let experiment = json!({
        "model": "m", "rate": 100.0, "requests": 2000, "baseline": "none",
        "instances": { "deployed": 4, "redundant": 2 },
        "faults": {
            "seed": 1,
            "service_time": { "distribution": "lognormal", "median_ms": 18.0, "sigma": 0.2 },
            "model_service_time": { "parity": { "distribution": "constant", "ms": 18.0 } },
            "straggle": { "probability": 0.05, "min_ms": 15.0, "max_ms": 45.0 },
            "freeze": { "mean_interval_ms": 5000.0, "min_ms": 1.0, "max_ms": 2.0 },
        },
        "events": [
            { "block": 1, "after_s": 0.1, "what": "kill", "instance": 1, "for_s": 0.5 },
        ],
        "simulation": { "network": { "client": { "constant_ms": 0.4, "exponential_ms": 0.1 } } },
        "strategies": [
            { "name": "coded", "settings": { "kind": "coded", "k": 2 }, "parity_models": ["p"] },
            { "name": "none", "settings": { "kind": "none" } },
        ],
    });
    serde_json::from_value(experiment).unwrap()
}

const DRAWS: Bootstrap = Bootstrap { resamples: 20, seed: 1 };

fn simulation() -> SimulationReport {
    let experiment = experiment();
    let mut done = Vec::new();
    for mut simulation in simulations(&experiment).unwrap() {
        simulation.keep_records = true;
        let simulator = Simulator::new(simulation).unwrap();
        done.push(simulator.run(|_| ControlFlow::Continue(())));
    }
    let compared = parapet_loadgen::simulate::comparison(&experiment, &done);
    SimulationReport {
        schema: SCHEMA.to_owned(),
        partial: false,
        strategies: done,
        settings: experiment,
        comparison: Some(analyse(&compared, "none", DRAWS).unwrap()),
    }
}

fn reports() -> [(&'static str, Value); 3] {
    let measured = comparison(&KINDS, Size::new(3, 2.0));
    let report = analyse(&measured, "spread", DRAWS).unwrap();
    let (run, _) = run_of(&measured);
    [("run", json!(run)), ("compare", json!(report)), ("simulation", json!(simulation()))]
}

#[test]
fn reports_keep_their_schema() {
    for (name, report) in reports() {
        let schema = published(name);
        let check = |report: &Value| check(report, &schema, &schema, name);
        check(&report).unwrap();
        for broken in ["schema", "partial"] {
            let mut report = report.clone();
            report[broken] = json!("another");
            assert!(check(&report).is_err(), "{name} {broken}");
        }
        let mut short = report;
        short.as_object_mut().unwrap().remove("schema");
        assert!(check(&short).is_err());
    }
}
