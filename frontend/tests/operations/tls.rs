//! TLS between client, frontend and instance.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use parapet_net::client::{Connections, Limits, Tls};
use parapet_net::test_certificates::{authority, identity, identity_until, revocation_list};
use parapet_net::tls::{Application, ClientFiles, ClientTls, Identity, ServerFiles, ServerTls};
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use parapet_open_inference::{InferRequest, Tensor};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::served::{INFER, LIMIT, SAMPLE, reload, serve, with_admin};
use crate::support::{
    INPUTS, body, close, get, infer, instance, linear, plain_toml, repository, wait_until,
};

/// One inference over TLS; an error in words.
async fn infer_by_tls(
    address: SocketAddr,
    ca: &Path,
    identity: Option<&Identity>,
) -> Result<StatusCode, String> {
    let files = ClientFiles {
        ca: ca.to_owned(),
        crl: None,
        identity: identity.cloned(),
    };
    let client = ClientTls::load(files).unwrap();
    let name = parapet_net::tls::server_name("localhost").unwrap();
    let limits = Limits {
        connect_timeout: Some(LIMIT),
        max_response_bytes: 1 << 20,
        max_idle: 0,
    };
    let connections = Connections::new(address, limits).with_tls(Some(Tls { client, name }));
    let body = Bytes::from(body(&SAMPLE, ""));
    let request = || {
        Request::post(INFER)
            .header("host", "localhost")
            .body(Full::new(body.clone()))
            .unwrap()
    };
    connections
        .send(request)
        .await
        .map(|response| response.status)
        .map_err(|error| error.to_string())
}

/// A connection that has served one request and stays open.
async fn connected(address: SocketAddr, ca: &Path, identity: &Identity) -> impl AsyncRead + Unpin {
    let files = ClientFiles {
        ca: ca.to_owned(),
        crl: None,
        identity: Some(identity.clone()),
    };
    let connector = ClientTls::load(files)
        .unwrap()
        .connector(Application::Http1);
    let name = parapet_net::tls::server_name("localhost").unwrap();
    let mut stream = connector
        .connect(name, TcpStream::connect(address).await.unwrap())
        .await
        .unwrap();
    stream
        .write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
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
    let files = ClientFiles {
        ca: ca.to_owned(),
        crl: None,
        identity: identity.cloned(),
    };
    let connector = ClientTls::load(files).unwrap().connector(application);
    let connect = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move {
            let name = parapet_net::tls::server_name("localhost").unwrap();
            let stream = connector
                .connect(name, TcpStream::connect(address).await?)
                .await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(connect)
        .await;
    let mut client = InferenceClient::new(channel.map_err(|error| format!("{error:?}"))?);
    let input = Tensor::from_f32("input", [1, INPUTS], &SAMPLE).unwrap();
    let request = InferRequest {
        inputs: vec![input],
        ..InferRequest::default()
    };
    let answer = client
        .model_infer(write_request("linear", None, &request))
        .await;
    let answer = read_response(answer.map_err(|status| status.to_string())?.into_inner()).unwrap();
    assert!(close(&answer.outputs[0].f32s().unwrap(), &linear(&SAMPLE)));
    Ok(())
}

/// Client, frontend and instance know each other by certificates; the frontend's is replaced
/// while it serves.
#[tokio::test]
async fn tls_on_both_sides_and_certificates_that_change() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (outer, outer_ca) = authority(&folder, "outer");
    let (inner, inner_ca) = authority(&folder, "inner");
    let instance_identity = identity(&folder, "instance", &inner);
    let files = ServerFiles {
        identity: instance_identity,
        client_ca: Some(inner_ca.clone()),
        client_crl: None,
    };
    let instance = instance::start(Some(Arc::new(ServerTls::load(files).unwrap()))).await;
    let frontend = identity(&folder, "frontend", &outer);
    identity(&folder, "to-instances", &inner);
    let client = identity(&folder, "client", &outer);
    let tls =
        "{ ca = \"inner.pem\", certificate = \"to-instances.crt\", key = \"to-instances.key\" }";
    let plain = plain_toml(&folder, &[instance], &format!("tls = {tls}"));
    let text = with_admin("")
        + &plain
            .replace("[server]\n", "[server]\ngrpc_listen = \"127.0.0.1:0\"\n")
            .replace(&format!("\"{instance}\""), &format!("\"https://{instance}\""))
            .replace("[repository]", "tls = { certificate = \"frontend.crt\", key = \"frontend.key\", client_ca = \"outer.pem\" }\n[repository]");
    let served = serve(repository, &text).await;

    let over_rest = async |ca: &Path, identity: Option<&Identity>| {
        let status = infer_by_tls(served.address, ca, identity).await;
        status.map(|status| assert_eq!(status, StatusCode::OK))
    };
    let grpc = served.grpc.unwrap();
    let over_grpc = async |ca: &Path, identity: Option<&Identity>| {
        infer_by_grpc(grpc, ca, identity, Application::Http2).await
    };
    let is_served = async |ca: &Path, identity: Option<&Identity>| {
        let served = over_rest(ca, identity).await.is_ok();
        assert_eq!(over_grpc(ca, identity).await.is_ok(), served);
        served
    };
    assert!(is_served(&outer_ca, Some(&client)).await);
    assert!(!is_served(&outer_ca, None).await, "without a certificate");
    assert!(!is_served(&inner_ca, Some(&client)).await, "not trusted");
    let other = infer_by_grpc(grpc, &outer_ca, Some(&client), Application::Http1).await;
    assert!(other.is_err(), "HTTP/1.1 is not spoken there");

    let (new, new_ca) = authority(&folder, "new");
    identity(&folder, "frontend", &new);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert!(is_served(&new_ca, Some(&client)).await);
    assert!(!is_served(&outer_ca, Some(&client)).await, "the old one");

    fs::write(&frontend.certificate, "broken").unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::CONFLICT);
    assert!(is_served(&new_ca, Some(&client)).await, "the one before");
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
    let text = with_admin(&plain_toml(&folder, &[instance], "")).replace(
        "[server]\n",
        &format!("[server]\ngrpc_listen = \"127.0.0.1:0\"\n{tls}\n"),
    );
    let served = serve(repository, &text).await;
    let lets_in = async |client: &Identity| {
        let over_http = infer_by_tls(served.address, &ca, Some(client))
            .await
            .is_ok();
        let grpc = served.grpc.unwrap();
        let over_grpc = infer_by_grpc(grpc, &ca, Some(client), Application::Http2)
            .await
            .is_ok();
        assert_eq!(over_http, over_grpc);
        over_http
    };
    assert!(lets_in(kept).await && lets_in(revoked).await);

    let mut open = connected(served.address, &ca, revoked).await;
    revocation_list(&folder, "ca", &issuer, &[revoked], 2041);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    let mut rest = Vec::new();
    let ended = timeout(LIMIT, open.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection from before goes on");
    assert!(lets_in(kept).await && !lets_in(revoked).await);
    let metrics = String::from_utf8(get(served.admin, "/metrics").await.body.to_vec()).unwrap();
    let due = "parapet_revocation_list_expiry_timestamp_seconds{role=\"data\"} 2240611200\n";
    assert!(metrics.contains(due), "{metrics}");

    revocation_list(&folder, "ca", &issuer, &[], 2002);
    let refused = reload(served.admin).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let said = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(
        said.contains("server.tls") && said.contains("has been due since"),
        "{said}"
    );
    fs::write(&crl, "broken").unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::CONFLICT);
    assert!(
        lets_in(kept).await && !lets_in(revoked).await,
        "the list before stays"
    );
}

