//! Lines of handwritten digits, for a deployed model that judges which way up a line of text is: no
//! data set of such lines is at hand. The label is whether the line is turned.

use std::fs;
use std::path::Path;

use image::imageops::{self, FilterType};
use image::{ImageBuffer, Luma};
use parity_trainer::TrainError;
use parity_trainer::data::{DataSet, Samples};
use parity_trainer::files::write_aside;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// Channels, height and width of a line: those of PP-OCR's direction classifier.
const SHAPE: [usize; 3] = [3, 48, 192];
const DIGITS: usize = 8;
/// Rows of a line above its digits, and below.
const MARGIN: usize = 4;
/// Border of MNIST's images around the digit is this part of their side: 4 pixels of 28.
const BORDER: u32 = 7;
const TRAIN: usize = 3000;
const TEST: usize = 1000;

/// Writes lines made of the digits of the data set at `digits` to the safetensors file `path`.
pub(super) fn write(digits: &Path, path: &Path) -> Result<(), TrainError> {
    let failed = TrainError::write(path);
    let invalid = |error| TrainError::write(path)(std::io::Error::other(error));
    let digits = DataSet::load_with(digits, &mut |_| {})?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let train = lines(&digits.train, TRAIN, &mut rng);
    let test = lines(&digits.test, TEST, &mut rng);
    // 1 for every other line, which is turned.
    let turned: Vec<u8> = (0..TRAIN).map(|at| (at % 2) as u8).collect();
    let images =
        |lines: &'_ [u8]| [&[lines.len() / SHAPE.iter().product::<usize>()][..], &SHAPE].concat();
    let mut tensors = Vec::new();
    for (name, shape, bytes) in [
        ("x_train", images(&train), train.as_slice()),
        ("y_train", vec![TRAIN], turned.as_slice()),
        ("x_test", images(&test), test.as_slice()),
        ("y_test", vec![TEST], turned.get(..TEST).unwrap_or_default()),
    ] {
        tensors.push((
            name,
            TensorView::new(Dtype::U8, shape, bytes).map_err(invalid)?,
        ));
    }
    let bytes = safetensors::serialize(tensors, None).map_err(invalid)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(&failed)?;
    }
    write_aside(path, &[&bytes]).map_err(failed)
}

/// Makes `count` lines of random digits, dark on light, every other one turned by half a turn.
fn lines(digits: &Samples, count: usize, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let [channels, height, width] = SHAPE;
    let mut all = Vec::with_capacity(count * channels * height * width);
    for at in 0..count {
        let mut plane = vec![u8::MAX; height * width];
        for place in 0..DIGITS {
            let digit = digits.sample(rng.random_range(0..digits.len().max(1)));
            draw(digit, &digits.shape, place, &mut plane);
        }
        if at % 2 == 1 {
            plane.reverse();
        }
        for _ in 0..channels {
            all.extend_from_slice(&plane);
        }
    }
    all
}

/// Draws the first channel of `digit`, less its border, at the `place`-th place of the line.
fn draw(digit: &[f32], shape: &[usize], place: usize, plane: &mut [u8]) {
    let &[_, source_height, source_width] = shape else {
        return;
    };
    let (source_height, source_width) = (source_height as u32, source_width as u32);
    let [_, height, width] = SHAPE;
    let (rows, columns) = (height - 2 * MARGIN, width / DIGITS);
    let image = ImageBuffer::<Luma<f32>, _>::from_raw(source_width, source_height, digit);
    let Some(image) = image else { return };
    let (left, top) = (source_width / BORDER, source_height / BORDER);
    let (inner_width, inner_height) = (source_width - 2 * left, source_height - 2 * top);
    let inner = imageops::crop_imm(&image, left, top, inner_width, inner_height);
    let drawn = imageops::resize(&*inner, columns as u32, rows as u32, FilterType::Triangle);
    for (column, row, Luma([ink])) in drawn.enumerate_pixels() {
        let at = (MARGIN + row as usize) * width + place * columns + column as usize;
        if let Some(pixel) = plane.get_mut(at) {
            *pixel = (255.0 * (1.0 - ink.clamp(0.0, 1.0))).round() as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_its_digits_dark_and_every_other_is_turned() {
        // A digit with ink in its upper half only.
        let mut values = vec![0.0; 28 * 28];
        values[..14 * 28].fill(1.0);
        let digits = Samples {
            shape: vec![1, 28, 28],
            values,
            labels: vec![7],
        };
        let lines = lines(&digits, 2, &mut ChaCha8Rng::seed_from_u64(1));
        let [channels, height, width] = SHAPE;
        let planes: Vec<&[u8]> = lines.chunks(height * width).collect();
        assert_eq!(planes.len(), 2 * channels);
        let (upright, turned) = (planes[0], planes[channels]);
        let all = |line: &[u8], rows: std::ops::Range<usize>, is: fn(u8) -> bool| {
            let pixels = &line[rows.start * width..rows.end * width];
            pixels.iter().all(|&pixel| is(pixel))
        };
        let is_dark = |pixel| pixel < 20;
        assert!(all(upright, MARGIN..22, is_dark) && !all(upright, 26..44, is_dark));
        assert!(all(turned, 26..44, is_dark) && !all(turned, MARGIN..22, is_dark));
        assert!(
            all(upright, 0..MARGIN, |pixel| pixel == 255),
            "a margin stays light"
        );
        assert_eq!(planes[0], planes[1], "channels are equal");
    }

    #[test]
    fn file_of_lines_is_a_data_set() {
        let folder = tempfile::tempdir().unwrap();
        let digits = folder.path().join("digits.safetensors");
        let bytes: Vec<u8> = (0..4 * 28 * 28).map(|value| value as u8).collect();
        let images = TensorView::new(Dtype::U8, vec![4, 1, 28, 28], &bytes).unwrap();
        let labels = TensorView::new(Dtype::U8, vec![4], &[0, 1, 2, 3]).unwrap();
        let arrays = [
            ("x_train", &images),
            ("y_train", &labels),
            ("x_test", &images),
            ("y_test", &labels),
        ];
        fs::write(&digits, safetensors::serialize(arrays, None).unwrap()).unwrap();
        let path = folder.path().join("data/lines.safetensors");
        write(&digits, &path).unwrap();
        let lines = DataSet::load_with(&path, &mut |_| {}).unwrap();
        assert_eq!((lines.train.len(), lines.test.len()), (TRAIN, TEST));
        assert_eq!(lines.train.shape, SHAPE);
        assert_eq!(lines.test.labels[..4], [0, 1, 0, 1]);
    }
}
