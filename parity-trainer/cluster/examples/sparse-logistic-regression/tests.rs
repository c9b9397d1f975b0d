use std::collections::HashMap;
use std::time::Duration;

use parapet_cluster::node::Transport;

use super::*;
use crate::data::{Batches, DataSet, Row};
use crate::ftrl::Outcome;
use crate::staleness::{Experiment, Slowdown};

const FTRL: Ftrl = Ftrl { l2: 0.1, ..super::TRAINING.ftrl };

const TRAINING: Training =
    Training { workers: 1, batch: 100, passes: 2, ftrl: FTRL, seed: 5, ..super::TRAINING };

const GENERATED: Generated =
    Generated { features: 30_000, rows: 20_000, held_out: 5_000, draws: 20, seed: 2 };

async fn learn(data: &Arc<DataSet>, training: Training, transport: Transport) -> Outcome {
    training.run(Arc::clone(data), transport).await.unwrap()
}

/// McMahan et al., algorithm 1, with one update for each minibatch, in 64 bits: the weights that
/// are not 0.
fn plain(data: &DataSet) -> HashMap<u32, f64> {
    let [alpha, beta, l1, l2] = [FTRL.alpha, FTRL.beta, FTRL.l1, FTRL.l2].map(f64::from);
    let mut state: HashMap<u32, (f64, f64)> = HashMap::new();
    let weight = |state: &HashMap<u32, (f64, f64)>, feature: u32| {
        let (z, n) = state.get(&feature).copied().unwrap_or_default();
        if z.abs() <= l1 { 0.0 } else { -(z - z.signum() * l1) / ((beta + n.sqrt()) / alpha + l2) }
    };
    for places in TRAINING.batches(data.train.len()).of(0) {
        let mut sums: HashMap<u32, f64> = HashMap::new();
        for row in places.iter().map(|&place| &data.train[place]) {
            let margin: f64 = row.features.iter().map(|&f| weight(&state, f)).sum();
            let slope = 1.0 / (1.0 + (-margin).exp()) - f64::from(u8::from(row.label));
            for &feature in &row.features {
                *sums.entry(feature).or_default() += slope;
            }
        }
        for (feature, g) in sums {
            let w = weight(&state, feature);
            let (z, n) = state.entry(feature).or_default();
            let sigma = ((*n + g * g).sqrt() - n.sqrt()) / alpha;
            *z += g - sigma * w;
            *n += g * g;
        }
    }
    let weights = state.keys().map(|&feature| (feature, weight(&state, feature)));
    weights.filter(|(_, w)| *w != 0.0).collect()
}

