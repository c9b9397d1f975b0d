//! Trainings over servers against plain FTRL-proximal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::data::{DataSet, Generated, generate};
use crate::{Batches, Place, Rows, Score, TrainSettings, TrainingOutcome, train};
use parapet_cluster::node::transport::{Memory, Tcp};
use parapet_parameter_server::{Consistency, Ftrl, Kkt, LeftOut};
use tokio::sync::watch;

const FTRL: Ftrl = Ftrl {
    alpha: 0.1,
    beta: 1.0,
    l1: 3.0,
    l2: 0.1,
};

fn settings() -> TrainSettings {
    TrainSettings {
        workers: 1,
        servers: 2,
        replicas: 1,
        consistency: Consistency::Bsp,
        batch: 100,
        passes: 2,
        ftrl: FTRL,
        kkt: None,
        key_lists: true,
        seed: 5,
    }
}

fn data() -> Arc<DataSet> {
    Arc::new(generate(&Generated {
        features: 30_000,
        rows: 20_000,
        held_out: 5_000,
        draws: 20,
        seed: 2,
    }))
}

/// McMahan et al., algorithm 1, with one update for each minibatch, in 64 bits: the weights that
/// are not 0.
fn plain(data: &DataSet, settings: &TrainSettings) -> HashMap<u32, f64> {
    let [alpha, beta, l1, l2] = [FTRL.alpha, FTRL.beta, FTRL.l1, FTRL.l2].map(f64::from);
    let mut state: HashMap<u32, (f64, f64)> = HashMap::new();
    let weight = |state: &HashMap<u32, (f64, f64)>, feature: u32| {
        let (z, n) = state.get(&feature).copied().unwrap_or_default();
        if z.abs() <= l1 {
            0.0
        } else {
            -(z - z.signum() * l1) / ((beta + n.sqrt()) / alpha + l2)
        }
    };
    let TrainSettings {
        batch,
        passes,
        seed,
        ..
    } = *settings;
    for places in Batches::new(data.train.len(), batch, 1, 0, passes, seed) {
        let mut sums: HashMap<u32, f64> = HashMap::new();
        for row in places
            .iter()
            .filter_map(|&place| data.train.get(place as usize))
        {
            let values = || row.features.iter().zip(row.values);
            let margin: f64 = values()
                .map(|(&f, &x)| weight(&state, f) * f64::from(x))
                .sum();
            let slope = 1.0 / (1.0 + (-margin).exp()) - f64::from(u8::from(row.label));
            values().for_each(|(&f, &x)| *sums.entry(f).or_default() += slope * f64::from(x));
        }
        for (feature, g) in sums {
            let w = weight(&state, feature);
            let (z, n) = state.entry(feature).or_default();
            let sigma = ((*n + g * g).sqrt() - n.sqrt()) / alpha;
            *z += g - sigma * w;
            *n += g * g;
        }
    }
    let features = state.keys().copied();
    features
        .map(|feature| (feature, weight(&state, feature)))
        .filter(|(_, w)| *w != 0.0)
        .collect()
}

fn score(data: &DataSet, weights: &HashMap<u32, f64>) -> Score {
    let of = |feature| weights.get(&feature).map_or(0.0, |&weight| weight as f32);
    let rows = data.held_out.iter();
    let predicted: Vec<f32> = rows
        .map(|row| crate::logistic::probability(row, of))
        .collect();
    Score::new(&predicted, data.held_out.labels())
}

