//! Generates the client and server of the control plane.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto/control.proto");
    tonic_prost_build::compile_protos("proto/control.proto")
}
