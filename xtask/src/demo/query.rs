//! Request bodies to try with curl.

use std::fs::{self, File};
use std::io::Read as _;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::json;

use super::cluster::Ports;
use crate::workspace;
use crate::workspace::demo as folder;

/// Bytes of an IDX header with three dimensions.
const IDX_HEADER: usize = 16;
const SIDE: usize = 28;

/// The first test image as a binary body.
pub(crate) struct BinaryQuery {
    /// JSON, then the tensor.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the JSON.
    pub(crate) header_length: usize,
}

const SHAPE: [usize; 4] = [1, 1, SIDE, SIDE];

fn pixels() -> Result<Vec<f32>> {
    let data = workspace::root().join("deploy/local/data/fashion2k/t10k-images-idx3-ubyte.gz");
    let mut bytes = vec![0; IDX_HEADER + SIDE * SIDE];
    let file = File::open(&data).with_context(|| format!("cannot open {}", data.display()))?;
    GzDecoder::new(file)
        .read_exact(&mut bytes)
        .with_context(|| format!("{} is cut short", data.display()))?;
    Ok(bytes
        .iter()
        .skip(IDX_HEADER)
        .map(|&byte| f32::from(byte) / 255.0)
        .collect())
}

/// The first test image with the binary tensor extension.
pub(crate) fn binary_query() -> Result<BinaryQuery> {
    let pixels = pixels()?;
    let header = json!({
        "inputs": [{
            "name": "input", "datatype": "FP32", "shape": SHAPE,
            "parameters": { "binary_data_size": pixels.len() * 4 },
        }],
    });
    let mut bytes = header.to_string().into_bytes();
    let header_length = bytes.len();
    bytes.extend(pixels.iter().flat_map(|value| value.to_le_bytes()));
    Ok(BinaryQuery {
        bytes,
        header_length,
    })
}

/// Writes the first test image as a JSON and as a binary body; returns the lines that send them.
pub(crate) fn write(ports: Ports) -> Result<String> {
    let body = json!({
        "id": "first",
        "inputs": [{ "name": "input", "datatype": "FP32", "shape": SHAPE, "data": pixels()? }],
    });
    fs::write(folder().join("query.json"), body.to_string()).context("cannot write query.json")?;
    let binary = binary_query()?;
    fs::write(folder().join("query.bin"), binary.bytes).context("cannot write query.bin")?;

    let url = format!(
        "http://127.0.0.1:{}/v2/models/fashion/infer",
        ports.frontend()
    );
    Ok(format!(
        "curl -i {url} -d @.parapet/demo/query.json\n\
         curl -i {url} -H 'Inference-Header-Content-Length: {}' --data-binary \
         @.parapet/demo/query.bin\n",
        binary.header_length
    ))
}
