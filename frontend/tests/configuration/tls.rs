//! Pools within TLS and pools that are discovered, and their mistakes.

use super::*;

const LISTED: &str = "instances = [\"127.0.0.1:9001\", \"127.0.0.1:9002\"]";

fn with_tls(text: &str, tls: &str) -> String {
    let named = "name = \"linear\"";
    text.replacen(named, &format!("{named}\ntls = {tls}"), 1)
}

#[test]
fn instances_are_reached_by_tls_or_not() {
    let repository = repository();
    let base = plain_toml(repository.path(), &addresses(2, 9001), "");
    let secure = with_scheme(&base, "https");
    refused(&secure, &["models[0].tls", "name the authority"]);
    let unused = "no instance is an https:// or grpcs:// one";
    let base_tls = with_tls(&base, "{ ca = \"ca.pem\" }");
    refused(&base_tls, &["models[0].tls", unused]);

    let (issuer, ca) = authority(repository.path(), "ca");
    let own = identity(repository.path(), "own", &issuer);
    let (certificate, key) = (&own.certificate, &own.key);
    let swapped = format!("{{ ca = {ca:?}, certificate = {key:?}, key = {certificate:?} }}");
    let mistakes = format!(
        r#"
        {{ ca = "nowhere.pem" }} => models[0].tls & nowhere.pem
        {{ key = "a.key" }} => parapet.toml: line & missing field `ca`
        {{ ca = "ca.pem", key = "a.key" }} => models[0].tls & both or neither
        {{ ca = {ca:?}, server_name = "a b" }} => models[0].tls: "a b" is neither & without a port
        {swapped} => models[0].tls & no certificate in PEM form
    "#
    );
    for [tls, parts] in rows(&mistakes) {
        refused_with(&with_tls(&secure, &tls), &parts);
    }
    let mixed = base.replace("\"127.0.0.1:9002", "\"grpcs://127.0.0.1:9002");
    let mixed = config(&with_tls(&mixed, &format!("{{ ca = {ca:?} }}"))).unwrap();
    let pool = &mixed.models[0].pool;
    let instances = pool.instances.iter();
    let names: Vec<&str> = instances.map(|(name, _)| name.as_str()).collect();
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
        for (place, ca) in [("name = \"linear\"\n", model), ("[[models.strategy.parity]]\n", own)] {
            let table = table(ca).unwrap_or_default();
            text = text.replacen(place, &format!("{place}{table}"), 1);
        }
        text
    };
    let cas = |text: &str| {
        let model = config(text).unwrap().models.remove(0);
        let pools = model.pools().map(|pool| pool.tls.as_ref().unwrap().files().ca.clone());
        pools.collect::<Vec<_>>()
    };
    assert_eq!(cas(&with(Some(&ca), None)), [ca.clone(), ca.clone()]);
    let both = cas(&with(Some(&ca), Some(&other)));
    assert_eq!(both, [ca.clone(), other.clone()]);
    let parts = ["models[0].tls", "name the authority"];
    refused(&with(None, Some(&other)), &parts);
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
    let plain = with(&dns.replace("grpcs", "grpc"), &tls);
    refused(&plain, &["models[0].tls", "scheme = \"https\""]);
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
    let mistakes = r#"
        { dns = "replicas.example" } => models[0].instances.port & name no port & give
        { etcd = { endpoints = [], prefix = "/r/" } } => models[0].instances.etcd.endpoints: none
        { consul = "replicas" } => parapet.toml: line & unknown field & consul
        "127.0.0.1:9001" => parapet.toml: line & a list of addresses, or a table with one of dns
        [] => models[0].instances & none
    "#;
    for [instances, parts] in rows(mistakes) {
        refused_with(&with(&instances), &parts);
    }

    // How many there will be is not known when the strategy is checked.
    let hedge = strategy_toml(repository.path(), &addresses(1, 9001), "kind = \"hedge\"");
    refused(&hedge, &["a second instance"]);
    let service = "{ srv = \"_oip._tcp.replicas.example\" }";
    config(&hedge.replace("[\"127.0.0.1:9001\"]", service)).unwrap();
}
