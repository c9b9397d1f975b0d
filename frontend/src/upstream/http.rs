//! Instances over the Open Inference Protocol: any server that speaks it, with the binary tensor extension.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use parapet_frontend_core::{Failure, FailureKind, InstanceId, Outcome, PoolId};
use parapet_http_connection::{Connections, Limits, Response, SendError, Tls};
use parapet_open_inference::{ErrorObject, HEADER_CONTENT_LENGTH, InferResponse, Tensor, decode_response};
use parapet_repository::{ModelEntry, TensorSpec};
use parapet_tls::ClientTls;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::Transport;
use crate::config::{HealthSettings, ModelConfig, PoolSettings};
use crate::model::pool_settings;
use crate::payload::{Input, Output};
use crate::traces::TRACEPARENT;

/// Microseconds for which somebody waits for the answer. A header, since the body is written once for all attempts.
const TIMEOUT: &str = "parapet-timeout-us";
/// Room for the JSON part of a response beside its tensors.
const RESPONSE_HEADER_ROOM: usize = 64 * 1024;

/// All instances of one served model.
#[derive(Debug)]
pub struct HttpTransport {
    /// How the instances of each pool are reached.
    pools: Vec<Pool>,
    instances: RwLock<FxHashMap<InstanceId, Arc<Instance>>>,
}

/// What the instances of a pool have in common.
#[derive(Debug, Clone)]
struct Pool {
    limits: Limits,
    infer_path: Arc<str>,
    ready_path: Arc<str>,
    outputs: Arc<[TensorSpec]>,
    /// Where its instances are spoken to by TLS.
    tls: Option<ClientTls>,
}

#[derive(Debug)]
struct Instance {
    /// Name for people: the address as configured.
    name: String,
    /// How many are open at once is the dispatcher's business, which gives an instance no more requests than it has slots.
    connections: Connections,
    pool: Pool,
}

impl HttpTransport {
    /// Instances as listed: those of the deployed model's pool, then those of parity and backup models. Others join.
    pub fn new(config: &ModelConfig) -> Self {
        let pool = |entry: &ModelEntry, version: u64, pool: &PoolSettings| {
            let outputs: Arc<[TensorSpec]> = entry.outputs.clone().into();
            let sample_bytes: usize = entry
                .outputs
                .iter()
                .map(|output| output.sample_len().saturating_mul(output.datatype.size().unwrap_or(4096)))
                .fold(0, usize::saturating_add);
            // JSON spells a number in up to some 25 bytes.
            let max_bytes =
                sample_bytes.saturating_mul(config.max_rows).saturating_mul(8) + RESPONSE_HEADER_ROOM;
            Pool {
                limits: Limits {
                    connect_timeout: Some(config.health.connect_timeout),
                    max_response_bytes: max_bytes,
                    max_idle: pool.slots as usize + 1,
                },
                infer_path: format!("/v2/models/{}/versions/{version}/infer", entry.name).into(),
                ready_path: format!("/v2/models/{}/versions/{version}/ready", entry.name).into(),
                outputs,
                tls: config.tls.clone().filter(|_| pool.secure),
            }
        };
        let mut pools = vec![pool(&config.entry, config.version, &config.pool)];
        pools.extend(config.redundant.iter().map(|other| pool(&other.entry, other.version, &other.pool)));
        let transport = Self { pools, instances: RwLock::default() };
        for (pool, settings) in (0u8..).map(PoolId).zip(pool_settings(config)) {
            for (index, (name, address)) in (0u32..).zip(&settings.instances) {
                transport.add(InstanceId { pool, index }, name.clone(), *address);
            }
        }
        transport
    }

    fn add(&self, id: InstanceId, name: String, address: SocketAddr) {
        if let Some(pool) = self.pools.get(usize::from(id.pool.0)).cloned() {
            let tls = pool.tls.as_ref().and_then(|tls| named(tls, &name));
            let connections = Connections::new(address, pool.limits).with_tls(tls);
            self.instances.write().insert(id, Arc::new(Instance { name, connections, pool }));
        }
    }

    fn instance(&self, id: InstanceId) -> Result<Arc<Instance>, Failure> {
        let instance = self.instances.read().get(&id).map(Arc::clone);
        instance.ok_or_else(|| Failure::new(FailureKind::Unreachable, format!("{id:?} is not there")))
    }
}

/// How to speak TLS with an instance of this name, `HOST:PORT`.
fn named(tls: &ClientTls, name: &str) -> Option<Tls> {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    Some(Tls { connector: tls.connector(), name: parapet_tls::server_name(host)? })
}

