//! RESULTS.md and results.json from recipes and records. Pure.

use serde_json::{Value, json};

use super::record::{Cost, Estimate, Losses, Machine, RowRecord};
use super::verdict::{ROUNDING, Row, Run, Verdict, mean};

/// The table's file, in `--out`.
pub(super) const RESULTS: &str = "RESULTS.md";

/// Introduction of the file: what the figures are.
const INTRODUCTION: &str = "\
# Accuracy of reconstructions

Written by `parity-trainer reproduce`; not to be edited by hand. A_a is the deployed model's
accuracy on the test set, A_d that of its reconstructions, over every erasure of every group of the
test set. The loss is A_a - A_d over the same queries, in points. A row's parity model is trained
once for each seed, the deployed model once. A row is met if the mean of its seeds' losses is within
the bound and there are three seeds or more. Brackets hold 95 % bootstrap intervals over the groups
of the test set, for losses paired. The chance in the training shows in how the seeds differ.
";

/// Origin of the settings.
const CHOSEN: &str = "Settings, weights and transforms were chosen on samples set aside from the \
    training set";
/// The same of a table with marked rows.
const MARKED: &str = ", except what the column
\"chosen on the test set\" names: that was chosen, or changed, after a figure of the very test set
that the row is judged by, so its figures may be too good";

/// The whole file; `notes` is added as it is.
pub(super) fn markdown(rows: &[Row<'_>], machine: &Machine, notes: &str) -> String {
    let marked = rows.iter().any(|row| row.chosen_on_test().is_some());
    let mut text = format!(
        "{INTRODUCTION}{CHOSEN}{}.\n\n",
        if marked { MARKED } else { "" }
    );
    text += &counts(rows);
    text += &misses(rows);
    text += "\n## The table\n\n\
        | row | data, deployed model | A_a | k | encoder, transform | network | A_d | loss, mean \
        of seeds | each seed's [paired 95 %] | at most | | chosen on the test set | others |\n\
        |---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        text += &table_row(row);
    }
    let more: String = rows
        .iter()
        .flat_map(Row::finished)
        .filter_map(several_missing)
        .collect();
    if !more.is_empty() {
        text += "\n## Several queries of a group missing\n\n\
            | row | missing | A_d | loss | agreement | reconstructions \
            |\n|---|---|---|---|---|---|\n";
        text += &more;
    }
    text += "\n## How each was made\n\n";
    text += &format!(
        "On {} ({} processors, of which {} used), parity-trainer {}, libtorch {}. Times are \
            processor seconds, and seconds by the clock; figures stand in the order of the seeds.\n\n\
        | row | training | deployed model | agreement | reconstructions | untrained control |\n\
        |---|---|---|---|---|---|\n",
        machine.processor, machine.processors, machine.threads, machine.version, machine.libtorch,
    );
    text += &rows.iter().filter_map(made).collect::<String>();
    text += "\n`parity-trainer reproduce --only ROW` makes a row again; in `--out`, `rows/ROW.json` has the \
        commands\nof each training and `results.json` all figures.\n";
    if !notes.is_empty() {
        text += "\n";
        text += notes;
    }
    text
}

