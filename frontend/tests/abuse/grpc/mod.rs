//! Abuse of the gRPC listener, beside a bystander who asks over gRPC.

pub mod connections;
pub mod flood;
pub mod frames;
pub mod messages;
pub mod wire;

use std::error::Error as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use parapet_open_inference::grpc::message::ModelInferRequest;
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::site::{Answered, HUNG, Site};
use crate::support::{SAMPLE, assert_close, gzipped, infer_request, linear};

/// Less than what a connection may be idle.
const IDLE: Duration = Duration::from_millis(300);

pub const GZIP: (&str, &str) = ("grpc-encoding", "gzip");
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

pub fn request(sample: &[f32]) -> ModelInferRequest {
    write_request("linear", None, &infer_request(sample))
}

/// Asks again and again, on a connection that is opened anew when it is closed; panics at the first
/// answer that is wrong or does not come.
pub async fn bystander(address: SocketAddr, answered: Answered) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = InferenceClient::new(endpoint.connect_lazy());
    let mut answered_last = Instant::now();
    loop {
        let idle = answered_last.elapsed() > IDLE;
        let asked = Instant::now();
        let answer = tokio::time::timeout(HUNG, client.model_infer(request(&SAMPLE))).await;
        answered_last = Instant::now();
        let answer = match answer.expect("an answer") {
            // A connection that was closed while it was idle, since the test had no time for it, is
            // no missing answer.
            Err(lost) if idle && lost.source().is_some() => continue,
            answer => answer.expect("a prediction"),
        };
        let response = read_response(answer.into_inner()).unwrap();
        let values = response.outputs[0].f32s().unwrap();
        assert_close(&values, &linear(&SAMPLE));
        answered.note(asked);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An abuser's connection, and its end.
pub async fn client(site: &Site) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    client_with(site, &Builder::new()).await
}

pub async fn client_with(
    site: &Site,
    builder: &Builder,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let (client, connection) = builder.handshake(site.grpc_abuser().await).await.unwrap();
    (client, tokio::spawn(connection))
}

/// A message with its prefix.
pub fn framed(flag: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat().into()
}

/// The same, compressed.
pub fn packed(message: &[u8]) -> Bytes {
    framed(1, &gzipped(message))
}

pub fn sample() -> Bytes {
    framed(0, &request(&SAMPLE).encode_to_vec())
}

/// A call that must be answered with this code.
pub async fn expect(
    client: &SendRequest<Bytes>,
    headers: &[(&'static str, &str)],
    body: Bytes,
    expected: Code,
) {
    let (code, said) = call(client, headers, body, true).await.unwrap();
    assert_eq!(code, expected, "{said:?}");
}

/// An abuser's connection on which frames are sent by hand: the preface and these.
pub async fn said_by_hand(site: &Site, frames: &[u8]) -> TcpStream {
    let mut stream = site.grpc_abuser().await;
    let said = [&wire::hello(), frames].concat();
    stream.write_all(&said).await.unwrap();
    stream
}

pub fn call_of(headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::post(format!("http://x{INFER}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Begins a call: the answer that is to come, and what sends the body.
pub async fn begin(
    client: &SendRequest<Bytes>,
    call: Request<()>,
    ends: bool,
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    client.clone().ready().await?.send_request(call, ends)
}

/// A call with this body, which ends or does not; its code, and what came with it.
pub async fn call(
    client: &SendRequest<Bytes>,
    headers: &[(&'static str, &str)],
    body: Bytes,
    ends: bool,
) -> Result<(Code, HeaderMap), h2::Error> {
    let (response, mut sending) = begin(client, call_of(headers), false).await?;
    sending.send_data(body, ends)?;
    code_of(response.await?).await
}

pub async fn code_of(
    response: http::Response<h2::RecvStream>,
) -> Result<(Code, HeaderMap), h2::Error> {
    let (mut said, mut body) = (response.headers().clone(), response.into_body());
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data?.len())?;
    }
    said.extend(body.trailers().await?.unwrap_or_default());
    let code = said.get("grpc-status");
    let code = code.map_or(Code::Unknown, |code| Code::from_bytes(code.as_bytes()));
    Ok((code, said))
}