impl Transport for HttpTransport {
    async fn infer(&self, id: InstanceId, input: Arc<Input>) -> Outcome<Output> {
        let instance = self.instance(id)?;
        let mut request =
            instance.request(Method::POST, &instance.pool.infer_path, input.wire.body.clone())?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, input.wire.content_type().parse().map_err(|_| instance.unsendable())?);
        if let Some(length) = input.wire.header_length {
            headers.insert(HEADER_CONTENT_LENGTH, length.into());
        }
        if let Some(deadline) = input.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            headers.insert(TIMEOUT, u64::try_from(left.as_micros()).unwrap_or(u64::MAX).into());
        }
        if let Some(parent) = input.traces.traceparent() {
            headers.insert(TRACEPARENT, parent);
        }
        let response =
            instance.connections.send(request).await.map_err(|error| instance.unanswered(&error))?;
        instance.prediction(response, input.rows)
    }

    async fn ready(&self, id: InstanceId) -> bool {
        let Ok(instance) = self.instance(id) else { return false };
        let Ok(request) = instance.request(Method::GET, &instance.pool.ready_path, Bytes::new()) else {
            return false;
        };
        matches!(instance.connections.send(request).await, Ok(response) if response.status == StatusCode::OK)
    }

    fn join(&self, id: InstanceId, address: SocketAddr) {
        self.add(id, address.to_string(), address);
    }

    fn left(&self, id: InstanceId) {
        self.instances.write().remove(&id);
    }
}

impl Instance {
    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.name.as_str())
            .body(Full::new(body))
            .map_err(|_| self.unsendable())
    }

    fn failure(&self, kind: FailureKind, reason: &str) -> Failure {
        Failure::new(kind, format!("{}: {reason}", self.name))
    }

    fn unanswered(&self, error: &SendError) -> Failure {
        let kind = if error.is_unsent() { FailureKind::Unreachable } else { FailureKind::ConnectionLost };
        self.failure(kind, &error.to_string())
    }

    fn unsendable(&self) -> Failure {
        self.failure(FailureKind::Refused, "its address or model name makes no valid request")
    }

    fn prediction(&self, response: Response, rows: usize) -> Outcome<Output> {
        if response.status != StatusCode::OK {
            return Err(self.refusal(&response));
        }
        let invalid = |reason: String| self.failure(FailureKind::InvalidOutput, &reason);
        let header_length = header_length(&response.headers).map_err(invalid)?;
        let response: InferResponse =
            decode_response(response.body, header_length).map_err(|error| invalid(error.to_string()))?;
        let mut outputs = response.outputs;
        let tensors = self
            .pool
            .outputs
            .iter()
            .map(|spec| take_output(&mut outputs, spec, rows))
            .collect::<Result<Vec<Tensor>, String>>()
            .map_err(invalid)?;
        Ok(Output { tensors, confidence: 1.0 })
    }

    /// What a status other than 200 says about the instance and the query.
    fn refusal(&self, response: &Response) -> Failure {
        let kind = match response.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => FailureKind::InstanceBusy,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                FailureKind::Refused
            }
            _ => FailureKind::InstanceError,
        };
        let said = serde_json::from_slice::<ErrorObject>(&response.body).map(|object| object.error).ok();
        let said: String = said.unwrap_or_default().chars().take(200).collect();
        self.failure(kind, &format!("{} {said}", response.status))
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, String> {
    headers
        .get(HEADER_CONTENT_LENGTH)
        .map(|value| {
            value
                .to_str()
                .ok()
                .and_then(|value| value.parse().ok())
                .ok_or_else(|| format!("{HEADER_CONTENT_LENGTH} is not a number of bytes"))
        })
        .transpose()
}

/// The output that `spec` describes, for `rows` samples (CG-6: nothing else gets into a group).
fn take_output(outputs: &mut Vec<Tensor>, spec: &TensorSpec, rows: usize) -> Result<Tensor, String> {
    let position = outputs
        .iter()
        .position(|tensor| tensor.name == spec.name)
        .ok_or_else(|| format!("no output {:?} in the answer", spec.name))?;
    let tensor = outputs.swap_remove(position);
    let expected = || std::iter::once(rows).chain(spec.shape.iter().copied());
    if tensor.datatype != spec.datatype || !tensor.shape.iter().copied().eq(expected()) {
        let (name, shape, datatype) = (&tensor.name, &tensor.shape, tensor.datatype);
        let expected: Vec<usize> = expected().collect();
        return Err(format!("output {name:?} is {datatype} {shape:?}, not {} {expected:?}", spec.datatype));
    }
    if tensor.has_non_finite() {
        return Err(format!("output {:?} holds a NaN or an infinity", tensor.name));
    }
    Ok(tensor)
}

/// Bounds a readiness check.
pub(crate) async fn ready_within<T: Transport>(
    transport: &T,
    id: InstanceId,
    settings: &HealthSettings,
) -> bool {
    tokio::time::timeout(settings.timeout, transport.ready(id)).await.unwrap_or(false)
}
