//! Payload: samples as request bodies, all encoded before the run: sending costs next to nothing.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use parapet_datasets::idx::read_idx;
use parapet_open_inference::grpc::write_request;
use parapet_open_inference::{
    Datatype, Encoding, InferRequest, ModelMetadata, ProtocolError, Tensor, encode_request,
};
use prost::Message as _;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// Most distinct rows that a run sends; it goes round them. Bounds what is held in memory.
pub const MAX_DISTINCT: usize = 10_000;

/// The ChaCha stream of the order of rows; the schedule has stream 0 of the same seed.
const ORDER_STREAM: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(clap::ValueEnum, Display)]
#[strum(serialize_all = "lowercase")]
pub enum WireEncoding {
    Binary,
    Json,
    /// Raw contents in gRPC's messages.
    Grpc,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestOptions {
    pub encoding: WireEncoding,
    /// Milliseconds that each request may take from its actual send.
    pub timeout_ms: u64,
    /// True if reconstructed answers will do (`allow_approximate`); `None` leaves it to the server.
    pub allow_approximate: Option<bool>,
    /// Milliseconds that the server has to answer (`timeout`, in microseconds on the wire).
    pub deadline_ms: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Body {
    pub bytes: Bytes,
    /// Length of its JSON part where binary tensors follow.
    pub header_length: Option<usize>,
    pub content_type: &'static str,
    pub row: usize,
    pub label: Option<usize>,
}

/// Bodies of a run in the order in which they are sent, round and round.
#[derive(Debug, Clone)]
pub struct Bodies(Vec<Body>);

impl Bodies {
    /// Encodes rows for `model`, in an order of `seed`: at most [`MAX_DISTINCT`] or `requests`.
    pub fn encode(
        rows: &Rows,
        model: &ModelMetadata,
        options: RequestOptions,
        requests: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let (input, shape) = input_of(rows, model)?;
        let mut order: Vec<usize> = (0..rows.count).collect();
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(ORDER_STREAM);
        order.shuffle(&mut random);
        order.truncate(MAX_DISTINCT.min(requests.max(1)));
        let body = |row: usize| {
            let tensor = Tensor::from_f32(input, shape.clone(), &rows.sample(row))?;
            let mut request = InferRequest { inputs: vec![tensor], ..InferRequest::default() };
            options.write_to(&mut request);
            let rest = |encoding| -> Result<_, ProtocolError> {
                let encoded = encode_request(&request, encoding)?;
                let content_type = encoded.content_type();
                Ok((encoded.body, encoded.header_length, content_type))
            };
            let (bytes, header_length, content_type) = match options.encoding {
                WireEncoding::Binary => rest(Encoding::Binary)?,
                WireEncoding::Json => rest(Encoding::Json)?,
                WireEncoding::Grpc => {
                    let message = write_request(&model.name, None, &request);
                    (message.encode_to_vec().into(), None, "application/grpc")
                }
            };
            Ok(Body { bytes, header_length, content_type, row, label: rows.label(row) })
        };
        let bodies: Result<_, ProtocolError> = order.into_iter().map(body).collect();
        bodies.map(Self).context("a row cannot be encoded")
    }

    pub fn of(&self, index: usize) -> &Body {
        &self.0[index % self.0.len()]
    }
}

impl RequestOptions {
    fn write_to(self, request: &mut InferRequest) {
        if self.encoding == WireEncoding::Binary {
            request.ask_binary_outputs();
        }
        let parameters = &mut request.parameters;
        if let Some(allow) = self.allow_approximate {
            parameters.insert("allow_approximate".to_owned(), allow.into());
        }
        if let Some(deadline_ms) = self.deadline_ms {
            parameters.insert("timeout".to_owned(), deadline_ms.saturating_mul(1000).into());
        }
    }
}

/// The model's input and the shape of a request of one sample.
fn input_of<'a>(rows: &Rows, model: &'a ModelMetadata) -> anyhow::Result<(&'a str, Vec<usize>)> {
    let (name, inputs) = (&model.name, model.inputs.len());
    let [input] = model.inputs.as_slice() else {
        bail!("model {name:?} has {inputs} inputs; images can only be sent to a model with one");
    };
    ensure!(
        input.datatype == Datatype::Fp32,
        "model {name:?}: input {:?} is {}; only FP32 inputs can be sent, choose another --model",
        input.name,
        input.datatype
    );
    // The batch axis comes first, of any length: one sample each here. Others of any length are as
    // in the images, counted from the last.
    let axes = input.shape.len();
    let axis = |(index, &length): (usize, &i64)| match (index, length) {
        (0, -1) => Some(1),
        (_, -1) => rows.shape.iter().rev().nth(axes - index - 1).copied(),
        (_, length) => usize::try_from(length).ok(),
    };
    let shape: Option<Vec<usize>> = input.shape.iter().enumerate().map(axis).collect();
    let elements = |shape: &[usize]| {
        let mut axes = shape.iter();
        axes.try_fold(1_usize, |product, &axis| product.checked_mul(axis))
    };
    match shape {
        Some(shape) if elements(&shape) == Some(rows.sample_len()) => Ok((&input.name, shape)),
        _ => bail!(
            "model {name:?}: input {:?} has shape {:?} but the images are {:?}, another number of \
             elements; give --images that fit the model",
            input.name,
            input.shape,
            rows.shape
        ),
    }
}

/// Samples of one shape; with their classes where these are known.
#[derive(Debug, Clone)]
pub struct Rows {
    pub shape: Vec<usize>,
    /// Number of samples; at least one.
    pub count: usize,
    bytes: Vec<u8>,
    labels: Option<Vec<u8>>,
    pub names: (String, Option<String>),
}

impl Rows {
    /// Reads a file of samples and, where there is one, one of classes.
    pub fn load(images: &Path, labels: Option<&Path>) -> anyhow::Result<Self> {
        let idx = read_idx(images)?;
        let (count, shape) = match idx.dims.as_slice() {
            [count, shape @ ..] if !shape.is_empty() => (*count, shape.to_vec()),
            _ => bail!("{}", wrong_axes(images, idx.dims.len())),
        };
        let images = images.display();
        ensure!(!idx.bytes.is_empty(), "{images}: holds no samples; use a file that does");
        let mut names = (images.to_string(), None);
        let mut classes = None;
        if let Some(path) = labels {
            let labels = read_idx(path)?;
            let axes = labels.dims.len();
            ensure!(axes == 1, "{}", wrong_axes(path, axes));
            let (path, known) = (path.display(), labels.bytes.len());
            ensure!(
                known == count,
                "{images} has {count} samples but {path} has {known} labels; give two files that \
                 belong together"
            );
            names.1 = Some(path.to_string());
            classes = Some(labels.bytes);
        }
        Ok(Self { shape, count, bytes: idx.bytes, labels: classes, names })
    }

    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of sample `row`, scaled to `0.0..=1.0`; empty if there is no such sample.
    pub fn sample(&self, row: usize) -> Vec<f32> {
        let length = self.sample_len();
        let bytes = self.bytes.get(row * length..(row + 1) * length).unwrap_or_default().iter();
        bytes.map(|&byte| f32::from(byte) / 255.0).collect()
    }

