//! RESULTS.md from recipes and records. Pure.

use parity_trainer::evaluation::{ByLosses, Estimate, percent};

use super::recipe::{DeployedRecipe, RowRecipe, plain};
use super::record::{Cost, Record};
use crate::command::train_parity::transform_name;

/// The table's file, in `--out`.
pub(super) const RESULTS: &str = "RESULTS.md";
/// Above this a loss is beyond its bound: figures are parts of a whole number of samples.
const ROUNDING: f64 = 1e-6;
/// Seeds without which no row is met.
const JUDGED_SEEDS: usize = 3;

const INTRODUCTION: &str = "\
# Accuracy of reconstructions

Written by `parity-trainer reproduce`; not to be edited by hand. A_a is the deployed model's
accuracy on the test set, A_d that of its reconstructions, over every erasure of every group of the
test set. The loss is A_a - A_d over the same queries, in points. A row's parity model is trained
once for each seed, the deployed model once. A row is met if the mean of its seeds' losses is within
the bound and there are three seeds or more. Brackets hold 95 % bootstrap intervals over the groups
of the test set, for losses paired. The chance in the training shows in how the seeds differ.
Settings, weights and transforms were chosen on samples set aside from the training set";
const MARKED: &str = ", except what the column
\"chosen on the test set\" names: that was chosen, or changed, after a figure of the very test set
that the row is judged by, so its figures may be too good";
const TABLE: &str = "\n## The table\n\n\
    | row | data, deployed model | A_a | k | encoder, transform | network | A_d | loss, mean of \
    seeds | each seed's [paired 95 %] | at most | | chosen on the test set | others |\n\
    |---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
const MADE: &str = "Times are processor seconds, and seconds by the clock; figures stand in the \
    order of the seeds.\n\n\
    | row | training | deployed model | agreement | reconstructions | untrained control |\n\
    |---|---|---|---|---|---|\n";
const AGAIN: &str = "\n`parity-trainer reproduce --only ROW` makes a row again; in `--out`, \
    `rows/ROW.json` has the commands\nand all figures of each training.\n";

#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) recipe: &'a RowRecipe,
    pub(super) deployed: &'a DeployedRecipe,
    pub(super) runs: Vec<Run>,
    /// The deployed model's training, of one that is trained here.
    pub(super) trained: Option<Record<()>>,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) seed: i64,
    pub(super) record: Option<Record>,
    /// Reason for which there are no figures.
    pub(super) why_not: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
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
    fn name(self) -> String {
        match self {
            Self::Met => "met".to_owned(),
            Self::Missed => "missed".to_owned(),
            Self::NotJudged(1) => "one seed: not judged".to_owned(),
            Self::NotJudged(seeds) => format!("{seeds} seeds: not judged"),
            Self::Reported => "reported".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

impl Row<'_> {
    /// Few seeds cannot meet an aim, but they can miss it: no miss is hidden behind their number.
    fn verdict(&self) -> Verdict {
        let seeds = self.records().count();
        let wanted = self.runs.len().max(JUDGED_SEEDS);
        match (self.recipe.bound, self.loss()) {
            _ if seeds == 0 => Verdict::NotRun,
            (Some(bound), Some(loss)) if loss > bound + ROUNDING => Verdict::Missed,
            _ if self.deployed_falls_short().is_some() => Verdict::Missed,
            (Some(_), Some(_)) if seeds < wanted => Verdict::NotJudged(seeds),
            (Some(_), Some(_)) => Verdict::Met,
            _ => Verdict::Reported,
        }
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.runs.iter().filter_map(|run| run.record.as_ref())
    }

    fn figures(&self) -> impl Iterator<Item = &ByLosses> {
        self.records()
            .filter_map(|record| record.outcome.evaluation.by_losses.first())
    }

    /// The mean of the seeds' losses, points.
    fn loss(&self) -> Option<f64> {
        let loss = |record: &Record| Some(100.0 * record.outcome.loss()?.value);
        mean(self.records().map(loss))
    }

    /// A_a and what it should be at least, percent, where it is less.
    fn deployed_falls_short(&self) -> Option<(f64, f64)> {
        let first = self.records().next()?;
        let accuracy = 100.0 * first.outcome.evaluation.accuracy_deployed?;
        let least = self.deployed.least?;
        (accuracy + ROUNDING < least).then_some((accuracy, least))
    }

    fn chosen_on_test(&self) -> String {
        let own = &self.recipe.chosen_on_test;
        let deployed = match self.deployed.chosen_on_test.as_str() {
            "" => String::new(),
            settings => format!("the deployed model's {settings}"),
        };
        let mut settings = vec![own.as_str(), &deployed];
        settings.retain(|settings| !settings.is_empty());
        settings.join("; ")
    }

    fn setting(&self, name: &str, default: &str) -> String {
        let value = self.recipe.train.get(name);
        value.map_or(default.to_owned(), plain)
    }
}

/// The mean; none of nothing, or if one is missing.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(super) fn markdown(rows: &[Row<'_>], machine: &str, notes: &str) -> String {
    let is_marked = rows.iter().any(|row| !row.chosen_on_test().is_empty());
    let marked = if is_marked { MARKED } else { "" };
    let mut text = format!("{INTRODUCTION}{marked}.\n\n{}", counts(rows));
    let misses: String = rows.iter().map(missed).collect();
    if !misses.is_empty() {
        text += "\n## Misses\n\n";
        text += &misses;
    }
    text += TABLE;
    text.extend(rows.iter().map(table_row));
    text += &format!("\n## How each was made\n\nOn {machine}. {MADE}");
    text.extend(rows.iter().filter_map(made));
    text += AGAIN;
    if !notes.is_empty() {
        text += "\n";
        text += notes;
    }
    text
}

