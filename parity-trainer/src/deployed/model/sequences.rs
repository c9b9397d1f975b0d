//! Models of sequences: asked about them without their padding, or with their lengths beside it.

use std::collections::BTreeMap;

use parapet_encoder::Padding;

use super::{BATCH, FileModel};
use crate::data::steps;
use crate::deployed::DeployedModel as _;
use crate::{Result, TrainError};

impl FileModel {
    /// Values of one step of a sequence: the input's last axis.
    fn features(&self) -> usize {
        self.input_shape.last().copied().unwrap_or(1)
    }

    pub(super) fn lengths_of(&self, queries: &[f32]) -> Vec<i64> {
        let padded: usize = self.input_shape.iter().skip(1).product();
        let sequences = queries.chunks_exact(padded.max(1));
        sequences.map(|sequence| steps(sequence, self.features()) as i64).collect()
    }

    /// Outputs for padded sequences, each asked about as it is.
    pub(super) fn infer_sequences(&self, samples: &[f32]) -> Result<Vec<f32>> {
        let (features, outputs) = (self.features(), self.outputs());
        let mut by_length = BTreeMap::<usize, Vec<usize>>::new();
        let samples: Vec<&[f32]> =
            samples.chunks_exact(self.input_shape.iter().product()).collect();
        for (index, sample) in samples.iter().enumerate() {
            by_length.entry(steps(sample, features)).or_default().push(index);
        }
        let mut all = vec![0.0; samples.len() * outputs];
        for (steps, members) in by_length {
            let mut shape = self.input_shape.clone();
            if let [.., axis, _] = shape.as_mut_slice() {
                *axis = steps;
            }
            for members in members.chunks(BATCH) {
                let own = members.iter().flat_map(|&at| &samples[at][..steps * features]);
                let own: Vec<f32> = own.copied().collect();
                let (got, values) = self.run(&own, members.len(), &shape)?;
                let fits = values.len() == members.len() * outputs;
                ensure!(fits, self.unexpected(&got, members.len()));
                for (&at, output) in members.iter().zip(values.chunks_exact(outputs)) {
                    all[at * outputs..(at + 1) * outputs].copy_from_slice(output);
                }
            }
        }
        Ok(all)
    }
}

/// Refuses sequences that are longer than what they are to be padded to.
pub fn check_padding(
    name: &str,
    padding: &Padding,
    samples: &[f32],
    sample_shape: &[usize],
) -> Result<()> {
    let (len, features) = (sample_shape.iter().product::<usize>(), sample_shape.last());
    let steps = |sample| steps(sample, features.copied().unwrap_or(1));
    let longest = samples.chunks_exact(len.max(1)).map(steps).max().unwrap_or_default();
    let last = padding.lengths().last().copied().unwrap_or_default();
    let problem = format!("ends at {last}, and a sample has {longest} steps");
    let fix = "add a length, or leave longer samples out";
    ensure!(
        padding.position(longest).is_some(),
        TrainError::Input(format!("{name}: {problem}; {fix}"))
    );
    Ok(())
}
