//! Learning a parity model: mean squared error against the weighted sum of the deployed model's
//! outputs (ParM section 4.1).

use std::sync::Arc;

use parapet_decoder::Score;
use parapet_encoder::{ConcatEncoder, Encoder, EncoderKind, build_encoder};
use tch::{Kind, Reduction};

use super::groups::{CodedSet, GroupBatch, GroupSampler, TrainingSet};
use super::parity::ParityRun;
use super::task::{Attempt, StepRandomness, Task};
use super::validation::{Validation, Validator};
use super::{NORMALISATION_GROUPS, Trained};
use crate::TrainError;
use crate::network::{Network, Normalisation, batch, stream};

/// One parity row's model.
#[derive(Debug)]
pub(super) struct ParityModel {
    encoder: Box<dyn Encoder>,
    row: usize,
    network: Network,
    coded: CodedSet,
    validator: Validator,
    filled: GroupBatch,
    /// Cells of the network that learn their part of the target; 0 for none.
    cells: usize,
}

impl ParityModel {
    pub(super) fn new(
        run: &ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
    ) -> Result<Self, TrainError> {
        let encoder = build_encoder(&run.code, &set.shape)?;
        let code = encoder.code();
        if run.row >= code.r() {
            return Err(TrainError::Row {
                row: run.row,
                last: code.r() - 1,
                r: code.r(),
            });
        }
        let mut network = Network::new(
            &run.network,
            &set.shape,
            set.outputs(),
            &mut stream(run.seed, 2),
        )?;
        let coded = CodedSet::new(set, code.transform());
        let (mean, deviation) = coded.moments();
        let row = code.row(run.row);
        let weight = f64::from(row.iter().sum::<f32>());
        let spread = f64::from(row.iter().map(|a| a * a).sum::<f32>()).sqrt();
        network.scale_output(deviation * spread, mean * weight);
        if let Some(path) = &run.start {
            network.start_from(path)?;
        } else if run.normalise {
            network.normalise(&normalisation(&coded, encoder.as_ref(), run)?)?;
        }
        let validator = Validator::new(
            CodedSet::new(validation, code.transform()),
            code.k(),
            run.seed,
        );
        let cells = taught_cells(run, &network);
        let filled = coded.batch_of_cells(code.k(), run.groups.max(1), cells);
        Ok(Self {
            encoder,
            row: run.row,
            network,
            coded,
            validator,
            filled,
            cells,
        })
    }
}

impl Task for ParityModel {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, _: u64, draw: &mut StepRandomness<'_>) -> Result<Attempt, TrainError> {
        self.coded
            .fill(self.encoder.as_ref(), self.row, &mut self.filled, |group| {
                draw.group(group)
            })?;
        let targets = batch(&self.filled.targets, &[self.coded.set.outputs()]);
        let input = batch(&self.filled.parity, &self.coded.set.shape);
        let (outputs, loss) = if self.cells > 0 {
            let cells = self.network.forward_cells(&input);
            let parts = batch(
                &self.filled.cell_targets,
                &[self.cells, self.coded.set.outputs()],
            );
            let parts = parts.to_device(cells.device());
            (
                cells.sum_dim_intlist([1i64].as_slice(), false, Kind::Float),
                cells.mse_loss(&parts, Reduction::Mean),
            )
        } else {
            let outputs = self.network.forward_t(&input, true);
            let loss = outputs.mse_loss(&targets.to_device(outputs.device()), Reduction::Mean);
            (outputs, loss)
        };
        let targets = targets.to_device(outputs.device());
        // Of the sum, whatever was learned from.
        let told = outputs
            .detach()
            .mse_loss(&targets, Reduction::Mean)
            .double_value(&[]);
        let mut parity = vec![0.0; self.filled.targets.len()];
        let length = parity.len();
        outputs
            .detach()
            .contiguous()
            .view([-1])
            .copy_data(&mut parity, length);
        let row = self.encoder.code().row(self.row);
        let (agreeing, queries) = self.coded.agreeing(&parity, &self.filled, row);
        Ok(Attempt {
            loss,
            told,
            agreeing,
            queries,
        })
    }

    fn validate(&self) -> Result<Option<Validation>, TrainError> {
        self.validator
            .run(&self.network, self.encoder.as_ref(), self.row)
            .map(Some)
    }

    fn scores(&self, score: Score) -> Result<Vec<(f32, bool)>, TrainError> {
        self.validator
            .scores(&self.network, self.encoder.as_ref(), self.row, score)
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::Model(self.network.frozen())
    }
}

/// Number of cells of `network` that learn their part of the target: those of a concatenation's own
/// grid, where slot i is cell i.
fn taught_cells(run: &ParityRun, network: &Network) -> usize {
    let own = ConcatEncoder::grid(run.code.k);
    let taught =
        run.cell_targets && run.code.encoder == EncoderKind::Concat && network.cells() == Some(own);
    if taught { own.0 * own.1 } else { 0 }
}

/// Mean and deviation of what the network will be given: parity queries of some random groups.
fn normalisation(
    coded: &CodedSet,
    encoder: &dyn Encoder,
    run: &ParityRun,
) -> Result<Normalisation, TrainError> {
    let mut sampler = GroupSampler::new(coded.set.len(), 0.0);
    let mut rng = stream(run.seed, 7);
    let mut batch = coded.batch(encoder.code().k(), NORMALISATION_GROUPS);
    coded.fill(encoder, run.row, &mut batch, |group| {
        sampler.next(group, &mut rng)
    })?;
    Ok(Normalisation::of(&batch.parity, &coded.set.shape))
}
