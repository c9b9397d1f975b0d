//! Generates the clients and servers of the control plane and of a served registry.

fn main() -> std::io::Result<()> {
    for proto in ["proto/control.proto", "proto/registry.proto"] {
        println!("cargo::rerun-if-changed={proto}");
        tonic_prost_build::compile_protos(proto)?;
    }
    Ok(())
}
