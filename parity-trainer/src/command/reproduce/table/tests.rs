//! The table of made-up records.

use parapet_encoder::OutputTransform;

use super::super::record::{Figures, Outcome};
use super::*;

fn recipe(name: &str, bound: Option<f64>) -> RowRecipe {
    let text = format!(
        "name = '{name}'\ndeployed = 'digits'\nminutes = 1\nseeds = 3\nreference = 'others 90'\n\
         tried = 'more steps.'\ntrain = {{ k = 2, network = 'lenet', seed = 7 }}"
    );
    let mut recipe: RowRecipe = toml::from_str(&text).unwrap();
    recipe.bound = bound;
    recipe
}

fn deployed() -> DeployedRecipe {
    toml::from_str("title = 'digits, own net'\ndata = 'digits'\nleast = 95.0").unwrap()
}

/// A training of a deployed model of this A_a, and this A_d.
fn record(deployed: Option<f64>, reconstructed: f64) -> Record {
    let part = |value| Estimate {
        value,
        interval: Some((value - 0.01, value + 0.01)),
    };
    let losses = ByLosses {
        missing: 1,
        accuracy: deployed.map(|_| part(reconstructed)),
        loss: deployed.map(|deployed| part(deployed - reconstructed)),
        agreement: part(reconstructed),
        reconstructions: 100,
    };
    let figures = Figures {
        accuracy_deployed: deployed,
        by_losses: vec![losses],
    };
    Record {
        digest: String::new(),
        commands: Vec::new(),
        cost: Cost {
            seconds: 61.0,
            processor_seconds: 60.0,
            at_least: false,
        },
        outcome: Outcome {
            code: "concat-k2-r1".to_owned(),
            transform: OutputTransform::Raw,
            evaluation: figures.clone(),
            untrained_control: figures,
        },
    }
}

fn of_records<'a>(
    recipe: &'a RowRecipe,
    deployed: &'a DeployedRecipe,
    records: Vec<Option<Record>>,
) -> Row<'a> {
    let missing = "DATA/digits is missing";
    let run = |(seed, record): (i64, Option<Record>)| Run {
        seed,
        why_not: record.is_none().then(|| missing.to_owned()),
        record,
    };
    Row {
        recipe,
        deployed,
        runs: (7..).zip(records).map(run).collect(),
        trained: None,
    }
}

/// A row whose seeds reached these A_d, of an A_a of 0.96; `None` for a seed that was not run.
fn row<'a>(recipe: &'a RowRecipe, deployed: &'a DeployedRecipe, seeds: &[Option<f64>]) -> Row<'a> {
    let records = seeds.iter().map(|a_d| Some(record(Some(0.96), (*a_d)?)));
    of_records(recipe, deployed, records.collect())
}

