//! Between libtorch's tensors and flat parameters.

use tch::{Kind, Tensor};

use crate::Result;
use crate::backend::{ParameterBackend, ParameterSet};
use crate::network::Network;

/// Networks' variables, in an order that does not change: by name.
#[derive(Debug)]
pub(super) struct Weights {
    trainable: Vec<Tensor>,
    /// Values that networks keep besides their weights, such as running moments.
    buffers: Vec<Tensor>,
    /// Parameters as they were pulled last.
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
        let parameters = ParameterSet {
            values: read_all(&trainable)?,
            buffers: read_all(&buffers)?,
        };
        Ok(Self {
            trainable,
            buffers,
            gradients: parameters.clone(),
            parameters,
        })
    }

    pub(super) fn pull(&mut self, backend: &mut dyn ParameterBackend) -> Result<()> {
        backend.pull(&mut self.parameters)?;
        if backend.keeps_buffers() {
            write_all(&mut self.buffers, &self.parameters.buffers)?;
        }
        write_all(&mut self.trainable, &self.parameters.values)
    }

    /// Hands the gradients of the loss of one part of a step to the backend.
    pub(super) fn push(
        &mut self,
        backend: &mut dyn ParameterBackend,
        part: usize,
        loss: &Tensor,
    ) -> Result<()> {
        // Not `backward`, which would add them to zeroes that have to be made first.
        let gradients = Tensor::f_run_backward(&[loss], &self.trainable, false, false)?;
        let mut rest = self.gradients.values.as_mut_slice();
        for (gradient, weights) in gradients.iter().zip(&self.trainable) {
            let (own, others) = rest.split_at_mut(weights.numel());
            if gradient.defined() {
                read(gradient, own)?;
            } else {
                own.fill(0.0);
            }
            rest = others;
        }
        if backend.keeps_buffers() {
            self.gradients.buffers = self.buffers()?;
            // The next part here begins with the same.
            write_all(&mut self.buffers, &self.parameters.buffers)?;
        }
        Ok(backend.push_part(part, &self.gradients)?)
    }

    pub(super) fn snapshot(&self) -> Result<ParameterSet> {
        Ok(ParameterSet {
            values: self.parameters.values.clone(),
            buffers: self.buffers()?,
        })
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
