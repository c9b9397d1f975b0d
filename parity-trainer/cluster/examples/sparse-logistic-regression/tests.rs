use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::node::transport::{Memory, Tcp, Transport};

use super::*;
use crate::data::{Batches, DataSet, Rows, generate, scattering};
use crate::staleness::{Experiment, Slowdown, race};

const FTRL: Ftrl = Ftrl {
    alpha: 0.1,
    beta: 1.0,
    l1: 3.0,
    l2: 0.1,
};

const TRAINING: Training = Training {
    workers: 1,
    servers: 2,
    replicas: 1,
    consistency: Consistency::Bsp,
    batch: 100,
    passes: 2,
    ftrl: FTRL,
    kkt: None,
    seed: 5,
};

const GENERATED: Generated = Generated {
    features: 30_000,
    rows: 20_000,
    held_out: 5_000,
    draws: 20,
    seed: 2,
};

async fn learn(
    data: &Arc<DataSet>,
    training: Training,
    transport: impl Transport,
) -> TrainingOutcome {
    let running = training.run(Arc::clone(data), transport, ProgressBar::hidden());
    running.await.unwrap()
}

/// McMahan et al., algorithm 1, with one update for each minibatch, in 64 bits: the weights that
/// are not 0.
fn plain(data: &DataSet) -> HashMap<u32, f64> {
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
    for places in TRAINING.batches(data.train.len()).of(0) {
        let mut sums: HashMap<u32, f64> = HashMap::new();
        for row in places.iter().map(|&place| data.train.get(place)) {
            let margin: f64 = row.features.iter().map(|&f| weight(&state, f)).sum();
            let slope = 1.0 / (1.0 + (-margin).exp()) - f64::from(u8::from(row.label));
            row.features
                .iter()
                .for_each(|&f| *sums.entry(f).or_default() += slope);
        }
        for (feature, g) in sums {
            let w = weight(&state, feature);
            let (z, n) = state.entry(feature).or_default();
            let sigma = ((*n + g * g).sqrt() - n.sqrt()) / alpha;
            *z += g - sigma * w;
            *n += g * g;
        }
    }
    let weights = state
        .keys()
        .map(|&feature| (feature, weight(&state, feature)));
    weights.filter(|(_, w)| *w != 0.0).collect()
}

