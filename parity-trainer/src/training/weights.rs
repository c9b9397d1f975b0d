//! The networks' weights on their way from the backend, and their gradients on the way to it.

use tch::{Kind, Tensor};

use super::Attempt;
use crate::Result;
use crate::backend::{ParameterBackend, ParameterSet};
use crate::network::Network;

/// Segments of a network whose gradients travel apart, at most.
const SEGMENTS: usize = 8;

/// Networks' variables, in the order of the layers; and their values as the flat
/// parameters that backends take.
#[derive(Debug)]
pub(super) struct Weights {
    trainable: Vec<Tensor>,
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
        Ok(Self { trainable, segments, buffers, gradients, parameters })
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
        let (mut root, mut borders) = (attempt.loss, attempt.borders);
        let (mut tensors, mut from) = (self.trainable.as_slice(), self.gradients.values.len());
        for &count in self.segments.iter().rev() {
            let (before, own) = tensors.split_at(tensors.len().saturating_sub(count));
            let border = borders.pop();
            let inputs = own.iter().chain(border.as_ref().map(|border| &border.input));
            let inputs = Vec::from_iter(inputs);
            // Not `backward`, which would add them to zeroes that have to be made first.
            let gradients = Tensor::f_run_backward(&[&root], &inputs, false, false)?;
            let end = from;
            from -= own.iter().map(Tensor::numel).sum::<usize>();
            read_into(&gradients[..own.len()], own, &mut self.gradients.values[from..end])?;
            backend.push_part(part, &self.gradients, from)?;
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

/// Gradients of `tensors`, one after the other; zeroes for those that the loss does not depend on.
fn read_into(gradients: &[Tensor], tensors: &[Tensor], mut values: &mut [f32]) -> Result<()> {
    for (gradient, tensor) in gradients.iter().zip(tensors) {
        let (own, others) = values.split_at_mut(tensor.numel());
        if gradient.defined() {
            read(gradient, own)?;
        } else {
            own.fill(0.0);
        }
        values = others;
    }
    Ok(())
}

fn read(tensor: &Tensor, values: &mut [f32]) -> Result<()> {
    let (flat, count) = (tensor.f_contiguous()?.f_view([-1])?, values.len());
    Ok(flat.f_copy_data(values, count)?)
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
