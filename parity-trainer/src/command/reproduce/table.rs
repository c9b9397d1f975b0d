//! RESULTS.md and results.json from recipes and records. Pure.

use serde_json::{Value, json};

use super::recipe::{DeployedRecipe, RowRecipe};
use super::record::{Cost, DeployedRecord, Estimate, Machine, Outcome, RowRecord};

/// The table's file, in `--out`.
pub(super) const RESULTS: &str = "RESULTS.md";
/// Below what a loss counts as the bound itself: figures are parts of a whole number of samples.
const ROUNDING: f64 = 1e-6;

/// A row as it is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) recipe: &'a RowRecipe,
    pub(super) deployed: Option<&'a DeployedRecipe>,
    pub(super) record: Option<&'a RowRecord>,
    /// The deployed model's training, of one that is trained here.
    pub(super) trained: Option<&'a DeployedRecord>,
    /// Why there are no figures.
    pub(super) why: Option<&'a str>,
}

/// How a row stands to its aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// There is no aim, only a figure.
    Reported,
    NotRun,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "**missed**",
            Self::Reported => "reported",
            Self::NotRun => "not run",
        }
    }
}

impl Row<'_> {
    fn verdict(&self) -> Verdict {
        let Some(record) = self.record else { return Verdict::NotRun };
        match (self.recipe.bound, record.outcome.loss()) {
            (Some(bound), Some(loss)) if loss > bound + ROUNDING => Verdict::Missed,
            _ if self.deployed_falls_short().is_some() => Verdict::Missed,
            (Some(_), Some(_)) => Verdict::Met,
            _ => Verdict::Reported,
        }
    }

    /// A_a and what it should be at least, percent, where it is less.
    fn deployed_falls_short(&self) -> Option<(f64, f64)> {
        let accuracy = 100.0 * self.record?.outcome.evaluation.accuracy_deployed?;
        let least = self.deployed?.least?;
        (accuracy + ROUNDING < least).then_some((accuracy, least))
    }

    fn setting(&self, name: &str, default: &str) -> String {
        match self.recipe.train.get(name) {
            None => default.to_owned(),
            Some(toml::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }

    fn title(&self) -> &str {
        self.deployed.map_or(self.recipe.deployed.as_str(), |deployed| deployed.title.as_str())
    }
}

/// The whole file; `notes` is added as it is.
pub(super) fn markdown(rows: &[Row<'_>], machine: &Machine, notes: &str) -> String {
    let mut text = String::from(
        "# Accuracy of reconstructions\n\n\
         Written by `parity-trainer reproduce`; not to be edited by hand. A_a is the deployed model's accuracy on the test \
         set, A_d that of its reconstructions, over every erasure of every group of the test set; the loss is A_a - A_d. \
         Settings, weights and transforms were chosen on samples set aside from the training set. Intervals are 95 % \
         bootstrap intervals over groups.\n\n",
    );
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    text += &format!(
        "{} rows: {} missed, {} not run, {} met, {} without an aim.\n",
        rows.len(),
        count(Verdict::Missed),
        count(Verdict::NotRun),
        count(Verdict::Met),
        count(Verdict::Reported),
    );
    text += &misses(rows);
    text += "\n## The table\n\n\
        | row | data, deployed model | A_a | k | encoder, transform | network | A_d | loss | at most | | others |\n\
        |---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        text += &table_row(row);
    }
    let more: String = rows.iter().filter_map(several_missing).collect();
    if !more.is_empty() {
        text += "\n## Several queries of a group missing\n\n| row | missing | A_d | agreement | reconstructions |\n|---|---|---|---|---|\n";
        text += &more;
    }
    text += "\n## How each was made\n\n";
    text += &format!(
        "On {} ({} processors, of which {} used), parity-trainer {}, libtorch {}. `DATA`, `MODELS` and `OUT` are the folders \
         given to `reproduce`; every command takes `--threads {}` besides. The figures are those of the last command.\n",
        machine.processor,
        machine.processors,
        machine.threads,
        machine.version,
        machine.libtorch,
        machine.threads,
    );
    for row in rows.iter().filter(|row| row.record.is_some()) {
        text += &commands(row);
    }
    if !notes.is_empty() {
        text += "\n";
        text += notes;
    }
    text
}

/// What was not reached, first of all.
fn misses(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        let name = &row.recipe.name;
        match row.verdict() {
            Verdict::NotRun => {
                let why = row.why.unwrap_or("not begun yet");
                text += &format!("- **{name}** was not run: {why}.\n");
            }
            Verdict::Missed => {
                if let Some((accuracy, least)) = row.deployed_falls_short() {
                    text +=
                        &format!("- **{name}**: A_a is {accuracy:.2} %, at least {least:.1} % was wanted.\n");
                }
                let loss = row.record.and_then(|record| record.outcome.loss());
                if let (Some(loss), Some(bound)) = (loss, row.recipe.bound)
                    && loss > bound + ROUNDING
                {
                    text += &format!("- **{name}**: lost {loss:.2} points, at most {bound} were wanted.");
                    if !row.recipe.tried.is_empty() {
                        text += &format!(" Tried: {}", row.recipe.tried.trim());
                    }
                    text += "\n";
                }
            }
            Verdict::Met | Verdict::Reported => {}
        }
    }
    if text.is_empty() { text } else { format!("\n## Misses\n\n{text}") }
}

