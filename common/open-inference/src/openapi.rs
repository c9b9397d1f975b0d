//! The REST form as an OpenAPI document.

use serde_json::{Value, json};

use crate::Datatype;

/// The path at which servers have it.
pub const OPENAPI_PATH: &str = "/v2/openapi.json";

/// The document of a server that serves these models.
pub fn openapi<'a>(server: &str, version: &str, models: impl Iterator<Item = &'a str>) -> Value {
    // A test reads it; it cannot be anything else.
    let mut document: Value =
        serde_json::from_str(include_str!("openapi.json")).unwrap_or_default();
    let mut set = |pointer: &str, value: Value| {
        if let Some(place) = document.pointer_mut(pointer) {
            *place = value;
        }
    };
    let title = format!("{server} {version}: Open Inference Protocol v2");
    set("/info/title", title.into());
    let models: Vec<&str> = models.collect();
    if !models.is_empty() {
        let schema = json!({ "type": "string", "enum": models });
        set("/components/parameters/model/schema", schema);
    }
    let datatypes = Datatype::ALL.iter().map(ToString::to_string);
    set("/components/schemas/Datatype/enum", datatypes.collect());
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_server_models_and_datatypes() {
        let document = openapi("parapet", "1.2", ["a", "b"].into_iter());
        for (pointer, value) in [
            ("/info/title", json!("parapet 1.2: Open Inference Protocol v2")),
            ("/components/parameters/model/schema/enum", json!(["a", "b"])),
            ("/components/schemas/Datatype/enum/13", json!("BYTES")),
        ] {
            assert_eq!(document.pointer(pointer), Some(&value));
        }
        assert!(document["paths"]["/v2/models/{model}/infer"]["post"].is_object());
        let text = document.to_string();
        for reference in text.split("\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap_or_default();
            assert!(document.pointer(pointer).is_some(), "#{pointer}");
        }
    }
}
