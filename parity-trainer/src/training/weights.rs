//! The networks' weights on their way from the backend, and their gradients on the way to it.

use std::ops::Range;

use parapet_parameter_server::{Factors, Values};
use tch::{Kind, Tensor};

use super::Attempt;
use crate::Result;
use crate::backend::{FactoredGradients, ParameterBackend, ParameterSet, ROW};
use crate::network::{LinearPass, Network};

/// Segments of a network whose gradients travel apart, at most.
const SEGMENTS: usize = 8;

/// Networks' variables, in the order of the layers; and their values as the flat
/// parameters that backends take.
#[derive(Debug)]
pub(super) struct Weights {
    trainable: Vec<Tensor>,
    /// Places among them of those whose gradients are handed on as factors.
    factored: Vec<usize>,
    /// Their numbers in the segments of the network: all in one, unless it is cut.
    segments: Vec<usize>,
    /// Values that networks keep besides their weights, such as running moments.
    buffers: Vec<Tensor>,
    pub(super) parameters: ParameterSet,
    gradients: ParameterSet,
}

impl Weights {
    pub(super) fn of(networks: &[(&str, &Network)]) -> Result<Self> {
        let (mut trainable, mut buffers) = (Vec::new(), Vec::new());
        for (_, tensor) in Network::all_variables(networks) {
            if tensor.requires_grad() {
                trainable.push(tensor);
            } else if tensor.kind() == Kind::Float {
                buffers.push(tensor);
            }
        }
        let parameters =
            ParameterSet { values: read_all(&trainable)?, buffers: read_all(&buffers)? };
        let (segments, gradients) = (vec![trainable.len()], parameters.clone());
        Ok(Self { trainable, factored: Vec::new(), segments, buffers, gradients, parameters })
    }

    pub(super) fn pull(&mut self, backend: &mut dyn ParameterBackend) -> Result<()> {
        backend.pull(&mut self.parameters)?;
        if backend.keeps_buffers() {
            write_all(&mut self.buffers, &self.parameters.buffers)?;
        }
        write_all(&mut self.trainable, &self.parameters.values)
    }

    /// Has the gradients of this network, the only one, computed and handed on in segments.
    pub(super) fn cut(&mut self, network: &Network) {
        self.segments = network.cut(SEGMENTS);
    }

    fn place(&self, weights: &Tensor) -> Option<usize> {
        self.trainable.iter().position(|own| own.data_ptr() == weights.data_ptr())
    }

    /// Returns where the weights of the network's [linear layers](Network::linears) lie.
    pub(super) fn linears(&self, network: &Network) -> Vec<Range<usize>> {
        let range = |weights: &Tensor| {
            let start = self.trainable.iter().take(self.place(weights)?).map(Tensor::numel).sum();
            Some(start..start + weights.numel())
        };
        network.linears().filter_map(|(_, weights)| range(weights)).collect()
    }

    /// Has the gradients of these layers of this network, the only one, handed on as factors.
    pub(super) fn factor(&mut self, network: &Network, layers: Vec<usize>) {
        let chosen = network.linears().filter(|(place, _)| layers.contains(place));
        self.factored = chosen.filter_map(|(_, weights)| self.place(weights)).collect();
        network.factor(layers);
        if !self.factored.is_empty() {
            // Numbers that are not handed on count as none.
            self.gradients.values.fill(0.0);
        }
    }

    /// Hands the gradients of one part of a step to the backend: those of the network's last
    /// segment first, which travel while those of the others are computed.
    pub(super) fn push(
        &mut self,
        backend: &mut dyn ParameterBackend,
        part: usize,
        attempt: Attempt,
    ) -> Result<()> {
        if backend.keeps_buffers() {
            self.gradients.buffers = self.buffers()?;
            // The next part here begins with the same.
            write_all(&mut self.buffers, &self.parameters.buffers)?;
        }
        let (mut root, mut borders) = (attempt.loss, attempt.pass.borders);
        let mut passes = Vec::from_iter(self.factored.iter().copied().zip(attempt.pass.linears));
        let (mut tensors, mut from) = (self.trainable.as_slice(), self.gradients.values.len());
        for &count in self.segments.iter().rev() {
            let (before, own) = tensors.split_at(tensors.len().saturating_sub(count));
            let border = borders.pop();
            let linears = passes.split_off(passes.partition_point(|&(at, _)| at < before.len()));
            let mut inputs = Vec::from_iter(own.iter());
            for (at, pass) in &linears {
                inputs[at - before.len()] = &pass.output;
            }
            inputs.extend(border.as_ref().map(|border| &border.input));
            // Not `backward`, which would add them to zeroes that have to be made first.
            let gradients = Tensor::f_run_backward(&[&root], &inputs, false, false)?;
            let end = from;
            from -= own.iter().map(Tensor::numel).sum::<usize>();
            let factored = Vec::from_iter(linears.iter().map(|&(at, _)| at - before.len()));
            let values = &mut self.gradients.values[from..end];
            read_into(&gradients[..own.len()], own, &factored, values)?;
            let mut factors = FactoredGradients::default();
            for (place, (_, pass)) in factored.iter().zip(&linears) {
                let at = own[..*place].iter().map(Tensor::numel).sum::<usize>();
                let own = factors_of(&gradients[*place], pass, &mut factors.square)?;
                fill_edges(&own, &mut values[at..at + own.len()], &mut factors.square);
                factors.layers.push((from + at, own));
            }
            backend.push_part(part, &self.gradients, factors, from)?;
            if let (Some(border), Some(gradient)) = (border, gradients.last()) {
                root = (border.output * gradient).f_sum(Kind::Float)?;
            }
            tensors = before;
        }
        Ok(())
    }

