//! Between libtorch's tensors and flat parameters.

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::Result;
use crate::backend::{ParameterBackend, ParameterSet, ParameterShape};
use crate::network::Network;

/// A buffer of a network: a value that it keeps besides its weights, such as running statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub values: Vec<f32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub weights: Vec<f32>,
    pub buffers: Vec<Buffer>,
}

/// Networks' variables, in an order that does not change: by name.
#[derive(Debug)]
pub(super) struct Weights {
    trainable: Vec<Tensor>,
    buffers: Vec<(String, Tensor)>,
    pub(super) parameters: ParameterSet,
    gradients: ParameterSet,
}

impl Weights {
    /// Collects the buffers of `networks`, with their values; names begin with each
    /// network's own word.
    pub(super) fn of(networks: &[(&str, &Network)]) -> Result<Self> {
        let (mut trainable, mut buffers, mut layout) = (Vec::new(), Vec::new(), Vec::new());
        for (name, tensor) in Network::all_variables(networks) {
            if tensor.requires_grad() {
                let shape = tensor.size().iter().map(|&axis| axis as usize).collect();
                layout.push(ParameterShape { name, shape });
                trainable.push(tensor);
            } else if tensor.kind() == Kind::Float {
                buffers.push((name, tensor));
            }
        }
        let mut parameters = ParameterSet::zeroes(layout);
        for (tensor, (_, values)) in trainable.iter().zip(parameters.iter_mut()) {
            read(&tensor.detach(), values)?;
        }
        let parameters = parameters.with_buffers(flat(&buffers)?);
        let gradients = parameters.zeroes_like();
        Ok(Self {
            trainable,
            buffers,
            parameters,
            gradients,
        })
    }

    pub(super) fn pull(&mut self, backend: &mut dyn ParameterBackend) -> Result<()> {
        backend.pull(&mut self.parameters)?;
        if backend.keeps_buffers() {
            self.write_buffers()?;
        }
        self.write()
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
        for (gradient, (_, values)) in gradients.iter().zip(self.gradients.iter_mut()) {
            if gradient.defined() {
                read(gradient, values)?;
            } else {
                values.fill(0.0);
            }
        }
        if backend.keeps_buffers() {
            let buffers = self.flat_buffers()?;
            self.gradients.buffers_mut().copy_from_slice(&buffers);
            // The next part here begins with the same.
            self.write_buffers()?;
        }
        Ok(backend.push_part(part, &self.gradients)?)
    }

    pub(super) fn flat_buffers(&self) -> Result<Vec<f32>> {
        flat(&self.buffers)
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot {
            weights: self.parameters.values().to_vec(),
            buffers: self.buffers()?,
        })
    }

    pub(super) fn load(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.parameters.fill("the weights", &snapshot.weights)?;
        self.load_buffers(&snapshot.buffers)?;
        self.write()
    }

    pub(super) fn buffers(&self) -> Result<Vec<Buffer>> {
        let own = |(name, tensor): &(String, Tensor)| {
            let mut values = vec![0.0; tensor.numel()];
            read(tensor, &mut values)?;
            let name = name.clone();
            Ok(Buffer { name, values })
        };
        self.buffers.iter().map(own).collect()
    }

    pub(super) fn load_buffers(&mut self, buffers: &[Buffer]) -> Result<()> {
        for (name, tensor) in &mut self.buffers {
            if let Some(buffer) = buffers.iter().find(|buffer| buffer.name == *name) {
                write(tensor, &buffer.values)?;
            }
        }
        Ok(())
    }

    /// Gives the network the buffers that were pulled last.
    fn write_buffers(&mut self) -> Result<()> {
        let mut rest = self.parameters.buffers();
        for (_, tensor) in &mut self.buffers {
            let (own, others) = rest.split_at_checked(tensor.numel()).unwrap_or((rest, &[]));
            write(tensor, own)?;
            rest = others;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        for (tensor, (_, values)) in self.trainable.iter_mut().zip(self.parameters.iter()) {
            write(tensor, values)?;
        }
        Ok(())
    }
}

fn flat(buffers: &[(String, Tensor)]) -> Result<Vec<f32>> {
    let mut values = vec![0.0; buffers.iter().map(|(_, tensor)| tensor.numel()).sum()];
    let mut rest = values.as_mut_slice();
    for (_, tensor) in buffers {
        let (own, others) = rest.split_at_mut(tensor.numel());
        read(tensor, own)?;
        rest = others;
    }
    Ok(values)
}

fn read(tensor: &Tensor, values: &mut [f32]) -> Result<()> {
    let (flat, count) = (tensor.f_contiguous()?.f_view([-1])?, values.len());
    Ok(flat.f_copy_data(values, count)?)
}

/// Puts `values` in place of the tensor's own; others that share the tensor see them.
fn write(tensor: &mut Tensor, values: &[f32]) -> Result<()> {
    let fresh = Tensor::f_from_slice(values)?
        .f_view(tensor.size().as_slice())?
        .f_to_device(tensor.device())?;
    Ok(tensor.f_set_data(&fresh)?)
}
