//! Lines of handwritten digits, for a deployed model that judges which way up a line of text is: no
//! data set of such lines is at hand. The label is whether the line is turned.

use std::fs;
use std::path::Path;

use parity_trainer::TrainError;
use parity_trainer::data::{DataSet, Samples};
use parity_trainer::files::write_aside;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// Channels, height and width of a line: those of PP-OCR's direction classifier.
pub(super) const SHAPE: [usize; 3] = [3, 48, 192];
/// Digits of a line.
const DIGITS: usize = 8;
/// Rows of a line above its digits, and below.
const MARGIN: usize = 4;
/// Border of MNIST's images around the digit, as a share of their side: 4 pixels of 28.
const BORDER: f32 = 4.0 / 28.0;
const TRAIN: usize = 3000;
const TEST: usize = 1000;

/// Writes lines made of the digits of the data set at `digits` to the safetensors file `path`.
pub(super) fn write(digits: &Path, path: &Path) -> Result<(), TrainError> {
    let failed = |source| TrainError::Write {
        path: path.to_path_buf(),
        source,
    };
    let digits = DataSet::load_with(digits, &mut |_| {})?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let train = lines(&digits.train, TRAIN, &mut rng);
    let test = lines(&digits.test, TEST, &mut rng);
    let view = |shape, bytes| {
        TensorView::new(Dtype::U8, shape, bytes)
            .map_err(|error| failed(std::io::Error::other(error)))
    };
    let of_lines = |count: usize| [&[count][..], &SHAPE].concat();
    let (train_turned, test_turned) = (turned(TRAIN), turned(TEST));
    let tensors = [
        ("x_train", view(of_lines(TRAIN), &train)?),
        ("y_train", view(vec![TRAIN], &train_turned)?),
        ("x_test", view(of_lines(TEST), &test)?),
        ("y_test", view(vec![TEST], &test_turned)?),
    ];
    let bytes = safetensors::serialize(tensors, None)
        .map_err(|error| failed(std::io::Error::other(error)))?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    write_aside(path, &[&bytes]).map_err(failed)
}

/// The labels of `count` lines: 1 for every other one, which is turned.
fn turned(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 2) as u8).collect()
}

/// `count` lines of random digits, dark on light, every other one turned by half a turn.
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
    let [_, height, width] = SHAPE;
    let (rows, columns) = (height - 2 * MARGIN, width / DIGITS);
    let from = |at: usize, count: usize, side: usize| {
        let part = BORDER + (1.0 - 2.0 * BORDER) * (at as f32 + 0.5) / count as f32;
        part * side as f32 - 0.5
    };
    for row in 0..rows {
        let y = from(row, rows, source_height);
        for column in 0..columns {
            let x = from(column, columns, source_width);
            let ink = bilinear(digit, source_height, source_width, y, x);
            let at = (MARGIN + row) * width + place * columns + column;
            if let Some(pixel) = plane.get_mut(at) {
                *pixel = (255.0 * (1.0 - ink.clamp(0.0, 1.0))).round() as u8;
            }
        }
    }
}

fn bilinear(image: &[f32], height: usize, width: usize, y: f32, x: f32) -> f32 {
    let (y, x) = (
        y.clamp(0.0, (height - 1) as f32),
        x.clamp(0.0, (width - 1) as f32),
    );
    let (top, left) = (y as usize, x as usize);
    let (down, right) = (y - top as f32, x - left as f32);
    let pixel = |row: usize, column: usize| {
        image
            .get(row.min(height - 1) * width + column.min(width - 1))
            .copied()
            .unwrap_or_default()
    };
    let upper = pixel(top, left) * (1.0 - right) + pixel(top, left + 1) * right;
    let lower = pixel(top + 1, left) * (1.0 - right) + pixel(top + 1, left + 1) * right;
    upper * (1.0 - down) + lower * down
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_digits_dark_and_every_other_is_turned() {
        // A digit with ink in its upper half only.
        let mut values = vec![0.0; 28 * 28];
        values[..14 * 28].fill(1.0);
        let digits = Samples {
            shape: vec![1, 28, 28],
            values,
            labels: vec![7],
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let lines = lines(&digits, 2, &mut rng);
        let [channels, height, width] = SHAPE;
        assert_eq!(lines.len(), 2 * channels * height * width);
        let (upright, turned) = lines.split_at(channels * height * width);
        let dark = |line: &[u8], rows: std::ops::Range<usize>| {
            line[rows.start * width..rows.end * width]
                .iter()
                .all(|&pixel| pixel < 20)
        };
        assert!(dark(upright, MARGIN..22) && !dark(upright, 26..44));
        assert!(dark(turned, 26..44) && !dark(turned, MARGIN..22));
        assert!(
            upright[..MARGIN * width].iter().all(|&pixel| pixel == 255),
            "a margin stays light"
        );
        assert_eq!(
            upright[..height * width],
            upright[height * width..2 * height * width],
            "channels are equal"
        );
    }

    #[test]
    fn the_file_is_a_data_set() {
        let folder = tempfile::tempdir().unwrap();
        let digits = folder.path().join("digits.safetensors");
        let bytes: Vec<u8> = (0..4 * 28 * 28).map(|value| value as u8).collect();
        let view = || TensorView::new(Dtype::U8, vec![4, 1, 28, 28], &bytes).unwrap();
        let labels = || TensorView::new(Dtype::U8, vec![4], &[0, 1, 2, 3]).unwrap();
        let arrays = [
            ("x_train", view()),
            ("y_train", labels()),
            ("x_test", view()),
            ("y_test", labels()),
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
