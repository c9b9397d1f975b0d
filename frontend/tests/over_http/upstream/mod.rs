//! Requirements on every connection to an instance, whatever its protocol: one suite,
//! run over each.

mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use parapet_frontend::payload::Input;
use parapet_frontend::upstream::{Instances, Transport as _, Unready};
use parapet_frontend_core::{AttemptResult, FailureKind};
use parapet_models::Instance;
use parapet_open_inference::{HEADER_CONTENT_LENGTH, Tensor};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::instance_with;
use super::support::memory::id;
use super::support::{INPUTS, add_model, close, config, linear, plain_toml, repository};

/// One instance of `linear`, and the way to it.
struct Way {
    scheme: &'static str,
    instances: Instances,
    instance: Instance,
    _repository: tempfile::TempDir,
}

impl Way {
    /// `flags` are the instance's.
    async fn start(scheme: &'static str, flags: &[&str]) -> Self {
        let repository = repository();
        let flags = [
            &["--grpc-listen", "127.0.0.1:0", "--drain-grace-ms", "1"][..],
            flags,
        ]
        .concat();
        let instance = instance_with(repository.path(), "linear", &flags).await;
        let address = match scheme {
            "grpc" => instance.grpc_address().unwrap(),
            _ => instance.address(),
        };
        let text = plain_toml(repository.path(), &[address], "")
            .replace("instances = [\"", &format!("instances = [\"{scheme}://"));
        let instances = Instances::new(&config(&text).unwrap().models[0]);
        Self {
            scheme,
            instances,
            instance,
            _repository: repository,
        }
    }

    async fn infer(&self, tensor: Tensor) -> AttemptResult<parapet_frontend::payload::Output> {
        let rows = tensor.shape[0];
        self.instances
            .infer(id(0, 0), Arc::new(Input::new(vec![tensor], rows)))
            .await
    }

    async fn fails(&self, tensor: Tensor, kind: FailureKind) {
        let failure = self.infer(tensor).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{}: {failure}", self.scheme);
    }
}

fn samples(rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * INPUTS).map(|index| index as f32).collect();
    Tensor::from_f32("input", vec![rows, INPUTS], &values).unwrap()
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
    assert!(
        way.instances.ready(id(0, 1)).await.is_err(),
        "not configured"
    );
    for rows in [1, 2] {
        let input = samples(rows);
        let expected: Vec<f32> = input
            .f32s()
            .unwrap()
            .chunks(INPUTS)
            .flat_map(linear)
            .collect();
        let output = way.infer(input).await.unwrap();
        assert!(
            close(&output.tensors[0].f32s().unwrap(), &expected),
            "{scheme}"
        );
    }
    way.fails(samples(3), FailureKind::Refused).await;
    assert!(
        way.infer(samples(1)).await.is_ok(),
        "{scheme}: and it still answers"
    );

    let Way {
        instances,
        instance,
        ..
    } = way;
    instance.shut_down().await;
    assert!(
        matches!(
            instances.ready(id(0, 0)).await,
            Err(Unready::Unreachable(_))
        ),
        "{scheme}"
    );
    let gone = instances
        .infer(id(0, 0), Arc::new(Input::new(vec![samples(1)], 1)))
        .await
        .unwrap_err();
    assert_eq!(gone.kind, FailureKind::Unreachable, "{scheme}: {gone}");
}

/// A request without a place is told so; those in flight are lost with their instance.
async fn busy_and_lost(scheme: &'static str) {
    let profile = profile();
    let flags = [
        "--fault-profile",
        profile.path().to_str().unwrap(),
        "--queue-capacity",
        "1",
    ];
    let Way {
        instances,
        instance,
        _repository,
        ..
    } = Way::start(scheme, &flags).await;
    let instances = Arc::new(instances);
    let mut asked = JoinSet::new();
    // One is computed for a minute, one waits; then there is no place.
    let busy = loop {
        let instances = Arc::clone(&instances);
        let input = Arc::new(Input::new(vec![samples(1)], 1));
        asked.spawn(async move { instances.infer(id(0, 0), input).await });
        assert!(asked.len() < 10, "{scheme}: no end of places");
        if let Ok(Some(ended)) =
            tokio::time::timeout(Duration::from_millis(100), asked.join_next()).await
        {
            break ended.unwrap().unwrap_err();
        }
    };
    assert_eq!(busy.kind, FailureKind::InstanceBusy, "{scheme}: {busy}");
    instance.shut_down().await;
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
    let input =
        |after: Duration| Arc::new(Input::new(vec![samples(1)], 1).by(Instant::now() + after));
    let way = Way::start(scheme, &slow).await;
    for after in [30, 101, 250].map(Duration::from_millis) {
        let failure = way
            .instances
            .infer(id(0, 0), input(after))
            .await
            .unwrap_err();
        assert_eq!(
            failure.kind,
            FailureKind::DeadlineExceeded,
            "{scheme}, {after:?}: {failure}"
        );
    }
    let impatient = Way::start(
        scheme,
        &[&slow[..], &["--request-timeout-ms", "50"]].concat(),
    )
    .await;
    let failure = impatient
        .instances
        .infer(id(0, 0), input(Duration::from_secs(20)))
        .await
        .unwrap_err();
    assert_eq!(
        failure.kind,
        FailureKind::InstanceError,
        "{scheme}: {failure}"
    );
}

