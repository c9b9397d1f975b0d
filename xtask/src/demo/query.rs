//! Request bodies to try with curl.

use std::fs::{self, File};
use std::io::Read as _;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::json;

use super::cluster::Ports;
use super::folder;
use crate::workspace;

/// Bytes of an IDX header with three dimensions.
const IDX_HEADER: usize = 16;
const SIDE: usize = 28;

/// Writes the first test image as a JSON and as a binary body; returns the lines that send them.
pub(crate) fn write(ports: Ports) -> Result<String> {
    let data = workspace::root().join("deploy/local/data/fashion2k/t10k-images-idx3-ubyte.gz");
    let mut bytes = vec![0; IDX_HEADER + SIDE * SIDE];
    let file = File::open(&data).with_context(|| format!("cannot open {}", data.display()))?;
    GzDecoder::new(file)
        .read_exact(&mut bytes)
        .with_context(|| format!("{} is cut short", data.display()))?;
    let pixels: Vec<f32> = bytes.iter().skip(IDX_HEADER).map(|&byte| f32::from(byte) / 255.0).collect();
    let shape = [1, 1, SIDE, SIDE];

    let body = json!({
        "id": "first",
        "inputs": [{ "name": "input", "datatype": "FP32", "shape": shape, "data": pixels }],
    });
    fs::write(folder().join("query.json"), body.to_string()).context("cannot write query.json")?;

    let header = json!({
        "inputs": [{
            "name": "input", "datatype": "FP32", "shape": shape,
            "parameters": { "binary_data_size": pixels.len() * 4 },
        }],
    })
    .to_string();
    let mut binary = header.clone().into_bytes();
    binary.extend(pixels.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(folder().join("query.bin"), binary).context("cannot write query.bin")?;

    let url = format!("http://127.0.0.1:{}/v2/models/fashion/infer", ports.frontend());
    Ok(format!(
        "curl -i {url} -d @.parapet/demo/query.json\n\
         curl -i {url} -H 'Inference-Header-Content-Length: {}' --data-binary @.parapet/demo/query.bin\n",
        header.len()
    ))
}
