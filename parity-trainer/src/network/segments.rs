//! Networks cut into segments, so that the last layers' gradients are there while those of the
//! first are computed: wait-free backpropagation (Zhang et al., "Poseidon", ATC 2017, section 3.1).

use std::sync::OnceLock;

use tch::Tensor;

use super::{Network, layer};

/// Trained numbers of a segment, at least: a push costs some messages to every shard.
const LEAST: usize = 16 << 10;

/// The place where one segment ends and the next one begins.
#[derive(Debug)]
pub(crate) struct Border {
    /// The output of the segment before.
    pub output: Tensor,
    /// The same as the input of the next one: the gradient stops here.
    pub input: Tensor,
}

/// A fully connected layer's inputs and outputs, `[batch, ..]`: the factors of its weights' gradient
/// are the gradient of the outputs, and the inputs.
#[derive(Debug)]
pub(crate) struct LinearPass {
    pub input: Tensor,
    pub output: Tensor,
}

/// Tensors that a pass in training leaves for the way back, in the order of the layers.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    pub borders: Vec<Border>,
    /// Of the layers that were [chosen](Network::factor).
    pub linears: Vec<LinearPass>,
}

impl Network {
    /// Weights of the fully connected layers outside of branches, by the layers' places.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        self.layers.iter().enumerate().filter_map(|(place, layer)| match layer {
            layer::Layer::Linear(weights, _) => Some((place, weights)),
            _ => None,
        })
    }

    /// Has passes tell the inputs and outputs of the layers in these places.
    pub(crate) fn factor(&self, places: Vec<usize>) {
        let _ = self.factored.set(places);
    }

    /// Cuts the network into at most `most` segments of about equal numbers of weights; returns how
    /// many trained tensors each has, in the order of [`Self::all_variables`].
    pub(crate) fn cut(&self, most: usize) -> Vec<usize> {
        let trained: Vec<_> = self.layers.iter().map(layer::Layer::trained).collect();
        let all: usize = trained.iter().map(|(_, numbers)| numbers).sum();
        let least = all.div_ceil(most.max(1)).max(LEAST);
        let (mut cuts, mut tensors) = (Vec::new(), vec![0]);
        // From the last layer: it is the first to have gradients.
        let mut numbers = 0;
        for (place, &(own_tensors, own_numbers)) in trained.iter().enumerate().rev() {
            if numbers >= least && own_numbers > 0 {
                cuts.push(place + 1);
                tensors.push(0);
                numbers = 0;
            }
            numbers += own_numbers;
            if let Some(last) = tensors.last_mut() {
                *last += own_tensors;
            }
        }
        cuts.reverse();
        tensors.reverse();
        let _ = self.cuts.set(cuts);
        tensors
    }

    /// [`Self::forward_t`] in training, and what its way back needs.
    pub(crate) fn forward_segments(&self, input: &Tensor) -> (Tensor, Pass) {
        let (mut value, mut pass, mask) =
            (self.normalised(input), Pass::default(), self.mask(input));
        let is_in = |places: &OnceLock<Vec<usize>>, place| {
            places.get().is_some_and(|places| places.contains(&place))
        };
        for (place, layer) in self.layers.iter().enumerate() {
            if is_in(&self.cuts, place) {
                let output = value;
                value = output.detach().set_requires_grad(true);
                pass.borders.push(Border { output, input: value.shallow_clone() });
            }
            let output = layer::run(std::slice::from_ref(layer), &value, true, mask.as_ref());
            if is_in(&self.factored, place) {
                let input = value.detach();
                pass.linears.push(LinearPass { input, output: output.shallow_clone() });
            }
            value = output;
        }
        (value, pass)
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;
    use crate::network::stream;

    #[test]
    fn gradients_of_segments_are_those_of_the_whole() {
        for (spec, shape, most, tensors) in [
            ("mlp:256,192,128,128", vec![256], 8, vec![2, 2, 4]),
            ("resnet8:24", vec![3, 16, 16], 8, vec![9, 9, 11]),
            ("resnet8:24", vec![3, 16, 16], 2, vec![18, 11]),
            ("mlp:256,32", vec![256], 8, vec![4]),
        ] {
            let network = |()| {
                let (spec, rng) = (spec.parse().unwrap(), &mut stream(1, 1));
                Network::new(&spec, &shape, 10, rng).unwrap()
            };
            let [whole, cut] = [(); 2].map(network);
            assert_eq!(cut.cut(most), tensors, "{spec}");
            let dims = [&[5], shape.as_slice()].concat();
            let values: Vec<f32> = (0..dims.iter().product()).map(|i| (i as f32).sin()).collect();
            let input = crate::network::batch(&values, &shape);

            let loss = whole.forward_t(&input, true).square().mean(Kind::Float);
            let trained = |network: &Network| {
                let all = Network::all_variables(&[("", network)]).into_iter();
                Vec::from_iter(all.map(|(_, one)| one).filter(Tensor::requires_grad))
            };
            let expected = Tensor::run_backward(&[loss], &trained(&whole), false, false);

            let (output, Pass { mut borders, .. }) = cut.forward_segments(&input);
            let mut root = output.square().mean(Kind::Float);
            let (mut variables, mut found) = (trained(&cut), Vec::new());
            for &count in tensors.iter().rev() {
                let mut own = variables.split_off(variables.len() - count);
                let border = borders.pop();
                own.extend(border.iter().map(|border| border.input.shallow_clone()));
                let mut gradients = Tensor::run_backward(&[&root], &own, false, false);
                if let Some(border) = border {
                    root = (border.output * gradients.pop().unwrap()).sum(Kind::Float);
                }
                found.splice(0..0, gradients);
            }
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                let difference = (found - expected).abs().max().double_value(&[]);
                assert!(difference <= 1e-6, "{spec}: {difference}");
            }
        }
    }
}
