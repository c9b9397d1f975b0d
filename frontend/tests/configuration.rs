//! Mistakes in a configuration or a model repository stop the start with one line that names file,
//! field and fix.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

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
fn every_strategy_is_configured() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let parity = "encoder = \"sum\"\nk = 2\n[[models.strategy.parity]]\nmodel = \"linear-parity\"\n\
                  instances = [\"127.0.0.1:9101\"]";
    let strategies = [
        ("none", String::new()),
        ("replicate", String::new()),
        (
            "hedge",
            "delay = { percentile = 0.95, min_ms = 1, max_ms = 50 }".to_owned(),
        ),
        (
            "approximate_backup",
            "model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]".to_owned(),
        ),
        ("coded", parity.to_owned()),
        ("coded_hedged", parity.to_owned()),
    ];
    for (kind, rest) in &strategies {
        let text = strategy_toml(
            repository.path(),
            &addresses(&[9001, 9002, 9004]),
            &format!("kind = \"{kind}\"\n{rest}"),
        );
        let model = config(&text)
            .unwrap_or_else(|error| panic!("{kind}: {error}"))
            .models
            .remove(0);
        assert_eq!(model.classes[0].strategy.name(), *kind);
        assert_eq!(model.pool.instances.len(), 3);
    }
}

#[test]
fn classes_have_strategies_and_pools_of_their_own() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let batch = "[[models.classes]]\nname = \"batch\"\n[models.classes.strategy]\nkind = \
        \"approximate_backup\"\n\
                 model = \"cheap\"\ninstances = [\"127.0.0.1:9201\"]\n";
    let text = coded(repository.path()) + batch;
    let model = config(&text).unwrap().models.remove(0);
    let labels: Vec<&str> = model
        .redundant
        .iter()
        .map(|pool| pool.label.as_str())
        .collect();
    assert_eq!(labels, ["parity0", "batch-backup"]);
    refused(
        &text.replace("\"batch\"", "\"default\""),
        &["models[0].classes[0].name", "a name of its own"],
    );
}

#[test]
fn mistakes_in_a_strategy_are_named() {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let two = [9001, 9002];
    let backup = |model: &str| {
        format!(
            "kind = \"approximate_backup\"\nmodel = \"{model}\"\ninstances = [\"127.0.0.1:9201\"]"
        )
    };
    let cases: [(&[u16], String, &[&str]); 13] = [
        (
            &two,
            "kind = \"replicate\"\ncopies = 3".to_owned(),
            &["strategy.copies", "2 instances"],
        ),
        (
            &two,
            "kind = \"replicate\"\ncopies = 1".to_owned(),
            &["strategy.copies", "at least 2"],
        ),
        (
            &two,
            "kind = \"replicate\"\nburst = 0.5".to_owned(),
            &["strategy.burst", "copies - 1"],
        ),
        (
            &[9001],
            "kind = \"hedge\"".to_owned(),
            &["strategy.kind", "second instance", "add an instance"],
        ),
        (
            &two,
            "kind = \"hedge\"\nmax_copies = 2".to_owned(),
            &["strategy.max_copies", "at most 1"],
        ),
        (
            &two,
            "kind = \"hedge\"\nshare = 99".to_owned(),
            &["strategy.share"],
        ),
        (
            &two,
            "kind = \"hedge\"\ndelay = { percentile = 2 }".to_owned(),
            &["strategy.delay.percentile"],
        ),
        (
            &two,
            "kind = \"hedge\"\ndelay = { max_over_median = 0.5 }".to_owned(),
            &["strategy.delay.max_over_median", "from 1"],
        ),
        (&two, backup("nothing"), &["strategy.model", "nothing"]),
        (
            &two,
            backup("linear"),
            &["strategy.model", "the deployed model itself"],
        ),
        (
            &two,
            backup("linear-parity"),
            &["strategy.model", "is a parity model"],
        ),
        (
            &two,
            "kind = \"hedge\"\ninstances = [\"127.0.0.1:9002\"]".to_owned(),
            &["unknown field `instances`"],
        ),
        (
            &two,
            format!("{}\nslots_per_instance = 0", backup("cheap")),
            &["strategy.slots_per_instance"],
        ),
    ];
    for (ports, strategy, parts) in cases {
        refused(
            &strategy_toml(repository.path(), &addresses(ports), &strategy),
            parts,
        );
    }
    let hedged = coded(repository.path()).replace("k = 2", "k = 2\nhedge = { share = 0.1 }");
    refused(&hedged, &["strategy.hedge", "use kind = \"coded_hedged\""]);
    let toml = repository.path().join("cheap/model.toml");
    let text = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, text.replace("shape = [3]", "shape = [2]")).unwrap();
    refused(
        &strategy_toml(repository.path(), &addresses(&two), &backup("cheap")),
        &[
            "strategy.model",
            "cheap/model.toml",
            "other names or shapes",
        ],
    );
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
        text.replacen(
            "audit_every = 1",
            &format!("audit_every = 1\nmax_keys = {keys}"),
            1,
        )
    };
    assert_eq!(max_keys(&with("3")), 3);
    let error = config(&with("0")).unwrap_err().to_string();
    assert!(error.contains("strategy.max_keys: 0"), "{error}");
}

