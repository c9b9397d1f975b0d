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
    let slots = Value::from(i64::from(experiment.instances.slots));
    let list = |addresses: &[String]| Value::from(addresses.to_vec());
    let mut settings = strategy.settings.clone();
    let mut pool = deployed;
    match strategy.kind() {
        "replicate" | "hedge" => pool = addresses,
        "none" if strategy.all_instances => pool = addresses,
        "approximate_backup" => {
            if let Some(model) = &strategy.backup_model {
                settings.insert("model".to_owned(), Value::from(model.clone()));
            }
            settings.insert("instances".to_owned(), list(redundant));
            settings.insert("slots_per_instance".to_owned(), slots.clone());
        }
        "coded" | "coded_hedged" => {
            let rows = strategy.parity_models.len().max(1);
            let parity = strategy
                .parity_models
                .iter()
                .enumerate()
                .map(|(row, model)| {
                    let of_row: Vec<String> =
                        redundant.iter().skip(row).step_by(rows).cloned().collect();
                    let mut table = Table::new();
                    table.insert("model".to_owned(), Value::from(model.clone()));
                    table.insert("instances".to_owned(), list(&of_row));
                    table.insert("slots_per_instance".to_owned(), slots.clone());
                    Value::Table(table)
                });
            settings.insert("parity".to_owned(), Value::Array(parity.collect()));
        }
        _ => {}
    }
    let mut model = Table::new();
    model.insert("name".to_owned(), Value::from(experiment.model.clone()));
    model.insert("instances".to_owned(), list(pool));
    model.insert("slots_per_instance".to_owned(), slots);
    let timeout_ms = i64::try_from(experiment.timeout_ms).unwrap_or(i64::MAX);
    model.insert("timeout_ms".to_owned(), Value::from(timeout_ms));
    model.insert(
        "max_timeout_ms".to_owned(),
        Value::from(timeout_ms.max(60_000)),
    );
    model.insert("strategy".to_owned(), Value::Table(settings));
    let mut server = Table::new();
    server.insert("listen".to_owned(), Value::from("127.0.0.1:0"));
    let mut repository_table = Table::new();
    repository_table.insert(
        "path".to_owned(),
        Value::from(repository.display().to_string()),
    );
    let mut file = Table::new();
    file.insert("server".to_owned(), Value::Table(server));
    file.insert("repository".to_owned(), Value::Table(repository_table));
    file.insert("models".to_owned(), Value::Array(vec![Value::Table(model)]));
    file
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
