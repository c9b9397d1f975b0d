//! Data sets as four named arrays, whatever kind of file holds them.
//!
//! Names are those in use: `x_train`, `train_images`, `train-labels`, `y.test`, ...: a split and a
//! kind, in either order. Other arrays (a validation split, say) are ignored. Labels may be
//! missing, in both splits alike.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::data::{DataError, Loaded, MAX_VALUES, Samples, scaled};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Elements {
    Bytes(Vec<u8>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
}

/// An array that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) elements: Elements,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Train(Kind),
    Test(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Samples,
    Labels,
}

const ROLES: [(Role, &str, &str); 4] = [
    (Role::Train(Kind::Samples), "training samples", "x_train"),
    (Role::Train(Kind::Labels), "training labels", "y_train"),
    (Role::Test(Kind::Samples), "test samples", "x_test"),
    (Role::Test(Kind::Labels), "test labels", "y_test"),
];

fn role(name: &str) -> Option<Role> {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(['_', '-', '.', '/', ' ']);
    let (first, second) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let split = |word: &str| match word {
        "train" | "training" => Some(Role::Train as fn(Kind) -> Role),
        "test" | "t10k" => Some(Role::Test as fn(Kind) -> Role),
        _ => None,
    };
    let kind = |word: &str| match word {
        "x" | "images" | "image" | "data" | "samples" | "features" | "inputs" => {
            Some(Kind::Samples)
        }
        "y" | "labels" | "label" | "targets" | "classes" => Some(Kind::Labels),
        _ => None,
    };
    let both = |left: &str, right: &str| Some(split(left)?(kind(right)?));
    both(first, second).or_else(|| both(second, first))
}

/// Reads the four arrays among `names`, in order: training samples and labels, test samples and
/// labels; only the samples if there are no labels.
pub(super) fn load(
    path: &Path,
    names: &[String],
    mut read: impl FnMut(&str) -> Result<Array, DataError>,
) -> Result<Loaded, DataError> {
    let mut hash = Sha256::new();
    let mut array = |(wanted, what, example): (Role, &'static str, &'static str)| {
        let mut found = names.iter().filter(|name| role(name) == Some(wanted));
        match (found.next(), found.next()) {
            (Some(name), None) => read(name),
            (Some(first), Some(second)) => Err(DataError::Array {
                path: path.to_path_buf(),
                array: second.clone(),
                found: format!("{what}, and so is {first:?}"),
                wanted: "keep one of the two",
            }),
            (None, _) => {
                let (path, arrays) = (path.to_path_buf(), names.to_vec());
                Err(DataError::NoArray {
                    path,
                    wanted: what,
                    example,
                    arrays,
                })
            }
        }
    };
    let [train_x, train_y, test_x, test_y] = ROLES;
    // Labels of one split only are more likely a slip than a wish.
    let is_labels = |name: &String| {
        matches!(
            role(name),
            Some(Role::Train(Kind::Labels) | Role::Test(Kind::Labels))
        )
    };
    let labelled = names.iter().any(is_labels);
    let mut split = |x, y| {
        let images = array(x)?;
        let labels = if labelled { Some(array(y)?) } else { None };
        samples(path, images, labels, &mut hash)
    };
    let (train, test) = (split(train_x, train_y)?, split(test_x, test_y)?);
    Ok(Loaded {
        train,
        test,
        class_names: Vec::new(),
        sha256: format!("{:x}", hash.finalize()),
    })
}

fn samples(
    path: &Path,
    images: Array,
    labels: Option<Array>,
    hash: &mut Sha256,
) -> Result<Samples, DataError> {
    for array in std::iter::once(&images).chain(&labels) {
        hash.update(format!("{:?}", array.shape));
        match &array.elements {
            Elements::Bytes(bytes) => hash.update(bytes),
            Elements::Integers(integers) => integers
                .iter()
                .for_each(|value| hash.update(value.to_le_bytes())),
            Elements::Floats(floats) => floats
                .iter()
                .for_each(|value| hash.update(value.to_le_bytes())),
        }
    }
    let images_name = images.name.clone();
    let count = images.shape.first().copied().unwrap_or_default();
    let labels = match labels {
        None => Vec::new(),
        Some(array) => {
            let labels_name = array.name.clone();
            let labels = classes(path, array)?;
            if count != labels.len() {
                let named = |array: &str| format!("{}[{array}]", path.display()).into();
                return Err(DataError::CountMismatch {
                    images_path: named(&images_name),
                    images: count,
                    labels_path: named(&labels_name),
                    labels: labels.len(),
                });
            }
            labels
        }
    };
    let (shape, values) = values(path, images)?;
    Ok(Samples {
        shape,
        values,
        labels,
    })
}

