//! Generates ONNX's messages from `proto/onnx.bin`, so that protoc is needed only where it changes.

use prost::Message as _;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto/onnx.bin");
    let files = include_bytes!("proto/onnx.bin");
    prost_build::compile_fds(prost_types::FileDescriptorSet::decode(&files[..])?)
}
