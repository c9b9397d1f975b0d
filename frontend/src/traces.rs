//! Traces (OpenTelemetry): where the time of a request went, and of what was done for it beside it.
//!
//! A share of the requests is traced, and every request whose client has begun a sampled trace
//! (`traceparent`, W3C Trace Context). Below the request's span hang `predict` (a request to an
//! instance), `encode` (of the request's coding group), the `predict` of the group's parity query
//! below that, and `decode`. A parity query belongs to all members of its group: each traced one
//! has the spans in its own trace. Requests that are not traced cost a look at their headers.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span,
};
use parapet_frontend_core::{GroupId, InstanceId, Row, Slot};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::ErrorKind;

mod parent;

pub(crate) use parent::TRACEPARENT;

/// Spans that wait to be sent to the collector; more are dropped.
const MAX_QUEUED: usize = 8192;
/// For the collector to take a batch, and at the end all that is left.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSettings {
    /// The collector: `http://HOST:PORT`, OTLP over gRPC.
    pub endpoint: String,
    /// Share of requests traced, 0 to 1, of those whose clients do not say by `traceparent`.
    #[serde(default = "one_percent")]
    pub share: f64,
    #[serde(default = "service_name")]
    pub service_name: String,
}

const fn one_percent() -> f64 {
    0.01
}

fn service_name() -> String {
    "parapet-frontend".to_owned()
}

tokio::task_local! {
    static CURRENT: Trace;
}

#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    share: f64,
}

impl Traces {
    /// Sends spans to the collector that the settings name, by OTLP over gRPC. To be called on a
    /// runtime, which connects. While the collector is away its spans are dropped.
    pub fn export(settings: &TraceSettings) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(settings.endpoint.clone())
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let batches = BatchConfigBuilder::default().with_max_queue_size(MAX_QUEUED).build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let resource = Resource::builder().with_service_name(settings.service_name.clone()).build();
        // Which requests are traced is decided before a span is made.
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource)
            .build();
        Ok(Self::new(provider, settings.share))
    }

    /// Gives spans to `provider`; traces `share` (0 to 1) of the requests whose clients do not say.
    pub fn new(provider: SdkTracerProvider, share: f64) -> Self {
        Self { tracer: provider.tracer("parapet-frontend"), provider, share }
    }

    /// The trace of a request that begins now, if it is to have one. `model` is a served model: a
    /// span repeats no name that only a client knows.
    pub fn begin(&self, headers: &HeaderMap, model: Option<&str>) -> Option<TracedRequest> {
        let parent = parent::of(headers);
        let sampled = match &parent {
            Some(parent) => parent.is_sampled(),
            None => self.share > 0.0 && rand::rng().random::<f64>() < self.share,
        };
        if !sampled {
            return None;
        }
        let of_client = |parent| Context::new().with_remote_span_context(parent);
        let parent = parent.map_or_else(Context::new, of_client);
        let model = model.map(|model| KeyValue::new("parapet.model", model.to_owned()));
        let builder = self.tracer.span_builder("infer").with_kind(SpanKind::Server);
        let span = builder.with_attributes(model).start_with_context(&self.tracer, &parent);
        let trace = Trace { tracer: self.tracer.clone(), parent: span.span_context().clone() };
        Some(TracedRequest { span, trace })
    }

    /// Sends what is left. Blocks for at most some seconds, in which the runtime must run.
    pub fn shutdown(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "not all spans of the last requests reached the collector");
        }
    }
}

#[derive(Debug)]
pub struct TracedRequest {
    span: Span,
    trace: Trace,
}

impl TracedRequest {
    pub fn id(&self) -> String {
        self.trace.parent.trace_id().to_string()
    }

    /// Runs what answers the request: what is done for it there and later is seen in its trace.
    pub async fn scope<F: Future>(&self, answering: F) -> F::Output {
        CURRENT.scope(self.trace.clone(), answering).await
    }

    pub fn answered(mut self, provenance: &'static str, confidence: Option<f32>) {
        self.span.set_attribute(KeyValue::new("parapet.provenance", provenance));
        if let Some(confidence) = confidence.map(f64::from) {
            self.span.set_attribute(KeyValue::new("parapet.confidence", confidence));
        }
    }