#[test]
fn the_examples_in_the_documentation_are_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/strategies.md");
    let text = fs::read_to_string(path).unwrap();
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(
        examples.len(),
        6,
        "one for each strategy but none, and one for classes"
    );
    for example in examples {
        let example = example
            .replace("fashion-parity", "linear-parity")
            .replace("fashion-small", "cheap");
        config(&strategy_toml(
            repository.path(),
            &addresses(&[9001, 9002, 9003, 9004, 9005]),
            &example,
        ))
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
fn instances_are_reached_by_tls_or_not() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(&[9001, 9002]), "");
    let secure = base
        .replace("\"127", "\"https://127")
        .replace("listen = \"https://", "listen = \"");
    refused(&secure, &["models[0].tls", "name the authority"]);
    let tls = |text: &str, tls: &str| {
        text.replacen(
            "name = \"linear\"",
            &format!("name = \"linear\"\ntls = {tls}"),
            1,
        )
    };
    refused(
        &tls(&base, "{ ca = \"ca.pem\" }"),
        &[
            "models[0].tls",
            "no instance is an https:// or grpcs:// one",
        ],
    );
    refused(
        &tls(&secure, "{ ca = \"nowhere.pem\" }"),
        &["models[0].tls", "nowhere.pem"],
    );
    refused(
        &tls(&secure, "{ key = \"a.key\" }"),
        &["parapet.toml: line", "missing field `ca`"],
    );
    refused(
        &tls(&secure, "{ ca = \"ca.pem\", key = \"a.key\" }"),
        &["models[0].tls", "both or neither"],
    );

    let (issuer, ca) = authority(repository.path(), "ca");
    let own = identity(repository.path(), "own", &issuer);
    let given = |more: &str| format!("{{ ca = {ca:?}{more} }}");
    refused(
        &tls(&secure, &given(", server_name = \"a b\"")),
        &["models[0].tls: \"a b\" is neither", "without a port"],
    );
    let swapped = format!(", certificate = {:?}, key = {:?}", own.key, own.certificate);
    refused(
        &tls(&secure, &given(&swapped)),
        &["models[0].tls", "no certificate in PEM form"],
    );
    let mixed = tls(
        &base.replace("\"127.0.0.1:9002", "\"grpcs://127.0.0.1:9002"),
        &given(""),
    );
    let mixed = config(&mixed).unwrap().models.remove(0).pool;
    let names: Vec<&str> = mixed
        .instances
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["127.0.0.1:9001", "grpcs://127.0.0.1:9002"]);
    assert!(mixed.tls.is_some());
}