async fn learn<T: Place>(
    data: &Arc<DataSet>,
    settings: TrainSettings,
    transport: T,
) -> TrainingOutcome {
    let (_stop, stopped) = watch::channel(false);
    train(Arc::clone(data), settings, transport, stopped, |_, _| {})
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_learns_what_plain_ftrl_does() {
    let data = data();
    let outcome = learn(&data, settings(), Tcp).await;
    let expected = plain(&data, &settings());
    let mut most: f64 = 0.0;
    for (&feature, &weight) in &expected {
        let found = outcome
            .model
            .binary_search_by_key(&u64::from(feature), |&(key, _)| key);
        let found = found.map_or(0.0, |place| f64::from(outcome.model[place].1));
        most = most.max((found - weight).abs());
    }
    assert!(most < 1e-3, "a weight differs by {most}");
    assert!(
        outcome.non_zero.abs_diff(expected.len()) <= expected.len() / 200,
        "{}",
        expected.len()
    );
    let (plain, best) = (
        score(&data, &expected),
        Score::new(data.truth.as_ref().unwrap(), data.held_out.labels()),
    );
    assert!(
        (outcome.score.auc - plain.auc).abs() < 1e-3,
        "{:?} and {plain:?}",
        outcome.score
    );
    assert!(
        (outcome.score.log_loss - plain.log_loss).abs() < 1e-3,
        "{:?} and {plain:?}",
        outcome.score
    );
    assert!(
        outcome.score.auc > best.auc - 0.1,
        "{:?} where {best:?} is best",
        outcome.score
    );
    assert!(
        outcome.non_zero < 3_000 && outcome.rows == 40_000,
        "{} of {}",
        outcome.non_zero,
        outcome.rows
    );
    // The same again is the same to the bit.
    assert_eq!(
        learn(&data, settings(), Memory::default()).await.model,
        outcome.model
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_over_replicated_servers_learn_as_well() {
    let data = data();
    let alone = score(&data, &plain(&data, &settings()));
    let several = TrainSettings {
        workers: 3,
        servers: 3,
        replicas: 2,
        batch: 50,
        ..settings()
    };
    for consistency in [
        Consistency::Bsp,
        Consistency::BoundedDelay(2),
        Consistency::Ssp(2),
        Consistency::EagerSsp(2),
        Consistency::Eventual,
    ] {
        let outcome = learn(
            &data,
            TrainSettings {
                consistency,
                ..several
            },
            Memory::default(),
        )
        .await;
        assert_eq!(outcome.rows, 40_000);
        let lost = outcome.score.log_loss / alone.log_loss - 1.0;
        assert!(
            lost < 0.02,
            "{consistency:?}: {:?} and {alone:?}",
            outcome.score
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kkt_saves_bytes_and_hardly_changes_what_is_learned() {
    let data = data();
    let settings = TrainSettings {
        workers: 2,
        ..settings()
    };
    let exact = learn(&data, settings, Memory::default()).await;
    let filtered = |left_out| {
        let kkt = Some(Kkt {
            threshold: 2.4,
            scale: 2.0,
            left_out,
        });
        learn(&data, TrainSettings { kkt, ..settings }, Memory::default())
    };
    let (kept, dropped) = (
        filtered(LeftOut::KeptBack).await,
        filtered(LeftOut::Dropped).await,
    );
    println!("{:?}\n{:?}\n{:?}", exact.score, kept.score, dropped.score);
    println!(
        "{:?}\n{:?}\n{:?}",
        exact.payload, kept.payload, dropped.payload
    );
    let lost = |outcome: &TrainingOutcome| outcome.score.log_loss / exact.score.log_loss - 1.0;
    assert!(
        lost(&kept) < 0.005 && kept.score.auc > exact.score.auc - 0.005,
        "{:?}",
        kept.score
    );
    assert!(
        lost(&kept) < lost(&dropped),
        "{:?} and {:?}",
        kept.score,
        dropped.score
    );
    assert!(
        kept.payload.rows_sent * 2 < kept.payload.rows,
        "{:?}",
        kept.payload
    );
    assert!(exact.payload.rows_sent == exact.payload.rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_that_is_told_to_stop_gives_what_it_has() {
    let data = data();
    let (stop, stopped) = watch::channel(false);
    let seen = Arc::new(AtomicUsize::new(0));
    let learned = move |rows, _| {
        if seen.fetch_add(rows, Ordering::Relaxed) > 2_000 {
            stop.send_replace(true);
        }
    };
    let endless = TrainSettings {
        workers: 2,
        passes: 1_000_000,
        ..settings()
    };
    let outcome = train(
        Arc::clone(&data),
        endless,
        Memory::default(),
        stopped,
        learned,
    )
    .await
    .unwrap();
    assert!(
        outcome.stopped && outcome.rows > 2_000 && outcome.rows < 20_000,
        "{}",
        outcome.rows
    );
    assert!(outcome.score.auc > 0.52, "{:?}", outcome.score);
}

/// A feature of huge values: its gradient is finite, the square of it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_whose_updates_overflow_ends_with_an_error_under_every_model() {
    let mut train_rows = Rows::default();
    for row in 0..2_000 {
        train_rows.push(row % 2 == 0, [(row % 7, 4e19), (100, 1.0)]);
    }
    let data = DataSet {
        features: 100,
        train: train_rows,
        ..(*data()).clone()
    };
    let data = Arc::new(DataSet {
        held_out: Rows::default(),
        truth: None,
        ..data
    });
    for consistency in [Consistency::Bsp, Consistency::Ssp(0), Consistency::Eventual] {
        let settings = TrainSettings {
            workers: 3,
            batch: 1,
            consistency,
            ..settings()
        };
        let (_stop, stopped) = watch::channel(false);
        let training = train(
            Arc::clone(&data),
            settings,
            Memory::default(),
            stopped,
            |_, _| {},
        );
        let ended = tokio::time::timeout(Duration::from_secs(100), training).await;
        let error = ended
            .expect("the training hangs")
            .err()
            .map(|error| error.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|error| error.contains("overflows")),
            "{consistency:?}: {error:?}"
        );
    }
}
