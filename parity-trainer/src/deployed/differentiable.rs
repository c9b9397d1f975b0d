//! Deployed models that gradients can flow through.
//!
//! A learned code is trained through the deployed model: what is wrong with a reconstruction has to
//! reach the encoder, on the model's other side. libtorch does that for TorchScript modules and for
//! this trainer's own networks, ONNX Runtime for none.

use std::path::Path;
use std::rc::Rc;

use tch::Tensor;

use super::{Deployed, DeployedError, TorchScriptModel, read_entry};
use crate::network::{Network, NetworkSpec};

/// Limit of the difference between the outputs of the network and of the ONNX file made of it, as a
/// share of their size.
const TOLERANCE: f32 = 1e-3;
/// Key under `[training]` that names the network.
const NETWORK: &str = "network";
const WEIGHTS: &str = "weights.safetensors";

/// A model whose weights stay as they are, and whose outputs' gradients go on to its input.
pub trait Differentiable: std::fmt::Debug {
    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`.
    ///
    /// # Errors
    /// If the model breaks on it.
    fn forward(&self, input: &Tensor) -> Result<Tensor, DeployedError>;
}

impl Differentiable for Network {
    fn forward(&self, input: &Tensor) -> Result<Tensor, DeployedError> {
        Ok(Self::forward(self, input))
    }
}

/// `deployed` as gradients can flow through it: its TorchScript module, or the network that this
/// trainer made its ONNX file of, if the weights lie beside it. `samples` are a few whole samples,
/// on which the two are compared.
///
/// # Errors
/// If it is another ONNX file, or the weights are not those of its graph.
pub fn differentiable(
    deployed: &Deployed,
    samples: &[f32],
) -> Result<Rc<dyn Differentiable>, DeployedError> {
    let (file, shape) = (&deployed.file, deployed.model.input_shape());
    if file.extension().is_none_or(|extension| extension != "onnx") {
        let module = TorchScriptModel::open(file, shape)?;
        module.freeze()?;
        return Ok(Rc::new(module));
    }
    let no_gradient = |reason: String| DeployedError::NoGradient {
        path: file.clone(),
        reason,
    };
    let weights = file
        .parent()
        .map(|folder| folder.join(WEIGHTS))
        .filter(|weights| weights.is_file());
    let spec = deployed.network.clone().or_else(|| network_of(file));
    let (Some(weights), Some(spec)) = (weights, spec) else {
        return Err(no_gradient("it was not made by this trainer".to_owned()));
    };
    let spec = spec
        .parse::<NetworkSpec>()
        .map_err(|error| no_gradient(super::error::one_line(&error)))?;
    let network = Network::load(&spec, shape, deployed.model.outputs(), &weights)
        .map_err(|error| no_gradient(super::error::one_line(&error)))?;
    let (own, answers) = (network.infer(samples), deployed.model.infer(samples)?);
    let apart = own
        .iter()
        .zip(&answers)
        .any(|(own, answer)| (own - answer).abs() > TOLERANCE * (1.0 + answer.abs()));
    if apart || own.len() != answers.len() {
        return Err(no_gradient(format!(
            "{} holds other weights than its graph",
            weights.display()
        )));
    }
    Ok(Rc::new(network))
}

/// The network that an entry's `model.toml` says the file `ENTRY/VERSION/model.onnx` was made of.
fn network_of(file: &Path) -> Option<String> {
    let entry = read_entry(file.parent()?.parent()?).ok()?;
    Some(entry.training.get(NETWORK)?.as_str()?.to_owned())
}
