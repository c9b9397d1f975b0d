//! Mistakes in a configuration or a model repository stop the start with one line that names file, field and fix.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use support::{add_model, add_parity_model, coded_toml, config, plain_toml, repository};

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
    refused(&text, &["parapet.toml: line", "magic"]);
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
fn the_configuration_of_the_demo_is_sound_but_for_its_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/local/parapet.toml");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    // The demo trains its models; everything up to looking them up must hold.
    let text = text.replace("../../.parapet/demo/models", repository.path().to_str().unwrap());
    refused(&text, &["models[0].name", "no model \"fashion\""]);
}
