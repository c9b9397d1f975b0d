//! Between messages and the types that the REST form has too.

use std::collections::BTreeMap;

use crate::{
    Datatype, Excerpt, InferRequest, InferResponse, MAX_AXES, ModelMetadata, ProtocolError,
    RequestedOutput, ServerMetadata, Tensor,
};
use bytes::Bytes;

use crate::grpc::error::MessageError;
use crate::grpc::message::{
    InferParameter, InferRequestedOutput, InferTensor, InferTensorContents, ModelInferRequest,
    ModelInferResponse, ModelMetadataResponse, ServerMetadataResponse, TensorMetadata,
};
use crate::grpc::{contents, parameters};

/// Form in which a message carries the contents of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Beside the tensors, as bytes.
    Raw,
    /// In each tensor, as numbers.
    Typed,
}

const SHARED_MEMORY: &str = "shared_memory_region";

/// Reads a request, and says in which form it came.
///
/// # Errors
/// [`MessageError`].
pub fn read_request(message: ModelInferRequest) -> Result<(InferRequest, Form), MessageError> {
    let ModelInferRequest {
        id,
        parameters,
        inputs,
        outputs,
        raw_input_contents,
        ..
    } = message;
    let form = if raw_input_contents.is_empty() {
        Form::Typed
    } else {
        Form::Raw
    };
    let outputs = outputs
        .into_iter()
        .map(requested)
        .collect::<Result<_, _>>()?;
    let inputs = tensors(inputs, raw_input_contents)?;
    let id = Some(id).filter(|id| !id.is_empty());
    Ok((
        InferRequest {
            id,
            parameters: parameters::read(parameters),
            inputs,
            outputs,
        },
        form,
    ))
}

/// Reads a response.
///
/// # Errors
/// [`MessageError`].
pub fn read_response(message: ModelInferResponse) -> Result<InferResponse, MessageError> {
    let ModelInferResponse {
        model_name,
        model_version,
        id,
        parameters,
        outputs,
        raw_output_contents,
    } = message;
    Ok(InferResponse {
        model_name,
        model_version: Some(model_version).filter(|version| !version.is_empty()),
        id: Some(id).filter(|id| !id.is_empty()),
        parameters: parameters::read(parameters),
        outputs: tensors(outputs, raw_output_contents)?,
    })
}

/// Writes a request of `model`, of a version or of that which the server chooses,
/// with raw contents.
pub fn write_request(
    model: &str,
    version: Option<&str>,
    request: &InferRequest,
) -> ModelInferRequest {
    let (inputs, raw_input_contents) = write_tensors(&request.inputs, Form::Raw);
    let output = |output: &RequestedOutput| InferRequestedOutput {
        name: output.name.clone(),
        parameters: BTreeMap::new(),
    };
    ModelInferRequest {
        model_name: model.to_owned(),
        model_version: version.unwrap_or_default().to_owned(),
        id: request.id.clone().unwrap_or_default(),
        parameters: parameters::write(&request.parameters),
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
        parameters: parameters::write(&response.parameters),
        outputs,
        raw_output_contents,
    }
}

fn requested(output: InferRequestedOutput) -> Result<RequestedOutput, MessageError> {
    let InferRequestedOutput { name, parameters } = output;
    refuse_extensions(&name, &parameters, &["classification", SHARED_MEMORY])?;
    Ok(RequestedOutput {
        name,
        binary_data: None,
    })
}