fn score(data: &DataSet, weights: &HashMap<u32, f64>) -> Score {
    let of = |feature| weights.get(&feature).map_or(0.0, |&weight| weight as f32);
    let predicted: Vec<f32> = data.held_out.iter().map(|row| row.probability(of)).collect();
    Score::new(&data.held_out, &predicted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_learn_what_plain_ftrl_does() {
    let data = Arc::new(GENERATED.generate().unwrap());
    let outcome = learn(&data, TRAINING, Tcp).await;
    let expected = plain(&data);
    let found: HashMap<u64, f32> = outcome.model.iter().copied().collect();
    for (&feature, &weight) in &expected {
        let found = found.get(&feature.into()).copied().unwrap_or_default();
        let difference = (f64::from(found) - weight).abs();
        assert!(difference < 1e-3, "weight {feature} differs by {difference}");
    }
    assert!(found.len().abs_diff(expected.len()) <= expected.len() / 200);
    let (plain, found) = (score(&data, &expected), outcome.score);
    let differences = [found.auc - plain.auc, found.log_loss - plain.log_loss];
    assert!(differences.iter().all(|by| by.abs() < 1e-3), "{found} and {plain}");
    let best = Score::new(&data.held_out, &data.truth);
    assert!(found.auc > best.auc - 0.1, "{found} where {best} is best");
    assert!(outcome.model.len() < 3_000, "{outcome}");
    // The same again is the same to the bit.
    let again = learn(&data, TRAINING, Transport::memory()).await;
    assert_eq!(again.model, outcome.model);

    // Several workers over replicated servers learn as well.
    for consistency in ["bsp", "bounded-delay:2", "ssp:2", "eager-ssp:2", "eventual"] {
        let training = Training {
            workers: 3,
            servers: 3,
            replicas: 2,
            batch: 50,
            consistency: consistency.parse().unwrap(),
            ..TRAINING
        };
        let outcome = learn(&data, training, Transport::memory()).await;
        let lost = outcome.score.log_loss / plain.log_loss - 1.0;
        assert!(lost < 0.02, "{consistency}: {outcome} and {plain}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kkt_leaves_out_rows_and_hardly_changes_what_is_learned() {
    let data = Arc::new(GENERATED.generate().unwrap());
    let filtered = |left_out: Option<LeftOut>| {
        let kkt = left_out.map(|left_out| Kkt { threshold: 2.4, scale: 2.0, left_out });
        let training = Training { workers: 2, kkt, ..TRAINING };
        learn(&data, training, Transport::memory())
    };
    let exact = filtered(None).await;
    let kept = filtered(Some(LeftOut::KeptBack)).await;
    let dropped = filtered(Some(LeftOut::Dropped)).await;
    let lost = |outcome: &Outcome| outcome.score.log_loss / exact.score.log_loss - 1.0;
    let auc = kept.score.auc - exact.score.auc;
    assert!(lost(&kept) < 0.005 && auc > -0.005, "{kept}");
    assert!(lost(&kept) < lost(&dropped), "{kept} and {dropped}");
    assert!(kept.filtered.after * 2 < kept.filtered.before, "{kept}");
    assert!(kept.to_string().contains("are not 0"), "{kept}");
    assert!(exact.to_string().contains(" 0.0 % of 0 bytes"), "{exact}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_whose_updates_overflow_ends_with_an_error_under_every_model() {
    let row = |row: u32| Row { features: vec![row % 7, 100], label: row % 7 < 3 };
    let data = Arc::new(DataSet {
        keys: parapet_parameter_server::KeyRange::new(0, 101),
        train: (0..2_000).map(row).collect(),
        held_out: Vec::new(),
        truth: Vec::new(),
    });
    for consistency in [Consistency::Bsp, Consistency::Ssp(0), Consistency::Eventual] {
        let training = Training {
            workers: 3,
            batch: 1,
            consistency,
            ftrl: Ftrl { alpha: f32::MAX, beta: 0.0, l1: 0.0, l2: 0.0 },
            ..TRAINING
        };
        let running = training.run(Arc::clone(&data), Transport::memory());
        let ended = tokio::time::timeout(Duration::from_secs(100), running).await;
        let error = ended.expect("the training hangs").unwrap_err().to_string();
        assert!(error.contains("overflows"), "{consistency:?}: {error}");
    }
}

#[test]
fn kkt_option_that_cannot_be_used_is_told_the_form() {
    assert_eq!(kkt("off"), Ok(None));
    assert_eq!(kkt("dropped:0.5"), Ok(Some((0.5, LeftOut::Dropped))));
    for text in ["0.5", "kept:1.5", "kept:nan", "dropped:0"] {
        assert!(kkt(text).unwrap_err().contains("kept:0.5"), "{text}");
    }
}

#[test]
fn area_is_the_share_of_pairs_in_the_right_order() {
    let score = |pairs: &[(f32, bool)]| {
        let row = |&(_, label): &(f32, bool)| Row { features: Vec::new(), label };
        let rows: Vec<Row> = pairs.iter().map(row).collect();
        Score::new(&rows, &Vec::from_iter(pairs.iter().map(|&(p, _)| p)))
    };
    let labels = [false, true, false, true, true, false, false];
    let pairs = [0.1, 0.4, 0.4, 0.8, 0.3, 0.9, 0.2].into_iter().zip(labels);
    // Of 12 pairs, 7 are in order and one is equal.
    let auc = score(&Vec::from_iter(pairs)).auc;
    assert!((auc - 7.5 / 12.0).abs() < 1e-12, "{auc}");
    assert_eq!(score(&[(0.2, true)]).auc, 0.5);
    assert_eq!(score(&[]).log_loss, 0.0);
}

#[test]
fn every_pass_deals_out_every_row_once() {
    let batches = Batches { rows: 23, batch: 4, workers: 4, passes: 2, seed: 7 };
    let all: Vec<Vec<Vec<usize>>> = (0..4).map(|worker| batches.of(worker).collect()).collect();
    assert!(all.iter().all(|batches| batches.len() == 4), "{all:?}");
    for pass in 0..2 {
        let of_worker = |batches: &Vec<Vec<usize>>| batches[2 * pass..2 * pass + 2].concat();
        let mut rows: Vec<usize> = all.iter().flat_map(of_worker).collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..23).collect::<Vec<_>>());
    }
    assert_ne!(all[0][0], all[0][2]);
    assert!(all[3][1].is_empty());
    assert_eq!(Batches { rows: 0, ..batches }.of(0).count(), 0);
}

#[test]
fn generated_set_is_the_same_for_the_same_seed_and_its_truth_fits_its_labels() {
    let settings = Generated { features: 5_000, rows: 200, held_out: 2_000, ..GENERATED };
    let [set, again] = [(); 2].map(|()| settings.generate().unwrap());
    assert_eq!((&set.train, &set.held_out), (&again.train, &again.held_out));
    let other = Generated { seed: 4, ..settings };
    assert_ne!(set.train, other.generate().unwrap().train);
    let lengths = (set.train.len(), set.held_out.len(), set.keys.len());
    assert_eq!(lengths, (200, 2_000, 5_001));
    let mut features = set.train.iter().map(|row| &row.features);
    assert!(features.all(|row| row.is_sorted() && row.last() == Some(&5_000)));
    let score = Score::new(&set.held_out, &set.truth);
    assert!(score.auc > 0.75 && score.log_loss < 0.6, "{score}");
}

const EXPERIMENT: Experiment = Experiment {
    seed: 1,
    consistency: Consistency::Bsp,
    slowdown: Slowdown::Never,
    clocks: 12,
    patience: Duration::from_secs(30),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_synchronous_workers_reach_the_loss_after_its_clocks() {
    let set = EXPERIMENT.data().unwrap();
    let with = |clocks| Experiment { clocks, ..EXPERIMENT };
    let targets = [12, 6, 0].map(|clocks| with(clocks).target(&set));
    assert!(targets.is_sorted_by(|a, b| a < b), "{targets:?}");
    let measured = EXPERIMENT.race().await.unwrap();
    let is_target = measured.target == targets[0];
    assert!(is_target && measured.idle > 0.0, "{measured:?}");
    // At the latest, but a noisy loss may be there before; the next two clocks may be done when
    // that is seen.
    let in_time = (24..=56).contains(&measured.minibatches);
    assert!(in_time || measured.late > 0.0, "{measured:?}");
    let least = 0.008 * (measured.minibatches / 4).saturating_sub(2) as f64;
    assert!(measured.seconds.unwrap() >= least, "{measured:?}");
    let hopeless = Experiment { patience: Duration::from_millis(50), ..with(100) };
    assert_eq!(hopeless.race().await.unwrap().seconds, None);
}

#[test]
fn slow_worker_computes_longer_for_as_long_as_it_is_slow() {
    let ms = Duration::from_millis;
    let with = |slowdown: &str| Experiment { slowdown: slowdown.parse().unwrap(), ..EXPERIMENT };
    for (slowdown, worker, end) in [("always", 0, 132), ("always", 1, 108), ("never", 0, 108)] {
        assert_eq!(with(slowdown).end(worker, ms(100), ms(8)), ms(end));
    }
    // In turns, one is slow at any time, and all are in the long run.
    let turns = with("turns:100");
    let mut times = [0; 4];
    for turn in 0..400 {
        let is_slow = |&worker: &usize| turns.is_slow(worker, ms(turn * 100 + 50)).0;
        let slow: Vec<usize> = (0..4).filter(is_slow).collect();
        assert_eq!(slow.len(), 1, "{slow:?}");
        times[slow[0]] += 1;
    }
    assert!(times.iter().all(|times| (70..130).contains(times)), "{times:?}");
    // One that computes without a pause does 1/4 of the work in the turns in which it is slow.
    let mut end = Duration::ZERO;
    (0..100).for_each(|_| end = turns.end(2, end, ms(8)));
    let work = |turn: u64| {
        let length = end.saturating_sub(ms(turn * 100)).min(ms(100));
        let factor = if turns.is_slow(2, ms(turn * 100)).0 { 4.0 } else { 1.0 };
        length.as_secs_f64() * 1e3 / factor
    };
    let done: f64 = (0..1_000).map(work).sum();
    assert!((done - 800.0).abs() < 0.01, "{done}");
    for bad in ["", "turns", "turns:0", "turns:x", "sometimes"] {
        let error = bad.parse::<Slowdown>().unwrap_err();
        assert!(error.contains("turns:100"), "{bad}");
    }
}
