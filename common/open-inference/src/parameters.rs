//! Parameters of a request: strings, numbers and booleans, as the protocol has them, and not many.
//!
//! Their parsed form takes many times the bytes that they have on the wire. So they are bounded
//! while they are read: refused parameters are never built.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use crate::Parameters;

/// Parameters of a request.
const MAX_PARAMETERS: usize = 1024;

pub(crate) fn of_request<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Parameters, D::Error> {
    deserializer.deserialize_option(Request)
}

/// An object, or null for none.
struct Request;

impl<'de> Visitor<'de> for Request {
    type Value = Parameters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_none<E>(self) -> Result<Parameters, E> {
        Ok(Parameters::new())
    }

    fn visit_unit<E>(self) -> Result<Parameters, E> {
        Ok(Parameters::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parameters, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Parameters, A::Error> {
        let mut parameters = Parameters::new();
        while let Some(name) = entries.next_key::<String>()? {
            if parameters.len() == MAX_PARAMETERS {
                return Err(A::Error::custom(format!(
                    "more than {MAX_PARAMETERS} parameters"
                )));
            }
            let Parameter(value) = entries.next_value()?;
            parameters.insert(name, value);
        }
        Ok(parameters)
    }
}

/// One that is no array and no object.
struct Parameter(Value);

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar)
    }
}

struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = Parameter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter, which is a string, a number or a boolean")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
        Ok(Parameter(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parameter, E> {
        Ok(Parameter(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parameter, E> {
        Ok(Parameter(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
        Ok(Parameter(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Parameter, E> {
        Ok(Parameter(Value::Null))
    }
}
