//! Listeners of instances within TLS, and connections to those that are down.

use super::*;

/// A server that speaks TLS, and within it not what is asked for.
#[tokio::test]
async fn grpc_needs_http2() {
    let site = Site::start("grpcs").await;
    let own = identity(site.path(), "server", &site.issuer);
    for protocols in [vec![b"http/1.1".to_vec()], Vec::new()] {
        let mut config = server(&own, None, "");
        config.alpn_protocols = protocols;
        let relay = Relay::start(config, site.served_at()).await;
        let instances = site.client(relay.address, "");
        site.fails(&instances, |failure| {
            *failure == TlsFailure::AnotherProtocol
        })
        .await;
    }
}

#[tokio::test]
async fn an_instance_speaks_tls_at_its_grpc_listener_too() {
    let site = Site::start("grpcs").await;
    let own = identity(site.path(), "server", &site.issuer);
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let flags = [
        "--grpc-listen",
        "127.0.0.1:0",
        "--tls-certificate",
        certificate,
        "--tls-key",
        key,
    ];
    let instance = instance_with(site.path(), "linear", &flags).await;
    let instances = site.client(instance.grpc_address().unwrap(), "");
    instances.ready(id(0, 0)).await.unwrap();
    ask(&instances).await.unwrap();
}

/// A frontend, and instances of the deployed and the parity model that accept their clients alone.
#[tokio::test]
async fn instances_and_frontend_know_each_other() {
    let repository = repository();
    let root = repository.path().to_owned();
    let (issuer, ca) = authority(&root, "ca");
    let own = identity(&root, "instance", &issuer);
    identity(&root, "frontend", &issuer);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key, ca) = (path(&own.certificate), path(&own.key), path(&ca));
    let files = ["--tls-certificate", "--tls-key", "--tls-client-ca"]
        .into_iter()
        .zip([&certificate, &key, &ca]);
    let flags: Vec<&str> = files
        .flat_map(|(flag, file)| [flag, file.as_str()])
        .collect();
    let mut instances = Vec::new();
    for model in ["linear", "linear", "linear-parity"] {
        instances.push(instance_with(&root, model, &flags).await);
    }
    let addresses: Vec<SocketAddr> = instances.iter().map(Instance::address).collect();
    let file = |name: &str| root.join(name);
    let tls = format!(
        "tls = {{ ca = {ca:?}, certificate = {:?}, key = {:?} }}",
        file("frontend.crt"),
        file("frontend.key")
    );
    let cluster = Cluster::of(instances, repository, |root| {
        coded_toml(root, &addresses[..2], &addresses[2..], &tls)
            .replace("\"127.0.0.1:", "\"https://127.0.0.1:")
            .replace("listen = \"https://", "listen = \"")
    })
    .await;
    cluster.wait_until_all_are_up(3).await;
    cluster
        .ask_all([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
        .await;
    let metrics =
        String::from_utf8_lossy(&get(cluster.address, "/metrics").await.body).into_owned();
    assert!(
        metrics.contains(&format!("=\"https://{}\"", addresses[0])),
        "{metrics}"
    );

    let plain = spoken_to_plainly(addresses[0]).await;
    assert!(!plain.contains("200 OK"), "{plain}");
}

/// Returns the instance's answer to a client without TLS.
async fn spoken_to_plainly(address: SocketAddr) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /v2/health/ready HTTP/1.1\r\nhost: instance\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// An instance that cannot be trusted is asked by health checks alone, however many
/// requests there are.
#[tokio::test]
async fn requests_make_no_connections_to_an_instance_that_is_down() {
    let site = Site::start("https").await;
    let (stranger, _) = authority(site.path(), "stranger");
    let unknown = site
        .behind(&identity(site.path(), "unknown", &stranger))
        .await;
    let sound = site
        .behind(&identity(site.path(), "sound", &site.issuer))
        .await;
    let tls = format!("tls = {{ ca = {:?} }}", site.ca);
    let text = plain_toml(site.path(), &[unknown.address, sound.address], &tls)
        .replace("\"127.0.0.1:", "\"https://127.0.0.1:")
        .replace("listen = \"https://", "listen = \"")
        .replace(
            "recovery_interval_ms = 50",
            "recovery_interval_ms = 3600000",
        );
    let Site {
        folder, instance, ..
    } = site;
    let cluster = Cluster::of(vec![instance], folder, |_| text).await;
    cluster.wait_until_all_are_up(1).await;
    wait_until("asked", std::time::Duration::from_secs(10), async || {
        unknown.accepted.load(Ordering::SeqCst) > 0
    })
    .await;
    for _ in 0..20 {
        let answer = infer(cluster.address, &[1.0, 2.0, 3.0, 4.0], "").await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    assert_eq!(
        unknown.accepted.load(Ordering::SeqCst),
        1,
        "the one health check"
    );
}