fn table_row(row: &Row<'_>) -> String {
    let recipe = row.recipe;
    let bound = recipe.bound.map_or_else(String::new, |bound| bound.to_string());
    let (name, title, verdict) = (&recipe.name, row.title(), row.verdict().name());
    let (k, encoder, network) = (
        row.setting("k", "2"),
        row.setting("encoder", "concat"),
        row.setting("network", "the deployed model's"),
    );
    let Some(record) = row.record else {
        return format!(
            "| {name} | {title} | | {k} | {encoder} | {network} | | | {bound} | {verdict} | {} |\n",
            recipe.reference
        );
    };
    let Outcome { transform, evaluation, .. } = &record.outcome;
    let exact = evaluation.accuracy_deployed.map_or_else(|| "no labels".to_owned(), percent);
    let one = evaluation.by_losses.first();
    let reconstructed = match one {
        Some(losses) => match losses.accuracy {
            Some(accuracy) => estimate(accuracy),
            None => format!("agreement {}", estimate(losses.agreement)),
        },
        None => String::new(),
    };
    let loss = record.outcome.loss().map_or_else(String::new, |loss| format!("{loss:.2}"));
    format!(
        "| {name} | {title} | {exact} | {k} | {encoder}, {} | {network} | {reconstructed} | {loss} | {bound} | {verdict} | {} |\n",
        transform.kind, recipe.reference
    )
}

fn several_missing(row: &Row<'_>) -> Option<String> {
    let losses = &row.record?.outcome.evaluation.by_losses;
    if losses.len() < 2 {
        return None;
    }
    let line = |losses: &super::record::Losses| {
        let accuracy = losses.accuracy.map_or_else(String::new, estimate);
        let (name, agreement) = (&row.recipe.name, estimate(losses.agreement));
        format!("| {name} | {} | {accuracy} | {agreement} | {} |\n", losses.missing, losses.reconstructions)
    };
    Some(losses.iter().map(line).collect())
}

fn commands(row: &Row<'_>) -> String {
    let Some(record) = row.record else { return String::new() };
    let mut text = format!("\n### {}\n\n", row.recipe.name);
    let one = record.outcome.evaluation.by_losses.first();
    let control = record.outcome.untrained_control.by_losses.first();
    let agreement = one.map_or_else(String::new, |losses| estimate(losses.agreement));
    text += &format!("Trained in {}, seed {}", spent(record.cost), row.setting("seed", "0"));
    if let Some(trained) = row.trained {
        text += &format!("; the deployed model in {}", spent(trained.cost));
    }
    text += &format!(
        ". Agreement with the deployed model {agreement}, over {} reconstructions",
        one.map_or(0, |losses| losses.reconstructions)
    );
    if let Some(control) = control {
        text +=
            &format!("; untrained control {}", percent(control.accuracy.unwrap_or(control.agreement).value));
    }
    text += ".\n\n";
    let trained = row.trained.map(|trained| &trained.command);
    for command in trained.into_iter().chain(&record.commands) {
        text += &format!("    {command}\n");
    }
    text
}

