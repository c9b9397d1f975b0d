//! State of networks: weights on disk, weights of a seed, differences between training and serving.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::is_close;
use parity_trainer::network::{Network, NetworkSpec, Normalisation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

const SHAPE: [usize; 3] = [2, 8, 8];
const OUTPUTS: usize = 3;

fn network(name: &str, seed: u64) -> Network {
    let spec: NetworkSpec = name.parse().unwrap();
    Network::new(&spec, &SHAPE, OUTPUTS, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn samples(count: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let length = count * SHAPE.iter().product::<usize>();
    (0..length).map(|_| rng.random_range(0.0..9.0)).collect()
}

fn tensor(samples: &[f32]) -> Tensor {
    Tensor::from_slice(samples).view([-1, 2, 8, 8])
}

#[test]
fn weights_come_back_with_moments_and_normalisation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let samples = samples(6);
    for name in ["resnet8:4", "vgg11:2", "lenet:2x1", "mlp:128,4"] {
        let mut trained = network(name, 1);
        trained.normalise(&samples).unwrap();
        let _ = trained.forward_t(&tensor(&samples), true);
        Network::save_all(&[("", &trained)], &path).unwrap();
        let loaded = Network::load(trained.spec(), &SHAPE, OUTPUTS, &path).unwrap();
        assert_eq!(loaded.infer(&samples), trained.infer(&samples), "{name}");
        assert_eq!(loaded.normalisation().unwrap(), trained.normalisation().unwrap());
        assert_ne!(loaded.infer(&samples), network(name, 1).infer(&samples), "{name}");
    }
}

#[test]
fn weights_that_lack_some_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let network = network("resnet8:4", 1);
    let without = |prefix: &str| {
        let all: Vec<(String, Tensor)> = network.variables().variables().into_iter().collect();
        let kept: Vec<(&str, &Tensor)> = all
            .iter()
            .filter(|(name, _)| !name.starts_with(prefix))
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        Tensor::write_safetensors(&kept, &path).unwrap();
        Network::load(network.spec(), &SHAPE, OUTPUTS, &path)
    };
    for (part, says) in [("normalisation", "normalisation."), ("conv0", "conv0.weight is missing")]
    {
        let message = without(part).unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    }
    Network::save_all(&[("", &network)], &path).unwrap();
    let other = "resnet8:5".parse().unwrap();
    assert!(Network::load(&other, &SHAPE, OUTPUTS, &path).is_err());
}

#[test]
fn network_starts_with_what_it_has_in_common_with_a_wider_one() {
    for name in ["resnet8", "vgg11", "lenet:WIDTHx1"] {
        let named = |width: &str, seed| match name.contains("WIDTH") {
            true => network(&name.replace("WIDTH", width), seed),
            false => network(&format!("{name}:{width}"), seed),
        };
        let (wide, mut same, mut narrow) = (named("6", 1), named("6", 2), named("4", 2));
        same.start_from(&wide, true);
        assert_eq!(same.infer(&samples(3)), wide.infer(&samples(3)), "{name}");
        let all = wide.variables().variables();
        for last in [false, true] {
            narrow.start_from(&wide, last);
            for (variable, own) in narrow.variables().variables() {
                let mut corner = all[&variable].shallow_clone();
                for (axis, &size) in own.size().iter().enumerate() {
                    let from = if last { corner.size()[axis] - size } else { 0 };
                    corner = corner.narrow(axis as i64, from, size);
                }
                assert!(own.equal(&corner), "{name}: {variable}, {last}");
            }
        }
    }
}

#[test]
fn residual_network_starts_as_a_shallower_one() {
    let (shallow, mut deep) = (network("resnet8:4", 1), network("resnet20:4", 2));
    deep.start_from(&shallow, false);
    assert_eq!(deep.infer(&samples(3)), shallow.infer(&samples(3)));
    // Without the first block the others, and the classifier, are the same; not one stage deeper.
    let part = |network: &Network, kind: &str| -> Tensor {
        let all = network.variables().variables();
        let name = all.keys().find(|name| name.starts_with(kind) && name.ends_with("weight"));
        all[name.unwrap()].shallow_clone()
    };
    for (name, has_classifier) in [("resnet6:4", true), ("resnet8-strided:4", false)] {
        let mut strided = network(name, 2);
        strided.start_from(&shallow, false);
        assert!(part(&strided, "conv0.").equal(&part(&shallow, "conv0.")));
        let is_same = part(&strided, "linear").equal(&part(&shallow, "linear"));
        assert_eq!(is_same, has_classifier, "{name}");
    }
}

#[test]
fn a_seed_makes_one_network() {
    for name in ["resnet20:2", "vgg11:2"] {
        let answers = |seed| network(name, seed).infer(&samples(2));
        assert_eq!(answers(4), answers(4));
        assert_ne!(answers(4), answers(5));
    }
}

#[test]
fn a_fresh_residual_network_has_blocks_that_hand_on() {
    let variables = network("resnet8:4", 2).variables().variables();
    let is_scale = |name: &str| name.starts_with("norm") && name.ends_with("weight");
    let is_zero = |tensor: &Tensor| tensor.abs().sum(None).double_value(&[]) == 0.0;
    let zeros = variables.iter().filter(|(name, tensor)| is_scale(name) && is_zero(tensor));
    assert_eq!(zeros.count(), 3);
}

#[test]
fn serving_uses_the_running_moments() {
    let network = network("resnet8:4", 3);
    let samples = samples(8);
    let one = samples.chunks(128).next().unwrap();
    let alone = network.infer(one);
    let first = &network.infer(&samples)[..OUTPUTS];
    assert!(is_close(&alone, first), "a sample's answer depends on its batch");
    let _ = network.forward_t(&tensor(&samples), true);
    assert!(!is_close(&alone, &network.infer(one)), "training leaves no moments behind");
}

#[test]
fn normalisation_is_applied_to_what_comes_in() {
    let samples = samples(8);
    let (plain, mut normalised) = (network("lenet:2x1", 3), network("lenet:2x1", 3));
    normalised.normalise(&samples).unwrap();
    let scaled = plain.infer(&scaled(&samples, &normalised.normalisation().unwrap()));
    assert!(is_close(&normalised.infer(&samples), &scaled));
}

fn scaled(samples: &[f32], normalisation: &Normalisation) -> Vec<f32> {
    let (mean, deviation) = (&normalisation.mean, &normalisation.deviation);
    let channel = |index: usize| index / 64 % 2;
    let scale =
        |(index, value): (usize, &f32)| (value - mean[channel(index)]) / deviation[channel(index)];
    samples.iter().enumerate().map(scale).collect()
}

#[test]
fn images_are_wanted_where_there_are_convolutions() {
    for name in ["resnet8", "vgg11", "lenet"] {
        let (spec, mut rng) = (name.parse().unwrap(), ChaCha8Rng::seed_from_u64(2));
        let error = Network::new(&spec, &[16], OUTPUTS, &mut rng).unwrap_err().to_string();
        let says = "takes samples of [channels, height, width]";
        assert!(error.contains(says) && error.contains("mlp:16"), "{error}");
    }
}

#[test]
fn what_is_behind_a_sequence_changes_nothing() {
    let (steps, features) = (13, 6);
    for name in ["sequence6:4", "sequence8:4", "sequence8-strided:2", "sequence14:4"] {
        let make = |steps: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let spec: NetworkSpec = name.parse().unwrap();
            Network::new(&spec, &[1, steps, features], OUTPUTS, &mut rng).unwrap()
        };
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let samples: Vec<f32> =
            (0..3 * steps * features).map(|_| rng.random_range(1.0..9.0)).collect();
        let mut padded = make(steps);
        padded.normalise(&samples).unwrap();
        // Moments and residual branches are no longer what they are at first.
        tch::no_grad(|| {
            for (name, mut variable) in padded.variables().variables() {
                if name.ends_with("bias") || name.ends_with("weight") && name.starts_with("norm") {
                    variable.copy_(&(&variable + 0.3));
                }
            }
            let input = Tensor::from_slice(&samples).view([3, 1, 13, 6]);
            let _ = padded.forward_t(&input, true);
        });
        for own in 1..=steps {
            let mut zeros = samples.clone();
            for sample in zeros.chunks_mut(steps * features) {
                sample[own * features..].fill(0.0);
            }
            let cut: Vec<f32> = zeros
                .chunks(steps * features)
                .flat_map(|sample| &sample[..own * features])
                .copied()
                .collect();
            let mut alone = make(own);
            alone.normalise(&cut).unwrap();
            let weights = padded.variables().variables();
            tch::no_grad(|| {
                for (name, mut variable) in alone.variables().variables() {
                    variable.copy_(&weights[&name]);
                }
            });
            assert!(is_close(&padded.infer(&zeros), &alone.infer(&cut)), "{name}: {own} steps");
        }
    }
}
