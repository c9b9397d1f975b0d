//! Generates the service's client and server. Its messages are in `src/message.rs`, so that neither
//! protoc nor a parser of its language is needed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "grpc")]
    service::generate();
}

#[cfg(feature = "grpc")]
mod service {
    use tonic_build::manual::{Builder, Method, Service};

    /// Name in Rust, name in the protocol.
    const METHODS: [(&str, &str); 7] = [
        ("server_live", "ServerLive"),
        ("server_ready", "ServerReady"),
        ("model_ready", "ModelReady"),
        ("server_metadata", "ServerMetadata"),
        ("model_metadata", "ModelMetadata"),
        ("model_config", "ModelConfig"),
        ("model_infer", "ModelInfer"),
    ];

    pub(crate) fn generate() {
        let service = Service::builder().name("GRPCInferenceService").package("inference");
        let service = METHODS.iter().fold(service, |service, (name, route)| {
            let method = Method::builder()
                .name(name)
                .route_name(route)
                .input_type(format!("crate::grpc::message::{route}Request"))
                .output_type(format!("crate::grpc::message::{route}Response"))
                .codec_path("crate::grpc::wire::BoundedCodec");
            service.method(method.build())
        });
        Builder::new().compile(&[service.build()]);
    }
}
