//! Validation of a parity model on samples that it is not trained on.

use parapet_decoder::Score;
use parapet_encoder::Encoder;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::groups::{CodedSet, GroupBatch};
use crate::TrainError;
use crate::network::{Network, stream};

/// Groups that one validation looks at, where there are samples for so many: agreement is then
/// known to 1.5 points.
const GROUPS: usize = 512;
/// Shuffles of a small validation set into groups.
const SHUFFLES: usize = 8;
/// Groups that go through the network at once.
pub(super) const CHUNK: usize = 64;

/// One validation's figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The part of the queries whose reconstruction names the deployed model's class, each
    /// missing in turn.
    pub agreement: f64,
    /// Mean squared error of the parity outputs; of a learned code, what its training lessens.
    pub loss: f64,
}

impl Validation {
    /// Returns true if it is better than `other`: ParM (section 4.1) selects by agreement; equal
    /// ones by their loss.
    pub fn beats(&self, other: &Self) -> bool {
        self.agreement > other.agreement
            || (self.agreement == other.agreement && self.loss < other.loss)
    }
}

/// The groups of k out of so many samples that validations look at, one after another; the same for
/// the same seed.
pub(super) fn fixed_groups(samples: usize, k: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples).collect();
    let whole = samples / k.max(1) * k;
    let mut rng = stream(seed, 6);
    let mut groups = Vec::new();
    for _ in 0..SHUFFLES {
        order.shuffle(&mut rng);
        groups.extend_from_slice(order.get(..whole).unwrap_or_default());
        if groups.len() >= GROUPS * k {
            break;
        }
    }
    groups.truncate(GROUPS * k);
    groups
}

/// Fixed groups of validation samples.
#[derive(Debug)]
pub(super) struct Validator {
    coded: CodedSet,
    groups: Vec<usize>,
}

impl Validator {
    /// Groups of `k` out of `coded`'s samples, the same for the same seed.
    pub(super) fn new(coded: CodedSet, k: usize, seed: u64) -> Self {
        let groups = fixed_groups(coded.set.len(), k, seed);
        Self { coded, groups }
    }

    pub(super) fn run(
        &self,
        network: &Network,
        encoder: &dyn Encoder,
        row: usize,
    ) -> Result<Validation, TrainError> {
        let (mut agreeing, mut queries, mut squares, mut outputs) = (0, 0, 0.0f64, 0);
        self.each_chunk(network, encoder, row, |batch, parity| {
            let (right, count) = self.coded.agreeing(parity, batch, encoder.code().row(row));
            agreeing += right;
            queries += count;
            squares += parity
                .iter()
                .zip(&batch.targets)
                .map(|(a, b)| f64::from(a - b).powi(2))
                .sum::<f64>();
            outputs += parity.len();
        })?;
        let agreement = agreeing as f64 / queries.max(1) as f64;
        Ok(Validation {
            agreement,
            loss: squares / outputs.max(1) as f64,
        })
    }

    /// The score of each reconstruction, and whether it names the deployed model's class.
    pub(super) fn scores(
        &self,
        network: &Network,
        encoder: &dyn Encoder,
        row: usize,
        score: Score,
    ) -> Result<Vec<(f32, bool)>, TrainError> {
        let mut scores = Vec::new();
        self.each_chunk(network, encoder, row, |batch, parity| {
            self.coded.reconstruct(
                parity,
                batch,
                encoder.code().row(row),
                |reconstructed, exact| {
                    scores.push((
                        score.of(reconstructed),
                        reconstructed.top_class() == exact.top_class(),
                    ));
                },
            );
        })?;
        Ok(scores)
    }

    fn each_chunk(
        &self,
        network: &Network,
        encoder: &dyn Encoder,
        row: usize,
        mut each: impl FnMut(&GroupBatch, &[f32]),
    ) -> Result<(), TrainError> {
        let k = encoder.code().k();
        for chunk in self.groups.chunks(CHUNK * k) {
            let mut batch = self.coded.batch(k, chunk.len() / k);
            let mut groups = chunk.chunks_exact(k);
            self.coded.fill(encoder, row, &mut batch, |group| {
                group.copy_from_slice(groups.next().unwrap_or(&[]));
            })?;
            each(&batch, &network.infer(&batch.parity));
        }
        Ok(())
    }
}