fn classes(path: &Path, array: Array) -> Result<Vec<u8>, DataError> {
    let wanted = "labels are whole numbers from 0 to 255, one for each sample";
    let wrong = |found| DataError::Array {
        path: path.to_path_buf(),
        array: array.name.clone(),
        found,
        wanted,
    };
    if !matches!(array.shape.as_slice(), [_] | [_, 1]) {
        return Err(wrong(format!("of shape {:?}", array.shape)));
    }
    match &array.elements {
        Elements::Bytes(bytes) => Ok(bytes.clone()),
        Elements::Integers(integers) => {
            let label = |&value: &i64| {
                u8::try_from(value)
                    .map_err(|_| wrong(format!("labels, and one of them is {value}")))
            };
            integers.iter().map(label).collect()
        }
        Elements::Floats(_) => Err(wrong("of floating-point numbers".to_owned())),
    }
}

/// A sample's shape, and all values with the channels in front.
fn values(path: &Path, array: Array) -> Result<(Vec<usize>, Vec<f32>), DataError> {
    let Array {
        name,
        shape,
        elements,
    } = array;
    let wrong = |found, wanted| DataError::Array {
        path: path.to_path_buf(),
        array: name.clone(),
        found,
        wanted,
    };
    let (shape, channels_last) = match *shape.as_slice() {
        [_, features] => (vec![features], false),
        [_, height, width] => (vec![1, height, width], false),
        [_, height, width, channels] if is_channels(channels) && !is_channels(height) => {
            (vec![channels, height, width], true)
        }
        [_, channels, height, width] => (vec![channels, height, width], false),
        _ => {
            let wanted = "samples are (count, features), (count, height, width) or images with \
                channels first or last";
            return Err(wrong(format!("of shape {shape:?}"), wanted));
        }
    };
    let values = match elements {
        Elements::Bytes(bytes) => scaled(&bytes),
        Elements::Floats(floats) => match floats.iter().position(|value| !value.is_finite()) {
            Some(place) => {
                let value = floats.get(place).copied().unwrap_or_default();
                let wanted = "samples are finite numbers: clean the data";
                return Err(wrong(
                    format!("not finite: element {place} is {value}"),
                    wanted,
                ));
            }
            None => floats,
        },
        Elements::Integers(_) => {
            return Err(wrong(
                "of whole numbers".to_owned(),
                "save samples as uint8 (0 to 255) or as float32",
            ));
        }
    };
    if values.len() > MAX_VALUES {
        let problem = format!("array {name:?} has more than {MAX_VALUES} values");
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            problem,
        });
    }
    let values = match shape.as_slice() {
        &[channels, height, width] if channels_last && channels > 1 => {
            channels_first(&values, channels, height * width)
        }
        _ => values,
    };
    Ok((shape, values))
}

fn is_channels(length: usize) -> bool {
    matches!(length, 1 | 3 | 4)
}

fn channels_first(values: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let mut planar = Vec::with_capacity(values.len());
    for sample in values.chunks_exact((channels * pixels).max(1)) {
        for channel in 0..channels {
            planar.extend(sample.iter().skip(channel).step_by(channels));
        }
    }
    planar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_use_are_known() {
        let train = [
            "x_train",
            "train_images",
            "X_Train",
            "train.x",
            "train/images",
            "images-train",
        ];
        for name in train {
            assert_eq!(role(name), Some(Role::Train(Kind::Samples)), "{name}");
        }
        for name in ["y_test", "test_labels", "t10k-labels"] {
            assert_eq!(role(name), Some(Role::Test(Kind::Labels)), "{name}");
        }
        for name in [
            "x",
            "val_images",
            "x_train_old",
            "train",
            "images_labels",
            "train_test",
        ] {
            assert_eq!(role(name), None, "{name}");
        }
    }

    #[test]
    fn channels_move_to_the_front() {
        let pixels = [1.0, 10.0, 100.0, 2.0, 20.0, 200.0];
        assert_eq!(
            channels_first(&pixels, 3, 2),
            [1.0, 2.0, 10.0, 20.0, 100.0, 200.0]
        );
    }
}