/// A server without the binary extension is written to in JSON, also while its checks fail.
#[tokio::test]
async fn the_form_that_a_server_reads_is_not_forgotten_when_it_is_not_ready() {
    let ready = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&ready);
    let app = Router::new()
        .route("/v2", get(async || r#"{"name":"json alone","version":"1","extensions":[]}"#))
        .route(
            "/v2/models/linear/versions/1/ready",
            get(async move || match asked.load(Ordering::SeqCst) {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            }),
        )
        .route(
            "/v2/models/linear/versions/1/infer",
            post(async |headers: HeaderMap| match headers.contains_key(HEADER_CONTENT_LENGTH) {
                true => (StatusCode::BAD_REQUEST, r#"{"error":"not JSON"}"#),
                false => (
                    StatusCode::OK,
                    r#"{"model_name":"linear","outputs":[{"name":"output","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}"#,
                ),
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let repository = repository();
    let text = plain_toml(repository.path(), &[address], "");
    let instances = Instances::new(&config(&text).unwrap().models[0]);
    let infer = || instances.infer(id(0, 0), Arc::new(Input::new(vec![samples(1)], 1)));
    assert_eq!(instances.ready(id(0, 0)).await, Ok(()));
    assert!(infer().await.is_ok());
    ready.store(false, Ordering::SeqCst);
    assert!(instances.ready(id(0, 0)).await.is_err());
    infer().await.unwrap();
}

/// The repository's metadata of the model is not what the instance answers.
async fn another_output_is_invalid(scheme: &'static str) {
    let way = Way::start(scheme, &[]).await;
    let other = tempfile::tempdir().unwrap();
    add_model(other.path(), "linear", None);
    let toml = other.path().join("linear/model.toml");
    let text = std::fs::read_to_string(&toml)
        .unwrap()
        .replace("shape = [3]", "shape = [4]");
    std::fs::write(&toml, text).unwrap();
    let address = match scheme {
        "grpc" => way.instance.grpc_address().unwrap(),
        _ => way.instance.address(),
    };
    let text = plain_toml(other.path(), &[address], "")
        .replace("instances = [\"", &format!("instances = [\"{scheme}://"));
    let instances = Instances::new(&config(&text).unwrap().models[0]);
    let failure = instances
        .infer(id(0, 0), Arc::new(Input::new(vec![samples(1)], 1)))
        .await
        .unwrap_err();
    assert_eq!(
        failure.kind,
        FailureKind::InvalidOutput,
        "{scheme}: {failure}"
    );
}

#[tokio::test]
async fn answers_and_refusals_over_http() {
    answers_and_refusals("http").await;
}

#[tokio::test]
async fn answers_and_refusals_over_grpc() {
    answers_and_refusals("grpc").await;
}

#[tokio::test]
async fn busy_and_lost_over_http() {
    busy_and_lost("http").await;
}

#[tokio::test]
async fn busy_and_lost_over_grpc() {
    busy_and_lost("grpc").await;
}

#[tokio::test]
async fn given_up_over_http() {
    given_up("http").await;
}

#[tokio::test]
async fn given_up_over_grpc() {
    given_up("grpc").await;
}

#[tokio::test]
async fn another_output_is_invalid_over_http() {
    another_output_is_invalid("http").await;
}

#[tokio::test]
async fn another_output_is_invalid_over_grpc() {
    another_output_is_invalid("grpc").await;
}

#[tokio::test]
async fn an_error_of_an_instance_reaches_the_client_without_the_instance_s_address() {
    let repository = super::repository();
    let instance = crate::support::instance::broken("no luck").await;
    let plain = |root: &std::path::Path| crate::support::plain_toml(root, &[instance], "");
    let cluster = crate::Cluster::of(Vec::new(), repository, plain).await;
    let answer = crate::infer(cluster.address, &[1.0; INPUTS], "").await;
    assert_eq!(answer.status, crate::StatusCode::BAD_GATEWAY);
    let said = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        said.contains("no luck") && !said.contains(&instance.to_string()),
        "{said}"
    );
}
