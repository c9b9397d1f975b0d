//! Requirements on every connection to an instance, whatever its protocol: one suite,
//! run over each.

mod tls;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::HeaderMap;
use parapet_frontend::payload::{Input, Output};
use parapet_frontend::upstream::{Instances, Transport as _, Unready};
use parapet_frontend_core::{AttemptResult, FailureKind};
use parapet_open_inference::HEADER_CONTENT_LENGTH;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::support::memory::id;
use super::*;

/// One instance of `linear`, and the way to it.
struct Way {
    scheme: &'static str,
    instances: Instances,
    instance: Instance,
    _repository: tempfile::TempDir,
}

/// The client of one instance at `address`.
fn instances(root: &Path, scheme: &str, address: SocketAddr) -> Instances {
    let text = with_scheme(&plain_toml(root, &[address], ""), scheme);
    Instances::new(&config(&text).unwrap().models[0])
}

fn address(instance: &Instance, scheme: &str) -> SocketAddr {
    match scheme {
        "grpc" | "grpcs" => instance.grpc_address.unwrap(),
        _ => instance.address,
    }
}

/// Query of so many samples.
fn samples(rows: usize) -> Input {
    let values: Vec<f32> = (0..rows * INPUTS).map(|index| index as f32).collect();
    Input::new(vec![input(&values)], rows)
}

async fn ask(instances: &Instances, input: Input) -> AttemptResult<Output> {
    instances.infer(id(0, 0), Arc::new(input)).await
}

impl Way {
    /// `flags` are the instance's.
    async fn start(scheme: &'static str, flags: &[&str]) -> Self {
        let repository = repository();
        let own = ["--grpc-listen", "127.0.0.1:0", "--drain-grace-ms", "1"];
        let flags = [&own[..], flags].concat();
        let instance = instance_of(repository.path(), "linear", &flags).await;
        let address = address(&instance, scheme);
        Self {
            scheme,
            instances: instances(repository.path(), scheme, address),
            instance,
            _repository: repository,
        }
    }

    async fn fails(&self, input: Input, kind: FailureKind) {
        let failure = ask(&self.instances, input).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{}: {failure}", self.scheme);
    }
}

const SLOW: &str = "seed = 1\nservice_time = { distribution = \"constant\", ms = 60000.0 }";

fn profile() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SLOW).unwrap();
    file
}

async fn answers_and_refusals(scheme: &'static str) {
    let way = Way::start(scheme, &["--max-batch-size", "2"]).await;
    assert_eq!(way.instances.ready(id(0, 0)).await, Ok(()), "{scheme}");
    // Not configured.
    assert!(way.instances.ready(id(0, 1)).await.is_err());
    for rows in [1, 2] {
        let input = samples(rows);
        let expected = linear_all(&input.tensors[0].f32s().unwrap());
        let output = ask(&way.instances, input).await.unwrap();
        assert_close(&output.tensors[0].f32s().unwrap(), &expected);
    }
    way.fails(samples(3), FailureKind::Refused).await;
    // And it still answers.
    assert!(ask(&way.instances, samples(1)).await.is_ok(), "{scheme}");

    way.instance.shut_down().await;
    let ready = way.instances.ready(id(0, 0)).await;
    assert!(matches!(ready, Err(Unready::Unreachable(_))), "{scheme}");
    let gone = ask(&way.instances, samples(1)).await.unwrap_err();
    assert_eq!(gone.kind, FailureKind::Unreachable, "{scheme}: {gone}");
}

/// A request without a place is told so; those in flight are lost with their instance.
async fn busy_and_lost(scheme: &'static str) {
    let profile = profile();
    let profile = profile.path().to_str().unwrap();
    let flags = ["--fault-profile", profile, "--queue-capacity", "1"];
    let way = Way::start(scheme, &flags).await;
    let instances = Arc::new(way.instances);
    let mut asked = JoinSet::new();
    // One is computed for a minute, one waits; then there is no place.
    let busy = loop {
        let instances = Arc::clone(&instances);
        asked.spawn(async move { ask(&instances, samples(1)).await });
        assert!(asked.len() < 10, "{scheme}: no end of places");
        let ended = tokio::time::timeout(Duration::from_millis(100), asked.join_next()).await;
        if let Ok(Some(ended)) = ended {
            break ended.unwrap().unwrap_err();
        }
    };
    assert_eq!(busy.kind, FailureKind::InstanceBusy, "{scheme}: {busy}");
    way.instance.shut_down().await;
    assert!(!asked.is_empty());
    while let Some(ended) = asked.join_next().await {
        let lost = ended.unwrap().unwrap_err();
        assert_eq!(lost.kind, FailureKind::ConnectionLost, "{scheme}: {lost}");
    }
}

