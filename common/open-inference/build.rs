//! Generates messages, client and server from `proto/open_inference.bin`, so that protoc is needed
//! only where the protocol itself changes.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=proto/open_inference.bin");
    #[cfg(feature = "grpc")]
    service::generate()?;
    Ok(())
}

#[cfg(feature = "grpc")]
mod service {
    use prost::Message as _;
    use tonic_prost_build::FileDescriptorSet;

    pub(crate) fn generate() -> std::io::Result<()> {
        let mut files = FileDescriptorSet::decode(&include_bytes!("proto/open_inference.bin")[..])?;
        // Streams are answered beside the generated service (`src/grpc/stream.rs`).
        let services = files.file.iter_mut().flat_map(|file| &mut file.service);
        services.for_each(|service| service.method.retain(|method| !method.server_streaming()));
        let message = "crate::grpc::message";
        tonic_prost_build::configure()
            .codec_path("crate::grpc::wire::BoundedCodec")
            .btree_map(".")
            .bytes(".")
            .extern_path(".inference.InferParameter", format!("{message}::InferParameter"))
            .extern_path(
                ".inference.ModelInferRequest.InferInputTensor",
                format!("{message}::InferTensor"),
            )
            .extern_path(
                ".inference.ModelInferResponse.InferOutputTensor",
                format!("{message}::InferTensor"),
            )
            // Over REST a configuration is JSON.
            .type_attribute(".inference.ModelConfig", "#[derive(serde::Serialize)]")
            .type_attribute(".inference.ModelInput", "#[derive(serde::Serialize)]")
            .type_attribute(".inference.ModelOutput", "#[derive(serde::Serialize)]")
            .field_attribute("data_type", "#[serde(serialize_with = \"write_data_type\")]")
            .compile_fds(files)
    }
}
