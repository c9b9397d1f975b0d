//! Data sets as four named arrays, in NumPy's `.npz` or as safetensors.
//!
//! Names are those in use: `x_train`, `train_images`, `train-labels`, `y.test`, ...: a split and a
//! kind, in either order. Other arrays (a validation split, say) are ignored. Labels may be
//! missing, in both splits alike.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use parapet_datasets::npz::{Element, Kind, Npz, NpzError};
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::unreadable;
use super::{DataSet, MAX_VALUES, Samples, damaged, read_whole, scaled, too_large, unequal_counts};
use crate::{Result, TrainError};

/// Most bytes of a safetensors file; all of it is read at once.
const MAX_SAFETENSORS_BYTES: u64 = 1 << 34;
/// Arrays that a message lists at most.
const MAX_LISTED: usize = 12;

struct Array<'a> {
    path: &'a Path,
    name: &'a str,
    shape: Vec<usize>,
    element: Element,
    bytes: Cow<'a, [u8]>,
}

type Contents<'a> = (Vec<usize>, Element, Cow<'a, [u8]>);

pub(super) fn load_npz(path: &Path) -> Result<DataSet> {
    let unsound = |error: NpzError| TrainError::Input(error.to_string());
    let file = File::open(path).map_err(|source| unreadable(path, &source))?;
    let mut npz = Npz::open(path, file).map_err(unsound)?;
    let arrays = npz.arrays().to_vec();
    let names: Vec<String> = arrays.iter().map(|array| array.name.clone()).collect();
    load(path, &names, |place| {
        let (element, bytes) = npz.read(&arrays[place]).map_err(unsound)?;
        let shape = arrays[place].header.shape.clone();
        Ok((shape, element, bytes.into()))
    })
}

pub(super) fn load_safetensors(path: &Path) -> Result<DataSet> {
    let unsound = |error: safetensors::SafeTensorError| damaged(path, &error.to_string());
    let contents = read_whole(path, MAX_SAFETENSORS_BYTES)?;
    let tensors = SafeTensors::deserialize(&contents).map_err(unsound)?;
    let mut names: Vec<String> = tensors.names().into_iter().map(String::from).collect();
    names.sort();
    load(path, &names, |place| {
        let tensor = tensors.tensor(&names[place]).map_err(unsound)?;
        let kind = match tensor.dtype() {
            Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Kind::Unsigned,
            Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Kind::Signed,
            Dtype::F32 | Dtype::F64 => Kind::Float,
            other => {
                let wanted = "save samples as U8, F32 or F64, labels as U8 or whole numbers";
                let found = format!("of type {other:?}");
                return Err(unfit(path, &names[place], &found, wanted));
            }
        };
        let element = Element {
            kind,
            width: tensor.dtype().bitsize() / 8,
            big_endian: false,
        };
        Ok((tensor.shape().to_vec(), element, tensor.data().into()))
    })
}

/// The usual name, such as `x_train`, of an array called `name`.
fn usual_name(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let (first, second) = name.split_once(['_', '-', '.', '/', ' '])?;
    let is_training = |word: &str| match word {
        "train" | "training" => Some(true),
        "test" | "t10k" => Some(false),
        _ => None,
    };
    let is_samples = |word: &str| match word {
        "x" | "images" | "image" | "data" | "samples" | "features" | "inputs" => Some(true),
        "y" | "labels" | "label" | "targets" | "classes" => Some(false),
        _ => None,
    };
    let both = |split: &str, kind: &str| Some((is_samples(kind)?, is_training(split)?));
    Some(match both(first, second).or_else(|| both(second, first))? {
        (true, true) => "x_train",
        (false, true) => "y_train",
        (true, false) => "x_test",
        (false, false) => "y_test",
    })
}

/// Makes a data set of the four arrays among `names`, or of the two of samples if there are no
/// labels; `read` reads the array at a place in `names`.
fn load<'a>(
    path: &Path,
    names: &[String],
    mut read: impl FnMut(usize) -> Result<Contents<'a>>,
) -> Result<DataSet> {
    let usual: Vec<Option<&str>> = names.iter().map(|name| usual_name(name)).collect();
    let mut array = |wanted: &str, what: &str| {
        let places = (0..names.len()).filter(|&place| usual[place] == Some(wanted));
        match places.collect::<Vec<_>>().as_slice() {
            &[place] => {
                let (name, (shape, element, bytes)) = (&names[place], read(place)?);
                Ok(Array {
                    path,
                    name,
                    shape,
                    element,
                    bytes,
                })
            }
            &[first, second, ..] => {
                let found = format!("{what}, and so is {:?}", names[first]);
                Err(unfit(path, &names[second], &found, "keep one of the two"))
            }
            [] => {
                let there = listed(names);
                let problem = format!("no array of {what}; name it {wanted} (there {there})");
                Err(TrainError::input(path, problem))
            }
        }
    };
    // Labels of one split only are more likely a slip than a wish.
    let labelled = usual.contains(&Some("y_train")) || usual.contains(&Some("y_test"));
    let mut hash = Sha256::new();
    let mut split = |[x, samples_of, y, labels_of]: [&str; 4]| {
        let images = array(x, samples_of)?;
        let labels = labelled.then(|| array(y, labels_of)).transpose()?;
        samples(images, labels, &mut hash)
    };
    let train = split(["x_train", "training samples", "y_train", "training labels"])?;
    let test = split(["x_test", "test samples", "y_test", "test labels"])?;
    Ok(DataSet::new(train, test, Vec::new(), hash))
}

