//! NumPy's `.npz`.

use std::fs::File;
use std::path::Path;

use parapet_datasets::npz::{Kind, Npz};

use super::arrays::{self, Array, Elements};
use crate::data::{DataError, Loaded};

pub(in crate::data) fn load(path: &Path) -> Result<Loaded, DataError> {
    let file = File::open(path).map_err(|source| DataError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    let mut npz = Npz::open(path, file)?;
    let listed = npz.arrays().to_vec();
    let names: Vec<String> = listed.iter().map(|array| array.name.clone()).collect();
    arrays::load(path, &names, |name| {
        let Some(array) = listed.iter().find(|array| array.name == name) else {
            let problem = format!("array {name:?} is gone");
            return Err(DataError::Damaged {
                path: path.to_path_buf(),
                problem,
            });
        };
        let (element, bytes) = npz.read(array)?;
        let elements = match (element.kind, element.width) {
            (Kind::Float, _) => Elements::Floats(element.floats(&bytes).collect()),
            (Kind::Unsigned, 1) => Elements::Bytes(bytes),
            // A label that 64 bits with a sign cannot hold is refused like any other too large.
            _ => Elements::Integers(
                element
                    .integers(&bytes)
                    .map(|value| i64::try_from(value).unwrap_or(i64::MAX))
                    .collect(),
            ),
        };
        Ok(Array {
            name: name.to_owned(),
            shape: array.header.shape.clone(),
            elements,
        })
    })
}
