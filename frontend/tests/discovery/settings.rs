//! Settings as written, and mistakes in them.

use parapet_frontend::discovery::Settings;

fn parse(json: &str) -> Result<(), String> {
    let settings: Settings = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let checked = settings.check();
    checked.map_err(|mistake| format!("{}: {}; {}", mistake.field, mistake.problem, mistake.fix))
}

#[test]
fn sound_settings_are_taken() {
    for good in [
        r#"{"dns": "replicas.example", "port": 9001}"#,
        r#"{"dns": "replicas.example", "port": 9001, "interval_ms": 100, "resolver": "127.0.0.1:53"}"#,
        r#"{"srv": "_oip._tcp.replicas.example"}"#,
        r#"{"srv": "_oip._tcp.replicas.example", "scheme": "grpcs"}"#,
        r#"{"etcd": {"endpoints": ["https://etcd:2379"], "prefix": "/r/", "tls": {"ca": "ca.pem"}}}"#,
        r#"{"etcd": {"endpoints": ["10.0.0.5:2379", "http://10.0.0.6:2379"], "prefix": "/replicas/"}}"#,
    ] {
        assert_eq!(parse(good), Ok(()), "{good}");
    }
}

#[test]
fn mistakes_name_the_field_and_the_fix() {
    let table = r#"
        {"dns": "replicas.example"} => port: address records name no port; give
        {"dns": "a", "srv": "b", "port": 1} => srv: dns stands beside it; give
        {"srv": "a", "port": 1} => port: SRV records name each instance's port; leave
        {"dns": "a", "port": 1, "interval_ms": 5} => interval_ms: shorter than 100; give
        {"etcd": {"endpoints": [], "prefix": "/r/"}} => etcd.endpoints: none; list
        {"etcd": {"endpoints": ["etcd"], "prefix": "/r/"}} => etcd.endpoints: "etcd"; give HOST:PORT
        {"etcd": {"endpoints": ["https://etcd:2379"], "prefix": "/r/"}} => etcd.tls: there are https://
        {"etcd": {"endpoints": ["https://a:1", "b:1"], "prefix": "/r/", "tls": {"ca": "ca.pem"}}} => etcd.endpoints: there is tls, and not all
        {"etcd": {"endpoints": ["https://a:1"], "prefix": "/r/", "tls": {"key": "k"}}} => missing field `ca`
        {"dns": "a", "port": 1, "scheme": "ftp"} => unknown variant `ftp`
        {"etcd": {"endpoints": ["etcd:2379"], "prefix": ""}} => etcd.prefix: empty
        {"etcd": {"endpoints": ["etcd:2379"], "prefix": "/r/"}, "dns": "a", "port": 1} => one of dns
        {"port": 9001} => go with dns or srv
        {} => one of dns, srv, etcd and kubernetes
        {"consul": "replicas"} => unknown field `consul`
    "#;
    for row in table.trim().lines() {
        let (bad, said) = row.trim().split_once(" => ").unwrap();
        let error = parse(bad).expect_err(bad);
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[cfg(not(feature = "kubernetes"))]
#[test]
fn kubernetes_needs_its_feature() {
    let error = parse(r#"{"kubernetes": {"service": "replicas"}}"#).unwrap_err();
    assert!(error.contains("--features kubernetes"), "{error}");
}
