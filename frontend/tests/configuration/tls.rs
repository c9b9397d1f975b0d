//! Pools within TLS and pools that are discovered, and their mistakes.

use super::*;

const LISTED: &str = "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9002\"]";

fn with_tls(text: &str, tls: &str) -> String {
    text.replacen(
        "name = \"linear\"",
        &format!("name = \"linear\"\ntls = {tls}"),
        1,
    )
}

#[test]
fn instances_are_reached_by_tls_or_not() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(2, 9001), "");
    let secure = with_scheme(&base, "https");
    refused(&secure, &["models[0].tls", "name the authority"]);
    let unused = [
        "models[0].tls",
        "no instance is an https:// or grpcs:// one",
    ];
    refused(&with_tls(&base, "{ ca = \"ca.pem\" }"), &unused);

    let (issuer, ca) = authority(repository.path(), "ca");
    let own = identity(repository.path(), "own", &issuer);
    let (certificate, key) = (&own.certificate, &own.key);
    let swapped = format!("{{ ca = {ca:?}, certificate = {key:?}, key = {certificate:?} }}");
    let misnamed = format!("{{ ca = {ca:?}, server_name = \"a b\" }}");
    let cases: [(&str, &[&str]); 5] = [
        (
            "{ ca = \"nowhere.pem\" }",
            &["models[0].tls", "nowhere.pem"],
        ),
        (
            "{ key = \"a.key\" }",
            &["parapet.toml: line", "missing field `ca`"],
        ),
        (
            "{ ca = \"ca.pem\", key = \"a.key\" }",
            &["models[0].tls", "both or neither"],
        ),
        (
            &misnamed,
            &["models[0].tls: \"a b\" is neither", "without a port"],
        ),
        (&swapped, &["models[0].tls", "no certificate in PEM form"]),
    ];
    for (tls, parts) in cases {
        refused(&with_tls(&secure, tls), parts);
    }
    let mixed = base.replace("\"127.0.0.1:9002", "\"grpcs://127.0.0.1:9002");
    let mixed = config(&with_tls(&mixed, &format!("{{ ca = {ca:?} }}"))).unwrap();
    let pool = &mixed.models[0].pool;
    let names: Vec<&str> = pool
        .instances
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["127.0.0.1:9001", "grpcs://127.0.0.1:9002"]);
    assert!(pool.tls.is_some());
}

#[test]
fn pools_have_certificates_of_their_own_or_the_models() {
    let repository = repository();
    let (_, ca) = authority(repository.path(), "ca");
    let (_, other) = authority(repository.path(), "other");
    let text = with_scheme(&coded(repository.path()), "https");
    let with = |model: Option<&Path>, own: Option<&Path>| {
        let table = |ca: Option<&Path>| ca.map(|ca| format!("tls = {{ ca = {ca:?} }}\n"));
        let mut text = text.clone();
        for (place, ca) in [
            ("name = \"linear\"\n", model),
            ("[[models.strategy.parity]]\n", own),
        ] {
            let table = table(ca).unwrap_or_default();
            text = text.replacen(place, &format!("{place}{table}"), 1);
        }
        text
    };
    let cas = |text: &str| {
        let model = config(text).unwrap().models.remove(0);
        let pools = model
            .pools()
            .map(|pool| pool.tls.as_ref().unwrap().files().ca.clone());
        pools.collect::<Vec<_>>()
    };
    assert_eq!(cas(&with(Some(&ca), None)), [ca.clone(), ca.clone()]);
    assert_eq!(
        cas(&with(Some(&ca), Some(&other))),
        [ca.clone(), other.clone()]
    );
    refused(
        &with(None, Some(&other)),
        &["models[0].tls", "name the authority"],
    );
    let nowhere = repository.path().join("nowhere.pem");
    let parts = ["models[0].strategy.parity[0].tls", "nowhere.pem"];
    refused(&with(Some(&ca), Some(&nowhere)), &parts);
}

/// Instances that are discovered speak what the configuration says, and etcd's members are asked
/// as it says.
#[test]
fn discovery_within_tls() {
    let repository = repository();
    let (_, ca) = authority(repository.path(), "ca");
    let text = coded(repository.path());
    let with = |instances: &str, more: &str| {
        text.replace(LISTED, &format!("instances = {instances}\n{more}"))
    };
    let tls = format!("tls = {{ ca = {ca:?}, server_name = \"replicas.example\" }}");
    let dns = "{ dns = \"replicas.example\", port = 9001, scheme = \"grpcs\" }";
    refused(&with(dns, ""), &["models[0].tls", "name the authority"]);
    let sound = config(&with(dns, &tls)).unwrap();
    assert!(sound.models[0].pool.tls.is_some());
    let plain = dns.replace("grpcs", "grpc");
    refused(
        &with(&plain, &tls),
        &["models[0].tls", "scheme = \"https\""],
    );
    let etcd = |ca: &Path| {
        let tls = format!("tls = {{ ca = {ca:?} }}");
        format!("{{ etcd = {{ endpoints = [\"https://a:1\"], prefix = \"/r/\", {tls} }} }}")
    };
    config(&with(&etcd(&ca), "")).unwrap();
    let nowhere = repository.path().join("nowhere.pem");
    let parts = ["models[0].instances.etcd.tls", "nowhere.pem"];
    refused(&with(&etcd(&nowhere), ""), &parts);
}

#[test]
fn instances_that_are_discovered() {
    let repository = repository();
    let text = coded(repository.path());
    let with = |instances: &str| text.replace(LISTED, &format!("instances = {instances}"));
    let discovered = config(&with("{ dns = \"replicas.example\", port = 9001 }")).unwrap();
    let pool = &discovered.models[0].pool;
    assert!(pool.instances.is_empty() && pool.discovery.is_some());
    let list_or_table = "a list of addresses, or a table with one of dns";
    let cases: [(&str, &[&str]); 5] = [
        (
            "{ dns = \"replicas.example\" }",
            &["models[0].instances.port", "name no port", "give"],
        ),
        (
            "{ etcd = { endpoints = [], prefix = \"/r/\" } }",
            &["models[0].instances.etcd.endpoints: none"],
        ),
        (
            "{ consul = \"replicas\" }",
            &["parapet.toml: line", "unknown field", "consul"],
        ),
        ("\"127.0.0.1:9001\"", &["parapet.toml: line", list_or_table]),
        ("[]", &["models[0].instances", "none"]),
    ];
    for (instances, parts) in cases {
        refused(&with(instances), parts);
    }

    // How many there will be is not known when the strategy is checked.
    let hedge = strategy_toml(repository.path(), &addresses(1, 9001), "kind = \"hedge\"");
    refused(&hedge, &["a second instance"]);
    let service = "{ srv = \"_oip._tcp.replicas.example\" }";
    config(&hedge.replace("[\"127.0.0.1:9001\"]", service)).unwrap();
}
