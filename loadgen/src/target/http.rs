//! Requests over the Open Inference Protocol's REST form.

use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use parapet_net::client::{Connections, Response};
use parapet_open_inference::{Datatype, HEADER_CONTENT_LENGTH, InferResponse, decode_response};

use super::find::model_path;
use super::{Answer, Failure, LIMITS, Provenance, Target, Transport};
use crate::payload::Body;

/// Header with an answer's provenance, of Parapet's frontend.
const PROVENANCE: &str = "parapet-provenance";
const CONFIDENCE: &str = "parapet-confidence";

pub struct HttpTransport {
    connections: Connections,
    infer: Uri,
    host: HeaderValue,
}

impl HttpTransport {
    pub fn new(target: &Target, model: &str) -> anyhow::Result<Self> {
        Ok(Self {
            connections: Connections::new(target.address, LIMITS),
            infer: format!("{}/infer", model_path(model)?).parse()?,
            host: HeaderValue::from_str(&target.url.authority)?,
        })
    }
}

impl Transport for HttpTransport {
    async fn send(&self, body: &Body) -> Result<Answer, Failure> {
        let request = || {
            let mut request = Request::new(Full::new(body.bytes.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = self.infer.clone();
            let headers = request.headers_mut();
            headers.insert(HOST, self.host.clone());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(body.content_type));
            if let Some(length) = body.header_length {
                headers.insert(HEADER_CONTENT_LENGTH, length.into());
            }
            request
        };
        let response = self.connections.send(request).await.map_err(|error| {
            if error.is_unsent() { Failure::Connect } else { Failure::ConnectionLost }
        })?;
        answer(response)
    }
}

fn answer(response: Response) -> Result<Answer, Failure> {
    let Response { status, headers, body } = response;
    if status != StatusCode::OK {
        return Err(Failure::Status(status.as_u16()));
    }
    let text = |name: &str| Some(headers.get(name)?.to_str().unwrap_or_default().trim());
    let confidence = text(CONFIDENCE).and_then(|value| value.parse().ok());
    let header_length = text(HEADER_CONTENT_LENGTH).map(str::parse).transpose();
    let header_length = header_length.map_err(|_| Failure::InvalidAnswer)?;
    let response = decode_response(body, header_length).map_err(|_| Failure::InvalidAnswer)?;
    Ok(Answer {
        provenance: provenance(text(PROVENANCE)),
        confidence: confidence.filter(|value: &f32| value.is_finite()),
        class: top_class(&response),
    })
}

pub(super) fn provenance(said: Option<&str>) -> Provenance {
    said.map_or(Provenance::Exact, |said| said.parse().unwrap_or(Provenance::Other))
}

/// Where the largest value of the first FP32 output is; the first such place.
pub(super) fn top_class(response: &InferResponse) -> Option<usize> {
    let mut outputs = response.outputs.iter();
    let values = outputs.find(|output| output.datatype == Datatype::Fp32)?.f32s().ok()?;
    let (mut best, mut class) = (f32::NEG_INFINITY, None);
    for (index, &value) in values.iter().enumerate() {
        if value > best || class.is_none() {
            (best, class) = (value, Some(index));
        }
    }
    class
}

#[cfg(test)]
mod tests {
    use parapet_open_inference::Tensor;

    use super::*;

    #[test]
    fn the_top_class_is_the_first_largest_value() {
        let class = |values: &[f32]| {
            let output = Tensor::from_f32("y", [1, values.len()], values).unwrap();
            top_class(&InferResponse { outputs: vec![output], ..InferResponse::default() })
        };
        assert_eq!(class(&[-3.0, 2.0, 2.0]), Some(1));
        assert_eq!(class(&[]), None);
        assert_eq!(top_class(&InferResponse::default()), None);
    }
}
