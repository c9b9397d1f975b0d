//! Parameters: JSON values in REST, a choice of types here.

use std::collections::BTreeMap;

use crate::Parameters;
use serde_json::Value;

use crate::grpc::message::{InferParameter, ParameterChoice};

/// One without a type, as a newer protocol's would be, is left out.
pub(crate) fn read(parameters: BTreeMap<String, InferParameter>) -> Parameters {
    let value = |parameter: InferParameter| {
        Some(match parameter.parameter_choice? {
            ParameterChoice::BoolParam(value) => value.into(),
            ParameterChoice::Int64Param(value) => value.into(),
            ParameterChoice::StringParam(value) => value.into(),
            ParameterChoice::DoubleParam(value) => value.into(),
            ParameterChoice::Uint64Param(value) => value.into(),
        })
    };
    parameters
        .into_iter()
        .filter_map(|(name, parameter)| Some((name, value(parameter)?)))
        .collect()
}

/// Writes parameters. Those without a type here (null, arrays, objects) become their JSON text.
pub(crate) fn write(parameters: &Parameters) -> BTreeMap<String, InferParameter> {
    let choice = |value: &Value| match value {
        Value::Bool(value) => ParameterChoice::BoolParam(*value),
        Value::String(text) => ParameterChoice::StringParam(text.clone()),
        Value::Number(number) => {
            let integer = number.as_i64().map(ParameterChoice::Int64Param);
            let unsigned = || number.as_u64().map(ParameterChoice::Uint64Param);
            let float = || ParameterChoice::DoubleParam(number.as_f64().unwrap_or_default());
            integer.or_else(unsigned).unwrap_or_else(float)
        }
        other => ParameterChoice::StringParam(other.to_string()),
    };
    let parameter = |value| InferParameter {
        parameter_choice: Some(choice(value)),
    };
    parameters
        .iter()
        .map(|(name, value)| (name.clone(), parameter(value)))
        .collect()
}
