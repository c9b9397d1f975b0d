//! Between messages and the types that the REST form has too.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::decode::SHARED_MEMORY;
use crate::grpc::contents;
use crate::grpc::message::{
    DataType, InferParameter, InferRequestedOutput, InferTensor, InferTensorContents, ModelConfig,
    ModelInferRequest, ModelInferResponse, ModelInput, ModelMetadataResponse, ModelOutput,
    ServerMetadataResponse, TensorMetadata,
};
use crate::{
    Datatype, Excerpt, InferRequest, InferResponse, ModelMetadata, Parameters, ProtocolError,
    RequestedOutput, ServerMetadata, Tensor,
};

/// Form in which a message carries the contents of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Beside the tensors, as bytes.
    Raw,
    /// In each tensor, as numbers.
    Typed,
}

/// Reads a request, and says in which form it came.
pub fn read_request(message: ModelInferRequest) -> Result<(InferRequest, Form), ProtocolError> {
    let form = if message.raw_input_contents.is_empty() { Form::Typed } else { Form::Raw };
    let outputs = message.outputs.into_iter().map(requested);
    let request = InferRequest {
        id: Some(message.id).filter(|id| !id.is_empty()),
        parameters: read_parameters(message.parameters),
        inputs: tensors(message.inputs, message.raw_input_contents)?,
        outputs: outputs.collect::<Result<_, _>>()?,
    };
    Ok((request, form))
}

/// Reads a response.
pub fn read_response(message: ModelInferResponse) -> Result<InferResponse, ProtocolError> {
    Ok(InferResponse {
        model_name: message.model_name,
        model_version: Some(message.model_version).filter(|version| !version.is_empty()),
        id: Some(message.id).filter(|id| !id.is_empty()),
        parameters: read_parameters(message.parameters),
        outputs: tensors(message.outputs, message.raw_output_contents)?,
    })
}

/// Writes a request of `model`, of a version or the server's choice, with raw contents.
pub fn write_request(
    model: &str,
    version: Option<&str>,
    request: &InferRequest,
) -> ModelInferRequest {
    let (inputs, raw_input_contents) = write_tensors(&request.inputs, Form::Raw);
    let output = |output: &RequestedOutput| InferRequestedOutput {
        name: output.name.clone(),
        parameters: {
            let classes = output.classes.and_then(|classes| i64::try_from(classes).ok());
            let classes = classes.map(|classes| InferParameter {
                int64_param: Some(classes),
                ..InferParameter::default()
            });
            let named = classes.map(|classes| ("classification".to_owned(), classes));
            named.into_iter().collect()
        },
    };
    ModelInferRequest {
        model_name: model.to_owned(),
        model_version: version.unwrap_or_default().to_owned(),
        id: request.id.clone().unwrap_or_default(),
        parameters: write_parameters(&request.parameters),
        inputs,
        outputs: request.outputs.iter().map(output).collect(),
        raw_input_contents,
    }
}

/// Writes a response in a form; in raw form if a tensor has no other.
pub fn write_response(response: &InferResponse, form: Form) -> ModelInferResponse {
    let (outputs, raw_output_contents) = write_tensors(&response.outputs, form);
    ModelInferResponse {
        model_name: response.model_name.clone(),
        model_version: response.model_version.clone().unwrap_or_default(),
        id: response.id.clone().unwrap_or_default(),
        parameters: write_parameters(&response.parameters),
        outputs,
        raw_output_contents,
    }
}

fn requested(output: InferRequestedOutput) -> Result<RequestedOutput, ProtocolError> {
    refuse_extensions(&output.name, &output.parameters, &[SHARED_MEMORY])?;
    let classes = output.parameters.get("classification");
    let classes = classes.map(|classes| {
        let count = classes.int64_param.map(usize::try_from);
        let wrong = ProtocolError::Classes { tensor: Excerpt::from(&output.name) };
        count.and_then(Result::ok).ok_or(wrong)
    });
    let classes = classes.transpose()?;
    Ok(RequestedOutput {
        classes: classes.filter(|classes| *classes > 0),
        name: output.name,
        binary_data: None,
    })
}