    pub(super) fn snapshot(&self) -> Result<ParameterSet> {
        Ok(ParameterSet { values: self.parameters.values.clone(), buffers: self.buffers()? })
    }

    pub(super) fn load(&mut self, snapshot: &ParameterSet) -> Result<()> {
        self.parameters.values.clone_from(&snapshot.values);
        self.load_buffers(&snapshot.buffers)?;
        write_all(&mut self.trainable, &snapshot.values)
    }

    pub(super) fn buffers(&self) -> Result<Vec<f32>> {
        read_all(&self.buffers)
    }

    pub(super) fn load_buffers(&mut self, buffers: &[f32]) -> Result<()> {
        write_all(&mut self.buffers, buffers)
    }
}

fn read_all(tensors: &[Tensor]) -> Result<Vec<f32>> {
    let mut values = vec![0.0; tensors.iter().map(Tensor::numel).sum()];
    let mut rest = values.as_mut_slice();
    for tensor in tensors {
        let (own, others) = rest.split_at_mut(tensor.numel());
        read(&tensor.detach(), own)?;
        rest = others;
    }
    Ok(values)
}

/// The factors of the gradient of a layer's weights, by that of its outputs; adds the gradient's
/// square length to `square`.
fn factors_of(outputs: &Tensor, pass: &LinearPass, square: &mut f64) -> Result<Factors> {
    let inputs = &pass.input;
    let (left, right) = (outputs.f_transpose(0, 1)?, inputs);
    let [outputs, samples] = [outputs, inputs].map(|one| one.f_mm(&one.f_transpose(0, 1)?));
    *square += (outputs? * samples?).f_sum(Kind::Double)?.f_double_value(&[])?;
    let numbers = |tensor: &Tensor| {
        let mut numbers = vec![0.0; tensor.numel()];
        read(tensor, &mut numbers).map(|()| numbers)
    };
    Ok(Factors::new(inputs.size()[0] as usize, &numbers(&left)?, &numbers(right)?))
}

/// Multiplies the factors where rows of the servers' array may have other layers' numbers, too.
fn fill_edges(factors: &Factors, values: &mut [f32], square: &mut f64) {
    let (len, all) = (factors.len(), Values::Factors(factors.clone()));
    for edge in [0..ROW.min(len), len.saturating_sub(ROW).max(ROW.min(len))..len] {
        let numbers = all.slice(edge.clone()).to_f32();
        *square -= numbers.iter().map(|number| f64::from(number * number)).sum::<f64>();
        values[edge].copy_from_slice(&numbers);
    }
}

/// Gradients of `tensors`, one after the other, but for those that are left out; zeroes for those
/// that the loss does not depend on.
fn read_into(
    gradients: &[Tensor],
    tensors: &[Tensor],
    left_out: &[usize],
    mut values: &mut [f32],
) -> Result<()> {
    for (place, (gradient, tensor)) in gradients.iter().zip(tensors).enumerate() {
        let (own, others) = values.split_at_mut(tensor.numel());
        match gradient.defined() {
            _ if left_out.contains(&place) => {}
            true => read(gradient, own)?,
            false => own.fill(0.0),
        }
        values = others;
    }
    Ok(())
}

fn read(tensor: &Tensor, values: &mut [f32]) -> Result<()> {
    Ok(tensor.f_contiguous()?.f_view([-1])?.f_copy_data(values, values.len())?)
}