/// Each certificate that the frontend shows is counted, and a renewed one from the next look on.
#[tokio::test]
async fn metrics_say_when_certificates_expire() {
    let repository = repository();
    let folder = repository.path().to_owned();
    let (issuer, _) = authority(&folder, "ca");
    let files = ServerFiles {
        identity: identity(&folder, "instance", &issuer),
        client_ca: None,
        client_crl: None,
    };
    let instance = instance::start(Some(Arc::new(ServerTls::load(files).unwrap()))).await;
    identity_until(&folder, "frontend", &issuer, 2040);
    identity_until(&folder, "shown", &issuer, 2042);
    let tls = "tls = { certificate = \"frontend.crt\", key = \"frontend.key\" }";
    let pool = "tls = { ca = \"ca.pem\", certificate = \"shown.crt\", key = \"shown.key\" }";
    let text = with_admin(&plain_toml(&folder, &[instance], pool))
        .replace(
            &format!("\"{instance}\""),
            &format!("\"https://{instance}\""),
        )
        .replace(
            "[server]\n",
            &format!("[server]\ngrpc_listen = \"127.0.0.1:0\"\n{tls}\n"),
        );
    let served = serve(repository, &text).await;
    let expiries = async || {
        let metrics = String::from_utf8(get(served.admin, "/metrics").await.body.to_vec()).unwrap();
        let lines = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("parapet_certificate_expiry_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = |listeners: &str| {
        [
            format!("timestamp_seconds{{role=\"data\"}} {listeners}"),
            format!("timestamp_seconds{{role=\"grpc\"}} {listeners}"),
            "timestamp_seconds{role=\"instances\",model=\"linear\",pool=\"deployed\"} 2272147200"
                .to_owned(),
        ]
    };
    assert_eq!(sorted(expiries().await), expected("2208988800"));

    identity_until(&folder, "frontend", &issuer, 2041);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert_eq!(sorted(expiries().await), expected("2240611200"));
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
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
    let files = ServerFiles {
        identity: identity(&folder, "instance", &ours),
        client_ca: None,
        client_crl: None,
    };
    let instance = instance::start(Some(Arc::new(ServerTls::load(files).unwrap()))).await;
    let text = with_admin(&plain_toml(
        &folder,
        &[instance],
        "tls = { ca = \"ours.pem\" }",
    ))
    .replace(
        &format!("\"{instance}\""),
        &format!("\"https://{instance}\""),
    );
    let served = serve(repository, &text).await;
    let status = async || infer(served.address, &SAMPLE, "").await.status;
    let unready = async || {
        let state = get(served.admin, "/live/state").await.json();
        state["models"][0]["instances"][0]["unready"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!((status().await, unready().await), (StatusCode::OK, None));

    fs::write(&ca, unknown).unwrap();
    let done = reload(served.admin).await.json();
    assert_eq!(done["models_kept"][0], "linear", "{done}");
    wait_until("refused", LIMIT, async || {
        status().await == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    wait_until("told", LIMIT, async || unready().await.is_some()).await;
    let reason = unready().await.unwrap();
    assert!(
        reason.contains("signed by none of the configured authorities"),
        "{reason}"
    );

    fs::write(&ca, known).unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    wait_until("back", LIMIT, async || status().await == StatusCode::OK).await;
    assert_eq!(unready().await, None);
}
