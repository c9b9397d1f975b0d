//! Generates the client and server of a served store.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/registry.proto");
    #[cfg(feature = "served")]
    tonic_prost_build::compile_protos("proto/registry.proto")?;
    Ok(())
}