/// Puts `values` in place of the tensors' own; others that share the tensors see them.
fn write_all(tensors: &mut [Tensor], values: &[f32]) -> Result<()> {
    let mut rest = values;
    for tensor in tensors {
        let (own, others) = rest.split_at_checked(tensor.numel()).unwrap_or((rest, &[]));
        let fresh = Tensor::f_from_slice(own)?
            .f_view(tensor.size().as_slice())?
            .f_to_device(tensor.device())?;
        tensor.f_set_data(&fresh)?;
        rest = others;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, BackendState, Tick};
    use crate::network::{batch, stream};

    /// Keeps the whole gradient, and the square of its length as it is told.
    #[derive(Debug, Default)]
    struct Recorder {
        gradient: Vec<f32>,
        factored: usize,
        square: f64,
        unsent: Option<usize>,
    }

    impl ParameterBackend for Recorder {
        fn pull(&mut self, _: &mut ParameterSet) -> Result<(), BackendError> {
            Ok(())
        }

        fn push_part(
            &mut self,
            _: usize,
            gradients: &ParameterSet,
            factors: FactoredGradients,
            from: usize,
        ) -> Result<(), BackendError> {
            let all = &gradients.values;
            self.gradient.resize(all.len(), f32::NAN);
            let new = from..self.unsent.replace(from).unwrap_or(all.len());
            self.gradient[new.clone()].copy_from_slice(&all[new]);
            self.square += factors.square;
            if from == 0 {
                self.square += all.iter().map(|number| f64::from(number * number)).sum::<f64>();
            }
            for (at, factors) in factors.layers {
                self.factored += factors.len();
                let product = Values::Factors(factors).to_f32();
                let found = &mut self.gradient[at..at + product.len()];
                let inner = ROW..product.len() - ROW;
                assert!(found[inner].iter().all(|&number| number == 0.0));
                for edge in [0..ROW, product.len() - ROW..product.len()] {
                    assert_eq!(found[edge.clone()], product[edge]);
                }
                found.copy_from_slice(&product);
            }
            Ok(())
        }

        fn settle(&mut self) -> Result<Option<Tick>, BackendError> {
            Ok(None)
        }

        fn state(&mut self) -> Result<BackendState, BackendError> {
            Ok(BackendState::default())
        }

        fn restore(&mut self, _: &BackendState, _: &[f32]) -> Result<(), BackendError> {
            Ok(())
        }

        fn steps_done(&self) -> u64 {
            0
        }
    }

    fn gradient(spec: &str, shape: &[usize], segments: bool, factored: &[usize]) -> Recorder {
        let (spec, rng) = (spec.parse().unwrap(), &mut stream(1, 1));
        let network = Network::new(&spec, shape, 10, rng).unwrap();
        let mut weights = Weights::of(&[("", &network)]).unwrap();
        if segments {
            weights.cut(&network);
        }
        let linears = Vec::from_iter(network.linears().map(|(place, _)| place));
        weights.factor(&network, factored.iter().map(|&number| linears[number]).collect());
        let dims = [&[5], shape].concat();
        let values = Vec::from_iter((0..dims.iter().product()).map(|i| (i as f32).sin()));
        let mut recorder = Recorder::default();
        // Twice, as a later step must not find what an earlier one has left.
        for factor in [3.0, 1.0] {
            let (output, pass) = network.forward_segments(&batch(&values, shape));
            let loss = (output * factor).square().mean(Kind::Float);
            let attempt = Attempt { loss, pass, told: 0.0, agreeing: 0, queries: 0 };
            recorder = Recorder::default();
            weights.push(&mut recorder, 0, attempt).unwrap();
        }
        recorder
    }

    #[test]
    fn segments_and_factors_make_the_gradient_of_the_whole() {
        let mlp: (&str, &[usize]) = ("mlp:96,190,130,64", &[96]);
        for ((spec, shape), segments, factored) in [
            (mlp, false, vec![0]),
            (mlp, true, vec![0, 2]),
            (mlp, true, vec![1]),
            (("lenet:8", &[1, 28, 28]), true, vec![0, 1]),
        ] {
            let whole = gradient(spec, shape, false, &[]);
            let found = gradient(spec, shape, segments, &factored);
            assert!(whole.factored == 0 && found.factored > 1000, "{}", found.factored);
            let pairs = found.gradient.iter().zip(&whole.gradient);
            let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(furthest <= 1e-6, "{spec}: {furthest}");
            assert!((found.square / whole.square - 1.0).abs() < 1e-4, "{spec}");
        }
    }
}
