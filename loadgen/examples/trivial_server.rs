//! A server that answers every inference with the same scores, on one thread: what the generator
//! itself costs shows against it. Prints its address; serves a model `trivial` that takes 784
//! values.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parapet_open_inference::{
    Datatype, Encoded, HEADER_CONTENT_LENGTH, InferResponse, ModelMetadata, Tensor, TensorMetadata,
    encode_response,
};
use tokio::net::TcpSocket;

const CLASSES: usize = 10;
const BACKLOG: u32 = 4096;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let metadata = ModelMetadata {
        name: "trivial".to_owned(),
        versions: vec!["1".to_owned()],
        platform: "none".to_owned(),
        inputs: vec![TensorMetadata::batched("image", Datatype::Fp32, &[784])],
        outputs: vec![TensorMetadata::batched(
            "scores",
            Datatype::Fp32,
            &[CLASSES],
        )],
    };
    let metadata = Bytes::from(serde_json::to_vec(&metadata)?);
    let scores = Tensor::from_f32("scores", [1, CLASSES], &[0.1; CLASSES])?;
    let response = InferResponse {
        model_name: "trivial".to_owned(),
        outputs: vec![scores],
        ..InferResponse::default()
    };
    let answer = encode_response(&response, |_| true)?;
    // The default backlog of 128 overflows when this process is stopped under load, and connections
    // that the kernel then drops come again only after a second: that would be measured instead of
    // the stop.
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (metadata, answer) = (metadata.clone(), answer.clone());
        let service = service_fn(move |request| respond(request, metadata.clone(), answer.clone()));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(
    request: Request<Incoming>,
    metadata: Bytes,
    answer: Encoded,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::new(metadata)));
    }
    // The body is read, as any server must.
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(answer.body));
    if let Some(length) = answer.header_length {
        response
            .headers_mut()
            .insert(HEADER_CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}