fn listed(names: &[String]) -> String {
    let are = if names.len() == 1 { "is" } else { "are" };
    let shown = names.get(..MAX_LISTED).unwrap_or(names).join(", ");
    match names.len() {
        0 => "are: none".to_owned(),
        count if count > MAX_LISTED => format!("{are}: {shown} and {} more", count - MAX_LISTED),
        _ => format!("{are}: {shown}"),
    }
}

fn unfit(path: &Path, array: &str, found: &str, wanted: &str) -> TrainError {
    TrainError::input(path, format!("array {array:?} is {found}; {wanted}"))
}

fn samples(images: Array<'_>, labels: Option<Array<'_>>, hash: &mut Sha256) -> Result<Samples> {
    for array in std::iter::once(&images).chain(&labels) {
        hash.update(format!("{:?}", array.shape));
        hash.update(&array.bytes);
    }
    let mut samples = images.samples()?;
    if let Some(labels) = &labels {
        samples.labels = labels.classes()?;
        let (images_count, count) = (images.shape[0], samples.labels.len());
        if images_count != count {
            let [images, labels] =
                [&images, labels].map(|array| format!("{}[{}]", array.path.display(), array.name));
            return Err(unequal_counts(&images, images_count, &labels, count));
        }
    }
    Ok(samples)
}

impl Array<'_> {
    fn unfit(&self, found: &str, wanted: &str) -> TrainError {
        unfit(self.path, self.name, found, wanted)
    }

    fn classes(&self) -> Result<Vec<u8>> {
        let wrong = |found: &str| {
            let wanted = "labels are whole numbers from 0 to 255, one for each sample";
            self.unfit(found, wanted)
        };
        if !matches!(self.shape.as_slice(), [_] | [_, 1]) {
            return Err(wrong(&format!("of shape {:?}", self.shape)));
        }
        if self.element.kind == Kind::Float {
            return Err(wrong("of floating-point numbers"));
        }
        let class = |value: i128| {
            let found = || wrong(&format!("labels, and one of them is {value}"));
            u8::try_from(value).map_err(|_| found())
        };
        self.element.integers(&self.bytes).map(class).collect()
    }

    /// The samples with the channels in front, without labels.
    fn samples(&self) -> Result<Samples> {
        let is_channels = |length| matches!(length, 1 | 3 | 4);
        let (shape, channels_last) = match *self.shape.as_slice() {
            [_, features] => (vec![features], false),
            [_, height, width] => (vec![1, height, width], false),
            [_, height, width, channels] if is_channels(channels) && !is_channels(height) => {
                (vec![channels, height, width], channels > 1)
            }
            [_, channels, height, width] => (vec![channels, height, width], false),
            _ => {
                let wanted = "samples are (count, features), (count, height, width) or images \
                    with channels first or last";
                return Err(self.unfit(&format!("of shape {:?}", self.shape), wanted));
            }
        };
        let mut values = match (self.element.kind, self.element.width) {
            (Kind::Unsigned, 1) => scaled(&self.bytes),
            (Kind::Float, _) => self.element.floats(&self.bytes).collect(),
            _ => {
                let wanted = "save samples as uint8 (0 to 255) or as float32";
                return Err(self.unfit("of whole numbers", wanted));
            }
        };
        let mut numbered = values.iter().enumerate();
        if let Some((place, value)) = numbered.find(|(_, value)| !value.is_finite()) {
            let found = format!("not finite: element {place} is {value}");
            return Err(self.unfit(&found, "samples are finite numbers: clean the data"));
        }
        if values.len() > MAX_VALUES {
            let problem = format!("array {:?} has more than {MAX_VALUES} values", self.name);
            return Err(too_large(self.path, &problem));
        }
        if channels_last {
            values = channels_first(&values, shape[0], shape[1] * shape[2]);
        }
        Ok(Samples::new(shape, values, Vec::new()))
    }
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
    fn array_names_in_use_are_known_and_others_are_not() {
        let x_train = "x_train train_images X_Train train.x train/images images-train";
        let others = "x val_images x_train_old train images_labels train_test";
        let cases = [
            (x_train, Some("x_train")),
            ("y_test test_labels t10k-labels", Some("y_test")),
            (others, None),
        ];
        for (names, usual) in cases {
            for name in names.split(' ') {
                assert_eq!(usual_name(name), usual, "{name}");
            }
        }
    }

    #[test]
    fn channels_move_to_the_front() {
        let pixels = [1.0, 10.0, 100.0, 2.0, 20.0, 200.0];
        let planar = channels_first(&pixels, 3, 2);
        assert_eq!(planar, [1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    }
}
