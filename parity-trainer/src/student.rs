//! Students for slots: networks of growing width, of which the widest within a cost is taken.

use crate::Result;
use crate::network::{Family, NetworkSpec};

/// Least sides of an image for two 5 x 5 or 3 x 3 convolutions, each followed by a halving.
const LENET_SIDES: [(usize, usize); 2] = [(5, 16), (3, 10)];
/// Blocks of ResNets that have none of the image's full size, which would take most of the time: for
/// the same time they are twice as wide.
const STRIDED: [&[usize]; 2] = [&[0, 1, 1], &[0, 1, 1, 1]];
const CHANNELS: [usize; 20] =
    [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80, 96, 128];
const HIDDEN: [usize; 14] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048];
/// Networks that cost so many times too much end a search.
const FAR: f64 = 2.5;
/// Channels of a convolutional student beside which MLPs need not be tried.
const WIDE: usize = 8;

/// Networks that learn samples of this shape, from narrow to wide: a list for each architecture,
/// MLPs last. `deployed` is the deployed model's network, where it is known; `are_sequences` if
/// samples may have any number of steps.
pub fn students(
    shape: &[usize],
    deployed: Option<&NetworkSpec>,
    are_sequences: bool,
) -> Vec<Vec<NetworkSpec>> {
    let mut families = Vec::new();
    if are_sequences {
        families.extend(STRIDED.map(Family::Sequence));
    } else if let &[_, height, width] = shape {
        let lenets = LENET_SIDES.into_iter().filter(|&(_, least)| height.min(width) >= least);
        families.extend(lenets.map(|(kernel, _)| Family::LeNet(kernel)));
        if !families.is_empty() {
            families.extend(STRIDED.map(Family::ResNet));
        }
    }
    if let Some(&NetworkSpec::Convolutional { family, .. }) = deployed
        && !families.contains(&family)
    {
        families.push(family);
    }
    let widths =
        |family| CHANNELS.map(|width| NetworkSpec::Convolutional { family, width }).to_vec();
    let mut students: Vec<_> = families.into_iter().map(widths).collect();
    if !are_sequences {
        let inputs: usize = shape.iter().product();
        students.extend([1, 2].map(|layers| {
            let widths = |hidden| [vec![inputs], vec![hidden; layers]].concat();
            HIDDEN.map(|hidden| NetworkSpec::Mlp { widths: widths(hidden) }).to_vec()
        }));
    }
    students
}

/// Returns true if MLPs are to be tried beside these networks, whose costs are known: the deployed
/// model is one, or no convolutional network of a cost up to `most` has more than a few channels.
/// With these engines are slow: beside a deployed model that answers in microseconds it may be two.
pub fn needs_mlps(found: &[(NetworkSpec, f64)], most: f64, deployed: Option<&NetworkSpec>) -> bool {
    let is_wide = |(network, cost): &(NetworkSpec, f64)| {
        *cost <= most && matches!(network, NetworkSpec::Convolutional { width: WIDE.., .. })
    };
    matches!(deployed, Some(NetworkSpec::Mlp { .. })) || !found.iter().any(is_wide)
}

/// The widest of `networks` whose cost is at most `most`, with its cost; the cheapest if none is
/// that cheap. `cost` is asked about each until one is far too dear: it need not grow with the
/// width, since engines are faster at some widths than at narrower ones.
pub fn widest(
    networks: &[NetworkSpec],
    most: f64,
    mut cost: impl FnMut(&NetworkSpec) -> Result<f64>,
) -> Result<Option<(NetworkSpec, f64)>> {
    let mut found: Option<(NetworkSpec, f64)> = None;
    for network in networks {
        let cost = cost(network)?;
        let is_better = |(_, found): &(NetworkSpec, f64)| cost <= most || cost < *found;
        if found.as_ref().is_none_or(is_better) {
            found = Some((network.clone(), cost));
        }
        if cost > FAR * most {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_students_and_a_known_network_is_among_them() {
        let names = |shape: &[usize], deployed: Option<&str>| -> Vec<String> {
            let deployed = deployed.map(|name| name.parse().unwrap());
            let families = students(shape, deployed.as_ref(), false);
            families.iter().map(|family| family[1].to_string()).collect()
        };
        assert_eq!(names(&[16], None), ["mlp:16,16", "mlp:16,16,16"]);
        assert_eq!(names(&[4, 3], None), ["mlp:12,16", "mlp:12,16,16"]);
        let images = ["lenet:4", "lenet:4x3", "resnet6:4", "resnet8-strided:4", "resnet14:4"];
        let mlps = ["mlp:256,16", "mlp:256,16,16"];
        let convolutional = |deployed| {
            let mut names = names(&[1, 16, 16], Some(deployed));
            assert_eq!(names.split_off(names.len() - 2), mlps);
            names
        };
        assert_eq!(convolutional("resnet14:24"), images);
        assert_eq!(convolutional("resnet6"), images[..4]);
        assert_eq!(convolutional("mlp:256,32"), images[..4]);
        assert_eq!(names(&[3, 8, 8], Some("vgg11"))[0], "vgg11:4");
    }

    #[test]
    fn mlps_are_tried_where_convolutions_are_narrow_or_the_deployed_model_is_one() {
        let needs = |found: &str, deployed: &str| {
            let cost = |name: &str| (name.parse().unwrap(), 0.9);
            let found = Vec::from_iter(found.split_whitespace().map(cost));
            let deployed = deployed.parse().unwrap();
            [0.95, 0.5].map(|most| needs_mlps(&found, most, Some(&deployed)))
        };
        assert_eq!(needs("lenet:2 resnet6:8", "lenet:16"), [false, true]);
        assert_eq!(needs("lenet:2 resnet6:6", "lenet:16"), [true, true]);
        assert_eq!(needs("lenet:8", "mlp:784,100"), [true, true]);
    }

    #[test]
    fn the_widest_within_the_cost_is_found_and_the_narrowest_if_none_is() {
        let networks = &students(&[16], None, false)[0];
        let width = |network: &NetworkSpec| match network {
            NetworkSpec::Mlp { widths } => widths[1],
            _ => 0,
        };
        for (most, expected) in [(7.0, 8), (8.0, 8), (100.0, 96), (1e9, 2048)] {
            let (found, cost) =
                widest(networks, most, |network| Ok(width(network) as f64)).unwrap().unwrap();
            assert_eq!((width(&found), cost as usize), (expected, expected));
        }
        // Faster where the width is a multiple of 32.
        let cost = |network: &NetworkSpec| {
            let width = width(network) as f64;
            Ok(if width % 32.0 == 0.0 { width } else { 2.0 * width })
        };
        assert_eq!(width(&widest(networks, 40.0, cost).unwrap().unwrap().0), 32);
        assert!(widest(&[], 1.0, |_| Ok(1.0)).unwrap().is_none());
    }
}