    pub fn label(&self, row: usize) -> Option<usize> {
        self.labels.as_ref()?.get(row).copied().map(usize::from)
    }
}

fn wrong_axes(path: &Path, axes: usize) -> String {
    format!(
        "{}: has {axes} axes; images want 2 or more (count, then a sample's), labels 1; check \
         which file is which",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use parapet_open_inference::TensorMetadata;

    use super::*;

    #[test]
    fn axes_of_any_length_are_as_in_the_images() {
        let bytes = vec![0; 28 * 20];
        let names = (String::new(), None);
        let rows = Rows { shape: vec![28, 20], count: 1, bytes, labels: None, names };
        let shape = |sample: &[i64]| {
            let model = ModelMetadata {
                name: "m".to_owned(),
                versions: Vec::new(),
                platform: String::new(),
                inputs: vec![TensorMetadata::batched("x", Datatype::Fp32, sample)],
                outputs: Vec::new(),
            };
            input_of(&rows, &model).map(|(_, shape)| shape).ok()
        };
        for sample in [&[1, -1, 20][..], &[1, -1, -1], &[1, 28, 20]] {
            assert_eq!(shape(sample), Some(vec![1, 1, 28, 20]), "{sample:?}");
        }
        for sample in [&[-1, -1, -1][..], &[-1], &[-1, 21]] {
            assert_eq!(shape(sample), None, "{sample:?}");
        }
    }
}
