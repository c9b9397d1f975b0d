//! NumPy's `.npz`: a zip file of arrays, as `np.savez` writes.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use super::npy::{Element, Header, Kind};
use super::rows::Values;

/// First bytes of a zip file.
pub(super) const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Most unpacked bytes read of an array: a small zip file can unpack to any size.
const MAX_BYTES: u64 = 1 << 30;
/// Arrays that an error lists.
const MAX_LISTED: usize = 12;
const SUFFIX: &str = ".npy";

/// An `.npz` file that makes no payload. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    /// No sound zip file.
    #[error("{}: cannot read it as .npz ({source}); write it with numpy.savez", path.display())]
    Zip {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: zip::result::ZipError,
    },
    /// An array is damaged.
    #[error("{}: array {array:?}: {problem}; write the file again with numpy.savez", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The array.
        array: String,
        /// What is wrong.
        problem: String,
    },
    /// No array of the name given.
    #[error("{}: has no array {key:?}; give {option} as one of: {arrays}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name given.
        key: String,
        /// The option that gave it.
        option: &'static str,
        /// The arrays that there are.
        arrays: String,
    },
    /// No name given, and not just one array that could be meant.
    #[error("{}: has {found} arrays that could be {role} ({wanted}); choose with {option} from: {arrays}", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// How many there are.
        found: usize,
        /// What it is wanted for.
        role: &'static str,
        /// Type and axes wanted.
        wanted: &'static str,
        /// The option that chooses.
        option: &'static str,
        /// The arrays that there are.
        arrays: String,
    },
    /// The array named has another type or number of axes.
    #[error("{}: array {array} cannot be {role}, which are {wanted}; convert it, or choose another with {option}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The array with its form.
        array: String,
        /// What it is wanted for.
        role: &'static str,
        /// Type and axes wanted.
        wanted: &'static str,
        /// The option that chooses.
        option: &'static str,
    },
    /// Columns first.
    #[error("{}: array {array:?} is in Fortran order; save numpy.ascontiguousarray of it", path.display())]
    Fortran {
        /// The file.
        path: PathBuf,
        /// The array.
        array: String,
    },
    /// More than a payload can sensibly have.
    #[error("{}: array {array:?} holds more than {MAX_BYTES} bytes; save fewer rows", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The array.
        array: String,
    },
    /// A value that cannot be sent.
    #[error("{}: array {array:?}: element {element} is {value}; images want finite numbers, labels classes from 0", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The array.
        array: String,
        /// Its place, from 0.
        element: usize,
        /// What it is.
        value: String,
    },
}

/// What an array is wanted for.
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

/// An opened file: all its headers, none of its elements.
pub(super) struct Npz {
    path: PathBuf,
    zip: ZipArchive<File>,
    arrays: Vec<Array>,
}

#[derive(Debug, Clone)]
struct Array {
    name: String,
    place: usize,
    header: Header,
}

impl Array {
    fn form(&self) -> String {
        format!("{:?} ({} {:?})", self.name, self.header.descr, self.header.shape)
    }

    fn suits(&self, role: Role) -> bool {
        self.header.element().is_some_and(|element| (role.takes)(element, self.header.shape.len()))
    }
}

impl Npz {
    pub(super) fn open(path: &Path, file: File) -> Result<Self, NpzError> {
        let broken = |source| NpzError::Zip { path: path.to_path_buf(), source };
        let mut zip = ZipArchive::new(file).map_err(broken)?;
        let mut arrays = Vec::new();
        for place in 0..zip.len() {
            let entry = zip.by_index(place).map_err(broken)?;
            let name = entry.name().map_err(broken)?.into_owned();
            let Some(name) = name.strip_suffix(SUFFIX).map(str::to_owned) else { continue };
            let header = Header::read(entry).map_err(|problem| NpzError::Damaged {
                path: path.to_path_buf(),
                array: name.clone(),
                problem,
            })?;
            arrays.push(Array { name, place, header });
        }
        Ok(Self { path: path.to_path_buf(), zip, arrays })
    }

    /// The images: the array's name, its shape and its values.
    pub(super) fn images(&mut self, key: Option<&str>) -> Result<(String, Vec<usize>, Values), NpzError> {
        let found = match self.choose(IMAGES, key)? {
            Some(found) => found,
            None => return Err(self.ambiguous(IMAGES, 0)),
        };
        let (element, bytes) = self.read(&found)?;
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
        let (element, bytes) = self.read(&found)?;
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
            let mut suited = self.arrays.iter().filter(|array| array.suits(role));
            let first = suited.next();
            return match suited.count() {
                0 => Ok(first.cloned()),
                others => Err(self.ambiguous(role, others + 1)),
            };
        };
        let Role { name, wanted, option, .. } = role;
        let path = self.path.clone();
        match self.arrays.iter().find(|array| array.name == key) {
            None => Err(NpzError::Unknown { path, key: key.to_owned(), option, arrays: self.list() }),
            Some(array) if array.suits(role) => Ok(Some(array.clone())),
            Some(array) => Err(NpzError::Form { path, array: array.form(), role: name, wanted, option }),
        }
    }

    fn read(&mut self, Array { name, place, header }: &Array) -> Result<(Element, Vec<u8>), NpzError> {
        let (path, array) = (|| self.path.clone(), || name.clone());
        let damaged = |problem: String| NpzError::Damaged { path: path(), array: array(), problem };
        let element = header.element().ok_or_else(|| damaged("its type cannot be read".to_owned()))?;
        if header.fortran && header.shape.len() > 1 {
            return Err(NpzError::Fortran { path: path(), array: array() });
        }
        let wanted = header.bytes(element.width).filter(|&bytes| bytes <= MAX_BYTES);
        let wanted = wanted.ok_or_else(|| NpzError::TooLarge { path: path(), array: array() })?;
        let broken = |source| NpzError::Zip { path: path(), source };
        let mut entry = self.zip.by_index(*place).map_err(broken)?;
        Header::read(&mut entry).map_err(damaged)?;
        let mut bytes = Vec::new();
        // One byte more: at the end of the entry, its checksum is compared.
        let damaged = |problem: String| NpzError::Damaged { path: path(), array: array(), problem };
        entry.take(wanted + 1).read_to_end(&mut bytes).map_err(|source| damaged(source.to_string()))?;
        if bytes.len() as u64 != wanted {
            let shape = &header.shape;
            return Err(damaged(format!("shape {shape:?} makes {wanted} bytes, there are {}", bytes.len())));
        }
        Ok((element, bytes))
    }

    fn ambiguous(&self, role: Role, found: usize) -> NpzError {
        let Role { name, wanted, option, .. } = role;
        NpzError::Ambiguous {
            path: self.path.clone(),
            found,
            role: name,
            wanted,
            option,
            arrays: self.list(),
        }
    }

    fn value(&self, array: String, element: usize, value: &Option<impl std::fmt::Debug>) -> NpzError {
        let value = value.as_ref().map(|value| format!("{value:?}")).unwrap_or_default();
        NpzError::Value { path: self.path.clone(), array, element, value }
    }

    fn list(&self) -> String {
        let forms: Vec<String> = self.arrays.iter().take(MAX_LISTED).map(Array::form).collect();
        let mut list = if forms.is_empty() { "no arrays at all".to_owned() } else { forms.join(", ") };
        if let Some(more) = self.arrays.len().checked_sub(MAX_LISTED).filter(|&more| more > 0) {
            let _ = write!(list, " and {more} more");
        }
        list
    }
}
