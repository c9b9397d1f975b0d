//! Mistakes in a configuration or a model repository stop the start with one line that names file,
//! field and fix.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use parapet_frontend_core::StrategyConfig;
use parapet_net::test_certificates::{authority, identity};
use support::{
    add_model, add_parity_model, coded_toml, config, plain_toml, repository, strategy_toml,
};

fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
    ports
        .iter()
        .map(|&port| SocketAddr::from(([127, 0, 0, 1], port)))
        .collect()
}

fn coded(repository: &Path) -> String {
    coded_toml(
        repository,
        &addresses(&[9001, 9002]),
        &addresses(&[9101]),
        "",
    )
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
fn an_instance_takes_by_default_what_a_frontend_takes_by_default() {
    let repository = repository();
    let text = coded(repository.path()).replace("max_body_bytes = 100000\n", "");
    let frontend = config(&text).unwrap();
    let settings = parapet_models::config::Settings {
        repository: Some(repository.path().to_owned()),
        model: Some(vec!["linear".parse().unwrap()]),
        ..Default::default()
    };
    let instance = parapet_models::Config::new(settings).unwrap();
    assert_eq!(frontend.models[0].max_rows, instance.batch.max_rows);
    assert_eq!(frontend.server.max_body_bytes, instance.max_body_bytes);
}

#[test]
fn broken_toml_names_the_line() {
    refused("[server\n", &["parapet.toml: line 1"]);
    let repository = repository();
    let text = coded(repository.path()).replace("max_body_bytes", "max_body_bites");
    refused(&text, &["parapet.toml: line 3", "max_body_bites"]);
    let text = coded(repository.path()).replace("kind = \"coded\"", "kind = \"magic\"");
    refused(
        &text,
        &[
            "parapet.toml: line",
            "magic",
            "replicate",
            "approximate_backup",
            "coded_hedged",
        ],
    );
}

#[test]
fn a_missing_parity_model_is_named() {
    let repository = repository();
    fs::remove_dir_all(repository.path().join("linear-parity")).unwrap();
    refused(
        &coded(repository.path()),
        &[
            "models[0].strategy.parity[0].model",
            "no model \"linear-parity\"",
            "add",
        ],
    );
}

#[test]
fn a_missing_repository_is_named() {
    let text = coded(Path::new("/nowhere/at/all"));
    refused(
        &text,
        &["repository.path", "/nowhere/at/all", "not a folder"],
    );
}

#[test]
fn a_k_that_differs_from_the_parity_models_is_named() {
    let repository = repository();
    add_parity_model(repository.path(), "linear-parity", 3);
    refused(
        &coded(repository.path()),
        &[
            "models[0].strategy.parity[0].model",
            "k = 2 here",
            "code.k = 3 in",
            "model.toml",
            "set k = 3",
        ],
    );
}

#[test]
fn a_deployed_model_is_no_parity_model() {
    let repository = repository();
    add_model(repository.path(), "linear-parity", None);
    refused(
        &coded(repository.path()),
        &["is no parity model", "no [code]", "name a parity model"],
    );
}

#[test]
fn an_encoder_that_does_not_fit_is_named() {
    let repository = repository();
    let text = coded(repository.path()).replace("encoder = \"sum\"", "encoder = \"concat\"");
    refused(
        &text,
        &["encoder = \"concat\" here", "code.encoder = \"sum\""],
    );
}

#[test]
fn values_out_of_range_are_named() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(&[9001]), "");
    for (from, to, field) in [
        (
            "max_body_bytes = 100000",
            "max_body_bytes = 0",
            "server.max_body_bytes",
        ),
        (
            "max_body_bytes = 100000",
            "max_body_bytes = 100000\nmax_bodies_bytes = 99999",
            "server.max_bodies_bytes",
        ),
        (
            "max_body_bytes = 100000",
            "max_connections_per_peer = 0",
            "server.max_connections_per_peer",
        ),
        (
            "instances = [\"127.0.0.1:9001\"]",
            "instances = []",
            "models[0].instances",
        ),
        (
            "instances = [\"127.0.0.1:9001\"]",
            "instances = [\"nowhere\"]",
            "models[0].instances[0]",
        ),
        (
            "instances = [\"127.0.0.1:9001\"]",
            "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9001\"]",
            "models[0].instances[1]",
        ),
        (
            "name = \"linear\"",
            "name = \"linear\"\nmax_attempts = 0",
            "models[0].max_attempts",
        ),
        (
            "name = \"linear\"",
            "name = \"linear\"\ntimeout_ms = 0",
            "models[0].timeout_ms",
        ),
        (
            "name = \"linear\"",
            "name = \"linear\"\nmax_timeout_ms = 10",
            "models[0].max_timeout_ms",
        ),
        (
            "name = \"linear\"",
            "name = \"linear\"\nversion = 7",
            "models[0].version",
        ),
        (
            "interval_ms = 200",
            "interval_ms = 0",
            "models[0].health.interval_ms",
        ),
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
fn every_field_is_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/frontend.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    let toml = coded(repository.path());
    let model = toml.replacen("[[models]]", "[[models]]\nno_such_field = 1", 1);
    let health = toml.replacen("[models.health]", "[models.health]\nno_such_field = 1", 1);
    let server = format!(
        "[server]\nno_such_field = 1\n{}",
        toml.replacen("[server]", "", 1)
    );
    let admin = format!("[admin]\nno_such_field = 1\n{toml}");
    let tenants = format!("[[tenants]]\nno_such_field = 1\n{toml}");
    for (wrong, fields) in [
        (server, 20),
        (model, 16),
        (health, 9),
        (admin, 3),
        (tenants, 5),
    ] {
        let error = config(&wrong).unwrap_err().to_string();
        let expected = error
            .split("expected one of")
            .nth(1)
            .unwrap_or_else(|| panic!("{error}"));
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(names.len(), fields, "{names:?}");
        for name in names {
            assert!(
                text.contains(&format!("| `{name}` |")),
                "{name} is not in docs/frontend.md"
            );
        }
    }
}

