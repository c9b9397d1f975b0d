//! Mistakes in a configuration or a model repository stop the start with one line that names file, field and fix.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use support::{add_model, add_parity_model, coded_toml, config, plain_toml, repository, strategy_toml};

fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
    ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
}

fn coded(repository: &Path) -> String {
    coded_toml(repository, &addresses(&[9001, 9002]), &addresses(&[9101]), "")
}

/// The one line; it must hold all of `parts`.
fn refused(text: &str, parts: &[&str]) {
    let error = config(text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line: {error:?}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn a_sound_configuration_is_taken() {
    let repository = repository();
    let config = config(&coded(repository.path())).unwrap();
    assert_eq!(config.models[0].entry.name, "linear");
}

#[test]
fn broken_toml_names_the_line() {
    refused("[server\n", &["parapet.toml: line 1"]);
    let repository = repository();
    let text = coded(repository.path()).replace("max_body_bytes", "max_body_bites");
    refused(&text, &["parapet.toml: line 3", "max_body_bites"]);
    let text = coded(repository.path()).replace("kind = \"coded\"", "kind = \"magic\"");
    refused(&text, &["parapet.toml: line", "magic", "equal_resources", "approximate_backup", "coded_hedged"]);
}

#[test]
fn a_missing_parity_model_is_named() {
    let repository = repository();
    fs::remove_dir_all(repository.path().join("linear-parity")).unwrap();
    refused(
        &coded(repository.path()),
        &["models[0].strategy.parity[0].model", "no model \"linear-parity\"", "add"],
    );
}

#[test]
fn a_missing_repository_is_named() {
    let text = coded(Path::new("/nowhere/at/all"));
    refused(&text, &["repository.path", "/nowhere/at/all", "not a folder"]);
}

#[test]
fn a_k_that_differs_from_the_parity_models_is_named() {
    let repository = repository();
    add_parity_model(repository.path(), "linear-parity", 3);
    refused(
        &coded(repository.path()),
        &["models[0].strategy.parity[0].model", "k = 2 here", "code.k = 3 in", "model.toml", "set k = 3"],
    );
}

#[test]
fn a_deployed_model_is_no_parity_model() {
    let repository = repository();
    add_model(repository.path(), "linear-parity", None);
    refused(&coded(repository.path()), &["is no parity model", "no [code]", "name a parity model"]);
}

#[test]
fn an_encoder_that_does_not_fit_is_named() {
    let repository = repository();
    let text = coded(repository.path()).replace("encoder = \"sum\"", "encoder = \"concat\"");
    refused(&text, &["encoder = \"concat\" here", "code.encoder = \"sum\""]);
}

#[test]
fn values_out_of_range_are_named() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(&[9001]), "");
    for (from, to, field) in [
        ("max_body_bytes = 100000", "max_body_bytes = 0", "server.max_body_bytes"),
        ("instances = [\"127.0.0.1:9001\"]", "instances = []", "models[0].instances"),
        ("instances = [\"127.0.0.1:9001\"]", "instances = [\"nowhere\"]", "models[0].instances[0]"),
        (
            "instances = [\"127.0.0.1:9001\"]",
            "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9001\"]",
            "models[0].instances[1]",
        ),
        ("name = \"linear\"", "name = \"linear\"\nmax_attempts = 0", "models[0].max_attempts"),
        ("name = \"linear\"", "name = \"linear\"\ntimeout_ms = 0", "models[0].timeout_ms"),
        ("name = \"linear\"", "name = \"linear\"\nmax_timeout_ms = 10", "models[0].max_timeout_ms"),
        ("name = \"linear\"", "name = \"linear\"\nversion = 7", "models[0].version"),
        ("interval_ms = 200", "interval_ms = 0", "models[0].health.interval_ms"),
    ] {
        let text = base.replace(from, to);
        assert_ne!(text, base, "{from} is not in the base");
        refused(&text, &["parapet.toml", field]);
    }
    let hold_back = coded(repository.path()).replace("fixed_ms = 30", "percentile = 1.5");
    refused(&hold_back, &["hold_back.percentile", "0.5 to below 1"]);
    let both = coded(repository.path()).replace("fixed_ms = 30", "fixed_ms = 30, percentile = 0.9");
    refused(&both, &["hold_back", "one or the other"]);
}

#[test]
fn every_strategy_is_configured() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let parity = "encoder = \"sum\"\nk = 2\n[[models.strategy.parity]]\nmodel = \"linear-parity\"\n\
                  instances = [\"127.0.0.1:9101\"]";
    let strategies = [
        ("none", String::new()),
        ("equal_resources", "instances = [\"127.0.0.1:9003\"]".to_owned()),
        ("replicate", String::new()),
        ("hedge", "delay = { percentile = 0.95, min_ms = 1, max_ms = 50 }".to_owned()),
        ("approximate_backup", "model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]".to_owned()),
        ("coded", parity.to_owned()),
        ("coded_hedged", parity.to_owned()),
        ("interpolated", "k = 2".to_owned()),
    ];
    for (kind, rest) in &strategies {
        let text = strategy_toml(
            repository.path(),
            &addresses(&[9001, 9002, 9004]),
            &format!("kind = \"{kind}\"\n{rest}"),
        );
        let model = config(&text).unwrap_or_else(|error| panic!("{kind}: {error}")).models.remove(0);
        assert_eq!(model.classes[0].strategy.name(), *kind);
        assert_eq!(model.pool.instances.len(), if *kind == "equal_resources" { 4 } else { 3 });
    }
}