fn refuse_extensions(
    tensor: &str,
    parameters: &BTreeMap<String, InferParameter>,
    extensions: &[&'static str],
) -> Result<(), MessageError> {
    match extensions
        .iter()
        .find(|extension| parameters.contains_key(**extension))
    {
        Some(parameter) => Err(ProtocolError::Extension {
            tensor: tensor.into(),
            parameter,
        }
        .into()),
        None => Ok(()),
    }
}

fn tensors(tensors: Vec<InferTensor>, raw: Vec<Bytes>) -> Result<Vec<Tensor>, MessageError> {
    if !raw.is_empty() && raw.len() != tensors.len() {
        return Err(MessageError::RawCount {
            raw: raw.len(),
            tensors: tensors.len(),
        });
    }
    let mut raw = raw.into_iter();
    tensors
        .into_iter()
        .map(|tensor| read_tensor(tensor, raw.next()))
        .collect()
}

fn read_tensor(message: InferTensor, raw: Option<Bytes>) -> Result<Tensor, MessageError> {
    let InferTensor {
        name,
        datatype,
        shape,
        parameters,
        contents,
    } = message;
    refuse_extensions(&name, &parameters, &[SHARED_MEMORY])?;
    let Ok(datatype) = datatype.parse::<Datatype>() else {
        let (tensor, datatype) = (Excerpt::from(&name), Excerpt::from(&datatype));
        return Err(ProtocolError::UnknownDatatype { tensor, datatype }.into());
    };
    if shape.len() > MAX_AXES {
        return Err(ProtocolError::Axes {
            tensor: Excerpt::from(&name),
            axes: shape.len(),
        }
        .into());
    }
    let Ok(axes) = shape
        .iter()
        .map(|&axis| usize::try_from(axis))
        .collect::<Result<Vec<usize>, _>>()
    else {
        return Err(MessageError::Shape {
            tensor: Excerpt::from(&name),
            shape,
        });
    };
    let contents = contents.unwrap_or_default();
    let data = match raw {
        // MLServer sets both, with nothing in one of them.
        Some(raw) if contents == InferTensorContents::default() => raw,
        Some(_) => {
            return Err(MessageError::Ambiguous {
                tensor: Excerpt::from(&name),
            });
        }
        None => contents::to_bytes(&name, datatype, contents)?,
    };
    Ok(Tensor::new(name, datatype, axes, data)?)
}

fn write_tensors(tensors: &[Tensor], form: Form) -> (Vec<InferTensor>, Vec<Bytes>) {
    let message = |tensor: &Tensor, contents| InferTensor {
        name: tensor.name.clone(),
        datatype: tensor.datatype.name().to_owned(),
        shape: tensor
            .shape
            .iter()
            .map(|&axis| i64::try_from(axis).unwrap_or(i64::MAX))
            .collect(),
        parameters: BTreeMap::new(),
        contents,
    };
    let typed = match form {
        Form::Typed => tensors
            .iter()
            .map(contents::typed)
            .collect::<Option<Vec<_>>>(),
        Form::Raw => None,
    };
    match typed {
        Some(typed) => {
            let pairs = tensors.iter().zip(typed);
            (
                pairs
                    .map(|(tensor, contents)| message(tensor, Some(contents)))
                    .collect(),
                Vec::new(),
            )
        }
        None => {
            let raw = tensors.iter().map(|tensor| tensor.data.clone()).collect();
            (
                tensors.iter().map(|tensor| message(tensor, None)).collect(),
                raw,
            )
        }
    }
}

impl From<ServerMetadata> for ServerMetadataResponse {
    fn from(metadata: ServerMetadata) -> Self {
        let ServerMetadata {
            name,
            version,
            extensions,
        } = metadata;
        Self {
            name,
            version,
            extensions,
        }
    }
}

impl From<ModelMetadata> for ModelMetadataResponse {
    fn from(metadata: ModelMetadata) -> Self {
        let ModelMetadata {
            name,
            versions,
            platform,
            inputs,
            outputs,
        } = metadata;
        let tensors = |tensors: Vec<crate::TensorMetadata>| {
            let tensor = |tensor: crate::TensorMetadata| TensorMetadata {
                name: tensor.name,
                datatype: tensor.datatype.name().to_owned(),
                shape: tensor.shape,
            };
            tensors.into_iter().map(tensor).collect()
        };
        Self {
            name,
            versions,
            platform,
            inputs: tensors(inputs),
            outputs: tensors(outputs),
        }
    }
}
