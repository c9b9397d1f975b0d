//! Generates the client and server of the control plane.

fn main() -> std::io::Result<()> {
    tonic_prost_build::compile_protos("proto/control.proto")
}
