//! The frontend's configuration for one strategy of an experiment.

use std::path::Path;

use toml::{Table, Value};

use crate::experiment::{Experiment, Strategy};

/// The configuration of the frontend that serves `strategy`, with instances at `addresses`, the
/// deployed ones first.
pub(super) fn configuration(
    experiment: &Experiment,
    strategy: &Strategy,
    repository: &Path,
    addresses: &[String],
) -> Table {
    let (deployed, redundant) =
        addresses.split_at(experiment.instances.deployed.min(addresses.len()));
    let slots = || Value::from(i64::from(experiment.instances.slots));
    let text = |text: &str| Value::from(text.to_owned());
    let list = |addresses: &[String]| Value::from(addresses.to_vec());
    let mut settings = strategy.settings.clone();
    let mut pool = deployed;
    match strategy.kind() {
        "replicate" | "hedge" => pool = addresses,
        "none" if strategy.all_instances => pool = addresses,
        "approximate_backup" => settings.extend(table([
            (
                "model",
                text(strategy.backup_model.as_deref().unwrap_or_default()),
            ),
            ("instances", list(redundant)),
            ("slots_per_instance", slots()),
        ])),
        "coded" | "coded_hedged" => {
            let rows = strategy.parity_models.len().max(1);
            let models = strategy.parity_models.iter().enumerate();
            let parity = models.map(|(row, model)| {
                let of_row = redundant.iter().skip(row).step_by(rows).cloned();
                let of_row: Vec<String> = of_row.collect();
                Value::from(table([
                    ("model", text(model)),
                    ("instances", list(&of_row)),
                    ("slots_per_instance", slots()),
                ]))
            });
            settings.insert("parity".to_owned(), Value::Array(parity.collect()));
        }
        _ => {}
    }
    let timeout_ms = i64::try_from(experiment.timeout_ms).unwrap_or(i64::MAX);
    let model = table([
        ("name", text(&experiment.model)),
        ("instances", list(pool)),
        ("slots_per_instance", slots()),
        ("timeout_ms", Value::from(timeout_ms)),
        ("max_timeout_ms", Value::from(timeout_ms.max(60_000))),
        ("strategy", Value::Table(settings)),
    ]);
    let repository = text(&repository.display().to_string());
    table([
        (
            "server",
            Value::from(table([("listen", text("127.0.0.1:0"))])),
        ),
        ("repository", Value::from(table([("path", repository)]))),
        ("models", Value::Array(vec![Value::Table(model)])),
    ])
}

fn table<const N: usize>(fields: [(&str, Value); N]) -> Table {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundant_instances_do_what_the_strategy_makes_of_them() {
        let experiment: Experiment = toml::from_str(
            r#"
model = "m"
rate = 1
requests = 10
baseline = "none"
instances = { deployed = 2, redundant = 3 }
strategies = [
    { name = "none", settings = { kind = "none" } },
    { name = "er", settings = { kind = "none" }, all_instances = true },
    { name = "hedge", settings = { kind = "hedge" } },
    { name = "backup", settings = { kind = "approximate_backup" }, backup_model = "b" },
    { name = "coded", settings = { kind = "coded", k = 2, r = 2 }, parity_models = ["p", "q"] },
]
"#,
        )
        .unwrap();
        let addresses: Vec<String> = (0..5).map(|i| format!("127.0.0.1:{i}")).collect();
        let of = |index: usize| {
            let strategy = &experiment.strategies[index];
            let file = configuration(&experiment, strategy, Path::new("/models"), &addresses);
            file["models"][0].clone()
        };
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        assert_eq!(count(&of(0)["instances"]), 2);
        assert_eq!(count(&of(1)["instances"]), 5);
        assert_eq!(count(&of(2)["instances"]), 5);
        assert_eq!(of(3)["strategy"]["model"].as_str(), Some("b"));
        assert_eq!(count(&of(3)["strategy"]["instances"]), 3);
        let coded = of(4);
        let rows: Vec<usize> = coded["strategy"]["parity"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| count(&row["instances"]))
            .collect();
        assert_eq!(rows, [2, 1]);
    }
}
