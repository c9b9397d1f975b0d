//! RESULTS.md from the reports of `train` and `eval`.

use std::fs;
use std::path::Path;

use parity_trainer::evaluation::{ByLosses, Estimate, percent};
use serde::Deserialize;

/// Above this a loss is beyond its bound: figures are parts of a whole number of samples.
const ROUNDING: f64 = 1e-6;
/// Seeds without which no row is met.
const JUDGED_SEEDS: usize = 3;
/// Greatest time of a parity query, over a query's, that counts as equal cost.
const EQUAL_COST: f64 = 1.05;

const INTRODUCTION: &str = "\
# Accuracy of reconstructions

Written by `parity-trainer reproduce` from `recipes/accuracy.toml`; not to be edited by hand. A_a is
the deployed model's accuracy on the whole test set, A_d that of its reconstructions, over every
erasure of every group. The loss is A_a - A_d over the same queries, in points, with its paired 95 %
bootstrap interval over groups. A row is met if the mean of at least three seeds' losses is within
the bound; everything was chosen on samples set aside from the training set. Cost is a parity
query's time over a query's, by ONNX Runtime on one thread; above 1.05 it is in bold.
";
const TABLE: &str = "\n| row | deployed model | A_a | code | network | A_d | loss, mean | each seed's \
    | at most | | cost | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// A training's figures: of `training.json` and `evaluation.json`.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    training: Training,
    evaluation: Evaluation,
}

#[derive(Debug, Clone, Deserialize)]
struct Training {
    code: String,
    network: String,
    seconds: f64,
    cost: Option<Cost>,
}

#[derive(Debug, Clone, Deserialize)]
struct Cost {
    time: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Evaluation {
    accuracy_deployed: Option<f64>,
    by_losses: Vec<ByLosses>,
}

#[derive(Debug, Deserialize)]
struct Report {
    evaluation: Evaluation,
}

impl Figures {
    /// Reads a report's folder; nothing unless its training has ended.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        fs::metadata(folder.join(super::COMMANDS)).ok()?;
        let read = |name: &str| fs::read(folder.join(name)).ok();
        let report: Report = serde_json::from_slice(&read("evaluation.json")?).ok()?;
        Some(Self {
            training: serde_json::from_slice(&read("training.json")?).ok()?,
            evaluation: report.evaluation,
        })
    }

    fn first(&self) -> Option<&ByLosses> {
        self.evaluation.by_losses.first()
    }

    /// A_a - A_d.
    fn loss(&self) -> Option<Estimate> {
        self.first()?.loss
    }
}

#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) deployed: &'a str,
    pub(super) bound: Option<f64>,
    pub(super) seeds: usize,
    pub(super) runs: Vec<Figures>,
    pub(super) why_not: Option<&'a String>,
}

impl Row<'_> {
    /// Few seeds cannot meet an aim, but they can miss it: no miss is hidden behind their number.
    fn verdict(&self) -> String {
        let seeds = self.runs.len();
        match (self.bound, self.loss()) {
            (Some(bound), Some(loss)) if loss > bound + ROUNDING => "**missed**".to_owned(),
            (Some(_), Some(_)) if seeds < self.seeds.max(JUDGED_SEEDS) => {
                format!("not judged: {seeds} of {} seeds", self.seeds.max(JUDGED_SEEDS))
            }
            (Some(_), Some(_)) => "met".to_owned(),
            _ => "reported".to_owned(),
        }
    }

    fn loss(&self) -> Option<f64> {
        mean(self.runs.iter().map(|run| Some(100.0 * run.loss()?.value)))
    }

    fn with_bound(&self) -> String {
        let bound = self.bound.map_or_else(String::new, |bound| format!(" (at most {bound})"));
        format!("{}{bound}", self.name)
    }

    fn cells(&self) -> String {
        let runs = || self.runs.iter();
        let share = |part: f64| percent(part, 2);
        let accuracy = runs().next().and_then(|run| run.evaluation.accuracy_deployed);
        let reconstructed = mean(runs().map(|run| Some(run.first()?.accuracy?.value)));
        let agreement = || mean(runs().map(|run| Some(run.first()?.agreement.value)));
        let agreement = || Some(format!("agreement {}", share(agreement()?)));
        let cost = |run: &Figures| {
            let cost = run.training.cost.as_ref()?.time;
            let bold = if cost > EQUAL_COST { "**" } else { "" };
            Some(format!("{bold}{cost:.2}{bold}"))
        };
        let cells = [
            self.name.to_owned(),
            self.deployed.to_owned(),
            accuracy.map(share).unwrap_or_default(),
            distinct(runs().map(|run| run.training.code.clone())),
            distinct(runs().map(|run| run.training.network.clone())),
            reconstructed.map(share).or_else(agreement).unwrap_or_default(),
            self.loss().map(|loss| format!("{loss:.2}")).unwrap_or_default(),
            join(runs().filter_map(|run| Some(run.loss()?.hundredths(2, "")))),
            self.bound.map(|bound| bound.to_string()).unwrap_or_default(),
            self.verdict(),
            join(runs().filter_map(cost)),
            join(runs().map(|run| format!("{:.0}", run.training.seconds))),
        ];
        format!("| {} |\n", cells.join(" | "))
    }
}

