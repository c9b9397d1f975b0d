//! Images and labels in NumPy's `.npz`: a zip file of arrays, as `np.savez` writes.

use std::fs::File;
use std::path::Path;

use anyhow::bail;
use parapet_datasets::npz::{Array, Element, Kind, Npz};

const MAX_LISTED: usize = 12;

#[derive(Debug, Clone)]
pub(super) enum Values {
    /// Scaled to `0.0..=1.0` when sent.
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
}

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

pub(super) fn open(path: &Path, file: File) -> anyhow::Result<Npz> {
    Ok(Npz::open(path, file)?)
}

/// The images: the array's name, its shape and its values.
pub(super) fn images(
    npz: &mut Npz,
    key: Option<&str>,
) -> anyhow::Result<(String, Vec<usize>, Values)> {
    let Some(found) = choose(npz, IMAGES, key)? else {
        bail!("{}", ambiguous(npz, IMAGES, 0));
    };
    let (element, bytes) = npz.read(&found)?;
    let Array { name, header, .. } = found;
    if is_byte(element) {
        return Ok((name, header.shape, Values::Bytes(bytes)));
    }
    let values: Vec<f32> = element.floats(&bytes).collect();
    if let Some(place) = values.iter().position(|value| !value.is_finite()) {
        bail!("{}", unusable(npz, &name, place, &values[place]));
    }
    Ok((name, header.shape, Values::Floats(values)))
}

/// The labels with the array's name; `None` where no array could be meant and none is `needed`.
pub(super) fn labels(
    npz: &mut Npz,
    key: Option<&str>,
    needed: bool,
) -> anyhow::Result<Option<(String, Vec<usize>)>> {
    let Some(found) = choose(npz, LABELS, key)? else {
        if needed {
            bail!("{}", ambiguous(npz, LABELS, 0));
        }
        return Ok(None);
    };
    let (element, bytes) = npz.read(&found)?;
    let mut labels = Vec::new();
    for (place, value) in element.integers(&bytes).enumerate() {
        match usize::try_from(value) {
            Ok(label) => labels.push(label),
            Err(_) => bail!("{}", unusable(npz, &found.name, place, &value)),
        }
    }
    Ok(Some((found.name, labels)))
}

fn choose(npz: &Npz, role: Role, key: Option<&str>) -> anyhow::Result<Option<Array>> {
    let suits = |array: &&Array| {
        let element = array.header.element();
        element.is_some_and(|element| (role.takes)(element, array.header.shape.len()))
    };
    let arrays = npz.arrays();
    let Some(key) = key else {
        let suited: Vec<&Array> = arrays.iter().filter(suits).collect();
        return match suited.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some((*only).clone())),
            several => bail!("{}", ambiguous(npz, role, several.len())),
        };
    };
    let (path, option) = (npz.path().display(), role.option);
    match arrays.iter().find(|array| array.name == key) {
        Some(array) if suits(&array) => Ok(Some(array.clone())),
        Some(array) => bail!(
            "{path}: array {} cannot be {}, which are {}; convert it, or choose another with \
             {option}",
            form(array),
            role.name,
            role.wanted
        ),
        None => {
            let arrays = list(npz);
            bail!("{path}: has no array {key:?}; give {option} as one of: {arrays}")
        }
    }
}

fn ambiguous(npz: &Npz, role: Role, found: usize) -> String {
    let (path, arrays) = (npz.path().display(), list(npz));
    let (name, wanted, option) = (role.name, role.wanted, role.option);
    format!(
        "{path}: has {found} arrays that could be {name} ({wanted}); choose with {option} from: \
         {arrays}"
    )
}

fn unusable(npz: &Npz, array: &str, element: usize, value: &dyn std::fmt::Debug) -> String {
    let path = npz.path().display();
    format!(
        "{path}: array {array:?}: element {element} is {value:?}; images want finite numbers, \
         labels classes from 0"
    )
}

fn form(array: &Array) -> String {
    let header = &array.header;
    format!("{:?} ({} {:?})", array.name, header.descr, header.shape)
}

fn list(npz: &Npz) -> String {
    let arrays = npz.arrays();
    let forms: Vec<String> = arrays.iter().take(MAX_LISTED).map(form).collect();
    match arrays.len().saturating_sub(MAX_LISTED) {
        _ if forms.is_empty() => "no arrays at all".to_owned(),
        0 => forms.join(", "),
        more => format!("{} and {more} more", forms.join(", ")),
    }
}
