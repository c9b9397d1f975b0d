//! Entries of a model repository with a linear model of images' shape: what it says is of no use,
//! but exactly known.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use parapet_onnx::linear_model;

use crate::workspace;

/// Of one sample.
pub(crate) const SHAPE: [usize; 3] = [1, 28, 28];
/// Numbers in it.
pub(crate) const INPUTS: usize = 28 * 28;
const OUTPUTS: usize = 10;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Deployed,
    /// A parity model for k = 2; exact for the sum code.
    Parity {
        deployed: &'static str,
        encoder: &'static str,
    },
}

/// Writes entry `name`, version 1.
pub(crate) fn write(models: &Path, name: &str, kind: Kind) -> Result<()> {
    let tensor = |name: &str, shape: &[usize]| {
        format!("name = \"{name}\"\ndatatype = \"FP32\"\nshape = {shape:?}\n")
    };
    let mut text = format!(
        "name = \"{name}\"\nplatform = \"onnxruntime_onnx\"\n\n[[inputs]]\n{}\n[[outputs]]\n{}",
        tensor("input", &SHAPE),
        tensor("output", &[OUTPUTS])
    );
    if let Kind::Parity { deployed, encoder } = kind {
        let code =
            format!("encoder = \"{encoder}\"\nk = 2\nr = 1\nrow = 0\ndeployed = \"{deployed}\"\n");
        text += &format!("\n[code]\n{code}");
    }
    let entry = models.join(name);
    let version = entry.join("1");
    workspace::make_folder(&version)?;
    fs::write(entry.join("model.toml"), text)
        .with_context(|| format!("cannot write {}", entry.display()))?;
    // Any numbers will do, as long as classes differ.
    let weights: Vec<f32> = (0..INPUTS * OUTPUTS)
        .map(|i| (i * 7919 % 101) as f32 / 1010.0 - 0.05)
        .collect();
    let file = linear_model(&SHAPE, &weights, &[0.0; OUTPUTS])?;
    fs::write(version.join("model.onnx"), file)
        .with_context(|| format!("cannot write {}", version.display()))
}