/// Numbers of rows by verdict.
fn counts(rows: &[Row<'_>]) -> String {
    let count = |of: fn(&Verdict) -> bool| rows.iter().filter(|row| of(&row.verdict())).count();
    format!(
        "{} rows: {} missed, {} not run, {} met, {} of too few seeds to be judged, {} without an \
            aim.\n",
        rows.len(),
        count(|verdict| *verdict == Verdict::Missed),
        count(|verdict| *verdict == Verdict::NotRun),
        count(|verdict| *verdict == Verdict::Met),
        count(|verdict| matches!(verdict, Verdict::NotJudged(_))),
        count(|verdict| *verdict == Verdict::Reported),
    )
}

/// Section of what was not reached.
fn misses(rows: &[Row<'_>]) -> String {
    let text: String = rows.iter().map(missed).collect();
    if text.is_empty() {
        text
    } else {
        format!("\n## Misses\n\n{text}")
    }
}

fn missed(row: &Row<'_>) -> String {
    let name = &row.recipe.name;
    let verdict = row.verdict();
    let mut text = String::new();
    if verdict == Verdict::NotRun {
        let why = row
            .runs
            .iter()
            .find_map(|run| run.why.as_deref())
            .unwrap_or("not begun yet");
        return format!("- **{name}** was not run: {why}.\n");
    }
    for run in row.runs.iter().filter(|run| run.record.is_none()) {
        let why = run.why.as_deref().unwrap_or("not begun yet");
        text += &format!("- **{name}**, seed {}, was not run: {why}.\n", run.seed);
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
        text +=
            &format!("- **{name}**: lost {loss:.2} points{seeds}, at most {bound} were wanted.");
        if !row.recipe.tried.is_empty() {
            text += &format!(" Tried: {}", row.recipe.tried.trim());
        }
        text += "\n";
    }
    text
}

fn table_row(row: &Row<'_>) -> String {
    let recipe = row.recipe;
    let (mut exact, mut reconstructed) = (String::new(), String::new());
    if let Some(first) = row.records().next() {
        let accuracy = first.outcome.evaluation.accuracy_deployed;
        exact = accuracy.map_or_else(|| "no labels".to_owned(), percent);
        reconstructed = row_accuracy(row);
    }
    let mut transforms: Vec<&str> = row
        .records()
        .map(|record| record.outcome.transform.kind.as_str())
        .collect();
    transforms.dedup();
    let encoder = setting(row, "encoder", "concat");
    let coded = match transforms.is_empty() {
        true => encoder,
        false => format!("{encoder}, {}", transforms.join(" or ")),
    };
    let each: Vec<String> = row.records().filter_map(seed_loss).collect();
    let cells = [
        recipe.name.clone(),
        title(row).to_owned(),
        exact,
        setting(row, "k", "2"),
        coded,
        setting(row, "network", "the deployed model's"),
        reconstructed,
        row.loss().map_or_else(String::new, points),
        each.join("; "),
        recipe
            .bound
            .map_or_else(String::new, |bound| bound.to_string()),
        row.verdict().name(),
        row.chosen_on_test().unwrap_or_default(),
        recipe.reference.clone(),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// A_d with its interval; of several seeds their mean. The agreement where there are no labels.
fn row_accuracy(row: &Row<'_>) -> String {
    let ones: Vec<&Losses> = row
        .records()
        .filter_map(|record| record.outcome.evaluation.by_losses.first())
        .collect();
    let told = |of: fn(&Losses) -> Option<Estimate>| match ones.as_slice() {
        [only] => of(only).map(estimate),
        several => mean(several.iter().map(|one| Some(of(one)?.value))).map(percent),
    };
    let agreement =
        || told(|one| Some(one.agreement)).map(|agreement| format!("agreement {agreement}"));
    told(|one| one.accuracy)
        .or_else(agreement)
        .unwrap_or_default()
}

fn seed_loss(record: &RowRecord) -> Option<String> {
    let loss = points(record.outcome.loss()?);
    Some(match record.outcome.loss_interval() {
        Some((low, high)) => format!("{loss} [{}, {}]", points(low), points(high)),
        None => loss,
    })
}

fn several_missing((run, record): (&Run, &RowRecord)) -> Option<String> {
    let losses = &record.outcome.evaluation.by_losses;
    if losses.len() < 2 {
        return None;
    }
    let line = |losses: &Losses| {
        let accuracy = losses.accuracy.map_or_else(String::new, estimate);
        let loss = losses
            .loss
            .map_or_else(String::new, |loss| points(100.0 * loss.value));
        let (name, agreement) = (&run.name, estimate(losses.agreement));
        let (missing, made) = (losses.missing, losses.reconstructions);
        format!("| {name} | {missing} | {accuracy} | {loss} | {agreement} | {made} |\n")
    };
    Some(losses.iter().map(line).collect())
}

/// Time and agreement of a row's finished trainings.
fn made(row: &Row<'_>) -> Option<String> {
    let all = |of: &dyn Fn(&RowRecord) -> Option<String>| {
        let each: Vec<String> = row.records().filter_map(of).collect();
        each.join("; ")
    };
    let first = row.records().next()?;
    let controls = first.outcome.untrained_control.by_losses.first();
    let cells = [
        row.recipe.name.clone(),
        all(&|record| Some(spent(record.cost))),
        row.trained
            .as_ref()
            .map(|trained| spent(trained.cost))
            .unwrap_or_default(),
        all(&|record| {
            Some(estimate(
                record.outcome.evaluation.by_losses.first()?.agreement,
            ))
        }),
        first
            .outcome
            .evaluation
            .by_losses
            .first()
            .map(|one| one.reconstructions.to_string())
            .unwrap_or_default(),
        controls
            .map(|one| percent(one.accuracy.unwrap_or(one.agreement).value))
            .unwrap_or_default(),
    ];
    Some(format!("| {} |\n", cells.join(" | ")))
}

/// The same for programs.
pub(super) fn json(rows: &[Row<'_>], machine: &Machine) -> Value {
    let run = |run: &Run| {
        json!({
            "name": run.name,
            "seed": run.seed,
            "loss": run.record.as_ref().and_then(|record| record.outcome.loss()),
            "loss_interval": run.record.as_ref().and_then(|record| record.outcome.loss_interval()),
            "why_not": run.why,
            "record": run.record,
        })
    };
    let row = |row: &Row<'_>| {
        json!({
            "name": row.recipe.name,
            "title": title(row),
            "verdict": row.verdict().name().trim_matches('*'),
            "bound": row.recipe.bound,
            "loss": row.loss(),
            "chosen_on_test": row.chosen_on_test(),
            "deployed": row.trained,
            "seeds": row.runs.iter().map(run).collect::<Vec<_>>(),
        })
    };
    json!({ "machine": machine, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

fn setting(row: &Row<'_>, name: &str, default: &str) -> String {
    match row.recipe.train.get(name) {
        None => default.to_owned(),
        Some(toml::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn title<'a>(row: &'a Row<'_>) -> &'a str {
    row.deployed
        .map_or(row.recipe.deployed.as_str(), |deployed| {
            deployed.title.as_str()
        })
}

/// Processor seconds, and seconds by the clock.
fn spent(cost: Cost) -> String {
    let bound = if cost.at_least { "at least " } else { "" };
    format!("{bound}{:.0} ({:.0})", cost.processor_seconds, cost.seconds)
}

fn points(points: f64) -> String {
    format!("{points:.2}")
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

fn estimate(estimate: Estimate) -> String {
    match estimate.interval {
        Some((low, high)) => format!(
            "{} [{:.2}, {:.2}]",
            percent(estimate.value),
            100.0 * low,
            100.0 * high
        ),
        None => percent(estimate.value),
    }
}

#[cfg(test)]
mod tests;