/// The mean; none of nothing, or if one is missing.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn join(figures: impl Iterator<Item = String>) -> String {
    figures.collect::<Vec<_>>().join("; ")
}

fn distinct(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    names.dedup();
    names.join("; ")
}

pub(super) fn markdown(rows: &[Row<'_>], notes: &str) -> String {
    let mut text = INTRODUCTION.to_owned();
    for row in rows.iter().filter(|row| row.why_not.is_some()) {
        let why = row.why_not.map_or("", String::as_str);
        text += &format!("\n- **{}** is not complete: {why}.", row.name);
    }
    text += TABLE;
    let (run, not_run): (Vec<_>, Vec<_>) = rows.iter().partition(|row| !row.runs.is_empty());
    text.extend(run.into_iter().map(Row::cells));
    if !not_run.is_empty() {
        text += &format!("\nNot run: {}.\n", join(not_run.into_iter().map(Row::with_bound)));
    }
    text += "\n`parity-trainer reproduce --only ROW` makes a row again; in `--out`, \
        `reports/ROW-seed1` has its commands and all its figures.\n";
    if !notes.is_empty() {
        text += "\n";
        text += notes;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(deployed: f64, reconstructed: f64, cost: f64) -> Figures {
        let part = |value: f64| serde_json::json!({"value": value, "interval": [value, value]});
        let losses = serde_json::json!({
            "missing": 1, "accuracy": part(reconstructed), "loss": part(deployed - reconstructed),
            "agreement": part(reconstructed), "reconstructions": 100,
        });
        let evaluation = serde_json::json!({
            "accuracy_deployed": deployed, "by_losses": [losses],
        });
        let training = serde_json::json!({
            "code": "stack-slots-k2-r1", "network": "lenet:8", "seconds": 61.2,
            "cost": {"time": cost, "multiply_adds": 5},
        });
        Figures {
            training: serde_json::from_value(training).unwrap(),
            evaluation: serde_json::from_value(evaluation).unwrap(),
        }
    }

    fn row(bound: Option<f64>, runs: Vec<Figures>) -> String {
        let why = "no data".to_owned();
        let row = Row {
            name: "digits-k2",
            deployed: "digits, own",
            bound,
            seeds: 3,
            why_not: runs.is_empty().then_some(&why),
            runs,
        };
        markdown(&[row], "Notes.\n")
    }

    #[test]
    fn row_is_met_by_the_mean_of_three_seeds() {
        let runs = vec![run(0.9, 0.89, 0.5), run(0.9, 0.87, 0.51), run(0.9, 0.88, 1.2)];
        let text = row(Some(2.0), runs.clone());
        let line = "| digits-k2 | digits, own | 90.00 % | stack-slots-k2-r1 | lenet:8 | 88.00 % \
            | 2.00 | 1.00 [1.00, 1.00]; 3.00 [3.00, 3.00]; 2.00 [2.00, 2.00] | 2 | met \
            | 0.50; 0.51; **1.20** | 61; 61; 61 |";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("\nNotes.\n"), "{text}");
        assert!(row(Some(1.9), runs.clone()).contains("| 1.9 | **missed** |"));
        assert!(row(None, runs).contains("|  | reported |"));
    }

    #[test]
    fn few_seeds_can_miss_a_bound_but_not_meet_it() {
        let one = |bound| row(Some(bound), vec![run(0.9, 0.88, 1.0)]);
        assert!(one(5.0).contains("not judged: 1 of 3 seeds"));
        assert!(one(1.0).contains("**missed**"));
        let none = row(Some(1.0), Vec::new());
        assert!(none.contains("- **digits-k2** is not complete: no data."), "{none}");
        assert!(none.contains("\nNot run: digits-k2 (at most 1).\n"), "{none}");
    }
}
