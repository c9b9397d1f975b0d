//! The models of the run, whose answers everybody can compute beforehand.
//!
//! Weights and inputs are small whole numbers. So sums of queries, predictions and differences of
//! predictions are exact in 32-bit floats, in whatever order they are added: an exact prediction
//! has one bit pattern, and so has a reconstruction, since a linear model is its own parity model
//! for the sum code, and in the slots of a stack.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use parapet_config::repository::{
    CodeMetadata, CodeSpec, Datatype, EncoderKind, ModelToml, Platform, TensorSpec,
};
use parapet_onnx::GraphBuilder;

pub const INPUTS: usize = 8;
pub const OUTPUTS: usize = 5;
pub const DEPLOYED: &str = "linear";
/// Model that answers in its place for requests of the class `backup`; its outputs differ.
pub const CHEAP: &str = "cheap";
/// Parity models, by encoder and k.
pub const PARITY: [(EncoderKind, usize, &str); 3] = [
    (EncoderKind::Sum, 2, "parity-2"),
    (EncoderKind::Sum, 3, "parity-3"),
    (EncoderKind::Stack, 2, "slots-2"),
];

/// Model that an answer is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Deployed,
    Cheap,
}

fn weight(of: Of, output: usize, input: usize) -> f32 {
    let (by_input, by_output, modulus) = match of {
        Of::Deployed => (7, 13, 11_u16),
        Of::Cheap => (5, 3, 7),
    };
    let number = (input * by_input + output * by_output + 1) as u16 % modulus;
    f32::from(number) - f32::from(modulus / 2)
}

/// Returns the model's outputs for these samples, one after the other.
pub fn truth(of: Of, samples: &[f32]) -> Vec<f32> {
    let rows = samples.chunks(INPUTS);
    rows.flat_map(|row| {
        (0..OUTPUTS).map(move |output| {
            row.iter().enumerate().map(|(input, value)| weight(of, output, input) * value).sum()
        })
    })
    .collect()
}

/// Writes all of them into the repository at `root`.
pub fn write_repository(root: &Path) -> Result<()> {
    write(root, DEPLOYED, Of::Deployed, None)?;
    write(root, CHEAP, Of::Cheap, None)?;
    for (encoder, k, name) in PARITY {
        let code = CodeMetadata::new(DEPLOYED, 0, CodeSpec::new(encoder, k, 1));
        write(root, name, Of::Deployed, Some(code))?;
    }
    Ok(())
}

fn write(root: &Path, name: &str, of: Of, code: Option<CodeMetadata>) -> Result<()> {
    let slots = code.as_ref().filter(|code| code.spec.encoder == EncoderKind::Stack);
    let slots = slots.map(|code| code.spec.k);
    let shape = |len| slots.into_iter().chain([len]).collect::<Vec<_>>();
    let tensor = |name: &str, len| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: shape(len).into(),
    };
    let entry = ModelToml {
        name: name.to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: vec![tensor("input", INPUTS)],
        outputs: vec![tensor("output", OUTPUTS)],
        output: None,
        code,
        training: toml::Table::new(),
    };
    let folder = root.join(name);
    entry.save(&folder)?;
    let version = folder.join("1");
    fs::create_dir_all(&version).with_context(|| format!("cannot make {}", version.display()))?;
    let weights: Vec<f32> = (0..OUTPUTS)
        .flat_map(|output| (0..INPUTS).map(move |input| weight(of, output, input)))
        .collect();
    let mut graph = GraphBuilder::new("input", &shape(INPUTS));
    if slots.is_some() {
        graph = graph.unstack();
    }
    graph = graph.gemm(&weights, &[0.0; OUTPUTS]);
    if slots.is_some() {
        graph = graph.reshape(&shape(OUTPUTS));
    }
    let file = graph.finish("output")?;
    fs::write(version.join("model.onnx"), file)
        .with_context(|| format!("cannot write {}", version.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_the_difference_of_the_parity_query_and_the_others_to_the_last_bit() {
        let one: Vec<f32> = (0..INPUTS).map(|i| i as f32 * 9.0 - 40.0).collect();
        let two: Vec<f32> = (0..INPUTS).map(|i| 37.0 - i as f32 * 5.0).collect();
        let sum: Vec<f32> = one.iter().zip(&two).map(|(a, b)| a + b).collect();
        let parity = truth(Of::Deployed, &sum);
        let decoded: Vec<f32> = parity
            .iter()
            .zip(truth(Of::Deployed, &one))
            .map(|(parity, other)| parity - other)
            .collect();
        assert_eq!(decoded, truth(Of::Deployed, &two));
        assert_ne!(truth(Of::Cheap, &two), truth(Of::Deployed, &two));
        assert_ne!(truth(Of::Deployed, &one), truth(Of::Deployed, &two));
    }
}
