//! The KKT filter in sparse logistic regression.

use super::*;

/// The proximal step of L1-regularised problems: what the server of the paper's section 5.1 does.
#[derive(Debug)]
struct Proximal {
    rate: f32,
    l1: f32,
}

impl UpdateRule for Proximal {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], _state: &mut [&mut [f32]]) {
        for (weight, gradient) in values.iter_mut().zip(gradient) {
            let moved = *weight - self.rate * gradient;
            *weight = moved.signum() * (moved.abs() - self.rate * self.l1).max(0.0);
        }
    }
}

const FEATURES: u64 = 120;
const SAMPLES: usize = 480;
const L1: f32 = 0.015;

/// Samples of a few features each; ten features matter.
fn samples() -> Vec<(Vec<usize>, f32)> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let sample = |rng: &mut ChaCha8Rng| {
        let features: Vec<usize> = (0..FEATURES as usize)
            .filter(|_| rng.random_bool(0.1))
            .collect();
        let score: f32 = features
            .iter()
            .filter(|&&f| f < 10)
            .map(|f| if f % 2 == 0 { 2.5 } else { -2.5 })
            .sum();
        (
            features,
            if rng.random_bool(f64::from(1.0 / (1.0 + (-score).exp()))) {
                1.0
            } else {
                -1.0
            },
        )
    };
    (0..SAMPLES).map(|_| sample(&mut rng)).collect()
}

/// Sparse logistic regression by so many workers, each with its part of the samples: the weights,
/// their penalised loss, and the part of the gradient rows that was dropped.
fn regress(workers: usize, kkt: Option<Kkt>) -> (Vec<f32>, f64, f64) {
    let samples = samples();
    let range = KeyRange::new(0, FEATURES);
    let mut store = Store::new(Layout::dense(1, Proximal { rate: 2.0, l1: L1 }), range);
    let filters = ArrayFilters {
        kkt,
        ..ArrayFilters::default()
    };
    let mut filters = vec![PushFilter::new(ARRAY, 1, filters); workers];
    let (mut weights, mut sent_rows) = (vec![0.0_f32; FEATURES as usize], 0);
    let margin = |weights: &[f32], (features, label): &(Vec<usize>, f32)| {
        label
            * features
                .iter()
                .map(|&feature| weights[feature])
                .sum::<f32>()
    };
    let rounds = 150;
    for _ in 0..rounds {
        let mut total = vec![0.0_f32; FEATURES as usize];
        for (part, filter) in samples.chunks(SAMPLES / workers).zip(&mut filters) {
            let mut gradient = vec![0.0_f32; FEATURES as usize];
            for sample in part {
                let slope = -sample.1 / (1.0 + margin(&weights, sample).exp()) / SAMPLES as f32;
                sample
                    .0
                    .iter()
                    .for_each(|&feature| gradient[feature] += slope);
            }
            let pulled = Values::from(weights.clone());
            let (keys, values) = filter
                .filter(range, &Keys::All, &gradient.into(), Some(&pulled))
                .unwrap();
            sent_rows += keys.len(range);
            keys.iter(range)
                .zip(values.to_f32().iter())
                .for_each(|(key, value)| total[key as usize] += value);
        }
        store.update(range, &Keys::All, &total.into()).unwrap();
        weights.clear();
        store.read(range, &Keys::All, &mut weights);
    }
    let loss: f32 = samples
        .iter()
        .map(|sample| (-margin(&weights, sample)).exp().ln_1p())
        .sum();
    let penalty: f32 = weights.iter().map(|weight| L1 * weight.abs()).sum();
    let dropped = 1.0 - sent_rows as f64 / (rounds * workers * FEATURES as usize) as f64;
    (weights, f64::from(loss / SAMPLES as f32 + penalty), dropped)
}

#[test]
fn kkt_of_all_data_changes_no_weight() {
    let (exact, loss, _) = regress(1, None);
    let (filtered, _, dropped) = regress(
        1,
        Some(Kkt {
            threshold: L1,
            scale: 1.0,
            left_out: LeftOut::Dropped,
        }),
    );
    assert_eq!(exact, filtered);
    assert!(dropped > 0.5, "{dropped}");
    assert!(
        loss < 0.69 && exact.iter().filter(|weight| **weight == 0.0).count() > 60,
        "{loss}"
    );
}

#[test]
fn kkt_of_a_part_of_the_data_hardly_changes_the_loss() {
    let (_, exact, _) = regress(4, None);
    let (_, filtered, dropped) = regress(
        4,
        Some(Kkt {
            threshold: 0.5 * L1,
            scale: 4.0,
            left_out: LeftOut::Dropped,
        }),
    );
    assert!(
        filtered <= 1.01 * exact,
        "{filtered} where it could be {exact}"
    );
    assert!(dropped > 0.1, "{dropped}");
}