fn counts(rows: &[Row<'_>]) -> String {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    let is_unjudged = |row: &&Row<'_>| matches!(row.verdict(), Verdict::NotJudged(_));
    format!(
        "{} rows: {} missed, {} not run, {} met, {} of too few seeds to be judged, {} without an \
         aim.\n",
        rows.len(),
        count(Verdict::Missed),
        count(Verdict::NotRun),
        count(Verdict::Met),
        rows.iter().filter(is_unjudged).count(),
        count(Verdict::Reported),
    )
}

fn missed(row: &Row<'_>) -> String {
    let name = &row.recipe.name;
    let why = |run: &Run| run.why_not.clone().unwrap_or("not begun yet".to_owned());
    if row.verdict() == Verdict::NotRun {
        let first = row.runs.iter().find(|run| run.why_not.is_some());
        let why = first.map_or("not begun yet".to_owned(), why);
        return format!("- **{name}** was not run: {why}.\n");
    }
    let mut text = String::new();
    for run in row.runs.iter().filter(|run| run.record.is_none()) {
        text += &format!(
            "- **{name}**, seed {}, was not run: {}.\n",
            run.seed,
            why(run)
        );
    }
    if let Some((accuracy, least)) = row.deployed_falls_short() {
        text +=
            &format!("- **{name}**: A_a is {accuracy:.2} %, at least {least:.1} % was wanted.\n");
    }
    if let (Some(loss), Some(bound)) = (row.loss(), row.recipe.bound)
        && loss > bound + ROUNDING
    {
        let seeds = match row.records().count() {
            1 => String::new(),
            seeds => format!(" on average of {seeds} seeds"),
        };
        let tried = match row.recipe.tried.trim() {
            "" => String::new(),
            tried => format!(" Tried: {tried}"),
        };
        text += &format!(
            "- **{name}**: lost {loss:.2} points{seeds}, at most {bound} were wanted.{tried}\n"
        );
    }
    text
}

fn table_row(row: &Row<'_>) -> String {
    let recipe = row.recipe;
    let accuracy = match row.records().next() {
        None => String::new(),
        Some(first) => match first.outcome.evaluation.accuracy_deployed {
            Some(accuracy) => percent(accuracy, 2),
            None => "no labels".to_owned(),
        },
    };
    let transforms = row
        .records()
        .map(|record| transform_name(&record.outcome.transform));
    let mut transforms: Vec<String> = transforms.collect();
    transforms.dedup();
    let encoder = row.setting("encoder", "concat");
    let coded = match transforms.is_empty() {
        true => encoder,
        false => format!("{encoder}, {}", transforms.join(" or ")),
    };
    let bound = recipe.bound.map(|bound| bound.to_string());
    let losses = row.records().filter_map(|record| record.outcome.loss());
    let verdict = match row.verdict() {
        Verdict::Missed => "**missed**".to_owned(),
        verdict => verdict.name(),
    };
    cells(&[
        recipe.name.clone(),
        row.deployed.title.clone(),
        accuracy,
        row.setting("k", "2"),
        coded,
        row.setting("network", "the deployed model's"),
        reconstructed(row),
        row.loss()
            .map(|loss| format!("{loss:.2}"))
            .unwrap_or_default(),
        join(losses.map(|loss| loss.hundredths(2, ""))),
        bound.unwrap_or_default(),
        verdict,
        row.chosen_on_test(),
        recipe.reference.clone(),
    ])
}

/// A_d with its interval; of several seeds their mean. The agreement where there are no labels.
fn reconstructed(row: &Row<'_>) -> String {
    let figures: Vec<&ByLosses> = row.figures().collect();
    let told = |of: fn(&ByLosses) -> Option<Estimate>| match figures.as_slice() {
        [only] => of(only).map(estimate),
        several => {
            mean(several.iter().map(|one| Some(of(one)?.value))).map(|part| percent(part, 2))
        }
    };
    let agreement = || Some(format!("agreement {}", told(|one| Some(one.agreement))?));
    let accuracy = told(|one| one.accuracy);
    accuracy.or_else(agreement).unwrap_or_default()
}

/// Time and agreement of a row's finished trainings.
fn made(row: &Row<'_>) -> Option<String> {
    let first = row.records().next()?;
    let controls = first.outcome.untrained_control.by_losses.first();
    let control = controls.map(|one| percent(one.accuracy.unwrap_or(one.agreement).value, 2));
    let reconstructions = row
        .figures()
        .next()
        .map(|one| one.reconstructions.to_string());
    Some(cells(&[
        row.recipe.name.clone(),
        join(row.records().map(|record| spent(record.cost))),
        row.trained
            .as_ref()
            .map(|trained| spent(trained.cost))
            .unwrap_or_default(),
        join(row.figures().map(|one| estimate(one.agreement))),
        reconstructions.unwrap_or_default(),
        control.unwrap_or_default(),
    ]))
}

fn cells(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn join(figures: impl Iterator<Item = String>) -> String {
    figures.collect::<Vec<_>>().join("; ")
}

fn spent(cost: Cost) -> String {
    let bound = if cost.at_least { "at least " } else { "" };
    format!("{bound}{:.0} ({:.0})", cost.processor_seconds, cost.seconds)
}

/// A part of 1 as a percentage, with its interval.
fn estimate(estimate: Estimate) -> String {
    estimate.hundredths(2, " %")
}

#[cfg(test)]
mod tests;
