//! An emulated instance, on one thread: answers every inference with zeros after a constant time,
//! so that the cost of the generator or of a proxy shows. Prints its address; serves a model
//! `trivial` that takes 784 values, or one of a repository.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parapet_config::repository::ModelRepository;
use parapet_open_inference::grpc::{Form, write_response};
use parapet_open_inference::{
    Datatype, Encoded, HEADER_CONTENT_LENGTH, InferResponse, ModelMetadata, Tensor, TensorMetadata,
    encode_response,
};
use prost::Message;
use tokio::net::TcpSocket;

const BACKLOG: u32 = 4096;

#[derive(Parser)]
struct Args {
    /// Serve the model of this repository instead
    #[arg(long, requires = "model")]
    repository: Option<PathBuf>,
    /// Name of the model
    #[arg(long, requires = "repository")]
    model: Option<String>,
    /// Microseconds from a request to its answer
    #[arg(long, default_value_t = 0)]
    service_us: u64,
}

fn trivial() -> ModelMetadata {
    ModelMetadata {
        name: "trivial".to_owned(),
        versions: vec!["1".to_owned()],
        platform: "none".to_owned(),
        inputs: vec![TensorMetadata::batched("image", Datatype::Fp32, &[784])],
        outputs: vec![TensorMetadata::batched("scores", Datatype::Fp32, &[10])],
    }
}

/// One row of zeros for every output.
fn answer(model: &ModelMetadata) -> anyhow::Result<InferResponse> {
    let output = |output: &TensorMetadata| {
        let axes = output.shape.iter().map(|&axis| usize::try_from(axis).unwrap_or(1));
        let shape: Vec<usize> = axes.collect();
        let zeros = vec![0.0; shape.iter().product()];
        Tensor::from_f32(&output.name, shape, &zeros)
    };
    Ok(InferResponse {
        model_name: model.name.clone(),
        model_version: model.versions.last().cloned(),
        outputs: model.outputs.iter().map(output).collect::<Result<_, _>>()?,
        ..InferResponse::default()
    })
}

/// The response as a gRPC message, after its flag and length.
fn grpc_message(response: &InferResponse) -> anyhow::Result<Bytes> {
    let message = write_response(response, Form::Raw).encode_to_vec();
    let length = u32::try_from(message.len())?.to_be_bytes();
    Ok([&[0], &length[..], &message].concat().into())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let model = match (&args.repository, &args.model) {
        (Some(repository), Some(model)) => {
            ModelRepository::open(repository)?.load(model)?.metadata()
        }
        _ => trivial(),
    };
    let metadata = Bytes::from(serde_json::to_vec(&model)?);
    let response = answer(&model)?;
    let (answer, message) = (encode_response(&response, |_| true)?, grpc_message(&response)?);
    let service_time = Duration::from_micros(args.service_us);
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
        let (metadata, answer, message) = (metadata.clone(), answer.clone(), message.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (metadata, answer, message) = (metadata.clone(), answer.clone(), message.clone());
            async move {
                Ok::<_, Infallible>(match request.version() {
                    Version::HTTP_2 => {
                        call(request, message, service_time).await.map(Either::Right)
                    }
                    _ => respond(request, metadata, answer, service_time).await.map(Either::Left),
                })
            }
        });
        let stream = TokioIo::new(stream);
        tokio::spawn(async move {
            // A client that breaks off.
            let _ =
                auto::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    metadata: Bytes,
    answer: Encoded,
    service_time: Duration,
) -> Response<Full<Bytes>> {
    if request.method() == Method::GET {
        return Response::new(Full::new(metadata));
    }
    // The body is read, as any server must.
    let _ = request.into_body().collect().await;
    // One at a time, as a model computes; tokio's timers know milliseconds only.
    std::thread::sleep(service_time);
    let mut response = Response::new(Full::new(answer.body));
    if let Some(length) = answer.header_length {
        response.headers_mut().insert(HEADER_CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

type Trailers = std::future::Ready<Option<Result<HeaderMap, Infallible>>>;

/// Answers any gRPC call with one message.
async fn call(
    request: Request<Incoming>,
    message: Bytes,
    service_time: Duration,
) -> Response<WithTrailers<Full<Bytes>, Trailers>> {
    let _ = request.into_body().collect().await;
    std::thread::sleep(service_time);
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}
