//! The KKT filter in sparse logistic regression.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::*;

/// The proximal step of L1-regularised problems: what the server of the paper's section 5.1 does.
#[derive(Debug)]
struct Proximal {
    rate: f32,
    l1: f32,
}

impl UpdateRule for Proximal {
    fn apply(&self, _: u32, gradient: &[f32], values: &mut [f32], _: &mut [&mut [f32]]) {
        for (weight, gradient) in values.iter_mut().zip(gradient) {
            let moved = *weight - self.rate * gradient;
            *weight = moved.signum() * (moved.abs() - self.rate * self.l1).max(0.0);
        }
    }
}

const FEATURES: usize = 120;
const SAMPLES: usize = 480;
const ROUNDS: usize = 150;
const L1: f32 = 0.015;

/// Samples of a few features each, and their labels; ten features matter.
fn samples() -> Vec<(Vec<usize>, f32)> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let sample = |_| {
        let features: Vec<usize> = (0..FEATURES).filter(|_| rng.random_bool(0.1)).collect();
        let weight = |&f: &usize| [2.5, -2.5][f % 2];
        let score: f64 = features.iter().filter(|&&f| f < 10).map(weight).sum();
        let is_positive = rng.random_bool(1.0 / (1.0 + (-score).exp()));
        (features, if is_positive { 1.0 } else { -1.0 })
    };
    (0..SAMPLES).map(sample).collect()
}

fn margin(weights: &[f32], (features, label): &(Vec<usize>, f32)) -> f32 {
    label * features.iter().map(|&feature| weights[feature]).sum::<f32>()
}

/// Sparse logistic regression by so many workers, each with its part of the samples: the weights,
/// their penalised loss, and the part of the gradient rows that was dropped.
fn regress(workers: usize, kkt: Option<Kkt>) -> (Vec<f32>, f64, f64) {
    let samples = samples();
    let range = KeyRange::new(0, FEATURES as u64);
    let mut store = Store::new(Layout::dense(1, Proximal { rate: 2.0, l1: L1 }), range);
    let filters = ArrayFilters { kkt, ..ArrayFilters::default() };
    let mut filters = vec![PushFilter::new(ARRAY, 1, filters); workers];
    let mut sent_rows = 0;
    for _ in 0..ROUNDS {
        let weights = read(&store, range);
        let pulled = Values::from(weights.clone());
        let mut total = vec![0.0_f32; FEATURES];
        for (part, filter) in samples.chunks(SAMPLES / workers).zip(&mut filters) {
            let mut gradient = vec![0.0_f32; FEATURES];
            for sample in part {
                let slope = -sample.1 / (1.0 + margin(&weights, sample).exp()) / SAMPLES as f32;
                sample.0.iter().for_each(|&feature| gradient[feature] += slope);
            }
            let gradient = gradient.into();
            let sent = filter.filter(range, &Keys::All, &gradient, Some(&pulled));
            let (keys, values) = sent.unwrap();
            sent_rows += keys.len(range);
            let rows = keys.iter(range).zip(values.to_f32().to_vec());
            rows.for_each(|(key, value)| total[key as usize] += value);
        }
        store.update(range, &Keys::All, &total.into()).unwrap();
    }
    let weights = read(&store, range);
    let losses = samples.iter().map(|sample| (-margin(&weights, sample)).exp().ln_1p());
    let loss = losses.sum::<f32>() / SAMPLES as f32;
    let penalty: f32 = weights.iter().map(|weight| L1 * weight.abs()).sum();
    let dropped = 1.0 - sent_rows as f64 / (ROUNDS * workers * FEATURES) as f64;
    (weights, f64::from(loss + penalty), dropped)
}

fn dropping(threshold: f32, scale: f32) -> Option<Kkt> {
    Some(Kkt { threshold, scale, left_out: LeftOut::Dropped })
}

#[test]
fn kkt_of_all_data_changes_no_weight() {
    let (exact, loss, _) = regress(1, None);
    let (filtered, _, dropped) = regress(1, dropping(L1, 1.0));
    assert_eq!(exact, filtered);
    assert!(dropped > 0.5, "{dropped}");
    let zeros = exact.iter().filter(|weight| **weight == 0.0).count();
    assert!(loss < 0.69 && zeros > 60, "{loss} {zeros}");
}

#[test]
fn kkt_of_a_part_of_the_data_hardly_changes_the_loss() {
    let (_, exact, _) = regress(4, None);
    let (_, filtered, dropped) = regress(4, dropping(0.5 * L1, 4.0));
    assert!(filtered <= 1.01 * exact, "{filtered} where it could be {exact}");
    assert!(dropped > 0.1, "{dropped}");
}
