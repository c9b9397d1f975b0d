//! Listeners of instances within TLS, and connections to those that are down.

use super::*;

/// A server that speaks TLS, and within it not what is asked for.
#[tokio::test]
async fn grpc_needs_http2() {
    let site = Site::start("grpcs").await;
    let own = site.identity("server");
    for protocols in [vec![b"http/1.1".to_vec()], Vec::new()] {
        let mut config = server(&own, None, "");
        config.alpn_protocols = protocols;
        let relay = Relay::start(config, site.served_at()).await;
        let instances = site.client(relay.address, "");
        let other = |failure: &TlsFailure| *failure == TlsFailure::AnotherProtocol;
        site.fails(&instances, other).await;
    }
}

/// Flags of an instance that presents this certificate.
fn tls_flags(own: &Identity) -> [&str; 4] {
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    ["--tls-certificate", certificate, "--tls-key", key]
}

#[tokio::test]
async fn an_instance_speaks_tls_at_its_grpc_listener_too() {
    let site = Site::start("grpcs").await;
    let own = site.identity("server");
    let flags = [&["--grpc-listen", "127.0.0.1:0"][..], &tls_flags(&own)].concat();
    let instance = instance_of(site.path(), "linear", &flags).await;
    answers(&site.client(instance.grpc_address.unwrap(), "")).await;
}

/// A frontend, and instances of the deployed and the parity model that accept their clients alone.
#[tokio::test]
async fn instances_and_frontend_know_each_other() {
    let repository = repository();
    let root = repository.path().to_owned();
    let (issuer, ca) = authority(&root, "ca");
    let own = identity(&root, "instance", &issuer);
    identity(&root, "frontend", &issuer);
    let ca = ca.to_str().unwrap();
    let flags = [&tls_flags(&own)[..], &["--tls-client-ca", ca]].concat();
    let instances = coded_instances(&root, &flags).await;
    let addresses: Vec<SocketAddr> = instances.iter().map(|one| one.address).collect();
    let (certificate, key) = (root.join("frontend.crt"), root.join("frontend.key"));
    let tls = format!("tls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?} }}");
    let text = coded_toml(&root, &addresses[..2], &addresses[2..], &tls);
    let cluster = Cluster::of(instances, repository, &with_scheme(&text, "https")).await;
    cluster.served.wait_until_all_are_up(3).await;
    cluster.served.ask_all([SAMPLE, [4.0, 3.0, 2.0, 1.0]]).await;
    let metrics = cluster.served.metrics().await;
    let address = format!("=\"https://{}\"", addresses[0]);
    assert!(metrics.contains(&address), "{metrics}");

    let plain = spoken_to_plainly(addresses[0]).await;
    assert!(!plain.contains("200 OK"), "{plain}");
}

/// Returns the instance's answer to a client without TLS.
async fn spoken_to_plainly(address: SocketAddr) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /v2/health/ready HTTP/1.1\r\nhost: instance\r\n\r\n";
    stream.write_all(request).await.unwrap();
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
    let unknown = identity(site.path(), "unknown", &stranger);
    let unknown = site.behind(&unknown).await;
    let sound = site.behind(&site.identity("sound")).await;
    let tls = format!("tls = {{ ca = {:?} }}", site.ca);
    let text = plain_toml(site.path(), &[unknown.address, sound.address], &tls);
    let text = with_scheme(&text, "https").replace("interval_ms = 50", "interval_ms = 3600000");
    let cluster = Cluster::of(vec![site.instance], site.folder, &text).await;
    cluster.served.wait_until_all_are_up(1).await;
    let is_asked = async || unknown.accepted.load(Ordering::SeqCst) > 0;
    wait_until("asked", LIMIT, is_asked).await;
    for _ in 0..20 {
        infer(cluster.address, &SAMPLE, "").await.is_right(&SAMPLE);
    }
    // The one health check.
    assert_eq!(unknown.accepted.load(Ordering::SeqCst), 1);
}
