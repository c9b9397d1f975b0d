//! Mistakes in a configuration or a model repository stop the start with one line that names file,
//! field and fix.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use std::fs;
use std::path::Path;

use parapet_frontend_core::StrategyConfig;
use parapet_net::test_certificates::{authority, identity};
use support::*;

fn coded(repository: &Path) -> String {
    coded_toml(repository, &addresses(2, 9001), &addresses(1, 9101), "")
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
    let max_rows = frontend.models[0].settings.max_rows;
    assert_eq!(max_rows, instance.batch.max_rows);
    assert_eq!(frontend.server.max_body_bytes, instance.max_body_bytes);
}

#[test]
fn broken_toml_names_the_line() {
    refused("[server\n", &["parapet.toml: line 1"]);
    let repository = repository();
    let mistakes = r#"
        max_body_bytes => max_body_bites => parapet.toml: line 3 & max_body_bites
        kind = "coded" => kind = "magic" => parapet.toml: line & magic & replicate & approximate_backup & coded_hedged
    "#;
    replacements_are_refused(&coded(repository.path()), mistakes);
}

#[test]
fn entries_that_do_not_fit_are_named() {
    let repository = repository();
    let text = coded(repository.path());
    let concat = r#""sum" => "concat" => encoder = "concat" here & code.encoder = "sum""#;
    replacements_are_refused(&text, concat);
    let model = "models[0].strategy.parity[0].model";
    add_parity_row(repository.path(), "linear-parity", 0, sum(3, 1));
    let parts = "k = 2 here & code.k = 3 in & model.toml & set k = 3";
    refused_with(&text, &format!("{model} & {parts}"));
    add_model(repository.path(), "linear-parity", None);
    let parts = ["is no parity model", "no [code]", "name a parity model"];
    refused(&text, &parts);
    fs::remove_dir_all(repository.path().join("linear-parity")).unwrap();
    refused(&text, &[model, "no model \"linear-parity\"", "add"]);
    let nowhere = "/nowhere/at/all";
    let parts = ["repository.path", nowhere, "not a folder"];
    refused(&coded(Path::new(nowhere)), &parts);
}

#[test]
fn values_out_of_range_are_named() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(1, 9001), "");
    let mistakes = r#"
        max_body_bytes = 100000 => max_body_bytes = 0 => server.max_body_bytes
        max_body_bytes = 100000 => max_body_bytes = 9\nmax_bodies_bytes = 8 => server.max_bodies_bytes
        max_body_bytes = 100000 => max_connections_per_peer = 0 => server.max_connections_per_peer
        [server] => [server]\ngrpc_listen = "localhost" => server.grpc_listen
        ["127.0.0.1:9001"] => [] => models[0].instances
        ["127.0.0.1:9001"] => ["nowhere"] => models[0].instances[0]
        ["127.0.0.1:9001"] => ["127.0.0.1:9001", "127.0.0.1:9001"] => models[0].instances[1]
        name = "linear" => name = "linear"\nmax_attempts = 0 => models[0].max_attempts
        name = "linear" => name = "linear"\ntimeout_ms = 0 => models[0].timeout_ms
        name = "linear" => name = "linear"\nmax_timeout_ms = 10 => models[0].max_timeout_ms
        name = "linear" => name = "linear"\nversion = 7 => models[0].version
        interval_ms = 200 => interval_ms = 0 => models[0].health.interval_ms
    "#;
    for [from, to, field] in rows(mistakes) {
        let wrong = base.replacen(&from, &to, 1);
        refused(&wrong, &["parapet.toml", &field]);
    }
    let mistakes = r#"
        fixed_ms = 30 => percentile = 1.5 => hold_back.percentile & 0.5 to below 1
        fixed_ms = 30 => fixed_ms = 30, percentile = 0.9 => hold_back & one or the other
    "#;
    replacements_are_refused(&coded(repository.path()), mistakes);
}

#[test]
fn every_field_is_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/frontend.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    let toml = coded(repository.path());
    for (table, fields) in [
        ("[server]", 19),
        ("[[models]]", 16),
        ("[models.health]", 9),
        ("[admin]", 3),
        ("[[tenants]]", 5),
    ] {
        let wrong = format!("{table}\nno_such_field = 1");
        let wrong = match toml.contains(table) {
            true => toml.replacen(table, &wrong, 1),
            false => format!("{wrong}\n{toml}"),
        };
        let error = config(&wrong).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected one of").unwrap();
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(names.len(), fields, "{names:?}");
        for name in names {
            let row = format!("| `{name}` |");
            assert!(text.contains(&row), "{name} is not in docs/frontend.md");
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
    let tenants = config.tenants.iter();
    let quotas: Vec<_> = tenants.map(|tenant| (tenant.quota, tenant.may_mix)).collect();
    assert_eq!(quotas, [(Some((5.0, 5.0)), false), (None, true)]);
    assert_eq!(config.admin.unwrap().listen.port(), 8081);

    let secret = ("key_sha256 = [\"ba", "key_sha256 = [\"secret");
    let mistakes = r#"
        key_sha256 = ["ba => key_sha256 = [] # => admin.listen & reached from other machines
        0.0.0.0:8081 => 127.0.0.1:0"\ntls = { certificate = "a.crt", key = "a.key" } # => admin.tls & a.crt
        key_sha256 = ["ba => key_sha256 = ["secret => admin.key_sha256[0] & hash-key
        name = "b" => name = "a" => tenants[1].name & there twice
        name = "b" => name = "b c" => tenants[1].name & letters
        name = "b" => name = "" => tenants[1].name
        ["ca => [] # => tenants[1].key_sha256 & no key
        ["ca => ["xx => tenants[1].key_sha256[0]
        requests_per_second = 5 => requests_per_second = 0 => tenants[0].requests_per_second
        requests_per_second = 5 => requests_per_second = 5\nburst = 0.5 => tenants[0].burst
        requests_per_second = 5 => burst = 5 => tenants[0].burst & no requests_per_second
        may_mix = true => may_mix = 1 => line
    "#;
    replacements_are_refused(&text, mistakes);
    let wrong = support::config(&text.replacen(secret.0, secret.1, 1));
    let error = wrong.unwrap_err().to_string();
    assert!(!error.contains("secret"), "a key is repeated: {error}");
    let same = text.replace(&HASH.replace('b', "c"), HASH);
    refused(&same, &["tenants[1].key_sha256", "another tenant"]);
}

#[test]
fn the_configuration_of_the_demo_is_sound_but_for_its_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/local/parapet.toml");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    // The demo trains its models; everything but what they say must hold.
    let models = repository.path().to_str().unwrap();
    let text = text.replace("../../.parapet/demo/models", models);
    let config = config(&text).unwrap();
    assert_eq!(config.undescribed().collect::<Vec<_>>(), ["fashion"]);
}
