//! TLS between client, frontend and instance.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use parapet_net::client::{Connections, Limits, Tls};
use parapet_net::test_certificates::{
    Identity, authority, identity, identity_until, revocation_list,
};
use parapet_net::tls::{
    Application, ClientSettings, ClientTls, ServerFiles, ServerTls, server_name,
};
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use super::*;

fn client(ca: &Path, identity: Option<&Identity>) -> ClientTls {
    let (certificate, key) = identity.cloned().map(|own| (own.certificate, own.key)).unzip();
    let files = ClientSettings { ca: ca.to_owned(), certificate, key, ..ClientSettings::default() };
    ClientTls::load(files).unwrap()
}

/// An instance within TLS by this identity.
async fn secure_instance(identity: Identity, client_ca: Option<&Path>) -> SocketAddr {
    let (Identity { certificate, key }, client_ca) = (identity, client_ca.map(Path::to_owned));
    let files = ServerFiles { certificate, key, client_ca, client_crl: None };
    instance::start(Some(Arc::new(ServerTls::load(files).unwrap()))).await
}

/// One inference over TLS; an error in words.
async fn infer_by_tls(
    address: SocketAddr,
    ca: &Path,
    identity: Option<&Identity>,
) -> Result<StatusCode, String> {
    let (client, name) = (client(ca, identity), server_name("localhost").unwrap());
    let limits = Limits { connect_timeout: Some(LIMIT), max_response_bytes: 1 << 20, max_idle: 0 };
    let connections = Connections::new(address, limits).with_tls(Some(Tls { client, name }));
    let body = Bytes::from(body(&SAMPLE, ""));
    let request = || {
        let request = Request::post(INFER).header("host", "localhost");
        request.body(Full::new(body.clone())).unwrap()
    };
    let response = connections.send(request).await;
    response.map(|response| response.status).map_err(|error| error.to_string())
}

/// A connection that has served one request and stays open.
async fn connected(address: SocketAddr, ca: &Path, identity: &Identity) -> impl AsyncRead + Unpin {
    let connector = client(ca, Some(identity)).connector(Application::Http1);
    let stream = TcpStream::connect(address).await.unwrap();
    let name = server_name("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

/// The same over gRPC.
async fn infer_by_grpc(
    address: SocketAddr,
    ca: &Path,
    identity: Option<&Identity>,
    application: Application,
) -> Result<(), String> {
    let connector = client(ca, identity).connector(application);
    let connect = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = server_name("localhost").unwrap();
            let stream = connector.connect(name, stream).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connect).await;
    let mut client = InferenceClient::new(channel.map_err(|error| format!("{error:?}"))?);
    let message = write_request("linear", None, &infer_request(&SAMPLE));
    let answer = client.model_infer(message).await;
    let answer = answer.map_err(|status| status.to_string())?;
    let answer = read_response(answer.into_inner()).unwrap();
    assert_close(&answer.outputs[0].f32s().unwrap(), &linear(&SAMPLE));
    Ok(())
}

/// Returns true if a client with this trust and identity is served, by both protocols or none.
async fn is_served(served: &Served, ca: &Path, identity: Option<&Identity>) -> bool {
    let over_http = infer_by_tls(served.address, ca, identity).await;
    assert!(matches!(over_http, Ok(StatusCode::OK) | Err(_)), "{over_http:?}");
    let grpc = served.grpc.unwrap();
    let over_grpc = infer_by_grpc(grpc, ca, identity, Application::Http2).await;
    assert_eq!(over_http.is_ok(), over_grpc.is_ok());
    over_http.is_ok()
}

/// Client, frontend and instance know each other by certificates; the frontend's is replaced
/// while it serves.
#[tokio::test]
async fn tls_on_both_sides_and_certificates_that_change() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (outer, outer_ca) = authority(&folder, "outer");
    let (inner, inner_ca) = authority(&folder, "inner");
    let of_instance = identity(&folder, "instance", &inner);
    let instance = secure_instance(of_instance, Some(&inner_ca)).await;
    let frontend = identity(&folder, "frontend", &outer);
    identity(&folder, "to-instances", &inner);
    let client = identity(&folder, "client", &outer);
    let tls = "tls = { ca = \"inner.pem\", certificate = \"to-instances.crt\", key = \"to-instances.key\" }";
    let own = "tls = { certificate = \"frontend.crt\", key = \"frontend.key\", client_ca = \"outer.pem\" }";
    let plain = with_scheme(&plain_toml(&folder, &[instance], tls), "https");
    let text = with_admin(&with_server(&plain, &format!("{GRPC}\n{own}")));
    let served = serve(repository, &text).await;

    assert!(is_served(&served, &outer_ca, Some(&client)).await);
    // Without a certificate.
    assert!(!is_served(&served, &outer_ca, None).await);
    // Not trusted.
    assert!(!is_served(&served, &inner_ca, Some(&client)).await);
    let grpc = served.grpc.unwrap();
    let other = infer_by_grpc(grpc, &outer_ca, Some(&client), Application::Http1).await;
    assert!(other.is_err(), "HTTP/1.1 is not spoken there");

    let (new, new_ca) = authority(&folder, "new");
    identity(&folder, "frontend", &new);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert!(is_served(&served, &new_ca, Some(&client)).await);
    // The old one.
    assert!(!is_served(&served, &outer_ca, Some(&client)).await);

    fs::write(&frontend.certificate, "broken").unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::CONFLICT);
    // The one before.
    assert!(is_served(&served, &new_ca, Some(&client)).await);
}

