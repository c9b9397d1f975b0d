//! Traces of a straggler's way, and spans that reach a collector.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use parapet_frontend::Frontend;
use parapet_frontend::tenants::{Key, MixingDomain};
use parapet_frontend::traces::{TraceSettings, Traces};
use parapet_open_inference::grpc::{InferenceClient, write_request};
use parapet_open_inference::{InferRequest, Parameters, Tensor};
use support::fixture::{Fixture, coded, config_error};
use support::memory::{SERVICE, State, id};
use support::{INPUTS, body, plain_toml, repository, request};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Endpoint;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Everything is traced that its client does not refuse to have traced.
fn traces() -> (Traces, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    (Traces::new(provider, 1.0), exporter)
}

fn headers(parent: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(
        http::header::HeaderName::from_static("traceparent"),
        HeaderValue::from_static(parent),
    )])
}

/// Asks as the HTTP server does.
async fn ask(fixture: &Fixture, traces: &Traces, headers: &HeaderMap, sample: f32) -> &'static str {
    let traced = traces.begin(headers, Some("linear")).unwrap();
    let answering = fixture.model.infer(
        MixingDomain::SHARED,
        Fixture::request(sample, Parameters::new()),
    );
    let (_, provenance) = traced.scope(answering).await.unwrap();
    traced.answered(provenance.kind, provenance.confidence);
    provenance.kind
}

fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
    span.attributes
        .iter()
        .map(|pair| (pair.key.as_str(), pair.value.to_string()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_straggler_s_trace_shows_encoding_the_parity_query_and_decoding() {
    let fixture = Arc::new(coded(2, 1).await);
    fixture.memory.set(id(0, 0), State::Frozen);
    let (traces, exporter) = traces();
    let untraced = fixture.ask(2.0);
    let kind = ask(&fixture, &traces, &headers(PARENT), 1.0).await;
    untraced.await.unwrap().0.unwrap();
    assert_eq!(kind, "reconstructed");
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(Duration::from_secs(1)).await; // the late truth ends the query's own request

    let spans = exporter.get_finished_spans().unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert!(
        spans
            .iter()
            .all(|span| span.span_context.trace_id().to_string() == trace),
        "{spans:?}"
    );
    let one = |name: &str, parent: SpanId| {
        let mut found = spans
            .iter()
            .filter(|span| span.name == name && span.parent_span_id == parent);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no {name} below {parent}: {spans:#?}"));
        assert!(found.next().is_none(), "two {name}");
        (span.span_context.span_id(), attributes(span))
    };
    let (infer, said) = one("infer", SpanId::from_hex("00f067aa0ba902b7").unwrap());
    assert_eq!(
        (
            said["parapet.model"].as_str(),
            said["parapet.provenance"].as_str()
        ),
        ("linear", "reconstructed")
    );
    let (_, said) = one("predict", infer);
    assert_eq!(
        (said["parapet.pool"].as_str(), said.get("parapet.slot")),
        ("0", None)
    );
    let (encode, said) = one("encode", infer);
    let slot = said["parapet.slot"].clone();
    assert_eq!(
        (said["parapet.row"].as_str(), slot.as_str()),
        ("0", "0"),
        "the other client's task runs later"
    );
    let (_, said) = one("predict", encode);
    assert_eq!(
        (&said["parapet.slot"], said["parapet.pool"].as_str()),
        (&slot, "1")
    );
    assert!(said["parapet.group"].starts_with('g'));
    let (_, said) = one("decode", infer);
    assert_eq!(said["parapet.slot"], slot);
    assert_eq!(spans.len(), 5, "{spans:#?}");
}

#[tokio::test(start_paused = true)]
async fn failures_and_withdrawn_requests_are_told() {
    let fixture = coded(2, 1).await;
    for instance in [id(0, 0), id(0, 1), id(1, 0)] {
        fixture.memory.set(instance, State::Broken);
    }
    let (traces, exporter) = traces();
    let traced = traces.begin(&HeaderMap::new(), Some("linear")).unwrap();
    let answering = fixture.model.infer(
        MixingDomain::SHARED,
        Fixture::request(1.0, Parameters::new()),
    );
    let refused = traced.scope(answering).await.unwrap_err();
    let (status, kind) = refused.classify();
    traced.failed(status, kind);
    sleep(Duration::from_secs(2)).await;
    let spans = exporter.get_finished_spans().unwrap();
    let failed = |name: &str| {
        let spans = spans.iter().filter(|span| span.name == name);
        spans
            .filter(|span| matches!(span.status, Status::Error { .. }))
            .count()
    };
    assert_eq!(failed("infer"), 1, "{spans:#?}");
    assert!(
        failed("predict") >= 2,
        "attempts and their retries: {spans:#?}"
    );
}

#[tokio::test]
async fn clients_and_the_share_decide_what_is_traced() {
    let (all, _) = traces();
    let none = Traces::new(SdkTracerProvider::builder().build(), 0.0);
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let is_traced =
        |traces: &Traces, headers: HeaderMap| traces.begin(&headers, Some("m")).is_some();
    assert!(is_traced(&all, HeaderMap::new()) && !is_traced(&all, headers(unsampled)));
    assert!(!is_traced(&none, HeaderMap::new()) && is_traced(&none, headers(PARENT)));
    assert!(!is_traced(&none, headers("00-garbage")));
}

/// A collector that hands on what it gets.
struct Collector(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.send(request.into_inner()).await.unwrap();
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test]
async fn spans_reach_a_collector_before_the_frontend_ends() {
    let (endpoint, mut received) = collector().await;
    let settings = TraceSettings {
        endpoint,
        share: 1.0,
        service_name: "edge".to_owned(),
    };
    let traces = Arc::new(Traces::export(&settings).unwrap());
    traces
        .begin(&HeaderMap::new(), Some("linear"))
        .unwrap()
        .answered("exact", Some(1.0));
    tokio::task::spawn_blocking(move || traces.shutdown())
        .await
        .unwrap();
    let batch = timeout(Duration::from_secs(10), received.recv())
        .await
        .unwrap()
        .unwrap();
    let spans = &batch.resource_spans[0];
    let service = spans
        .resource
        .as_ref()
        .unwrap()
        .attributes
        .iter()
        .find(|pair| pair.key == "service.name");
    assert!(format!("{service:?}").contains("edge"), "{service:?}");
    assert_eq!(spans.scope_spans[0].spans[0].name, "infer");
}

/// Address of a collector, and what it gets.
async fn collector() -> (String, mpsc::Receiver<ExportTraceServiceRequest>) {
    let (sender, received) = mpsc::channel(4);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server =
        tonic::transport::Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tokio::spawn(server.serve_with_incoming(incoming));
    (endpoint, received)
}

#[tokio::test]
async fn spans_repeat_nothing_of_requests_and_calls_without_a_key_have_none() {
    let (endpoint, mut received) = collector().await;
    let key = Key::generate();
    let repository = repository();
    let instance = support::instance::start(None).await;
    let text = plain_toml(repository.path(), &[instance], "")
        .replace("[server]\n", "[server]\ngrpc_listen = \"127.0.0.1:0\"\n");
    let text = format!(
        "[traces]\nendpoint = \"{endpoint}\"\nshare = 1.0\n\
         [[tenants]]\nname = \"a\"\nkey_sha256 = [\"{}\"]\n{text}",
        key.hash()
    );
    let frontend = Frontend::bind(support::config(&text).unwrap())
        .await
        .unwrap();
    let (address, grpc) = (
        frontend.address().unwrap(),
        frontend.grpc_address().unwrap().unwrap(),
    );
    let (shutdown, asked) = oneshot::channel::<()>();
    let running = tokio::spawn(frontend.run(async move { drop(asked.await) }));

    let authorization = format!("Bearer {}", key.text());
    let headers = [("authorization", authorization.as_str())];
    let secret = body(&[1.0; INPUTS], "").replace("FP32", "SECRET");
    for (model, status) in [("linear", 400), ("SECRET", 404)] {
        let path = format!("/v2/models/{model}/infer");
        let refused = request(address, Method::POST, &path, &headers, secret.as_bytes()).await;
        assert_eq!(refused.status.as_u16(), status);
    }
    let channel = Endpoint::from_shared(format!("http://{grpc}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = InferenceClient::new(channel);
    let input = Tensor::from_f32("input", [1, INPUTS], &[1.0; INPUTS]).unwrap();
    let asked = InferRequest {
        inputs: vec![input],
        ..InferRequest::default()
    };
    let mut message = write_request("linear", None, &asked);
    message.inputs[0].datatype = "SECRET".to_owned();
    let refused = client.model_infer(message.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut asked = tonic::Request::new(message);
    asked
        .metadata_mut()
        .insert("authorization", authorization.parse().unwrap());
    assert_eq!(
        client.model_infer(asked).await.unwrap_err().code(),
        Code::InvalidArgument
    );

    shutdown.send(()).unwrap();
    running.await.unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
    let scopes = batches
        .iter()
        .flat_map(|batch| &batch.resource_spans)
        .flat_map(|of| &of.scope_spans);
    let spans: Vec<_> = scopes.flat_map(|scope| &scope.spans).collect();
    assert_eq!(spans.len(), 3, "one of each request with a key: {spans:#?}");
    assert!(!format!("{spans:?}").contains("SECRET"), "{spans:#?}");
}

#[test]
fn settings_that_cannot_be_are_one_line() {
    for (traces, says) in [
        (
            "endpoint = \"collector\"",
            "traces.endpoint: \"collector\" is no collector's address; give http://",
        ),
        ("endpoint = \"https://collector:4317\"", "traces.endpoint"),
        (
            "endpoint = \"http://collector:4317\"\nshare = 1.5",
            "traces.share: 1.5; give a share",
        ),
    ] {
        let message = config_error(&format!("[traces]\n{traces}\n"));
        assert!(
            message.contains(says) && message.lines().count() == 1,
            "{message}"
        );
    }
}
