//! NumPy's `.npz`: a zip file of arrays, as `np.savez` writes.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

use parapet_datasets::npz::{Array, Element, Kind};

use super::values::Values;

/// Arrays that an error lists.
const MAX_LISTED: usize = 12;

/// An `.npz` file that makes no payload. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    /// The file or an array of it is broken.
    #[error(transparent)]
    Read(#[from] parapet_datasets::npz::NpzError),
    /// No array of the name given.
    #[error("{}: has no array {key:?}; give {option} as one of: {arrays}", path.display())]
    Unknown {
        path: PathBuf,
        key: String,
        /// The option that gave it.
        option: &'static str,
        /// The arrays that there are.
        arrays: String,
    },
    /// No name given, and not just one array that could be meant.
    #[error("{}: has {found} arrays that could be {role} ({wanted}); choose with {option} from: \
        {arrays}", path.display())]
    Ambiguous {
        path: PathBuf,
        found: usize,
        role: &'static str,
        /// Type and axes wanted.
        wanted: &'static str,
        /// The option that chooses.
        option: &'static str,
        /// The arrays that there are.
        arrays: String,
    },
    /// The array named has another type or number of axes.
    #[error("{}: array {array} cannot be {role}, which are {wanted}; convert it, or choose \
        another with {option}", path.display())]
    Form {
        path: PathBuf,
        /// The array with its form.
        array: String,
        role: &'static str,
        /// Type and axes wanted.
        wanted: &'static str,
        /// The option that chooses.
        option: &'static str,
    },
    /// A value that cannot be sent.
    #[error("{}: array {array:?}: element {element} is {value}; images want finite numbers, \
        labels classes from 0", path.display())]
    Value {
        path: PathBuf,
        array: String,
        /// Its place, from 0.
        element: usize,
        value: String,
    },
}

/// Role of an array.
#[derive(Debug, Clone, Copy)]
struct Role {
    name: &'static str,
    wanted: &'static str,
    option: &'static str,
    takes: fn(Element, axes: usize) -> bool,
}

const IMAGES: Role = Role {
    name: "images",
    wanted: "u8, f32 or f64 with 2 or more axes",
    option: "--images-key",
    takes: |element, axes| axes >= 2 && (element.kind == Kind::Float || is_byte(element)),
};
const LABELS: Role = Role {
    name: "labels",
    wanted: "integers with 1 axis",
    option: "--labels-key",
    takes: |element, axes| axes == 1 && element.kind != Kind::Float,
};

fn is_byte(element: Element) -> bool {
    element.kind == Kind::Unsigned && element.width == 1
}

/// An opened file, with what an array of it can be.
pub(super) struct Npz(parapet_datasets::npz::Npz);

fn form(array: &Array) -> String {
    format!(
        "{:?} ({} {:?})",
        array.name, array.header.descr, array.header.shape
    )
}

fn suits(array: &Array, role: Role) -> bool {
    array
        .header
        .element()
        .is_some_and(|element| (role.takes)(element, array.header.shape.len()))
}

impl Npz {
    pub(super) fn open(path: &Path, file: File) -> Result<Self, NpzError> {
        Ok(Self(parapet_datasets::npz::Npz::open(path, file)?))
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }

    /// The images: the array's name, its shape and its values.
    pub(super) fn images(
        &mut self,
        key: Option<&str>,
    ) -> Result<(String, Vec<usize>, Values), NpzError> {
        let found = match self.choose(IMAGES, key)? {
            Some(found) => found,
            None => return Err(self.ambiguous(IMAGES, 0)),
        };
        let (element, bytes) = self.0.read(&found)?;
        let Array { name, header, .. } = found;
        if is_byte(element) {
            return Ok((name, header.shape, Values::Bytes(bytes)));
        }
        let values: Vec<f32> = element.floats(&bytes).collect();
        match values.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(self.value(name, place, &values.get(place))),
            None => Ok((name, header.shape, Values::Floats(values))),
        }
    }

    /// The labels with the array's name; `None` where no array could be meant and none is `needed`.
    pub(super) fn labels(
        &mut self,
        key: Option<&str>,
        needed: bool,
    ) -> Result<Option<(String, Vec<usize>)>, NpzError> {
        let found = match self.choose(LABELS, key)? {
            Some(found) => found,
            None if needed => return Err(self.ambiguous(LABELS, 0)),
            None => return Ok(None),
        };
        let (element, bytes) = self.0.read(&found)?;
        let mut labels = Vec::new();
        for (place, value) in element.integers(&bytes).enumerate() {
            match usize::try_from(value) {
                Ok(label) => labels.push(label),
                Err(_) => return Err(self.value(found.name, place, &Some(value))),
            }
        }
        Ok(Some((found.name, labels)))
    }

    fn choose(&self, role: Role, key: Option<&str>) -> Result<Option<Array>, NpzError> {
        let Some(key) = key else {
            let mut suited = self.0.arrays().iter().filter(|array| suits(array, role));
            let first = suited.next();
            return match suited.count() {
                0 => Ok(first.cloned()),
                others => Err(self.ambiguous(role, others + 1)),
            };
        };
        let Role {
            name,
            wanted,
            option,
            ..
        } = role;
        let path = self.path();
        match self.0.arrays().iter().find(|array| array.name == key) {
            None => Err(NpzError::Unknown {
                path,
                key: key.to_owned(),
                option,
                arrays: self.list(),
            }),
            Some(array) if suits(array, role) => Ok(Some(array.clone())),
            Some(array) => Err(NpzError::Form {
                path,
                array: form(array),
                role: name,
                wanted,
                option,
            }),
        }
    }

    fn ambiguous(&self, role: Role, found: usize) -> NpzError {
        let Role {
            name,
            wanted,
            option,
            ..
        } = role;
        NpzError::Ambiguous {
            path: self.path(),
            found,
            role: name,
            wanted,
            option,
            arrays: self.list(),
        }
    }

    fn value(
        &self,
        array: String,
        element: usize,
        value: &Option<impl std::fmt::Debug>,
    ) -> NpzError {
        let value = value
            .as_ref()
            .map(|value| format!("{value:?}"))
            .unwrap_or_default();
        NpzError::Value {
            path: self.path(),
            array,
            element,
            value,
        }
    }

    fn list(&self) -> String {
        let forms: Vec<String> = self.0.arrays().iter().take(MAX_LISTED).map(form).collect();
        let mut list = if forms.is_empty() {
            "no arrays at all".to_owned()
        } else {
            forms.join(", ")
        };
        if let Some(more) = self
            .0
            .arrays()
            .len()
            .checked_sub(MAX_LISTED)
            .filter(|&more| more > 0)
        {
            let _ = write!(list, " and {more} more");
        }
        list
    }
}
