//! The schemas that the program prints, and reports that keep them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "common/program.rs"]
mod program;
#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use parapet_config::faults::{FaultProfile, Freezing, ServiceTime, Span, Straggling};
use parapet_loadgen::compare::{Bootstrap, SweepPoint, SweepReport, analyse};
use parapet_loadgen::experiment::{Event, What};
use parapet_loadgen::report::schemas;
use parapet_loadgen::simulate::{
    Crashes, SCHEMA, Setup, SimulationReport, Simulator, StrategyFigures, Surroundings,
};
use program::run;
use serde_json::{Value, json};
use synthetic::{KINDS, Size, comparison, run_of};

/// The schema that the program prints.
fn published(report: &str) -> Value {
    let ended = run(Path::new("."), &format!("schema {report}")).succeeded();
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn schema_command_prints_the_schema_of_each_report() {
    for (report, schema) in schemas() {
        assert_eq!(
            published(report),
            serde_json::to_value(&schema).unwrap(),
            "{report}"
        );
    }
}

#[test]
fn schema_command_refuses_an_unknown_report() {
    run(Path::new("."), "schema alien").refused("run, compare, simulation, sweep");
}

/// As much of JSON Schema as the published ones use; an unknown word fails.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
    let Value::Object(words) = schema else {
        return Ok(());
    };
    for (word, rule) in words {
        let met = match word.as_str() {
            "$schema"
            | "$defs"
            | "title"
            | "description"
            | "format"
            | "items"
            | "properties"
            | "additionalProperties"
            | "default" => true,
            "type" => match rule {
                Value::Array(types) => types.iter().any(|kind| is(value, kind)),
                kind => is(value, kind),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| number <= rule.as_f64().unwrap()),
            "required" => rule
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "$ref" => {
                let target = root
                    .pointer(rule.as_str().unwrap().trim_start_matches('#'))
                    .unwrap();
                check(value, target, root, place)?;
                true
            }
            "anyOf" | "oneOf" => {
                let choices = rule.as_array().unwrap();
                choices
                    .iter()
                    .any(|choice| check(value, choice, root, place).is_ok())
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
        check(
            member,
            rule.unwrap_or(&Value::Null),
            root,
            &format!("{place}/{name}"),
        )?;
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

/// A setup with everything that a report may have.
fn setup() -> Setup {
    let seconds = Span {
        min_ms: 500.0,
        max_ms: 900.0,
    };
    Setup {
        strategies: ["coded:k=2", "none"]
            .map(|name| name.parse().unwrap())
            .to_vec(),
        baseline: Some("none".to_owned()),
        instances: 4,
        redundant_instances: 2,
        rate: 100.0,
        queries: 2000,
        faults: Some(FaultProfile {
            service_time: Some(ServiceTime::Lognormal {
                median_ms: 18.0,
                sigma: 0.2,
            }),
            model_service_time: BTreeMap::from([(
                "parity".to_owned(),
                ServiceTime::Constant { ms: 18.0 },
            )]),
            straggle: Some(Straggling {
                probability: 0.05,
                min_ms: 15.0,
                max_ms: 45.0,
            }),
            freeze: Some(Freezing {
                mean_interval_ms: 5000.0,
                min_ms: 1.0,
                max_ms: 2.0,
            }),
            ..FaultProfile::default()
        }),
        events: vec![Event {
            block: 1,
            after_s: 0.1,
            what: What::Kill,
            instance: 1,
            for_s: Some(0.5),
        }],
        surroundings: Surroundings {
            crashes: Some(Crashes {
                mean_interval_ms: 9000.0,
                away: seconds,
            }),
            ..Surroundings::default()
        },
        ..Setup::default()
    }
}

fn simulation() -> SimulationReport {
    let setup = setup();
    let mut done = Vec::new();
    for (spec, mut simulation) in setup.simulations().unwrap() {
        simulation.keep_records = true;
        done.push((
            spec,
            Simulator::new(simulation)
                .unwrap()
                .run(|_| ControlFlow::Continue(())),
        ));
    }
    let bootstrap = Bootstrap {
        resamples: 20,
        seed: 1,
    };
    let compared = analyse(
        &parapet_loadgen::simulate::comparison(&setup, &done),
        "none",
        bootstrap,
    )
    .unwrap();
    let strategies = done.into_iter().map(|(spec, simulated)| StrategyFigures {
        name: spec.label,
        instances: simulated.pools.iter().map(|pool| pool.instances).sum(),
        simulated,
    });
    SimulationReport {
        schema: SCHEMA.to_owned(),
        partial: false,
        strategies: strategies.collect(),
        settings: setup,
        comparison: Some(compared),
    }
}

fn reports() -> [(&'static str, Value); 4] {
    let measured = comparison(
        &KINDS,
        Size {
            blocks: 3,
            block_s: 2.0,
            ..Size::default()
        },
    );
    let report = analyse(
        &measured,
        "spread",
        Bootstrap {
            resamples: 20,
            seed: 1,
        },
    )
    .unwrap();
    let point = SweepPoint::new(BTreeMap::from([("rate".to_owned(), 270.0)]), &report);
    let sweep = SweepReport::new("spread".to_owned(), vec![point], false);
    let (run, _) = run_of(&measured);
    [
        ("run", json!(run)),
        ("compare", json!(report)),
        ("simulation", json!(simulation())),
        ("sweep", json!(sweep)),
    ]
}

#[test]
fn reports_keep_their_schema() {
    for (name, report) in reports() {
        let schema = published(name);
        check(&report, &schema, &schema, name).unwrap();
        for broken in ["schema", "partial"] {
            let mut report = report.clone();
            report[broken] = json!("another");
            assert!(
                check(&report, &schema, &schema, name).is_err(),
                "{name} {broken}"
            );
        }
        let mut short = report;
        short.as_object_mut().unwrap().remove("schema");
        assert!(check(&short, &schema, &schema, name).is_err());
    }
}
