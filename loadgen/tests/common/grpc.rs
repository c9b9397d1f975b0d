//! The same server over gRPC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parapet_net::server::{Limits, Server};
use parapet_open_inference::grpc::message::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use parapet_open_inference::grpc::{
    Form, InferenceServer, InferenceService, read_request, write_response,
};
use parapet_open_inference::{InferResponse, Tensor};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use super::{Act, Behaviour, CLASSES, model_metadata};

struct Service {
    behaviour: Behaviour,
    requests: Arc<AtomicUsize>,
}

/// Serves model `digits` until the runtime ends; counts the requests that it gets.
pub(crate) async fn start(behaviour: Behaviour) -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = InferenceServer::new(Service { behaviour, requests: Arc::clone(&requests) });
    let server = Server::over_http2(service, Limits::default(), 1000);
    tokio::spawn(async move { server.run(listener, std::future::pending(), Duration::ZERO).await });
    (address, requests)
}

type Reply<T> = Result<Response<T>, Status>;

fn nothing<T>() -> Reply<T> {
    Err(Status::unimplemented("the load generator does not ask this"))
}

#[tonic::async_trait]
impl InferenceService for Service {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Reply<ServerLiveResponse> {
        nothing()
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Reply<ServerReadyResponse> {
        nothing()
    }

    async fn model_ready(&self, _: Request<ModelReadyRequest>) -> Reply<ModelReadyResponse> {
        nothing()
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Reply<ServerMetadataResponse> {
        nothing()
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Reply<ModelMetadataResponse> {
        if request.get_ref().name != "digits" {
            return Err(Status::not_found("no such model"));
        }
        Ok(Response::new(model_metadata().into()))
    }

    async fn model_config(&self, _: Request<ModelConfigRequest>) -> Reply<ModelConfigResponse> {
        nothing()
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Reply<ModelInferResponse> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        assert_eq!(request.get_ref().model_name, "digits");
        let (request, _) = read_request(request.into_inner()).unwrap();
        let class = (request.inputs[0].f32s().unwrap()[0] * 255.0).round() as usize;
        let (class, provenance) = match (self.behaviour)(number, &request) {
            Act::Exact => (class, "exact"),
            Act::WrongReconstruction => ((class + 1) % CLASSES, "reconstructed"),
            Act::Refuse(_) => return Err(Status::unavailable("try later")),
            Act::Garble | Act::Never => std::future::pending().await,
        };
        let mut scores = [0.0; CLASSES];
        scores[class] = 1.0;
        let mut response = InferResponse {
            model_name: "digits".to_owned(),
            outputs: vec![Tensor::from_f32("scores", [1, CLASSES], &scores).unwrap()],
            ..InferResponse::default()
        };
        response.parameters.insert("provenance".to_owned(), provenance.into());
        response.parameters.insert("confidence".to_owned(), 0.75.into());
        Ok(Response::new(write_response(&response, Form::Raw)))
    }
}
