//! Traces of a straggler's way, and spans that reach a collector.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use parapet_frontend::tenants::{Key, MixingDomain};
use parapet_frontend::traces::{TraceSettings, Traces};
use parapet_open_inference::Parameters;
use parapet_open_inference::grpc::write_request;
use support::fixture::{Answered, Fixture, coded};
use support::memory::{SERVICE, State, id};
use support::served::{LIMIT, serve};
use support::*;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::Code;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Everything is traced that its client does not refuse to have traced.
fn traces() -> (Traces, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    (Traces::new(provider, 1.0), exporter)
}

fn headers(parent: &'static str) -> HeaderMap {
    let name = HeaderName::from_static("traceparent");
    HeaderMap::from_iter([(name, HeaderValue::from_static(parent))])
}

/// Asks as the HTTP server does.
async fn ask(fixture: &Fixture, traces: &Traces, headers: &HeaderMap) -> Answered {
    let traced = traces.begin(headers, Some("linear")).unwrap();
    let request = Fixture::request(1.0, Parameters::new());
    let answering = fixture.model.infer(MixingDomain::SHARED, request);
    let answered = traced.scope(answering).await;
    match &answered {
        Ok((_, provenance)) => traced.answered(provenance.kind, provenance.confidence),
        Err(refused) => {
            let (status, kind) = refused.classify();
            traced.failed(status, kind);
        }
    }
    answered
}

fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
    let pairs = span.attributes.iter();
    pairs.map(|pair| (pair.key.as_str(), pair.value.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_straggler_s_trace_shows_encoding_the_parity_query_and_decoding() {
    let fixture = coded(2, 1).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (traces, exporter) = traces();
    let untraced = fixture.ask(2.0);
    let (_, provenance) = ask(&fixture, &traces, &headers(PARENT)).await.unwrap();
    untraced.await.unwrap().0.unwrap();
    assert_eq!(provenance.kind, "reconstructed");
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(Duration::from_secs(1)).await; // the late truth ends the query's own request

    let spans = exporter.get_finished_spans().unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let of_trace = |span: &SpanData| span.span_context.trace_id().to_string() == trace;
    assert!(spans.iter().all(of_trace), "{spans:?}");
    // The one span of this name below this parent, and its attributes, but for their prefix.
    let one = |name: &str, parent: SpanId, expected: &[(&str, &str)]| {
        let named = spans.iter().filter(|span| span.name == name);
        let found: Vec<_> = named.filter(|span| span.parent_span_id == parent).collect();
        assert_eq!(found.len(), 1, "{name} below {parent}: {spans:#?}");
        let attributes = attributes(found[0]);
        for (attribute, value) in expected {
            let found = &attributes[format!("parapet.{attribute}").as_str()];
            assert_eq!(found, value, "{name}");
        }
        (found[0].span_context.span_id(), attributes)
    };
    let client = SpanId::from_hex("00f067aa0ba902b7").unwrap();
    let reconstructed = [("model", "linear"), ("provenance", "reconstructed")];
    let (infer, _) = one("infer", client, &reconstructed);
    let (_, said) = one("predict", infer, &[("pool", "0")]);
    assert_eq!(said.get("parapet.slot"), None);
    // The other client's task runs later.
    let (encode, _) = one("encode", infer, &[("row", "0"), ("slot", "0")]);
    let (_, said) = one("predict", encode, &[("slot", "0"), ("pool", "1")]);
    assert!(said["parapet.group"].starts_with('g'));
    one("decode", infer, &[("slot", "0")]);
    assert_eq!(spans.len(), 5, "{spans:#?}");
}

#[tokio::test(start_paused = true)]
async fn failures_and_withdrawn_requests_are_told() {
    let fixture = coded(2, 1).await;
    fixture.set_all([(0, 0), (0, 1), (1, 0)], State::Broken);
    let (traces, exporter) = traces();
    ask(&fixture, &traces, &HeaderMap::new()).await.unwrap_err();
    sleep(Duration::from_secs(2)).await;
    let spans = exporter.get_finished_spans().unwrap();
    let failed = |name: &str| {
        let is_error = |span: &&SpanData| matches!(span.status, Status::Error { .. });
        spans.iter().filter(|span| span.name == name).filter(is_error).count()
    };
    assert_eq!(failed("infer"), 1, "{spans:#?}");
    // Attempts and their retries.
    assert!(failed("predict") >= 2, "{spans:#?}");
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
    let settings = TraceSettings { endpoint, share: 1.0, service_name: "edge".to_owned() };
    let traces = Arc::new(Traces::export(&settings).unwrap());
    let traced = traces.begin(&HeaderMap::new(), Some("linear")).unwrap();
    traced.answered("exact", Some(1.0));
    let shutdown = tokio::task::spawn_blocking(move || traces.shutdown());
    shutdown.await.unwrap();
    let batch = timeout(LIMIT, received.recv()).await.unwrap().unwrap();
    let spans = &batch.resource_spans[0];
    let mut attributes = spans.resource.as_ref().unwrap().attributes.iter();
    let service = attributes.find(|pair| pair.key == "service.name");
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
    let text = with_server(&plain_toml(repository.path(), &[instance], ""), GRPC);
    let text = format!(
        "[traces]\nendpoint = \"{endpoint}\"\nshare = 1.0\n\
         [[tenants]]\nname = \"a\"\nkey_sha256 = [\"{}\"]\n{text}",
        key.hash()
    );
    let served = serve(repository, &text).await;

    let authorization = format!("Bearer {}", key.text());
    let headers = [("authorization", authorization.as_str())];
    let secret = body(&[1.0; INPUTS], "").replace("FP32", "SECRET");
    for (model, status) in [("linear", 400), ("SECRET", 404)] {
        let path = format!("/v2/models/{model}/infer");
        let refused = post(served.address, &path, &headers, &secret).await;
        assert_eq!(refused.status.as_u16(), status);
    }
    let mut client = served.grpc_client().await;
    let mut message = write_request("linear", None, &infer_request(&SAMPLE));
    message.inputs[0].datatype = "SECRET".to_owned();
    let refused = client.model_infer(message.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut asked = tonic::Request::new(message);
    let authorization = authorization.parse().unwrap();
    asked.metadata_mut().insert("authorization", authorization);
    let refused = client.model_infer(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    served.stop().await;
    let batches: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
    let resources = batches.iter().flat_map(|batch| &batch.resource_spans);
    let scopes = resources.flat_map(|of| &of.scope_spans);
    let spans: Vec<_> = scopes.flat_map(|scope| &scope.spans).collect();
    assert_eq!(spans.len(), 3, "one of each request with a key: {spans:#?}");
    assert!(!format!("{spans:?}").contains("SECRET"), "{spans:#?}");
}

#[test]
fn settings_that_cannot_be_are_one_line() {
    let repository = repository();
    let text = plain_toml(repository.path(), &addresses(1, 7000), "");
    let mistakes = r#"
        endpoint = "collector" => traces.endpoint: "collector" is no collector's address; give http://
        endpoint = "https://collector:4317" => traces.endpoint
        endpoint = "http://collector:4317"\nshare = 1.5 => traces.share: 1.5; give a share
    "#;
    for [traces, part] in rows(mistakes) {
        refused(&format!("[traces]\n{traces}\n{text}"), &[&part]);
    }
}