/// An instance that gives a query up when the time is over that it was told says nothing of itself;
/// one that takes less time than it has does.
async fn given_up(scheme: &'static str) {
    let profile = profile();
    let slow = ["--fault-profile", profile.path().to_str().unwrap()];
    let input = |after: Duration| {
        let mut input = samples(1);
        input.deadline = Some(Instant::now() + after);
        input
    };
    let way = Way::start(scheme, &slow).await;
    for after in [30, 101, 250].map(Duration::from_millis) {
        way.fails(input(after), FailureKind::DeadlineExceeded).await;
    }
    let flags = [&slow[..], &["--request-timeout-ms", "50"]].concat();
    let impatient = Way::start(scheme, &flags).await;
    let input = input(Duration::from_secs(20));
    impatient.fails(input, FailureKind::InstanceError).await;
}

/// A server without the binary extension is written to in JSON, also while its checks fail.
#[tokio::test]
async fn the_form_that_a_server_reads_is_not_forgotten_when_it_is_not_ready() {
    const ANSWER: &str = r#"{"model_name":"linear","outputs":[{"name":"output","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}"#;
    let ready = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&ready);
    let status = async move || match asked.load(Ordering::SeqCst) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let infer = async |headers: HeaderMap| match headers.contains_key(HEADER_CONTENT_LENGTH) {
        true => (StatusCode::BAD_REQUEST, r#"{"error":"not JSON"}"#),
        false => (StatusCode::OK, ANSWER),
    };
    let metadata = r#"{"name":"json alone","version":"1","extensions":[]}"#;
    let app = Router::new()
        .route("/v2", get(async move || metadata))
        .route("/v2/models/linear/versions/1/ready", get(status))
        .route("/v2/models/linear/versions/1/infer", post(infer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let repository = repository();
    let instances = instances(repository.path(), "http", address);
    assert_eq!(instances.ready(id(0, 0)).await, Ok(()));
    assert!(ask(&instances, samples(1)).await.is_ok());
    ready.store(false, Ordering::SeqCst);
    assert!(instances.ready(id(0, 0)).await.is_err());
    ask(&instances, samples(1)).await.unwrap();
}

/// The repository's metadata of the model is not what the instance answers.
async fn another_output_is_invalid(scheme: &'static str) {
    let way = Way::start(scheme, &[]).await;
    let other = tempfile::tempdir().unwrap();
    add_model(other.path(), "linear", None);
    let toml = other.path().join("linear/model.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, text.replace("shape = [3]", "shape = [4]")).unwrap();
    let instances = instances(other.path(), scheme, address(&way.instance, scheme));
    let said = r#"its output "output" is FP32 [-1, 3], where the model has FP32 [-1, 4]"#;
    assert_eq!(instances.ready(id(0, 0)).await, Err(Unready::Differs(said.to_owned())));
    let invalid = ask(&instances, samples(1)).await.unwrap_err();
    assert_eq!(invalid.kind, FailureKind::InvalidOutput, "{invalid}");
}

/// A test for each suite over each protocol.
macro_rules! over_both {
    ($plain:literal, $grpc:literal: $($suite:ident),*) => {$(
        mod $suite {
            #[tokio::test]
            async fn over_http() {
                super::$suite($plain).await;
            }

            #[tokio::test]
            async fn over_grpc() {
                super::$suite($grpc).await;
            }
        }
    )*};
}
use over_both;

over_both!("http", "grpc": answers_and_refusals, busy_and_lost, given_up, another_output_is_invalid);

#[tokio::test]
async fn an_error_of_an_instance_reaches_the_client_without_the_instance_s_address() {
    let repository = repository();
    let instance = instance::broken("no luck").await;
    let text = plain_toml(repository.path(), &[instance], "");
    let cluster = Cluster::of(Vec::new(), repository, &text).await;
    let answer = infer(cluster.address, &[1.0; INPUTS], "").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    let said = answer.error();
    assert!(said.contains("no luck"), "{said}");
    assert!(!said.contains(&instance.to_string()), "{said}");
}
