//! The frontend's configuration for one strategy of an experiment.

use std::path::Path;

use serde_json::{Value, json};

use crate::experiment::{Arm, Experiment};

/// Configuration of the frontend that serves `arm`, with instances at `addresses`, deployed first.
pub(super) fn configuration(
    experiment: &Experiment,
    arm: &Arm,
    repository: &Path,
    addresses: &[String],
) -> Value {
    let deployed = experiment.instances.deployed.min(addresses.len());
    let (deployed, redundant) = addresses.split_at(deployed);
    let (slots, timeout_ms) = (experiment.instances.slots, experiment.timeout_ms);
    let mut settings = arm.settings.clone();
    let mut pool = deployed;
    match arm.kind() {
        "replicate" | "hedge" => pool = addresses,
        "none" if arm.all_instances => pool = addresses,
        "approximate_backup" => {
            settings.insert("model".to_owned(), json!(arm.backup_model));
            settings.insert("instances".to_owned(), json!(redundant));
            settings.insert("slots_per_instance".to_owned(), json!(slots));
        }
        "coded" | "coded_hedged" => {
            let rows = arm.parity_models.len().max(1);
            let parity = arm.parity_models.iter().enumerate().map(|(row, model)| {
                let instances: Vec<&String> = redundant.iter().skip(row).step_by(rows).collect();
                json!({ "model": model, "instances": instances, "slots_per_instance": slots })
            });
            settings.insert("parity".to_owned(), parity.collect());
        }
        _ => {}
    }
    json!({
        "server": { "listen": "127.0.0.1:0" },
        "repository": { "path": repository },
        "models": [{
            "name": experiment.model,
            "instances": pool,
            "slots_per_instance": slots,
            "timeout_ms": timeout_ms,
            "max_timeout_ms": timeout_ms.max(60_000),
            "strategy": settings,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundant_instances_do_what_the_strategy_makes_of_them() {
        let experiment: Experiment = toml::from_str(
            r#"
model = "m"
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
            let arm = &experiment.strategies[index];
            let file = configuration(&experiment, arm, Path::new("/models"), &addresses);
            assert!(toml::to_string(&file).unwrap().contains("/models"));
            file["models"][0].clone()
        };
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        let deployed = [0, 1, 2].map(|index| count(&of(index)["instances"]));
        assert_eq!(deployed, [2, 5, 5]);
        let backup = &of(3)["strategy"];
        assert_eq!((&backup["model"], count(&backup["instances"])), (&json!("b"), 3));
        let rows = [0, 1].map(|row| count(&of(4)["strategy"]["parity"][row]["instances"]));
        assert_eq!(rows, [2, 1]);
    }
}