fn told(rows: &[Row<'_>]) -> String {
    markdown(rows, "a machine", "## Notes\n")
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn misses_are_told_first_and_nothing_is_hidden() {
    let deployed = deployed();
    let recipes = ["met", "even", "missed", "weak", "agreement", "not-run"]
        .map(|name| recipe(name, (name != "agreement").then_some(2.5)));
    let records = [
        Some(record(Some(0.96), 0.94)),
        // 2.5 points but for the last bit.
        Some(record(Some(0.9605), 0.9355)),
        Some(record(Some(0.96), 0.9349)),
        Some(record(Some(0.94), 0.94)),
        Some(record(None, 0.9)),
        None,
    ];
    let rows: Vec<Row<'_>> = std::iter::zip(&recipes, records)
        .map(|(recipe, record)| of_records(recipe, &deployed, vec![record; 3]))
        .collect();
    let text = told(&rows);
    let (misses, table) = text.split_once("## The table").unwrap();
    assert_has(
        misses,
        &[
            "6 rows: 2 missed, 1 not run, 2 met, 0 of too few seeds to be judged, 1 without an \
             aim.",
            "- **missed**: lost 2.51 points on average of 3 seeds, at most 2.5 were wanted. Tried: \
             more steps.",
            "- **weak**: A_a is 94.00 %, at least 95.0 % was wanted.",
            "- **not-run** was not run: DATA/digits is missing.",
        ],
    );
    assert!(
        !misses.contains("**met**") && !misses.contains("**even**"),
        "{misses}"
    );
    assert_has(
        table,
        &[
            "| met | digits, own net | 96.00 % | 2 | concat, raw | lenet | 94.00 % | 2.00 | 2.00 \
             [1.00, 3.00]; 2.00 [1.00, 3.00]; 2.00 [1.00, 3.00] | 2.5 | met |  | others 90 |",
            "| no labels | 2 | concat, raw | lenet | agreement 90.00 % |",
            "| 2.5 | **missed** |",
            "| met | 60 (61); 60 (61); 60 (61) |  | 94.00 % [93.00, 95.00]; 94.00 % [93.00, \
             95.00]; 94.00 % [93.00, 95.00] | 100 | 94.00 % |",
            "`rows/ROW.json` has the commands",
        ],
    );
    assert!(text.ends_with("## Notes\n"), "{text}");
    let lines: Vec<&str> = table
        .lines()
        .filter(|line| line.contains("own net"))
        .collect();
    let is_whole = |line: &&str| line.matches(" |").count() == 13;
    assert!(lines.len() == 6 && lines.iter().all(is_whole), "{lines:?}");
    assert_eq!(rows[2].verdict(), Verdict::Missed);
}

#[test]
fn cost_whose_count_was_lost_says_so() {
    let (deployed, recipe) = (deployed(), recipe("row", Some(2.5)));
    let mut cut_off = record(Some(0.96), 0.94);
    cut_off.cost.at_least = true;
    let records = vec![Some(record(Some(0.96), 0.94)), Some(cut_off)];
    let text = told(&[of_records(&recipe, &deployed, records)]);
    assert_has(&text, &["| row | 60 (61); at least 60 (61) |"]);
}

#[test]
fn row_is_judged_by_the_mean_of_three_seeds_and_few_can_only_miss() {
    let (one, two, three) = (Some(0.95), Some(0.94), Some(0.93));
    for (bound, seeds, verdict) in [
        // Losses of 1, 2 and 3 points.
        (2.0, &[one, two, three][..], Verdict::Met),
        (1.9, &[one, two, three], Verdict::Missed),
        (0.5, &[one], Verdict::Missed),
        (2.0, &[one], Verdict::NotJudged(1)),
        (2.0, &[one, one, None], Verdict::NotJudged(2)),
        // Three of five may be the best three.
        (2.0, &[one, one, one, None, None], Verdict::NotJudged(3)),
        (2.0, &[None], Verdict::NotRun),
    ] {
        let (recipe, deployed) = (recipe("row", Some(bound)), deployed());
        assert_eq!(
            row(&recipe, &deployed, seeds).verdict(),
            verdict,
            "{bound} {seeds:?}"
        );
    }
    assert_eq!(Verdict::NotJudged(1).name(), "one seed: not judged");
    assert_eq!(Verdict::NotJudged(2).name(), "2 seeds: not judged");
}

#[test]
fn seed_that_was_not_run_is_told_among_the_misses() {
    let (recipe, deployed) = (recipe("row", Some(2.0)), deployed());
    let text = told(&[row(&recipe, &deployed, &[Some(0.95), None, Some(0.95)])]);
    assert_has(
        &text,
        &[
            "- **row**, seed 8, was not run: DATA/digits is missing.",
            "| 1.00 | 1.00 [0.00, 2.00]; 1.00 [0.00, 2.00] | 2 | 2 seeds: not judged |",
        ],
    );
}

#[test]
fn settings_chosen_on_the_test_set_are_marked_and_the_header_says_so() {
    let (mut recipe, mut deployed) = (recipe("row", None), deployed());
    let told = |recipe: &_, deployed: &_| told(&[row(recipe, deployed, &[Some(0.95)])]);
    let clean = told(&recipe, &deployed);
    assert_has(
        &clean,
        &["chosen on samples set aside from the training set.\n"],
    );
    recipe.chosen_on_test = "network".to_owned();
    let header = "set aside from the training set, except what the column";
    let own = told(&recipe, &deployed);
    assert_has(&own, &[header, "| reported | network | others 90 |"]);
    deployed.chosen_on_test = "epochs".to_owned();
    assert_has(
        &told(&recipe, &deployed),
        &["| network; the deployed model's epochs |"],
    );
}
