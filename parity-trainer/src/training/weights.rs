//! Between libtorch's tensors and flat parameters.

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::TrainError;
use crate::backend::{ParameterBackend, ParameterSet, ParameterShape};
use crate::network::{Network, NetworkError};

/// A buffer of a network: a value that it keeps besides its weights, such as running statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Its name in the network.
    pub name: String,
    pub values: Vec<f32>,
}

/// A network's values at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The weights, flat.
    pub weights: Vec<f32>,
    pub buffers: Vec<Buffer>,
}

/// Networks' variables, in an order that does not change: by name.
#[derive(Debug)]
pub(super) struct Weights {
    trainable: Vec<Tensor>,
    buffers: Vec<(String, Tensor)>,
    parameters: ParameterSet,
    gradients: ParameterSet,
}

impl Weights {
    /// Collects the buffers of `networks`, with their values; names begin with each
    /// network's own word.
    pub(super) fn of(networks: &[(&str, &Network)]) -> Result<Self, TrainError> {
        let named = networks.iter().flat_map(|(word, network)| {
            let variables = network.variables().variables().into_iter();
            variables.map(move |(name, tensor)| (format!("{word}{name}"), tensor))
        });
        let mut variables: Vec<(String, Tensor)> = named.collect();
        variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (trainable, buffers): (Vec<_>, Vec<_>) = variables
            .into_iter()
            .partition(|(_, tensor)| tensor.requires_grad());
        let layout = trainable.iter().map(|(name, tensor)| ParameterShape {
            name: name.clone(),
            shape: tensor
                .size()
                .iter()
                .map(|&axis| usize::try_from(axis).unwrap_or_default())
                .collect(),
        });
        let mut parameters = ParameterSet::zeroes(layout.collect());
        let trainable: Vec<Tensor> = trainable.into_iter().map(|(_, tensor)| tensor).collect();
        for (tensor, (_, values)) in trainable.iter().zip(parameters.iter_mut()) {
            read(&tensor.detach(), values)?;
        }
        let buffers: Vec<_> = buffers
            .into_iter()
            .filter(|(_, tensor)| tensor.kind() == Kind::Float)
            .collect();
        let parameters = parameters.with_buffers(flat(&buffers)?);
        let gradients = parameters.zeroes_like();
        Ok(Self {
            trainable,
            buffers,
            parameters,
            gradients,
        })
    }

    /// The weights as they were pulled last, or made.
    pub(super) fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// Brings the network's weights up to date.
    pub(super) fn pull(&mut self, backend: &mut dyn ParameterBackend) -> Result<(), TrainError> {
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
    ) -> Result<(), TrainError> {
        // Not `backward`, which would add them to zeroes that have to be made first.
        let gradients = Tensor::f_run_backward(&[loss], &self.trainable, false, false);
        let gradients = gradients.map_err(NetworkError::Tensor)?;
        for (gradient, (_, values)) in gradients.iter().zip(self.gradients.iter_mut()) {
            if gradient.defined() {
                read(gradient, values)?;
            } else {
                values.fill(0.0);
            }
        }
        if backend.keeps_buffers() {
            self.gradients
                .buffers_mut()
                .copy_from_slice(&flat(&self.buffers)?);
            // The next part here begins with the same.
            self.write_buffers()?;
        }
        Ok(backend.push_part(part, &self.gradients)?)
    }

    /// All buffers in a row.
    pub(super) fn flat_buffers(&self) -> Result<Vec<f32>, TrainError> {
        Ok(flat(&self.buffers)?)
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, TrainError> {
        Ok(Snapshot {
            weights: self.parameters.values().to_vec(),
            buffers: self.buffers()?,
        })
    }

    /// Puts the network back to `snapshot`.
    pub(super) fn load(&mut self, snapshot: &Snapshot) -> Result<(), TrainError> {
        self.parameters.fill("the weights", &snapshot.weights)?;
        self.load_buffers(&snapshot.buffers)?;
        self.write()
    }

    pub(super) fn buffers(&self) -> Result<Vec<Buffer>, TrainError> {
        let own = |(name, tensor): &(String, Tensor)| {
            let mut values = vec![0.0; tensor.numel()];
            read(tensor, &mut values)?;
            Ok(Buffer {
                name: name.clone(),
                values,
            })
        };
        self.buffers.iter().map(own).collect()
    }

    pub(super) fn load_buffers(&mut self, buffers: &[Buffer]) -> Result<(), TrainError> {
        for (name, tensor) in &mut self.buffers {
            if let Some(buffer) = buffers.iter().find(|buffer| buffer.name == *name) {
                write(tensor, &buffer.values)?;
            }
        }
        Ok(())
    }

    /// Gives the network the buffers that were pulled last.
    fn write_buffers(&mut self) -> Result<(), TrainError> {
        let mut rest = self.parameters.buffers();
        for (_, tensor) in &mut self.buffers {
            let (own, others) = rest.split_at_checked(tensor.numel()).unwrap_or((rest, &[]));
            write(tensor, own)?;
            rest = others;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), TrainError> {
        for (tensor, (_, values)) in self.trainable.iter_mut().zip(self.parameters.iter()) {
            write(tensor, values)?;
        }
        Ok(())
    }
}

/// All values of these in a row.
fn flat(buffers: &[(String, Tensor)]) -> Result<Vec<f32>, NetworkError> {
    let mut values = vec![0.0; buffers.iter().map(|(_, tensor)| tensor.numel()).sum()];
    let mut rest = values.as_mut_slice();
    for (_, tensor) in buffers {
        let (own, others) = rest.split_at_mut(tensor.numel());
        read(tensor, own)?;
        rest = others;
    }
    Ok(values)
}

fn read(tensor: &Tensor, values: &mut [f32]) -> Result<(), NetworkError> {
    Ok(tensor
        .f_contiguous()?
        .f_view([-1])?
        .f_copy_data(values, values.len())?)
}

/// Puts `values` in place of the tensor's own; others that share the tensor see them.
fn write(tensor: &mut Tensor, values: &[f32]) -> Result<(), NetworkError> {
    let fresh = Tensor::f_from_slice(values)?
        .f_view(tensor.size().as_slice())?
        .f_to_device(tensor.device())?;
    Ok(tensor.f_set_data(&fresh)?)
}
