//! Tensors of a model that a code covers.

use parapet_config::repository::{CodeMetadata, ModelEntry, TensorSpec};
use parapet_open_inference::Datatype;

use crate::config::ConfigError;
use crate::config::at::At;

/// Positions among a deployed model's inputs and outputs, in the order of the parity model's own.
/// All are FP32, and there is at least one of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodedTensors {
    /// The inputs that parity queries are made of; parity models know of no others.
    pub inputs: Vec<usize>,
    /// The outputs that are reconstructed. Confidence and agreement are those of the first.
    pub outputs: Vec<usize>,
}

impl CodedTensors {
    /// Returns the tensors that the `[code]` of `entry` names, with its own in their place.
    pub(super) fn named(
        at: &At<'_>,
        entry: &ModelEntry,
        code: &CodeMetadata,
        deployed: &ModelEntry,
    ) -> Result<Self, ConfigError> {
        let toml = entry.toml_file();
        let positions = |field: &str, names: &[String], own: &[TensorSpec], of: &[TensorSpec]| {
            let all = || of.iter().map(|spec| spec.name.clone()).collect();
            let names: Vec<String> = if names.is_empty() {
                all()
            } else {
                names.to_vec()
            };
            if names.len() != own.len() {
                let (own, of) = (own.len(), of.len());
                let problem = format!(
                    "{} has {own} {field}, the deployed model {of}",
                    toml.display()
                );
                let fix =
                    format!("name in code.{field} those of the deployed model's that it is for");
                return Err(at.field("model", problem, fix));
            }
            let place = |(name, own): (&String, &TensorSpec)| {
                let Some(position) = of.iter().position(|spec| spec.name == *name) else {
                    let problem = format!("code.{field} of {} names {name:?}", toml.display());
                    return Err(at.field(
                        "model",
                        problem,
                        format!("name one of the deployed model's {field}"),
                    ));
                };
                let takes_its_place = of
                    .get(position)
                    .is_some_and(|of| of.shape == own.shape && is_coded(own) && is_coded(of));
                if !takes_its_place {
                    let problem = format!(
                        "{:?} in {} has another shape than the deployed model's {name:?}, or one \
                            is not FP32",
                        own.name,
                        toml.display()
                    );
                    return Err(at.field(
                        "model",
                        problem,
                        "name a parity model of this deployed model",
                    ));
                }
                Ok(position)
            };
            names
                .iter()
                .zip(own)
                .map(place)
                .collect::<Result<Vec<usize>, _>>()
        };
        Ok(Self {
            inputs: positions("inputs", &code.inputs, &entry.inputs, &deployed.inputs)?,
            outputs: positions("outputs", &code.outputs, &entry.outputs, &deployed.outputs)?,
        })
    }

    pub fn inputs_of<'a>(
        &'a self,
        deployed: &'a ModelEntry,
    ) -> impl Iterator<Item = &'a TensorSpec> {
        self.inputs
            .iter()
            .filter_map(|&position| deployed.inputs.get(position))
    }

    pub fn outputs_of<'a>(
        &'a self,
        deployed: &'a ModelEntry,
    ) -> impl Iterator<Item = &'a TensorSpec> {
        self.outputs
            .iter()
            .filter_map(|&position| deployed.outputs.get(position))
    }
}

fn is_coded(spec: &TensorSpec) -> bool {
    spec.datatype == Datatype::Fp32
}