#[test]
fn classes_have_strategies_and_pools_of_their_own() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let batch = "[[models.classes]]\nname = \"batch\"\n[models.classes.strategy]\nkind = \"approximate_backup\"\n\
                 model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]\n";
    let text = coded(repository.path()) + batch;
    let model = config(&text).unwrap().models.remove(0);
    let labels: Vec<&str> = model.redundant.iter().map(|pool| pool.label.as_str()).collect();
    assert_eq!(labels, ["parity0", "batch-backup"]);
    refused(&text.replace("\"batch\"", "\"default\""), &["models[0].classes[0].name", "a name of its own"]);
    let equal = coded(repository.path())
        + "[[models.classes]]\nname = \"x\"\n[models.classes.strategy]\nkind = \"equal_resources\"\ninstances = []\n";
    refused(&equal, &["models[0].classes[0].strategy.kind", "share the deployed model's instances"]);
}

#[test]
fn mistakes_in_a_strategy_are_named() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let two = [9001, 9002];
    let backup = |model: &str| {
        format!("kind = \"approximate_backup\"\nmodel = \"{model}\"\ninstances = [\"127.0.0.1:9201\"]")
    };
    let cases: [(&[u16], String, &[&str]); 13] = [
        (&two, "kind = \"replicate\"\ncopies = 3".to_owned(), &["strategy.copies", "2 instances"]),
        (&two, "kind = \"replicate\"\ncopies = 1".to_owned(), &["strategy.copies", "at least 2"]),
        (&two, "kind = \"replicate\"\nburst = 0.5".to_owned(), &["strategy.burst", "copies - 1"]),
        (&[9001], "kind = \"hedge\"".to_owned(), &["strategy.kind", "second instance", "add an instance"]),
        (&two, "kind = \"hedge\"\nmax_copies = 2".to_owned(), &["strategy.max_copies", "at most 1"]),
        (&two, "kind = \"hedge\"\nshare = 99".to_owned(), &["strategy.share"]),
        (&two, "kind = \"hedge\"\ndelay = { percentile = 2 }".to_owned(), &["strategy.delay.percentile"]),
        (
            &two,
            "kind = \"hedge\"\ndelay = { max_over_median = 0.5 }".to_owned(),
            &["strategy.delay.max_over_median", "from 1"],
        ),
        (&two, backup("nothing"), &["strategy.model", "nothing"]),
        (&two, backup("linear"), &["strategy.model", "the deployed model itself"]),
        (&two, backup("linear-parity"), &["strategy.model", "is a parity model"]),
        (
            &two,
            "kind = \"equal_resources\"\ninstances = [\"127.0.0.1:9002\"]".to_owned(),
            &["strategy.instances[0]", "already"],
        ),
        (&two, format!("{}\nslots_per_instance = 0", backup("cheap")), &["strategy.slots_per_instance"]),
    ];
    for (ports, strategy, parts) in cases {
        refused(&strategy_toml(repository.path(), &addresses(ports), &strategy), parts);
    }
    let hedged = coded(repository.path()).replace("k = 2", "k = 2\nhedge = { share = 0.1 }");
    refused(&hedged, &["strategy.hedge", "use kind = \"coded_hedged\""]);
    let toml = repository.path().join("cheap/model.toml");
    let text = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, text.replace("shape = [3]", "shape = [2]")).unwrap();
    refused(
        &strategy_toml(repository.path(), &addresses(&two), &backup("cheap")),
        &["strategy.model", "cheap/model.toml", "other names or shapes"],
    );
}

#[test]
fn the_examples_in_the_documentation_are_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/strategies.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 8, "one for each strategy but none, and one for classes");
    for example in examples {
        let example = example.replace("fashion-parity", "linear-parity").replace("fashion-small", "cheap");
        config(&strategy_toml(repository.path(), &addresses(&[9001, 9002, 9003, 9004, 9005]), &example))
            .unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

#[test]
fn every_field_is_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/frontend.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    let toml = coded(repository.path());
    let model = toml.replacen("[[models]]", "[[models]]\nno_such_field = 1", 1);
    let health = toml.replacen("[models.health]", "[models.health]\nno_such_field = 1", 1);
    let server = format!("[server]\nno_such_field = 1\n{}", toml.replacen("[server]", "", 1));
    for (wrong, fields) in [(server, 12), (model, 14), (health, 6)] {
        let error = config(&wrong).unwrap_err().to_string();
        let expected = error.split("expected one of").nth(1).unwrap_or_else(|| panic!("{error}"));
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(names.len(), fields, "{names:?}");
        for name in names {
            assert!(text.contains(&format!("| `{name}` |")), "{name} is not in docs/frontend.md");
        }
    }
}

#[test]
fn the_configuration_of_the_demo_is_sound_but_for_its_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/local/parapet.toml");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    // The demo trains its models; everything up to looking them up must hold.
    let text = text.replace("../../.parapet/demo/models", repository.path().to_str().unwrap());
    refused(&text, &["models[0].name", "no model \"fashion\""]);
}
