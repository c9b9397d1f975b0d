//! Pools within TLS and pools that are discovered, and their mistakes.

use super::*;

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
