//! Verdicts on the table's rows: met, missed, or not judged.

use super::recipe::{DeployedRecipe, RowRecipe};
use super::record::{DeployedRecord, RowRecord};

/// Above this a loss is beyond its bound: figures are parts of a whole number of samples.
pub(super) const ROUNDING: f64 = 1e-6;
/// Seeds without which no row is met.
const JUDGED_SEEDS: usize = 3;

/// A row as it is told.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) recipe: &'a RowRecipe,
    pub(super) deployed: Option<&'a DeployedRecipe>,
    /// Its trainings, one for each seed.
    pub(super) runs: Vec<Run>,
    /// The deployed model's training, of one that is trained here.
    pub(super) trained: Option<DeployedRecord>,
}

/// One of a row's trainings.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) seed: i64,
    pub(super) record: Option<RowRecord>,
    /// Reason for which there are no figures.
    pub(super) why: Option<String>,
}

/// Standing of a row to its aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The mean loss of enough seeds is within the bound.
    Met,
    /// The mean loss of those that there are is beyond it, or the deployed model is too weak.
    Missed,
    /// Within the bound, with so many seeds only.
    NotJudged(usize),
    /// There is no aim, only a figure.
    Reported,
    NotRun,
}

impl Verdict {
    pub(super) fn name(self) -> String {
        match self {
            Self::Met => "met".to_owned(),
            Self::Missed => "**missed**".to_owned(),
            Self::NotJudged(1) => "one seed: not judged".to_owned(),
            Self::NotJudged(seeds) => format!("{seeds} seeds: not judged"),
            Self::Reported => "reported".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

impl Row<'_> {
    /// Few seeds cannot meet an aim, but they can miss it: no miss is hidden behind their number.
    pub(super) fn verdict(&self) -> Verdict {
        let seeds = self.records().count();
        if seeds == 0 {
            return Verdict::NotRun;
        }
        let wanted = self.runs.len().max(JUDGED_SEEDS);
        match (self.recipe.bound, self.loss()) {
            (Some(bound), Some(loss)) if loss > bound + ROUNDING => Verdict::Missed,
            _ if self.deployed_falls_short().is_some() => Verdict::Missed,
            (Some(_), Some(_)) if seeds < wanted => Verdict::NotJudged(seeds),
            (Some(_), Some(_)) => Verdict::Met,
            _ => Verdict::Reported,
        }
    }

    pub(super) fn finished(&self) -> impl Iterator<Item = (&Run, &RowRecord)> {
        self.runs
            .iter()
            .filter_map(|run| Some((run, run.record.as_ref()?)))
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &RowRecord> {
        self.finished().map(|(_, record)| record)
    }

    /// The mean of the seeds' losses, points.
    pub(super) fn loss(&self) -> Option<f64> {
        mean(self.records().map(|record| record.outcome.loss()))
    }

    /// A_a and what it should be at least, percent, where it is less.
    pub(super) fn deployed_falls_short(&self) -> Option<(f64, f64)> {
        let accuracy = 100.0
            * self
                .records()
                .next()?
                .outcome
                .evaluation
                .accuracy_deployed?;
        let least = self.deployed?.least?;
        (accuracy + ROUNDING < least).then_some((accuracy, least))
    }

    /// Settings that were chosen by figures of the test set.
    pub(super) fn chosen_on_test(&self) -> Option<String> {
        let deployed = self
            .deployed
            .map_or("", |deployed| deployed.chosen_on_test.as_str());
        let own = self.recipe.chosen_on_test.as_str();
        match (own, deployed) {
            ("", "") => None,
            (own, "") => Some(own.to_owned()),
            ("", deployed) => Some(format!("the deployed model's {deployed}")),
            (own, deployed) => Some(format!("{own}; the deployed model's {deployed}")),
        }
    }
}

/// The mean; none of nothing, or if one is missing.
pub(super) fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
