//! Data sets as four named arrays, in NumPy's `.npz` or as safetensors.
//!
//! Names are those in use: `x_train`, `train_images`, `train-labels`, `y.test`, ...: a split and a
//! kind, in either order. Other arrays (a validation split, say) are ignored. Labels may be
//! missing, in both splits alike.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use sha2::{Digest, Sha256};
use tch::{Kind, Tensor};
use zip::ZipArchive;

use super::{DataSet, MAX_VALUES, Samples, check_length, damaged, npy, scaled};
use super::{too_large, unequal_counts, unreadable};
use crate::{Result, TrainError, first_line};

/// Most bytes of a safetensors file; all of it is read at once.
const MAX_SAFETENSORS_BYTES: u64 = 1 << 34;
/// Arrays that a message lists at most.
const MAX_LISTED: usize = 12;

struct Array<'a> {
    path: &'a Path,
    name: &'a str,
    shape: Vec<i64>,
    values: Tensor,
}

pub(super) fn load_npz(path: &Path) -> Result<DataSet> {
    let unsound = |source| {
        let problem = format!("cannot read it as .npz ({source}); write it with numpy.savez");
        TrainError::input(path, problem)
    };
    let file = File::open(path).map_err(|source| unreadable(path, &source))?;
    let mut zip = ZipArchive::new(BufReader::new(file)).map_err(unsound)?;
    let name = |name: zip::result::ZipResult<std::borrow::Cow<'_, str>>| {
        Some(name.ok()?.strip_suffix(".npy")?.to_owned())
    };
    let names: Vec<String> = zip.file_names().filter_map(name).collect();
    load(path, &names, |name| {
        let entry = zip.by_name(&format!("{name}.npy")).map_err(unsound)?;
        let fix = "write the file again with numpy.savez";
        npy::read(entry).map_err(|found| unfit(path, name, &found, fix))
    })
}

pub(super) fn load_safetensors(path: &Path) -> Result<DataSet> {
    check_length(path, MAX_SAFETENSORS_BYTES)?;
    let tensors = Tensor::read_safetensors(path);
    let mut tensors = tensors.map_err(|error| damaged(path, &first_line(&error)))?;
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let names: Vec<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
    load(path, &names, |name| {
        Ok(tensors[names.partition_point(|other| other.as_str() < name)].1.shallow_clone())
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
/// labels; `read` reads the array of a name.
fn load(
    path: &Path,
    names: &[String],
    mut read: impl FnMut(&str) -> Result<Tensor>,
) -> Result<DataSet> {
    let usual: Vec<Option<&str>> = names.iter().map(|name| usual_name(name)).collect();
    let mut array = |wanted: &str, what: &str| {
        let places = (0..names.len()).filter(|&place| usual[place] == Some(wanted));
        match places.collect::<Vec<_>>().as_slice() {
            &[place] => {
                let (name, values) = (&names[place], read(&names[place])?);
                Ok(Array { path, name, shape: values.size(), values })
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
        samples(images, labelled.then(|| array(y, labels_of)).transpose()?, &mut hash)
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
    for Array { shape, values, .. } in std::iter::once(&images).chain(&labels) {
        let count = values.numel();
        let mut bytes = vec![0; count * values.kind().elt_size_in_bytes()];
        values.f_copy_data_u8(&mut bytes, count)?;
        hash.update(format!("{shape:?}"));
        hash.update(bytes);
    }
    let mut samples = images.samples()?;
    if let Some(labels) = &labels {
        let count = match labels.is_of_targets() {
            true => {
                samples.targets = labels.numbers()?;
                labels.shape[0] as usize
            }
            false => {
                samples.labels = labels.classes()?;
                samples.labels.len()
            }
        };
        let images_count = images.shape[0] as usize;
        let [images, labels] =
            [&images, labels].map(|array| format!("{}[{}]", array.path.display(), array.name));
        ensure!(images_count == count, unequal_counts(&images, images_count, &labels, count));
    }
    Ok(samples)
}

impl Array<'_> {
    fn unfit(&self, found: &str, wanted: &str) -> TrainError {
        unfit(self.path, self.name, found, wanted)
    }

    /// Returns true for what a model should give for each sample, and not classes.
    fn is_of_targets(&self) -> bool {
        self.shape.len() > 1 && self.values.is_floating_point()
    }

    fn classes(&self) -> Result<Vec<u8>> {
        let wrong = |found: &str| {
            let fix = "labels are whole numbers from 0 to 255, one for each sample; targets, as \
                boxes, floating-point numbers of shape (count, ..)";
            self.unfit(found, fix)
        };
        let is_flat = matches!(self.shape.as_slice(), [_] | [_, 1]);
        ensure!(is_flat, wrong(&format!("of shape {:?}", self.shape)));
        ensure!(!self.values.is_floating_point(), wrong("of floating-point numbers"));
        let class = |value: i64| {
            let found = || wrong(&format!("labels, and one of them is {value}"));
            u8::try_from(value).map_err(|_| found())
        };
        let values: Vec<i64> = self.values.f_to_kind(Kind::Int64)?.f_view([-1])?.try_into()?;
        values.into_iter().map(class).collect()
    }

    /// The samples with the channels in front, without labels.
    fn samples(&self) -> Result<Samples> {
        let is_channels = |length| matches!(length, 1 | 3 | 4);
        let (shape, channels_last) = match *self.shape.as_slice() {
            [_, features] => (vec![features], false),
            [_, height, width] => (vec![1, height, width], false),
            [_, height, width, channels] if is_channels(channels) && !is_channels(height) => {
                (vec![channels, height, width], true)
            }
            [_, channels, height, width] => (vec![channels, height, width], false),
            _ => {
                let wanted = "samples are (count, features), (count, height, width) or images \
                    with channels first or last";
                return Err(self.unfit(&format!("of shape {:?}", self.shape), wanted));
            }
        };
        let problem = format!("array {:?} has more than {MAX_VALUES} values", self.name);
        ensure!(self.values.numel() <= MAX_VALUES, too_large(self.path, &problem));
        let mut array = self.values.shallow_clone();
        if channels_last {
            array = array.f_permute([0, 3, 1, 2])?;
        }
        let values = Array { values: array, shape: Vec::new(), ..*self }.numbers()?;
        Ok(Samples::new(shape.into_iter().map(|axis| axis as usize).collect(), values, Vec::new()))
    }

    /// Finite numbers; bytes become 0 to 1.
    fn numbers(&self) -> Result<Vec<f32>> {
        let array = self.values.f_contiguous()?.f_view([-1])?;
        let values: Vec<f32> = match array.kind() {
            Kind::Uint8 => scaled(&Vec::try_from(array)?),
            _ if array.is_floating_point() => array.f_to_kind(Kind::Float)?.try_into()?,
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
        Ok(values)
    }
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
}
