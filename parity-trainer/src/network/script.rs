//! TorchScript: the user's module as a network, and any network as a module.

use std::path::Path;

use tch::{CModule, Kind, Tensor, TrainableCModule, nn, no_grad};

use super::{Network, NetworkError};

/// Rows of the batch that a module is tried with; not one, which a module might take for no
/// batch at all.
const TRIAL: usize = 2;

/// Loads a module that takes samples of `shape` and gives `outputs` values for each; its parameters
/// become variables under `variables`.
pub(super) fn load(
    path: &Path,
    shape: &[usize],
    outputs: usize,
    variables: nn::Path<'_>,
) -> Result<TrainableCModule, NetworkError> {
    let wrong = |problem: String, fix| NetworkError::Script {
        path: path.to_path_buf(),
        problem,
        fix,
    };
    let refused = |error: tch::TchError| {
        let message = error.to_string();
        message
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    if !path.is_file() {
        return Err(wrong(
            "no such file".to_owned(),
            "give script:FILE.pt the module's file",
        ));
    }
    let mut module = TrainableCModule::load(path, variables).map_err(|error| {
        let problem = format!("not a TorchScript module: {}", refused(error));
        wrong(problem, "write it with torch.jit.script(module).save(FILE)")
    })?;
    let unfit = "give a module with one input [batch, ..sample] and one output [batch, classes]";
    module
        .f_set_eval()
        .map_err(|error| wrong(refused(error), unfit))?;
    let input = trial(shape);
    let answer = no_grad(|| module.forward_ts(&[&input]));
    let answer = answer.map_err(|error| {
        wrong(
            format!(
                "does not take samples of shape {shape:?}: {}",
                refused(error)
            ),
            unfit,
        )
    })?;
    if answer.size() != [TRIAL as i64, outputs as i64] || answer.kind() != Kind::Float {
        let problem = format!(
            "answers {TRIAL} samples of shape {shape:?} with {:?} of shape {:?}, wanted Float of \
                shape [{TRIAL}, {outputs}]",
            answer.kind(),
            answer.size()
        );
        return Err(wrong(problem, unfit));
    }
    Ok(module)
}

fn trial(shape: &[usize]) -> Tensor {
    let dims: Vec<i64> = std::iter::once(&TRIAL)
        .chain(shape)
        .map(|&dim| dim as i64)
        .collect();
    Tensor::zeros(dims.as_slice(), (Kind::Float, tch::Device::Cpu))
}

impl Network {
    /// Writes the network, its normalisation included, as a TorchScript module with one input and
    /// one output, any batch.
    ///
    /// The weights become constants of the module: it is for serving, and not for training on.
    ///
    /// # Errors
    /// If libtorch cannot trace the network or write the file.
    pub fn save_torch_script(&self, path: &Path) -> Result<(), NetworkError> {
        let trainable = self.variables.trainable_variables();
        // A trace refuses constants that want gradients.
        let wanting = |wanted: bool| {
            for variable in &trainable {
                let _ = variable.set_requires_grad(wanted);
            }
        };
        wanting(false);
        let traced = CModule::create_by_tracing(
            "Network",
            "forward",
            &[trial(&self.input_shape)],
            &mut |inputs| {
                inputs
                    .first()
                    .map(|input| self.forward(input))
                    .into_iter()
                    .collect()
            },
        );
        // The module's constants are the variables themselves: they must not want gradients when
        // they are written, either.
        let saved = traced.and_then(|module| module.save(path));
        wanting(true);
        saved.map_err(|source| NetworkError::Save {
            path: path.to_path_buf(),
            source,
        })
    }
}
