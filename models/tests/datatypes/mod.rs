//! Models of every datatype and of many tensors, in every form of the protocol.

use bytes::Bytes;
use hyper::StatusCode;
use parapet_config::repository::{ModelToml, Platform, TensorSpec};
use parapet_models::Instance;
use parapet_onnx::{ElementType, identity_model};
use parapet_open_inference::{
    Datatype, Encoding, InferRequest, Tensor, decode_response, encode_request,
};

use super::support::{Client, binary, start};

const PATH: &str = "/v2/models/identity/infer";
const LENGTH: &str = "inference-header-content-length";

const TYPES: [(Datatype, ElementType); 14] = [
    (Datatype::Bool, ElementType::Bool),
    (Datatype::Uint8, ElementType::Uint8),
    (Datatype::Uint16, ElementType::Uint16),
    (Datatype::Uint32, ElementType::Uint32),
    (Datatype::Uint64, ElementType::Uint64),
    (Datatype::Int8, ElementType::Int8),
    (Datatype::Int16, ElementType::Int16),
    (Datatype::Int32, ElementType::Int32),
    (Datatype::Int64, ElementType::Int64),
    (Datatype::Fp16, ElementType::Float16),
    (Datatype::Bf16, ElementType::Bfloat16),
    (Datatype::Fp32, ElementType::Float),
    (Datatype::Fp64, ElementType::Double),
    (Datatype::Bytes, ElementType::String),
];

/// An instance of a model that gives back one tensor of two elements a sample for each
/// of these datatypes.
pub(crate) async fn identity(
    keep: impl Fn(Datatype) -> bool,
    flags: &[&str],
) -> (Instance, Vec<Tensor>, tempfile::TempDir) {
    let repository = tempfile::tempdir().unwrap();
    let kept = TYPES.into_iter().filter(|(datatype, _)| keep(*datatype));
    let kept: Vec<_> = kept.collect();
    let spec = |suffix: &'static str| {
        let spec = move |(datatype, _): &(Datatype, ElementType)| TensorSpec {
            name: format!("{datatype}{suffix}"),
            datatype: *datatype,
            shape: vec![2].into(),
        };
        kept.iter().map(spec).collect()
    };
    let model = ModelToml {
        name: "identity".to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: spec(""),
        outputs: spec("_out"),
        output: None,
        code: None,
        training: toml::Table::new(),
    };
    let folder = repository.path().join("identity");
    model.save(&folder).unwrap();
    std::fs::create_dir_all(folder.join("1")).unwrap();
    let tensors = kept.iter().map(|(datatype, element)| (datatype.name(), *element, &[2][..]));
    let file = identity_model(&tensors.collect::<Vec<_>>());
    std::fs::write(folder.join("1/model.onnx"), file).unwrap();
    let flags = [&["identity"][..], flags].concat();
    let instance = start(repository.path(), &flags).await.unwrap();
    let tensors = kept.iter().map(|(datatype, _)| tensor(*datatype)).collect();
    (instance, tensors, repository)
}

/// Two samples: the numbers 0 to 3, or texts of so many letters.
fn tensor(datatype: Datatype) -> Tensor {
    let element = |number: u8| match datatype {
        Datatype::Bool => vec![number % 2],
        Datatype::Fp16 => vec![0, [0x00, 0x3c, 0x40, 0x42][usize::from(number)]],
        Datatype::Bf16 => f32::from(number).to_le_bytes()[2..].to_vec(),
        Datatype::Fp32 => f32::from(number).to_le_bytes().to_vec(),
        Datatype::Fp64 => f64::from(number).to_le_bytes().to_vec(),
        Datatype::Bytes => text(number),
        integer => {
            let mut bytes = vec![0; integer.size().unwrap()];
            bytes[0] = number;
            bytes
        }
    };
    let data: Vec<u8> = (0..4).flat_map(element).collect();
    Tensor::new(datatype.name(), datatype, vec![2, 2], data.into()).unwrap()
}

fn text(letters: u8) -> Vec<u8> {
    let text = "ä".repeat(usize::from(letters));
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// Asks, and compares what comes back with what went out.
async fn comes_back(client: &Client, inputs: &[Tensor], encoding: Encoding) {
    let mut request = InferRequest { inputs: inputs.to_vec(), ..InferRequest::default() };
    if encoding == Encoding::Binary {
        request.ask_binary_outputs();
    }
    let encoded = encode_request(&request, encoding).unwrap();
    let length = encoded.header_length.map(|length| length.to_string());
    let headers = length.iter().map(|length| (LENGTH, length.as_str()));
    let headers: Vec<_> = headers.collect();
    let answer = client.post(PATH, &headers, encoded.body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let length = answer.header_length();
    assert_eq!(length.is_some(), encoding == Encoding::Binary);
    let response = decode_response(answer.body, length).unwrap();
    compare(&response.outputs, inputs);
}

/// Outputs are the inputs, but for their names.
pub(crate) fn compare(outputs: &[Tensor], inputs: &[Tensor]) {
    assert_eq!(outputs.len(), inputs.len());
    for (output, input) in outputs.iter().zip(inputs) {
        let expected = Tensor { name: format!("{}_out", input.name), ..input.clone() };
        assert_eq!(output, &expected);
    }
}

#[tokio::test]
async fn every_datatype_passes_in_binary_form() {
    let (instance, inputs, _repository) = identity(|_| true, &[]).await;
    comes_back(&Client::new(&instance), &inputs, Encoding::Binary).await;
}

#[tokio::test]
async fn every_datatype_but_bf16_passes_as_json() {
    let (instance, inputs, _repository) = identity(Datatype::has_json_form, &[]).await;
    let client = Client::new(&instance);
    comes_back(&client, &inputs, Encoding::Json).await;
    let bf16 = |datatype| datatype == Datatype::Bf16;
    let (instance, inputs, _repository) = identity(bf16, &[]).await;
    let (body, length) = binary(inputs, false);
    let headers = [(LENGTH, length.as_str())];
    let answer = Client::new(&instance).post(PATH, &headers, body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "asked for as JSON");
    let error = answer.error();
    assert!(error.contains("use the binary form"), "{error}");
}

#[tokio::test]
async fn compressed_requests_are_read_and_answers_compressed_on_request() {
    use std::io::{Read as _, Write as _};
    let (instance, inputs, _repository) = identity(Datatype::has_json_form, &[]).await;
    let client = Client::new(&instance);
    let request = InferRequest { inputs, ..InferRequest::default() };
    let plain = encode_request(&request, Encoding::Json).unwrap().body;
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        Bytes::from(encoder.finish().unwrap())
    };
    let accepted = ("accept-encoding", "deflate, gzip;q=0.5");
    let headers = [("content-encoding", "gzip"), accepted];
    let answer = client.post(PATH, &headers, gzip(&plain)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.headers["content-encoding"], "deflate");
    let mut text = String::new();
    let mut decoder = flate2::read::ZlibDecoder::new(&answer.body[..]);
    decoder.read_to_string(&mut text).unwrap();
    assert_eq!(text, client.post(PATH, &[], plain).await.text());

    let bomb = gzip(&vec![b' '; 17 << 20]);
    assert!(bomb.len() < 200_000);
    let brotli = [("content-encoding", "br")];
    let answer = client.post(PATH, &brotli, Bytes::new()).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(answer.headers["accept-encoding"], "gzip, deflate");
    for (body, status) in [(bomb, 413), (Bytes::from("{}"), 400)] {
        let answer = client.post(PATH, &headers[..1], body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}
