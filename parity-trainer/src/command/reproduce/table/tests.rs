//! The table of made-up records.

use super::super::recipe::{DeployedRecipe, RowRecipe};
use super::super::record::{Figures, Kind, RowOutcome};
use super::*;

fn recipe(name: &str, bound: Option<f64>) -> RowRecipe {
    RowRecipe {
        name: name.to_owned(),
        deployed: "digits".to_owned(),
        bound,
        minutes: 1.0,
        seeds: 3,
        chosen_on_test: String::new(),
        reference: "others 90".to_owned(),
        tried: "more steps.".to_owned(),
        start: None,
        optional: false,
        train: "k = 2\nnetwork = \"lenet\"\nseed = 7".parse().unwrap(),
        unsupported: None,
        left_out: false,
    }
}

fn deployed() -> DeployedRecipe {
    DeployedRecipe {
        title: "digits, own net".to_owned(),
        data: "digits".to_owned(),
        lines: false,
        file: None,
        least: Some(95.0),
        chosen_on_test: String::new(),
        minutes: 1.0,
        train: toml::Table::new(),
    }
}

fn record(deployed: Option<f64>, reconstructed: &[f64]) -> RowRecord {
    let part = |value| Estimate {
        value,
        interval: Some((value - 0.01, value + 0.01)),
    };
    let losses = reconstructed.iter().enumerate().map(|(at, &value)| Losses {
        missing: at + 1,
        accuracy: deployed.map(|_| part(value)),
        loss: deployed.map(|deployed| part(deployed - value)),
        agreement: part(value),
        reconstructions: 100,
    });
    let figures = Figures {
        accuracy_deployed: deployed,
        by_losses: losses.collect(),
    };
    let transform = Kind {
        kind: "raw".to_owned(),
    };
    RowRecord {
        digest: String::new(),
        commands: vec![
            "parity-trainer train".to_owned(),
            "parity-trainer eval".to_owned(),
        ],
        cost: Cost {
            seconds: 61.0,
            processor_seconds: 60.0,
            at_least: false,
        },
        outcome: RowOutcome {
            code: "concat-k2-r1".to_owned(),
            transform,
            evaluation: figures.clone(),
            untrained_control: figures,
        },
    }
}

/// A row whose seeds reached these A_d, of an A_a of 0.96; `None` for a seed that was not run.
fn row<'a>(recipe: &'a RowRecipe, deployed: &'a DeployedRecipe, seeds: &[Option<f64>]) -> Row<'a> {
    let records = seeds
        .iter()
        .map(|a_d| a_d.map(|a_d| record(Some(0.96), &[a_d])));
    of_records(recipe, deployed, records.collect())
}

fn of_records<'a>(
    recipe: &'a RowRecipe,
    deployed: &'a DeployedRecipe,
    records: Vec<Option<RowRecord>>,
) -> Row<'a> {
    let run = |(seed, record): (i64, Option<RowRecord>)| Run {
        name: recipe.name.clone(),
        seed,
        why: record
            .is_none()
            .then(|| "DATA/digits is missing".to_owned()),
        record,
    };
    Row {
        recipe,
        deployed: Some(deployed),
        runs: (7..).zip(records).map(run).collect(),
        trained: None,
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
    let deployed = deployed();
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
        .map(|(at, recipe)| of_records(recipe, &deployed, vec![records.get(at).cloned(); 3]))
        .collect();
    let text = markdown(&rows, &machine(), "## Notes\n");
    let counted =
        "6 rows: 2 missed, 1 not run, 2 met, 0 of too few seeds to be judged, 1 without an aim.";
    assert!(text.contains(counted), "{text}");
    let misses = text.split("## The table").next().unwrap();
    let lost = "- **missed**: lost 2.51 points on average of 3 seeds, at most 2.5 were wanted. \
                Tried: more steps.";
    assert!(misses.contains(lost), "{misses}");
    assert!(
        misses.contains("- **weak**: A_a is 94.00 %, at least 95.0 % was wanted."),
        "{misses}"
    );
    assert!(
        misses.contains("- **not-run** was not run: DATA/digits is missing."),
        "{misses}"
    );
    assert!(
        !misses.contains("**met**") && !misses.contains("**even**"),
        "{misses}"
    );
    let line = "| met | digits, own net | 96.00 % | 2 | concat, raw | lenet | 94.00 % | 2.00 | \
                2.00 [1.00, 3.00]; 2.00 [1.00, 3.00]; 2.00 [1.00, 3.00] | 2.5 | met |  | others \
                90 |";
    assert!(text.contains(line), "{text}");
    assert!(
        text.contains("| no labels | 2 | concat, raw | lenet | agreement 90.00 % |"),
        "{text}"
    );
    assert!(
        text.contains("| even | 2 | 80.00 % [79.00, 81.00] | 16.05 |"),
        "{text}"
    );
    let each = "| met | 60 (61); 60 (61); 60 (61) |  | 94.00 % [93.00, 95.00]; \
                94.00 % [93.00, 95.00]; 94.00 % [93.00, 95.00] | 100 | 94.00 % |";
    assert!(text.contains(each), "{text}");
    assert!(text.contains("`rows/ROW.json` has the commands"), "{text}");
    assert!(text.ends_with("## Notes\n"), "{text}");
    let cells = |line: &str| line.matches(" |").count();
    let table: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("own net"))
        .collect();
    assert!(
        table.len() == 6 && table.iter().all(|line| cells(line) == 13),
        "{table:?}"
    );
    let json = json(&rows, &machine());
    assert_eq!(json["rows"][2]["verdict"], "missed");
    assert_eq!(
        json["rows"][5]["seeds"][0]["why_not"],
        "DATA/digits is missing"
    );
}

