//! Images and labels in NumPy's `.npz`: a zip file of arrays, as `np.savez` writes.

use std::fs::File;
use std::path::Path;

use anyhow::bail;
use parapet_datasets::npz::{Array, Element, Kind};

use super::rows::Values;

/// Arrays that an error lists.
const MAX_LISTED: usize = 12;

/// Purpose of an array, and the arrays that fit it.
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

pub(super) struct Npz(parapet_datasets::npz::Npz);

fn form(array: &Array) -> String {
    let header = &array.header;
    format!("{:?} ({} {:?})", array.name, header.descr, header.shape)
}

fn suits(array: &Array, role: Role) -> bool {
    let element = array.header.element();
    element.is_some_and(|element| (role.takes)(element, array.header.shape.len()))
}

impl Npz {
    pub(super) fn open(path: &Path, file: File) -> anyhow::Result<Self> {
        Ok(Self(parapet_datasets::npz::Npz::open(path, file)?))
    }

    /// The images: the array's name, its shape and its values.
    pub(super) fn images(
        &mut self,
        key: Option<&str>,
    ) -> anyhow::Result<(String, Vec<usize>, Values)> {
        let Some(found) = self.choose(IMAGES, key)? else {
            bail!("{}", self.ambiguous(IMAGES, 0));
        };
        let (element, bytes) = self.0.read(&found)?;
        let Array { name, header, .. } = found;
        if is_byte(element) {
            return Ok((name, header.shape, Values::Bytes(bytes)));
        }
        let values: Vec<f32> = element.floats(&bytes).collect();
        let infinite = values
            .iter()
            .enumerate()
            .find(|(_, value)| !value.is_finite());
        if let Some((place, value)) = infinite {
            bail!("{}", self.unusable(&name, place, value));
        }
        Ok((name, header.shape, Values::Floats(values)))
    }

    /// The labels with the array's name; `None` where no array could be meant and none is `needed`.
    pub(super) fn labels(
        &mut self,
        key: Option<&str>,
        needed: bool,
    ) -> anyhow::Result<Option<(String, Vec<usize>)>> {
        let Some(found) = self.choose(LABELS, key)? else {
            if needed {
                bail!("{}", self.ambiguous(LABELS, 0));
            }
            return Ok(None);
        };
        let (element, bytes) = self.0.read(&found)?;
        let mut labels = Vec::new();
        for (place, value) in element.integers(&bytes).enumerate() {
            match usize::try_from(value) {
                Ok(label) => labels.push(label),
                Err(_) => bail!("{}", self.unusable(&found.name, place, &value)),
            }
        }
        Ok(Some((found.name, labels)))
    }

    fn choose(&self, role: Role, key: Option<&str>) -> anyhow::Result<Option<Array>> {
        let arrays = self.0.arrays();
        let Some(key) = key else {
            let mut suited = arrays.iter().filter(|array| suits(array, role));
            let first = suited.next();
            return match suited.count() {
                0 => Ok(first.cloned()),
                others => bail!("{}", self.ambiguous(role, others + 1)),
            };
        };
        let (path, option) = (self.0.path().display(), role.option);
        match arrays.iter().find(|array| array.name == key) {
            Some(array) if suits(array, role) => Ok(Some(array.clone())),
            Some(array) => bail!(
                "{path}: array {} cannot be {}, which are {}; convert it, or choose another with \
                 {option}",
                form(array),
                role.name,
                role.wanted
            ),
            None => {
                let arrays = self.list();
                bail!("{path}: has no array {key:?}; give {option} as one of: {arrays}")
            }
        }
    }

    fn ambiguous(&self, role: Role, found: usize) -> String {
        let (path, arrays) = (self.0.path().display(), self.list());
        let Role {
            name,
            wanted,
            option,
            ..
        } = role;
        format!(
            "{path}: has {found} arrays that could be {name} ({wanted}); choose with {option} \
             from: {arrays}"
        )
    }

    fn unusable(&self, array: &str, element: usize, value: &dyn std::fmt::Debug) -> String {
        format!(
            "{}: array {array:?}: element {element} is {value:?}; images want finite numbers, \
             labels classes from 0",
            self.0.path().display()
        )
    }

    fn list(&self) -> String {
        let arrays = self.0.arrays();
        let forms: Vec<String> = arrays.iter().take(MAX_LISTED).map(form).collect();
        match arrays.len().saturating_sub(MAX_LISTED) {
            _ if forms.is_empty() => "no arrays at all".to_owned(),
            0 => forms.join(", "),
            more => format!("{} and {more} more", forms.join(", ")),
        }
    }
}
