//! Writes the published JSON Schemas: `cargo run --example write_schemas`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    std::fs::create_dir_all(&folder)?;
    for (name, schema) in parapet_loadgen::report::schemas() {
        std::fs::write(folder.join(name), serde_json::to_string_pretty(&schema)? + "\n")?;
    }
    Ok(())
}