    /// Ends the span of a request that was refused or failed. Error texts may repeat inputs, so
    /// that the span has the kind alone.
    pub fn failed(mut self, status: StatusCode, kind: ErrorKind) {
        let status = i64::from(status.as_u16());
        self.span.set_attribute(KeyValue::new("http.response.status_code", status));
        self.span.set_status(Status::error(kind.name()));
    }
}

#[derive(Debug, Clone)]
pub struct Trace {
    tracer: SdkTracer,
    parent: SpanContext,
}

impl Trace {
    /// That of the request which is being answered, if it is traced.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    fn span(&self, name: &'static str, kind: SpanKind, attributes: Vec<KeyValue>) -> Span {
        let parent = Context::new().with_remote_span_context(self.parent.clone());
        let builder = self.tracer.span_builder(name).with_kind(kind);
        builder.with_attributes(attributes).start_with_context(&self.tracer, &parent)
    }

    pub(crate) fn decode(&self, slot: Slot) -> Span {
        let attributes = vec![KeyValue::new("parapet.slot", i64::from(slot.0))];
        self.span("decode", SpanKind::Internal, attributes)
    }
}

/// The traces of an upstream request: its query's, or those of all traced members of its group.
#[derive(Debug, Clone, Default)]
pub struct Members(SmallVec<[Member; 1]>);

#[derive(Debug, Clone)]
struct Member {
    trace: Trace,
    /// For a parity query: which, and the member's place in the group.
    coded: Option<(GroupId, Row, Slot)>,
}

impl Member {
    fn attributes(&self) -> Vec<KeyValue> {
        let Some((group, row, slot)) = self.coded else { return Vec::new() };
        vec![
            KeyValue::new("parapet.group", group.to_string()),
            KeyValue::new("parapet.row", i64::from(row.0)),
            KeyValue::new("parapet.slot", i64::from(slot.0)),
        ]
    }
}

impl Members {
    pub(crate) fn of_query(trace: Option<&Trace>) -> Self {
        let member = |trace: &Trace| Member { trace: trace.clone(), coded: None };
        Self(trace.map(member).into_iter().collect())
    }

    pub(crate) fn predict(&self, instance: InstanceId) -> Spans {
        let span = |member: &Member| {
            let mut attributes = member.attributes();
            attributes.push(KeyValue::new("parapet.pool", i64::from(instance.pool.0)));
            attributes.push(KeyValue::new("parapet.instance", i64::from(instance.index)));
            member.trace.span("predict", SpanKind::Client, attributes)
        };
        Spans(self.0.iter().map(span).collect())
    }

    /// The spans of the encoding of a group's `row` out of queries with these traces, in slot
    /// order, and the parity query's.
    pub(crate) fn encode<'a>(
        group: GroupId,
        row: Row,
        queries: impl Iterator<Item = &'a Self>,
    ) -> (Spans, Self) {
        let (mut spans, mut members) = (Spans::default(), Self::default());
        for (slot, query) in (0u8..).map(Slot).zip(queries) {
            for member in &query.0 {
                let mut member = Member { coded: Some((group, row, slot)), ..member.clone() };
                let span = member.trace.span("encode", SpanKind::Internal, member.attributes());
                member.trace.parent = span.span_context().clone();
                spans.0.push(span);
                members.0.push(member);
            }
        }
        (spans, members)
    }

    /// Returns the header that gives an instance the trace that its request belongs to (of
    /// several, the first).
    pub(crate) fn traceparent(&self) -> Option<HeaderValue> {
        let context = &self.0.first()?.trace.parent;
        let flags = context.trace_flags() & TraceFlags::SAMPLED;
        let (trace, span) = (context.trace_id(), context.span_id());
        HeaderValue::from_str(&format!("00-{trace}-{span}-{:02x}", flags.to_u8())).ok()
    }
}

/// Spans of one thing in several traces; they end when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Spans(SmallVec<[Span; 1]>);

impl Spans {
    /// It failed, for a reason that repeats nothing of inputs.
    pub(crate) fn failed(&mut self, reason: impl Into<Cow<'static, str>>) {
        let reason = reason.into();
        for span in &mut self.0 {
            span.set_status(Status::error(reason.clone()));
        }
    }

    pub(crate) fn withdrawn(&mut self) {
        for span in &mut self.0 {
            span.set_attribute(KeyValue::new("parapet.withdrawn", true));
        }
    }
}