fn refuse_extensions(
    tensor: &str,
    parameters: &BTreeMap<String, InferParameter>,
    extensions: &[&'static str],
) -> Result<(), ProtocolError> {
    let mut extensions = extensions.iter();
    match extensions.find(|extension| parameters.contains_key(**extension)) {
        Some(parameter) => Err(ProtocolError::Extension { tensor: tensor.into(), parameter }),
        None => Ok(()),
    }
}

fn tensors(tensors: Vec<InferTensor>, raw: Vec<Bytes>) -> Result<Vec<Tensor>, ProtocolError> {
    ensure!(
        raw.is_empty() || raw.len() == tensors.len(),
        ProtocolError::RawCount { raw: raw.len(), tensors: tensors.len() }
    );
    let (tensors, mut raw) = (tensors.into_iter(), raw.into_iter());
    tensors.map(|tensor| read_tensor(tensor, raw.next())).collect()
}

fn read_tensor(message: InferTensor, raw: Option<Bytes>) -> Result<Tensor, ProtocolError> {
    let InferTensor { name, datatype, shape, parameters, contents } = message;
    refuse_extensions(&name, &parameters, &[SHARED_MEMORY])?;
    let datatype = Datatype::of_tensor(&name, &datatype)?;
    let axes = shape.iter().map(|&axis| usize::try_from(axis));
    let Ok(axes) = axes.collect::<Result<Vec<usize>, _>>() else {
        return Err(ProtocolError::NegativeAxis { tensor: Excerpt::from(&name), shape });
    };
    let contents = contents.unwrap_or_default();
    let data = match raw {
        // MLServer sets both, with nothing in one of them.
        Some(raw) if contents == InferTensorContents::default() => raw,
        Some(_) => {
            return Err(ProtocolError::AmbiguousContents { tensor: Excerpt::from(&name) });
        }
        None => contents::to_bytes(&name, datatype, contents)?,
    };
    let tensor = Tensor::new(name, datatype, axes, data)?;
    Ok(Tensor { parameters: read_parameters(parameters), ..tensor })
}

fn write_tensors(tensors: &[Tensor], form: Form) -> (Vec<InferTensor>, Vec<Bytes>) {
    let axis = |&axis: &usize| i64::try_from(axis).unwrap_or(i64::MAX);
    let message = |tensor: &Tensor, contents| InferTensor {
        name: tensor.name.clone(),
        datatype: tensor.datatype.name().to_owned(),
        shape: tensor.shape.iter().map(axis).collect(),
        parameters: write_parameters(&tensor.parameters),
        contents,
    };
    let typed = |tensor| Some(message(tensor, Some(contents::typed(tensor)?)));
    if form == Form::Typed
        && let Some(typed) = tensors.iter().map(typed).collect()
    {
        return (typed, Vec::new());
    }
    let raw = tensors.iter().map(|tensor| tensor.data.clone()).collect();
    (tensors.iter().map(|tensor| message(tensor, None)).collect(), raw)
}

/// One without a type, as a newer protocol's would be, is left out.
fn read_parameters(parameters: BTreeMap<String, InferParameter>) -> Parameters {
    let named = |(name, parameter): (String, InferParameter)| {
        let value = parameter
            .bool_param
            .map(Value::from)
            .or_else(|| parameter.int64_param.map(Value::from))
            .or_else(|| parameter.uint64_param.map(Value::from))
            .or_else(|| parameter.double_param.map(Value::from))
            .or_else(|| parameter.string_param.map(Value::from));
        Some((name, value?))
    };
    parameters.into_iter().filter_map(named).collect()
}

/// Writes parameters. Those without a type here (null, arrays, objects) become their JSON text.
fn write_parameters(parameters: &Parameters) -> BTreeMap<String, InferParameter> {
    let named = |(name, value): (&String, &Value)| {
        let mut parameter = InferParameter::default();
        match value {
            Value::Bool(value) => parameter.bool_param = Some(*value),
            Value::String(text) => parameter.string_param = Some(text.clone()),
            value if value.is_i64() => parameter.int64_param = value.as_i64(),
            value if value.is_u64() => parameter.uint64_param = value.as_u64(),
            other => {
                parameter.string_param = Some(other.to_string());
                parameter.double_param = other.as_f64();
            }
        }
        (name.clone(), parameter)
    };
    parameters.iter().map(named).collect()
}

impl ModelConfig {
    /// Configuration of a model that takes batches of up to `max_rows`, by Triton's extension.
    pub fn new(model: &ModelMetadata, max_rows: usize) -> Self {
        let described = |tensor: &crate::TensorMetadata| {
            let datatype = match tensor.datatype {
                Datatype::Bytes => "STRING",
                other => other.name(),
            };
            let datatype = DataType::from_str_name(&format!("TYPE_{datatype}"));
            let dims = tensor.shape.get(1..).unwrap_or_default().to_vec();
            (tensor.name.clone(), datatype.unwrap_or_default().into(), dims)
        };
        let input = |(name, data_type, dims)| ModelInput { name, data_type, dims };
        let output = |(name, data_type, dims)| ModelOutput { name, data_type, dims };
        Self {
            name: model.name.clone(),
            platform: model.platform.clone(),
            max_batch_size: i32::try_from(max_rows).unwrap_or(i32::MAX),
            input: model.inputs.iter().map(described).map(input).collect(),
            output: model.outputs.iter().map(described).map(output).collect(),
            backend: "parapet".to_owned(),
        }
    }
}

impl From<ServerMetadata> for ServerMetadataResponse {
    fn from(metadata: ServerMetadata) -> Self {
        Self { name: metadata.name, version: metadata.version, extensions: metadata.extensions }
    }
}

impl From<ModelMetadata> for ModelMetadataResponse {
    fn from(metadata: ModelMetadata) -> Self {
        let tensor = |tensor: crate::TensorMetadata| TensorMetadata {
            name: tensor.name,
            datatype: tensor.datatype.name().to_owned(),
            shape: tensor.shape,
        };
        Self {
            name: metadata.name,
            versions: metadata.versions,
            platform: metadata.platform,
            inputs: metadata.inputs.into_iter().map(tensor).collect(),
            outputs: metadata.outputs.into_iter().map(tensor).collect(),
        }
    }
}

impl TryFrom<ModelMetadataResponse> for ModelMetadata {
    type Error = ProtocolError;

    /// # Errors
    /// A tensor of an unknown datatype.
    fn try_from(response: ModelMetadataResponse) -> Result<Self, ProtocolError> {
        let tensor = |TensorMetadata { name, datatype, shape }| {
            let datatype = Datatype::of_tensor(&name, &datatype)?;
            Ok::<_, ProtocolError>(crate::TensorMetadata { name, datatype, shape })
        };
        Ok(Self {
            name: response.name,
            versions: response.versions,
            platform: response.platform,
            inputs: response.inputs.into_iter().map(tensor).collect::<Result<_, _>>()?,
            outputs: response.outputs.into_iter().map(tensor).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_its_number_in_a_configuration() {
        for datatype in Datatype::ALL {
            let tensor =
                crate::TensorMetadata { name: "t".into(), datatype: *datatype, shape: vec![-1, 2] };
            let model = ModelMetadata {
                name: "m".into(),
                versions: Vec::new(),
                platform: String::new(),
                inputs: vec![tensor],
                outputs: Vec::new(),
            };
            let config = ModelConfig::new(&model, 8);
            assert_ne!(config.input[0].data_type, 0, "{datatype}");
            assert_eq!(config.input[0].dims, [2]);
        }
    }
}