/// The same for programs.
pub(super) fn json(rows: &[Row<'_>], machine: &Machine) -> Value {
    let row = |row: &Row<'_>| {
        json!({
            "name": row.recipe.name,
            "title": row.title(),
            "verdict": row.verdict().name().trim_matches('*'),
            "bound": row.recipe.bound,
            "loss": row.record.and_then(|record| record.outcome.loss()),
            "why_not": row.why,
            "deployed": row.trained,
            "record": row.record,
        })
    };
    json!({ "machine": machine, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

fn spent(cost: Cost) -> String {
    match cost.processor_seconds {
        0.0 => format!("{:.0} s by the clock", cost.seconds),
        processor => format!("{processor:.0} s of processor time ({:.0} s by the clock)", cost.seconds),
    }
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

fn estimate(estimate: Estimate) -> String {
    match estimate.interval {
        Some((low, high)) => format!("{} [{:.2}, {:.2}]", percent(estimate.value), 100.0 * low, 100.0 * high),
        None => percent(estimate.value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Figures, Kind, Losses};
    use super::*;

    fn recipe(name: &str, bound: Option<f64>) -> RowRecipe {
        RowRecipe {
            name: name.to_owned(),
            deployed: "digits".to_owned(),
            bound,
            minutes: 1.0,
            reference: "others 90".to_owned(),
            tried: "more steps.".to_owned(),
            start: None,
            optional: false,
            train: "k = 2\nnetwork = \"lenet\"\nseed = 7".parse().unwrap(),
            unsupported: None,
            left_out: false,
        }
    }

    fn record(deployed: Option<f64>, reconstructed: &[f64]) -> RowRecord {
        let part = |value| Estimate { value, interval: Some((value - 0.01, value + 0.01)) };
        let losses = reconstructed.iter().enumerate().map(|(at, &value)| Losses {
            missing: at + 1,
            accuracy: deployed.map(|_| part(value)),
            agreement: part(value),
            reconstructions: 100,
        });
        let figures = Figures { accuracy_deployed: deployed, by_losses: losses.collect() };
        let transform = Kind { kind: "raw".to_owned() };
        RowRecord {
            digest: String::new(),
            commands: vec!["parity-trainer train".to_owned(), "parity-trainer eval".to_owned()],
            cost: Cost { seconds: 61.0, processor_seconds: 60.0 },
            outcome: Outcome {
                code: "concat-k2-r1".to_owned(),
                transform,
                evaluation: figures.clone(),
                untrained_control: figures,
            },
        }
    }

    fn machine() -> Machine {
        Machine {
            processor: "a processor".to_owned(),
            processors: 2,
            threads: 1,
            version: "1",
            libtorch: "2",
        }
    }

    #[test]
    fn misses_are_told_first_and_nothing_is_hidden() {
        let deployed = DeployedRecipe {
            title: "digits, own net".to_owned(),
            data: "digits".to_owned(),
            lines: false,
            file: None,
            least: Some(95.0),
            minutes: 1.0,
            train: toml::Table::new(),
        };
        let recipes = ["met", "even", "missed", "weak", "agreement", "not-run"]
            .map(|name| recipe(name, (name != "agreement").then_some(2.5)));
        let records = [
            record(Some(0.96), &[0.94]),
            // 2.5 points but for the last bit.
            record(Some(0.9605), &[0.9355, 0.8]),
            record(Some(0.96), &[0.9349]),
            record(Some(0.94), &[0.94]),
            record(None, &[0.9]),
        ];
        let rows: Vec<Row<'_>> = recipes
            .iter()
            .enumerate()
            .map(|(at, recipe)| Row {
                recipe,
                deployed: Some(&deployed),
                record: records.get(at),
                trained: None,
                why: records.get(at).is_none().then_some("DATA/digits is missing"),
            })
            .collect();
        let text = markdown(&rows, &machine(), "## Notes\n");
        assert!(text.contains("6 rows: 2 missed, 1 not run, 2 met, 1 without an aim."), "{text}");
        let misses = text.split("## The table").next().unwrap();
        assert!(
            misses.contains("- **missed**: lost 2.51 points, at most 2.5 were wanted. Tried: more steps."),
            "{misses}"
        );
        assert!(misses.contains("- **weak**: A_a is 94.00 %, at least 95.0 % was wanted."), "{misses}");
        assert!(misses.contains("- **not-run** was not run: DATA/digits is missing."), "{misses}");
        assert!(!misses.contains("**met**") && !misses.contains("**even**"), "{misses}");
        let line = "| met | digits, own net | 96.00 % | 2 | concat, raw | lenet | 94.00 % [93.00, 95.00] | 2.00 | 2.5 | met | others 90 |";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("| no labels | 2 | concat, raw | lenet | agreement 90.00 % [89.00, 91.00] |"),
            "{text}"
        );
        assert!(text.contains("| even | 2 | 80.00 % [79.00, 81.00] |"), "{text}");
        assert!(text.contains("seed 7") && text.ends_with("## Notes\n"), "{text}");
        let cells = |line: &str| line.matches(" |").count();
        let table: Vec<&str> = text.lines().filter(|line| line.contains("own net")).collect();
        assert!(table.len() == 6 && table.iter().all(|line| cells(line) == 11), "{table:?}");
        let json = json(&rows, &machine());
        assert_eq!(json["rows"][2]["verdict"], "missed");
        assert_eq!(json["rows"][5]["why_not"], "DATA/digits is missing");
    }
}