/// Pools have the model's certificates, or their own.
#[test]
fn pools_have_certificates_of_their_own_or_the_models() {
    let repository = repository();
    let (_, ca) = authority(repository.path(), "ca");
    let (_, other) = authority(repository.path(), "other");
    let text = coded(repository.path());
    let parity = "[[models.strategy.parity]]\n";
    let with = |model: Option<&Path>, own: Option<&Path>| {
        let table = |ca: &Path| format!("tls = {{ ca = {ca:?} }}\n");
        let secure = text.replace("\"127.0.0.1:", "\"https://127.0.0.1:");
        let secure = secure.replace("listen = \"https://", "listen = \"");
        secure
            .replacen(
                "name = \"linear\"\n",
                &format!(
                    "name = \"linear\"\n{}",
                    model.map(table).unwrap_or_default()
                ),
                1,
            )
            .replacen(
                parity,
                &format!("{parity}{}", own.map(table).unwrap_or_default()),
                1,
            )
    };
    let cas = |text: &str| {
        let model = config(text).unwrap().models.remove(0);
        let ca = |pool: &parapet_frontend::config::PoolSettings| {
            pool.tls.as_ref().unwrap().files().ca.clone()
        };
        (ca(&model.pool), ca(&model.redundant[0].pool))
    };
    assert_eq!(cas(&with(Some(&ca), None)), (ca.clone(), ca.clone()));
    assert_eq!(
        cas(&with(Some(&ca), Some(&other))),
        (ca.clone(), other.clone())
    );
    refused(
        &with(None, Some(&other)),
        &["models[0].tls", "name the authority"],
    );
    let nowhere = repository.path().join("nowhere.pem");
    refused(
        &with(Some(&ca), Some(&nowhere)),
        &["models[0].strategy.parity[0].tls", "nowhere.pem"],
    );
}

/// Instances that are discovered speak what the configuration says, and etcd's members are asked
/// as it says.
#[test]
fn discovery_within_tls() {
    let repository = repository();
    let (_, ca) = authority(repository.path(), "ca");
    let text = coded(repository.path());
    let with = |instances: &str, more: &str| {
        text.replace(
            "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9002\"]",
            &format!("instances = {instances}\n{more}"),
        )
    };
    let tls = format!("tls = {{ ca = {ca:?}, server_name = \"replicas.example\" }}");
    let dns = "{ dns = \"replicas.example\", port = 9001, scheme = \"grpcs\" }";
    refused(&with(dns, ""), &["models[0].tls", "name the authority"]);
    assert!(
        config(&with(dns, &tls)).unwrap().models[0]
            .pool
            .tls
            .is_some()
    );
    refused(
        &with(&dns.replace("grpcs", "grpc"), &tls),
        &["models[0].tls", "scheme = \"https\""],
    );
    let etcd = |ca: &Path| {
        format!(
            "{{ etcd = {{ endpoints = [\"https://a:1\"], prefix = \"/r/\", tls = {{ ca = {ca:?} }} }} }}"
        )
    };
    config(&with(&etcd(&ca), "")).unwrap();
    let nowhere = repository.path().join("nowhere.pem");
    refused(
        &with(&etcd(&nowhere), ""),
        &["models[0].instances.etcd.tls", "nowhere.pem"],
    );
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

#[test]
fn instances_that_are_discovered() {
    let repository = repository();
    let listed = "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9002\"]";
    let text = coded(repository.path());
    assert!(text.contains(listed));
    let with = |instances: &str| text.replace(listed, &format!("instances = {instances}"));
    let model = config(&with("{ dns = \"replicas.example\", port = 9001 }"))
        .unwrap()
        .models
        .remove(0);
    assert!(model.pool.instances.is_empty() && model.pool.discovery.is_some());
    refused(
        &with("{ dns = \"replicas.example\" }"),
        &["models[0].instances.port", "name no port", "give"],
    );
    refused(
        &with("{ etcd = { endpoints = [], prefix = \"/r/\" } }"),
        &["models[0].instances.etcd.endpoints: none"],
    );
    refused(
        &with("{ consul = \"replicas\" }"),
        &["parapet.toml: line", "unknown field", "consul"],
    );
    refused(
        &with("\"127.0.0.1:9001\""),
        &[
            "parapet.toml: line",
            "a list of addresses, or a table with one of dns",
        ],
    );
    refused(&with("[]"), &["models[0].instances", "none"]);

    // How many there will be is not known when the strategy is checked.
    let hedge = |instances: &str| {
        strategy_toml(repository.path(), &[], "kind = \"hedge\"")
            .replace("instances = []", instances)
    };
    refused(
        &hedge("instances = [\"127.0.0.1:9001\"]"),
        &["a second instance"],
    );
    config(&hedge(
        "instances = { srv = \"_oip._tcp.replicas.example\" }",
    ))
    .unwrap();
}