/// A client whose certificate was taken back is refused from the next look at the list on, over the
/// connections that it has, too. A list that is not sound leaves the one of before.
#[tokio::test]
async fn clients_that_are_revoked_are_refused() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (issuer, ca) = authority(&folder, "ca");
    let instance = instance::start(None).await;
    let names = ["frontend", "kept", "revoked"].map(|name| identity(&folder, name, &issuer));
    let [_, kept, revoked] = &names;
    let crl = revocation_list(&folder, "ca", &issuer, &[], 2040);
    let tls = "tls = { certificate = \"frontend.crt\", key = \"frontend.key\", client_ca = \"ca.pem\", client_crl = \"ca.crl\" }";
    let plain = plain_toml(&folder, &[instance], "");
    let text = with_server(&plain, &format!("{GRPC}\n{tls}"));
    let served = serve(repository, &with_admin(&text)).await;
    let lets_in = async |client: &Identity| is_served(&served, &ca, Some(client)).await;
    assert!(lets_in(kept).await && lets_in(revoked).await);

    let mut open = connected(served.address, &ca, revoked).await;
    revocation_list(&folder, "ca", &issuer, &[revoked], 2041);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    let mut rest = Vec::new();
    let ended = timeout(LIMIT, open.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection from before goes on");
    assert!(lets_in(kept).await && !lets_in(revoked).await);
    let metrics = served.metrics().await;
    let due = "parapet_revocation_list_expiry_timestamp_seconds{role=\"data\"} 2240611200\n";
    assert!(metrics.contains(due), "{metrics}");

    revocation_list(&folder, "ca", &issuer, &[], 2002);
    let refused = reload(served.admin).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    for part in ["server.tls", "has been due since"] {
        assert!(refused.error().contains(part), "{}", refused.error());
    }
    fs::write(&crl, "broken").unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::CONFLICT);
    // The list before stays.
    assert!(lets_in(kept).await && !lets_in(revoked).await);
}

/// Each certificate that the frontend shows is counted, and a renewed one from the next look on.
#[tokio::test]
async fn metrics_say_when_certificates_expire() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (issuer, _) = authority(&folder, "ca");
    let instance = secure_instance(identity(&folder, "instance", &issuer), None).await;
    identity_until(&folder, "frontend", &issuer, 2040);
    identity_until(&folder, "shown", &issuer, 2042);
    let tls = "tls = { certificate = \"frontend.crt\", key = \"frontend.key\" }";
    let pool = "tls = { ca = \"ca.pem\", certificate = \"shown.crt\", key = \"shown.key\" }";
    let plain = with_scheme(&plain_toml(&folder, &[instance], pool), "https");
    let text = with_admin(&with_server(&plain, &format!("{GRPC}\n{tls}")));
    let served = serve(repository, &text).await;
    let expiries = async || {
        let metrics = served.metrics().await;
        let lines = metrics.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("parapet_certificate_expiry_"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = |listeners: &str| {
        let pool = r#"instances",model="linear",pool="deployed"#;
        [("data", listeners), ("grpc", listeners), (pool, "2272147200")]
            .map(|(role, at)| format!("timestamp_seconds{{role=\"{role}\"}} {at}"))
    };
    assert_eq!(expiries().await, expected("2208988800"));

    identity_until(&folder, "frontend", &issuer, 2041);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert_eq!(expiries().await, expected("2240611200"));
}

/// Certificates for instances are read again: a trust that is withdrawn takes the instance down,
/// with the reason where operators look, and one that is given brings it back. The model goes on
/// as it is.
#[tokio::test]
async fn certificates_for_instances_that_change() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (ours, ca) = authority(&folder, "ours");
    let (_, stranger) = authority(&folder, "stranger");
    let (known, unknown) = (fs::read(&ca).unwrap(), fs::read(stranger).unwrap());
    let instance = secure_instance(identity(&folder, "instance", &ours), None).await;
    let plain = plain_toml(&folder, &[instance], "tls = { ca = \"ours.pem\" }");
    let served = serve(repository, &with_admin(&with_scheme(&plain, "https"))).await;
    let status = async || infer(served.address, &SAMPLE, "").await.status;
    let unready = async || {
        let state = get(served.admin, "/live/state").await.json();
        let unready = state["models"][0]["instances"][0]["unready"].as_str();
        unready.map(str::to_owned)
    };
    assert_eq!((status().await, unready().await), (StatusCode::OK, None));

    fs::write(&ca, unknown).unwrap();
    let done = reload(served.admin).await.json();
    assert_eq!(done["models_kept"][0], "linear", "{done}");
    let is_refused = async || status().await == StatusCode::SERVICE_UNAVAILABLE;
    wait_until("refused", LIMIT, is_refused).await;
    wait_until("told", LIMIT, async || unready().await.is_some()).await;
    let reason = unready().await.unwrap();
    let unknown = "signed by none of the configured authorities";
    assert!(reason.contains(unknown), "{reason}");

    fs::write(&ca, known).unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    wait_until("back", LIMIT, async || status().await == StatusCode::OK).await;
    assert_eq!(unready().await, None);
}
