//! Makes a data set for object localisation: a digit of MNIST somewhere in a larger, empty image,
//! and the box that holds its ink, as parts of the image's side.
//!
//! `place_digits MNIST_FOLDER OUT.safetensors`: 20,000 training and 4,000 test samples.

use std::error::Error;
use std::path::Path;

use parity_trainer::data::{DataSet, Samples};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

const DIGIT: usize = 28;
const SIDE: usize = 56;
const COUNTS: [usize; 2] = [20_000, 4_000];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [digits, out] = arguments.as_slice() else {
        return Err("give MNIST_FOLDER OUT.safetensors".into());
    };
    let data = DataSet::load(Path::new(digits))?;
    let mut arrays = Vec::new();
    for ((samples, split), count) in
        [(&data.train, "train"), (&data.test, "test")].iter().zip(COUNTS)
    {
        let (images, boxes) = place(samples, count);
        let images = Tensor::from_slice(&images).view([-1, SIDE as i64, SIDE as i64]);
        arrays.push((format!("x_{split}"), images));
        arrays.push((format!("y_{split}"), Tensor::from_slice(&boxes).view([-1, 4])));
    }
    Tensor::write_safetensors(&arrays, out)?;
    Ok(())
}

/// The first samples, each at a place of its own, and the corners `x1, y1, x2, y2` of their ink.
fn place(samples: &Samples, count: usize) -> (Vec<u8>, Vec<f32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(count as u64);
    let (mut images, mut boxes) = (Vec::new(), Vec::new());
    for index in 0..count.min(samples.len()) {
        let [left, top] = [0; 2].map(|_| rng.random_range(0..=SIDE - DIGIT));
        let mut image = vec![0; SIDE * SIDE];
        let mut corners = [SIDE, SIDE, 0, 0];
        for (at, &value) in samples.sample(index).iter().enumerate() {
            let (x, y) = (left + at % DIGIT, top + at / DIGIT);
            image[y * SIDE + x] = (255.0 * value) as u8;
            if value > 0.2 {
                let [x1, y1, x2, y2] = corners;
                corners = [x1.min(x), y1.min(y), x2.max(x + 1), y2.max(y + 1)];
            }
        }
        images.extend(image);
        boxes.extend(corners.map(|corner| corner as f32 / SIDE as f32));
    }
    (images, boxes)
}
