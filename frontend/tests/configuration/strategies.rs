//! Strategies as they are configured, and their mistakes.

use super::*;

#[test]
fn every_strategy_is_configured() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let parity = "encoder = \"sum\"\nk = 2\n[[models.strategy.parity]]\n\
                  model = \"linear-parity\"\ninstances = [\"127.0.0.1:9101\"]";
    let percentile = "delay = { percentile = 0.95, min_ms = 1, max_ms = 50 }";
    let cheap = "model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]";
    for (kind, rest) in [
        ("none", ""),
        ("replicate", ""),
        ("hedge", percentile),
        ("approximate_backup", cheap),
        ("coded", parity),
        ("coded_hedged", parity),
    ] {
        let strategy = format!("kind = \"{kind}\"\n{rest}");
        let text = strategy_toml(repository.path(), &addresses(3, 9001), &strategy);
        let model = config(&text).unwrap().models.remove(0);
        assert_eq!(model.classes[0].strategy.name(), kind);
        assert_eq!(model.pool.instances.len(), 3);
    }
}

#[test]
fn classes_have_strategies_and_pools_of_their_own() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let batch = "[[models.classes]]\nname = \"batch\"\n[models.classes.strategy]\n\
                 kind = \"approximate_backup\"\n\
                 model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]\n";
    let text = coded(repository.path()) + batch;
    let model = config(&text).unwrap().models.remove(0);
    let redundant = model.redundant.iter();
    let labels: Vec<&str> = redundant.map(|pool| pool.label.as_str()).collect();
    assert_eq!(labels, ["parity0", "batch-backup"]);
    let default = r#""batch" => "default" => models[0].classes[0].name & a name of its own"#;
    replacements_are_refused(&text, default);
}

#[test]
fn mistakes_in_a_strategy_are_named() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    for [instances, strategy, parts] in rows(
        r#"
        2 => kind = "replicate"\ncopies = 3 => strategy.copies & 2 instances
        2 => kind = "replicate"\ncopies = 1 => strategy.copies & at least 2
        2 => kind = "replicate"\nburst = 0.5 => strategy.burst & copies - 1
        1 => kind = "hedge" => strategy.kind & second instance & add an instance
        2 => kind = "hedge"\nmax_copies = 2 => strategy.max_copies & at most 1
        2 => kind = "hedge"\nshare = 99 => strategy.share
        2 => kind = "hedge"\ndelay = { percentile = 2 } => strategy.delay.percentile
        2 => kind = "hedge"\ndelay = { max_over_median = 0.5 } => strategy.delay.max_over_median & from 1
        2 => kind = "hedge"\nshare = "much" => strategy: share: invalid type & "much"
        2 => kind = "hedge"\ndelay = { min_ms = "1" } => strategy: delay.min_ms: invalid & a number
        2 => kind = "hedge"\ndelay = 3 => models[0].strategy: delay: invalid type & a table such as { percentile
        2 => kind = "hedge"\ninstances = ["127.0.0.1:9002"] => unknown field `instances`
    "#,
    ) {
        let instances = addresses(instances.parse().unwrap(), 9001);
        let text = strategy_toml(repository.path(), &instances, &strategy);
        refused_with(&text, &parts);
    }
    let hedged = coded(repository.path()).replace("k = 2", "k = 2\nhedge = { share = 0.1 }");
    refused(&hedged, &["strategy.hedge", "use kind = \"coded_hedged\""]);
}

#[test]
fn mistakes_in_a_backup_model_are_named() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let backup = |model: &str, more: &str| {
        let strategy = format!(
            "kind = \"approximate_backup\"\nmodel = \"{model}\"\n\
             instances = [\"127.0.0.1:9201\"]\n{more}"
        );
        strategy_toml(repository.path(), &addresses(2, 9001), &strategy)
    };
    for (model, part) in [
        ("../cheap", "model name"),
        ("linear", "the deployed model itself"),
        ("linear-parity", "is a parity model"),
    ] {
        refused(&backup(model, ""), &["strategy.model", part]);
    }
    let no_slots = backup("cheap", "slots_per_instance = 0");
    refused(&no_slots, &["strategy.slots_per_instance"]);
    let toml = repository.path().join("cheap/model.toml");
    let text = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, text.replace("shape = [3]", "shape = [2]")).unwrap();
    let parts = "strategy.model & cheap/model.toml & other names or shapes";
    refused_with(&backup("cheap", ""), parts);
}

#[test]
fn the_kinds_of_query_with_groups_are_a_setting() {
    let repository = repository();
    let text = coded(repository.path());
    let max_keys = |text: &str| match &config(text).unwrap().models[0].classes[0].strategy {
        StrategyConfig::Coded(coded) => coded.max_keys,
        other => panic!("{other:?}"),
    };
    assert_eq!(max_keys(&text), 64);
    let with = |keys: &str| {
        let keys = format!("audit_every = 1\nmax_keys = {keys}");
        text.replacen("audit_every = 1", &keys, 1)
    };
    assert_eq!(max_keys(&with("3")), 3);
    refused(&with("0"), &["strategy.max_keys: 0"]);
}

#[test]
fn the_examples_in_the_documentation_are_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/strategies.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let blocks = text.split("```toml\n").skip(1);
    let examples: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    // One for each strategy but none, and one for classes.
    assert_eq!(examples.len(), 6);
    for example in examples {
        let example = example.replace("fashion-parity", "linear-parity");
        let example = example.replace("fashion-small", "cheap");
        let text = strategy_toml(repository.path(), &addresses(5, 9001), &example);
        config(&text).unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

#[test]
fn an_axis_of_any_length_goes_with_every_strategy_but_codes() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    for model in ["linear", "cheap"] {
        let toml = repository.path().join(model).join("model.toml");
        let text = std::fs::read_to_string(&toml).unwrap();
        std::fs::write(&toml, text.replacen("shape = [4]", "shape = [-1]", 1)).unwrap();
    }
    for strategy in [
        "kind = \"none\"",
        "kind = \"replicate\"",
        "kind = \"hedge\"",
        "kind = \"approximate_backup\"\nmodel = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]",
    ] {
        config(&strategy_toml(repository.path(), &addresses(2, 9001), strategy)).unwrap();
    }
    let fix = "set kind = \"hedge\", or write the length of every axis";
    let shape = "linear/model.toml has shape [-1], a code needs fixed axes";
    refused(&coded(repository.path()), &["models[0].strategy.kind: \"input\" of", shape, fix]);
}
