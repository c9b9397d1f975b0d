//! TorchScript: the user's module as a network, and any network as a module.

use std::path::Path;

use tch::{CModule, Kind, Tensor, TrainableCModule, nn, no_grad};

use super::{Network, batch, unwritten};
use crate::{Result, TrainError, first_line};

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
) -> Result<TrainableCModule> {
    let wrong = |problem: &str, fix: &str| TrainError::input(path, format!("{problem}; {fix}"));
    let unfit = |problem: &str| {
        let fix = "give a module with one input [batch, ..sample] and one output [batch, classes]";
        wrong(problem, fix)
    };
    if !path.is_file() {
        let fix = "give script:FILE.pt the module's file";
        return Err(wrong("no such file", fix));
    }
    let mut module = TrainableCModule::load(path, variables).map_err(|error| {
        let problem = format!("not a TorchScript module: {}", first_line(&error));
        let fix = "write it with torch.jit.script(module).save(FILE)";
        wrong(&problem, fix)
    })?;
    let set = module.f_set_eval();
    set.map_err(|error| unfit(&first_line(&error)))?;
    let answer = no_grad(|| module.forward_ts(&[&trial(shape)])).map_err(|error| {
        let taken = format!("does not take samples of shape {shape:?}");
        unfit(&format!("{taken}: {}", first_line(&error)))
    })?;
    let (kind, size) = (answer.kind(), answer.size());
    if size != [TRIAL as i64, outputs as i64] || kind != Kind::Float {
        return Err(unfit(&format!(
            "answers {TRIAL} samples of shape {shape:?} with {kind:?} of shape {size:?}, wanted \
                Float of shape [{TRIAL}, {outputs}]"
        )));
    }
    Ok(module)
}

fn trial(shape: &[usize]) -> Tensor {
    let values = vec![0.0; TRIAL * shape.iter().product::<usize>()];
    batch(&values, shape)
}

impl Network {
    /// Writes the network, its normalisation included, as a TorchScript module for any batch. The
    /// weights become constants of the module: it is for serving, and not for training on.
    pub fn save_torch_script(&self, path: &Path) -> Result<()> {
        let trainable = self.variables.trainable_variables();
        // A trace refuses constants that want gradients.
        let wanting = |wanted: bool| {
            for variable in &trainable {
                let _ = variable.set_requires_grad(wanted);
            }
        };
        wanting(false);
        let mut forward = |inputs: &[Tensor]| inputs.iter().map(|x| self.forward(x)).collect();
        let sample = [trial(&self.input_shape)];
        let traced = CModule::create_by_tracing("Network", "forward", &sample, &mut forward);
        // The module's constants are the variables themselves: they must not want gradients when
        // they are written, either.
        let saved = traced.and_then(|module| module.save(path));
        wanting(true);
        saved.map_err(|source| unwritten(path, &source))
    }
}