#[test]
fn a_cost_whose_count_was_lost_says_so() {
    let (deployed, recipe) = (deployed(), recipe("row", Some(2.5)));
    let mut cut_off = record(Some(0.96), &[0.94]);
    cut_off.cost.at_least = true;
    let rows = [of_records(
        &recipe,
        &deployed,
        vec![Some(record(Some(0.96), &[0.94])), Some(cut_off)],
    )];
    let text = markdown(&rows, &machine(), "");
    assert!(
        text.contains("| row | 60 (61); at least 60 (61) |"),
        "{text}"
    );
}

fn verdict(bound: f64, seeds: &[Option<f64>]) -> Verdict {
    row(&recipe("row", Some(bound)), &deployed(), seeds).verdict()
}

#[test]
fn a_row_is_judged_by_the_mean_of_three_seeds() {
    // Losses of 1, 2 and 3 points.
    let seeds = [Some(0.95), Some(0.94), Some(0.93)];
    assert_eq!(verdict(2.0, &seeds), Verdict::Met);
    assert_eq!(verdict(1.9, &seeds), Verdict::Missed);
}

#[test]
fn one_seed_within_the_bound_is_not_judged() {
    assert_eq!(verdict(2.0, &[Some(0.95)]), Verdict::NotJudged(1));
    assert_eq!(
        verdict(2.0, &[Some(0.95), Some(0.95), None]),
        Verdict::NotJudged(2)
    );
    assert_eq!(Verdict::NotJudged(1).name(), "one seed: not judged");
    assert_eq!(Verdict::NotJudged(2).name(), "2 seeds: not judged");
    // Three of five may be the best three.
    let some = [Some(0.95), Some(0.95), Some(0.95), None, None];
    assert_eq!(verdict(2.0, &some), Verdict::NotJudged(3));
}

#[test]
fn one_seed_beyond_the_bound_is_a_miss() {
    assert_eq!(verdict(0.5, &[Some(0.95)]), Verdict::Missed);
}

#[test]
fn a_seed_that_was_not_run_is_told_among_the_misses() {
    let (recipe, deployed) = (recipe("row", Some(2.0)), deployed());
    let row = row(&recipe, &deployed, &[Some(0.95), None, Some(0.95)]);
    let text = markdown(&[row], &machine(), "");
    assert!(
        text.contains("- **row**, seed 8, was not run: DATA/digits is missing."),
        "{text}"
    );
    assert!(
        text.contains("| 1.00 | 1.00 [0.00, 2.00]; 1.00 [0.00, 2.00] | 2 | 2 seeds: not judged |")
    );
}

#[test]
fn settings_chosen_on_the_test_set_are_marked_and_the_header_says_so() {
    let (mut recipe, mut deployed) = (recipe("row", None), deployed());
    let told = |recipe: &RowRecipe, deployed: &DeployedRecipe| {
        markdown(&[row(recipe, deployed, &[Some(0.95)])], &machine(), "")
    };
    let clean = told(&recipe, &deployed);
    assert!(
        clean.contains("chosen on samples set aside from the training set.\n"),
        "{clean}"
    );
    recipe.chosen_on_test = "network".to_owned();
    let own = told(&recipe, &deployed);
    assert!(
        own.contains("set aside from the training set, except what the column"),
        "{own}"
    );
    assert!(own.contains("| reported | network | others 90 |"), "{own}");
    deployed.chosen_on_test = "epochs".to_owned();
    let both = told(&recipe, &deployed);
    assert!(
        both.contains("| network; the deployed model's epochs |"),
        "{both}"
    );
}

#[test]
fn records_of_before_the_paired_interval_are_told_without_it() {
    let (recipe, deployed) = (recipe("row", Some(2.0)), deployed());
    let mut old = record(Some(0.96), &[0.95]);
    old.outcome.evaluation.by_losses[0].loss = None;
    assert!(!old.outcome.is_complete() && record(None, &[0.95]).outcome.is_complete());
    let text = markdown(
        &[of_records(&recipe, &deployed, vec![Some(old)])],
        &machine(),
        "",
    );
    assert!(
        text.contains("| 95.00 % [94.00, 96.00] | 1.00 | 1.00 | 2 | one seed: not judged |"),
        "{text}"
    );
}
