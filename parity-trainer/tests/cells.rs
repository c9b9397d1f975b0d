//! Networks of cells: where they begin, and what each cell learns.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use parapet_encoder::{CodeSpec, EncoderKind};
use parity_trainer::network::Network;
use parity_trainer::{ParityRun, TrainingSet};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn network(name: &str, shape: &[usize], seed: u64) -> Network {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Network::new(&name.parse().unwrap(), shape, 3, &mut rng).unwrap()
}

fn pixels(count: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    (0..count).map(|_| rng.random()).collect()
}

#[test]
fn a_network_of_cells_begins_as_the_sum_of_the_network_of_one_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    for inner in ["resnet8:4", "vgg11:4", "lenet:3x3"] {
        let mut one = network(inner, &[2, 12, 12], 1);
        one.normalise(&pixels(6 * 144)).unwrap();
        one.save(&path).unwrap();
        let mut both = network(&format!("cells:1x2:{inner}"), &[2, 12, 24], 2);
        both.start_from(&path).unwrap();
        let (left, right) = (pixels(2 * 144), pixels(4 * 144).split_off(2 * 144));
        let mut side_by_side = Vec::new();
        for (left, right) in left.chunks(12).zip(right.chunks(12)) {
            side_by_side.extend([left, right].concat());
        }
        let (left, right) = (one.infer(&left), one.infer(&right));
        let sum = left.iter().zip(right).map(|(a, b)| a + b);
        for (found, wanted) in both.infer(&side_by_side).iter().zip(sum) {
            assert!((found - wanted).abs() < 1e-4, "{inner}: {found} {wanted}");
        }
    }
}

#[test]
fn weights_of_other_layers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    network("resnet8:4", &[1, 12, 12], 1).save(&path).unwrap();
    for other in [
        "resnet8:5",
        "resnet14:4",
        "lenet:4x3",
        "cells:1x2:lenet:4x3",
    ] {
        let mut other = network(other, &[1, 12, 24], 1);
        let before = other.infer(&pixels(288));
        let message = other.start_from(&path).unwrap_err().to_string();
        let says = "cannot begin with it";
        assert!(
            message.contains(says) && !message.contains('\n'),
            "{message}"
        );
        assert_eq!(other.infer(&pixels(288)), before);
    }
    let none = folder.path().join("none.safetensors");
    assert!(network("lenet", &[1, 16, 16], 1).start_from(&none).is_err());
}

/// A deployed model that is linear in the mean of each image's quarter.
fn training_set(count: usize, seed: u64) -> Arc<TrainingSet> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let inputs: Vec<f32> = (0..count * 256).map(|_| rng.random()).collect();
    let answers = inputs.chunks(256).flat_map(|image| {
        let part = |at: usize| image.iter().skip(at * 64).take(64).sum::<f32>() / 8.0;
        [part(0) - part(1), part(1) - part(2), part(2) - part(0)]
    });
    let classes = parapet_decoder::ClassAxis::of(&[3]).unwrap();
    Arc::new(TrainingSet {
        shape: vec![1, 16, 16],
        classes,
        answers: answers.collect(),
        inputs,
    })
}

fn loss(k: usize, grid: &str, cell_targets: bool) -> f64 {
    let sides = grid.split('x').map(|side| side.parse::<usize>().unwrap());
    let network = format!("cells:{grid}:mlp:{},32", 256 / sides.product::<usize>());
    let code = CodeSpec::new(EncoderKind::Concat, k, 1);
    let run = ParityRun {
        cell_targets,
        ..common::parity_run(&network, code, 150)
    };
    let (trainer, _) = common::trained(run, training_set(600, 1), training_set(200, 2));
    trainer.best().unwrap().validation.loss
}

#[test]
fn cells_learn_faster_from_their_own_targets() {
    for (k, grid) in [(2, "1x2"), (3, "2x2"), (4, "2x2")] {
        let (own, sum) = (loss(k, grid, true), loss(k, grid, false));
        assert!(
            own < 0.9 * sum,
            "k = {k}: {own} with the cells' targets, {sum} with their sum"
        );
    }
}

#[test]
fn cells_that_are_not_the_slots_learn_from_the_sum() {
    assert_eq!(loss(2, "2x1", true), loss(2, "2x1", false));
}