/// SHA-256 of "abc".
const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn tenants_and_the_admin_listener_are_configured() {
    let repository = repository();
    let access = format!(
        "[admin]\nlisten = \"0.0.0.0:8081\"\nkey_sha256 = [\"{HASH}\"]\n\
         [[tenants]]\nname = \"a\"\nkey_sha256 = [\"{HASH}\"]\nrequests_per_second = 5\n\
         [[tenants]]\nname = \"b\"\nkey_sha256 = [\"{}\"]\nmay_mix = true\n",
        HASH.replace('b', "c")
    );
    let text = format!("{access}{}", coded(repository.path()));
    let config = config(&text).unwrap();
    let quotas: Vec<_> = config
        .tenants
        .iter()
        .map(|tenant| (tenant.quota, tenant.may_mix))
        .collect();
    assert_eq!(quotas, [(Some((5.0, 5.0)), false), (None, true)]);
    assert_eq!(config.admin.unwrap().listen.port(), 8081);

    let cases: [(&str, &str, &[&str]); 12] = [
        (
            "key_sha256 = [\"ba",
            "key_sha256 = [] # ",
            &["admin.listen", "reached from other machines"],
        ),
        (
            "0.0.0.0:8081",
            "127.0.0.1:0\"\ntls = { certificate = \"a.crt\", key = \"a.key\" } #",
            &["admin.tls", "a.crt"],
        ),
        (
            "key_sha256 = [\"ba",
            "key_sha256 = [\"secret",
            &["admin.key_sha256[0]", "hash-key"],
        ),
        (
            "name = \"b\"",
            "name = \"a\"",
            &["tenants[1].name", "there twice"],
        ),
        (
            "name = \"b\"",
            "name = \"b c\"",
            &["tenants[1].name", "letters"],
        ),
        ("name = \"b\"", "name = \"\"", &["tenants[1].name"]),
        ("[\"ca", "[] # ", &["tenants[1].key_sha256", "no key"]),
        ("[\"ca", "[\"xx", &["tenants[1].key_sha256[0]"]),
        (
            "requests_per_second = 5",
            "requests_per_second = 0",
            &["tenants[0].requests_per_second"],
        ),
        (
            "requests_per_second = 5",
            "requests_per_second = 5\nburst = 0.5",
            &["tenants[0].burst"],
        ),
        (
            "requests_per_second = 5",
            "burst = 5",
            &["tenants[0].burst", "no requests_per_second"],
        ),
        ("may_mix = true", "may_mix = 1", &["line"]),
    ];
    for (from, to, parts) in cases {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from} is not in the text");
        refused(&wrong, parts);
        let error = support::config(&wrong).unwrap_err().to_string();
        assert!(
            !error.contains("secret"),
            "what may be a key is not repeated: {error}"
        );
    }
    let same = text.replace(&HASH.replace('b', "c"), HASH);
    refused(&same, &["tenants[1].key_sha256", "another tenant"]);
}

#[test]
fn the_configuration_of_the_demo_is_sound_but_for_its_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/local/parapet.toml");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    // The demo trains its models; everything up to looking them up must hold.
    let text = text.replace(
        "../../.parapet/demo/models",
        repository.path().to_str().unwrap(),
    );
    refused(&text, &["models[0].name", "no model \"fashion\""]);
}