fn score(data: &DataSet, weights: &HashMap<u32, f64>) -> Score {
    let of = |feature| weights.get(&feature).map_or(0.0, |&weight| weight as f32);
    let predicted: Vec<f32> = data
        .held_out
        .iter()
        .map(|row| row.probability(of))
        .collect();
    Score::new(&predicted, data.held_out.labels())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_learns_what_plain_ftrl_does() {
    let data = Arc::new(generate(&GENERATED).unwrap());
    let outcome = learn(&data, TRAINING, Tcp).await;
    let expected = plain(&data);
    let found: HashMap<u64, f32> = outcome.model.iter().copied().collect();
    for (&feature, &weight) in &expected {
        let found = found.get(&feature.into()).copied().unwrap_or_default();
        let difference = (f64::from(found) - weight).abs();
        assert!(
            difference < 1e-3,
            "weight {feature} differs by {difference}"
        );
    }
    assert!(found.len().abs_diff(expected.len()) <= expected.len() / 200);
    let (plain, found) = (score(&data, &expected), outcome.score);
    assert!((found.auc - plain.auc).abs() < 1e-3, "{found} and {plain}");
    assert!(
        (found.log_loss - plain.log_loss).abs() < 1e-3,
        "{found} and {plain}"
    );
    let best = Score::new(&data.truth, data.held_out.labels());
    assert!(found.auc > best.auc - 0.1, "{found} where {best} is best");
    assert!(
        outcome.model.len() < 3_000 && outcome.rows == 40_000,
        "{}",
        outcome.rows
    );
    // The same again is the same to the bit.
    let again = learn(&data, TRAINING, Memory::default()).await;
    assert_eq!(again.model, outcome.model);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_over_replicated_servers_learn_as_well() {
    let data = Arc::new(generate(&GENERATED).unwrap());
    let alone = score(&data, &plain(&data));
    for consistency in ["bsp", "bounded-delay:2", "ssp:2", "eager-ssp:2", "eventual"] {
        let training = Training {
            workers: 3,
            servers: 3,
            replicas: 2,
            batch: 50,
            consistency: consistency.parse().unwrap(),
            ..TRAINING
        };
        let outcome = learn(&data, training, Memory::default()).await;
        assert_eq!(outcome.rows, 40_000);
        let lost = outcome.score.log_loss / alone.log_loss - 1.0;
        assert!(lost < 0.02, "{consistency}: {} and {alone}", outcome.score);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kkt_leaves_out_rows_and_hardly_changes_what_is_learned() {
    let data = Arc::new(generate(&GENERATED).unwrap());
    let filtered = |left_out: Option<LeftOut>| {
        let kkt = left_out.map(|left_out| Kkt {
            threshold: 2.4,
            scale: 2.0,
            left_out,
        });
        let training = Training {
            workers: 2,
            kkt,
            ..TRAINING
        };
        learn(&data, training, Memory::default())
    };
    let exact = filtered(None).await;
    let kept = filtered(Some(LeftOut::KeptBack)).await;
    let dropped = filtered(Some(LeftOut::Dropped)).await;
    let lost = |outcome: &TrainingOutcome| outcome.score.log_loss / exact.score.log_loss - 1.0;
    assert!(
        lost(&kept) < 0.005 && kept.score.auc > exact.score.auc - 0.005,
        "{}",
        kept.score
    );
    assert!(
        lost(&kept) < lost(&dropped),
        "{} and {}",
        kept.score,
        dropped.score
    );
    assert!(
        kept.payload.rows_sent * 2 < kept.payload.rows,
        "{:?}",
        kept.payload
    );
    assert_eq!(exact.payload.rows_sent, exact.payload.rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_whose_updates_overflow_ends_with_an_error_under_every_model() {
    let mut train = Rows::default();
    for row in 0..2_000 {
        train.push(row % 7 < 3, [row % 7, 100]);
    }
    let data = Arc::new(DataSet {
        features: 100,
        train,
        held_out: Rows::default(),
        truth: Vec::new(),
    });
    for consistency in [Consistency::Bsp, Consistency::Ssp(0), Consistency::Eventual] {
        let training = Training {
            workers: 3,
            batch: 1,
            consistency,
            ftrl: Ftrl {
                alpha: f32::MAX,
                beta: 0.0,
                l1: 0.0,
                l2: 0.0,
            },
            ..TRAINING
        };
        let running = training.run(Arc::clone(&data), Memory::default(), ProgressBar::hidden());
        let ended = tokio::time::timeout(Duration::from_secs(100), running).await;
        let error = ended.expect("the training hangs").unwrap_err().to_string();
        assert!(error.contains("overflows"), "{consistency:?}: {error}");
    }
}

#[test]
fn program_reports_and_refuses_arguments_that_cannot_be_used() {
    let run = |arguments: &[&str]| {
        let all = ["sparse-logistic-regression"].iter().chain(arguments);
        let cli = Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        cli.run().map_err(|error| error.to_string())
    };
    let text = run(&["--features=500", "--rows=4000", "--l1=0.1"]).unwrap();
    for part in [
        "held out   log loss 0.",
        "at best",
        "weights",
        "KKT left out",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for (argument, wanted) in [
        ("--consistency=sps:2", "write bsp, bounded-delay:4"),
        ("--kkt=0.5", "kept:0.5"),
        ("--kkt=kept:1.5", "a share up to 1"),
        ("--kkt=kept:nan", "a share up to 1"),
        ("--kkt=dropped:0", "a share up to 1"),
        ("--workers=0", "non-zero"),
        ("--alpha=0", "above 0"),
        ("--l1=inf", "finite"),
        ("--replication=3", "2 servers cannot hold 3 copies"),
    ] {
        let error = run(&[argument]).unwrap_err();
        assert!(error.contains(wanted), "{argument}: {error}");
    }
    assert_eq!(kkt("off"), Ok(None));
    assert_eq!(kkt("dropped:0.5"), Ok(Some((0.5, LeftOut::Dropped))));
}

#[test]
fn area_is_the_share_of_pairs_in_the_right_order() {
    let labels = [false, true, false, true, true, false, false];
    // Of 12 pairs, 7 are in order and one is equal.
    let score = Score::new(&[0.1, 0.4, 0.4, 0.8, 0.3, 0.9, 0.2], &labels);
    assert!((score.auc - 7.5 / 12.0).abs() < 1e-12, "{score:?}");
    assert!((score.accuracy - 4.0 / 7.0).abs() < 1e-12, "{score:?}");
    assert_eq!(Score::new(&[0.2], &[true]).auc, 0.5);
    assert_eq!(Score::new(&[], &[]).log_loss, 0.0);
}

#[test]
fn every_pass_deals_out_every_row_once() {
    let batches = Batches {
        rows: 23,
        batch: 4,
        workers: 4,
        passes: 2,
        seed: 7,
    };
    let all: Vec<Vec<Vec<usize>>> = (0..4).map(|worker| batches.of(worker).collect()).collect();
    assert!(all.iter().all(|batches| batches.len() == 4), "{all:?}");
    for pass in 0..2 {
        let of_pass = all
            .iter()
            .flat_map(|batches| batches[2 * pass..2 * pass + 2].concat());
        let mut rows: Vec<usize> = of_pass.collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..23).collect::<Vec<_>>());
    }
    assert_ne!(all[0][0], all[0][2]);
    assert!(all[3][1].is_empty());
    assert_eq!(Batches { rows: 0, ..batches }.of(0).count(), 0);
}

#[test]
fn generated_set_is_the_same_for_the_same_seed_and_its_truth_fits_its_labels() {
    for features in [1, 2, 10, 97, 1000, 4096] {
        let factor = scattering(features);
        let mut keys: Vec<u64> = (0..features).map(|rank| rank * factor % features).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..features).collect::<Vec<_>>());
    }
    let settings = Generated {
        features: 5_000,
        rows: 200,
        held_out: 2_000,
        ..GENERATED
    };
    let (set, again) = (generate(&settings).unwrap(), generate(&settings).unwrap());
    assert_eq!((&set.train, &set.held_out), (&again.train, &again.held_out));
    let other = Generated {
        seed: 4,
        ..settings
    };
    assert_ne!(set.train, generate(&other).unwrap().train);
    assert_eq!(
        (set.train.len(), set.held_out.len(), set.keys().len()),
        (200, 2_000, 5_001)
    );
    let mut features = set.train.iter().map(|row| row.features);
    assert!(features.all(|row| row.is_sorted() && row.last() == Some(&5_000)));
    let score = Score::new(&set.truth, set.held_out.labels());
    assert!(score.auc > 0.75 && score.log_loss < 0.6, "{score}");
}

const EXPERIMENT: Experiment = Experiment {
    seed: 1,
    consistency: Consistency::Bsp,
    slowdown: Slowdown::Never,
    workers: 2,
    compute: Duration::from_millis(20),
    clocks: 12,
    patience: Duration::from_secs(30),
    batch: 200,
    data: Generated {
        features: 500,
        rows: 4_000,
        held_out: 1_000,
        draws: 30,
        seed: 1,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_synchronous_workers_reach_the_loss_after_its_clocks() {
    let set = EXPERIMENT.data().unwrap();
    let after = |clocks| {
        Experiment {
            clocks,
            ..EXPERIMENT
        }
        .target(&set)
    };
    let targets = [after(12), after(6), after(0)];
    assert!(targets.is_sorted_by(|a, b| a < b), "{targets:?}");
    let measured = race(EXPERIMENT).await.unwrap();
    assert!(
        measured.target == after(12) && measured.idle > 0.0,
        "{measured:?}"
    );
    // At the latest, but a noisy loss may be there before; the next two clocks may be done when
    // that is seen.
    let in_time = (12..=28).contains(&measured.minibatches);
    assert!(in_time || measured.late > 0.0, "{measured:?}");
    let least = 0.02 * (measured.minibatches / 2 - 2) as f64;
    assert!(measured.seconds.unwrap() >= least, "{measured:?}");
    let hopeless = Experiment {
        clocks: 400,
        patience: Duration::from_millis(50),
        ..EXPERIMENT
    };
    assert_eq!(race(hopeless).await.unwrap().seconds, None);
}

#[test]
fn slow_worker_computes_longer_for_as_long_as_it_is_slow() {
    let ms = Duration::from_millis;
    let with = |slowdown| Experiment {
        slowdown,
        workers: 4,
        ..EXPERIMENT
    };
    let always = with(Slowdown::Always);
    assert_eq!(always.end(0, ms(100), ms(8)), ms(132));
    assert_eq!(always.end(1, ms(100), ms(8)), ms(108));
    assert_eq!(with(Slowdown::Never).end(0, ms(100), ms(8)), ms(108));
    // In turns, one is slow at any time, and all are in the long run.
    let turns = with("turns:100".parse().unwrap());
    let mut times = [0; 4];
    for turn in 0..400 {
        let is_slow = |&worker: &usize| turns.is_slow(worker, ms(turn * 100 + 50)).0;
        let slow: Vec<usize> = (0..4).filter(is_slow).collect();
        assert_eq!(slow.len(), 1, "{slow:?}");
        times[slow[0]] += 1;
    }
    assert!(
        times.iter().all(|times| (70..130).contains(times)),
        "{times:?}"
    );
    // One that computes without a pause does 1/4 of the work in the turns in which it is slow.
    let mut end = Duration::ZERO;
    (0..100).for_each(|_| end = turns.end(2, end, ms(8)));
    let work = |turn: u64| {
        let length = end
            .saturating_sub(ms(turn * 100))
            .min(ms(100))
            .as_secs_f64()
            * 1e3;
        length
            / if turns.is_slow(2, ms(turn * 100)).0 {
                4.0
            } else {
                1.0
            }
    };
    let done: f64 = (0..1_000).map(work).sum();
    assert!((done - 800.0).abs() < 0.01, "{done}");
    for bad in ["", "turns", "turns:0", "turns:x", "sometimes"] {
        assert!(
            bad.parse::<Slowdown>().unwrap_err().contains("turns:100"),
            "{bad}"
        );
    }
}
