//! `reproduce` from end to end: rows are run once, what is missing is told, and RESULTS.md says it
//! all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod interrupted;

use std::fs;

use common::{Workplace, assert_has, write_quarters};

const RECIPES: &str = r#"
notes = "Notes: four quarters.\n"

[deployed.quarters]
title = "quarters, own MLP"
data = "quarters"
least = 90.0
minutes = 1
train = { network = "mlp:256,32", epochs = 8, augment = "none", seed = 5 }

[deployed.elsewhere]
title = "a file that is not there"
data = "quarters"
file = "elsewhere.onnx"

[[row]]
name = "tiny"
deployed = "quarters"
bound = 50
minutes = 1
reference = "nobody yet"

[row.train]
k = 2
encoder = "sum"
network = "mlp:256,64"
steps = 200
augment = "none"
transform = "raw"
seed = 5

[[row]]
name = "strict"
deployed = "quarters"
bound = -100
minutes = 1
tried = "nothing can meet this."
start = "tiny"

[row.train]
k = 2
encoder = "sum"
network = "mlp:256,64"
steps = 4
augment = "none"
transform = "raw"

[[row]]
name = "no-model"
deployed = "elsewhere"
minutes = 1
train = { k = 2 }
"#;

fn line(rest: &str) -> String {
    format!("reproduce --data data --models files --out out {rest}")
}

/// Writes the recipes, with some parts replaced by others.
fn recipes(workplace: &Workplace, changes: &[(&str, &str)]) {
    let mut text = RECIPES.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    fs::write(workplace.at("recipes.toml"), text).unwrap();
}

fn prepared(changes: &[(&str, &str)]) -> Workplace {
    let workplace = Workplace::empty();
    for name in ["data/quarters", "files"] {
        fs::create_dir_all(workplace.at(name)).unwrap();
    }
    write_quarters(&workplace.at("data/quarters"), 400, 100);
    recipes(&workplace, changes);
    workplace
}

#[test]
fn rows_are_run_once_and_told() {
    let seeds = ("bound = 50\n", "bound = 50\nseeds = 3\n");
    let workplace = prepared(&[seeds]);
    let all = line("--recipes recipes.toml");
    workplace.succeed(&all);
    let results = workplace.read("out/RESULTS.md");
    assert_has(
        &results,
        &[
            "3 rows: 1 missed, 1 not run, 1 met",
            "- **strict**: lost",
            "Tried: nothing can meet this.",
            "- **no-model** was not run: MODELS/elsewhere.onnx is missing.",
            "\nNotes: four quarters.\n",
        ],
    );
    let strict = workplace.json("out/rows/strict.json");
    let command = strict["commands"][0].as_str().unwrap();
    let begin = "parity-trainer train --model OUT/models/quarters --data DATA/quarters";
    assert_has(command, &[begin, "--start OUT/models/tiny"]);
    for (at, name) in ["tiny", "tiny-seed2", "tiny-seed3"].into_iter().enumerate() {
        let record = workplace.json(&format!("out/rows/{name}.json"));
        let command = record["commands"][0].as_str().unwrap();
        assert_has(
            command,
            &[&format!("--seed {} ", 5 + at), &format!("--name {name}")],
        );
        // A_d over every erasure of every group of the test set.
        let figures = &record["outcome"]["evaluation"]["by_losses"][0];
        assert_eq!(figures["reconstructions"], 100);
        assert!(figures["loss"]["interval"].is_array(), "{figures}");
    }

    let model = || {
        let file = fs::metadata(workplace.at("out/models/tiny/1/model.onnx"));
        file.unwrap().modified().unwrap()
    };
    let before = model();
    assert_has(&workplace.succeed(&all).errors, &["tiny: done before"]);
    assert_eq!(model(), before);
    assert_eq!(workplace.read("out/RESULTS.md"), results);

    // Rows that are not asked for keep their place in the table.
    workplace.succeed(&line("--recipes recipes.toml --only no-model"));
    assert_has(&workplace.read("out/RESULTS.md"), &["- **strict**: lost"]);

    // Another recipe is another row; the deployed model stays.
    recipes(&workplace, &[seeds, ("steps = 200", "steps = 3")]);
    let changed = workplace.run(&line("--recipes recipes.toml --only tiny"));
    for part in ["done before", "train-deployed"] {
        assert!(!changed.errors.contains(part), "{}", changed.errors);
    }
    assert!(model() != before);
    // It began with the old tiny.
    let not_asked = "- **strict** was not run: not asked for.";
    assert_has(&workplace.read("out/RESULTS.md"), &[not_asked]);
}

#[test]
fn deployed_model_that_a_row_begins_with_is_trained_first() {
    let start = ("start = \"tiny\"", "start = \"quarters\"");
    let network = ("\"mlp:256,64\"\nsteps = 4", "\"mlp:256,32\"\nsteps = 4");
    let workplace = prepared(&[start, network]);
    workplace.succeed(&line("--recipes recipes.toml --only strict"));
    assert_has(&workplace.read("out/RESULTS.md"), &["- **strict**: lost"]);
    let record = workplace.read("out/rows/strict.json");
    assert_has(&record, &["--start OUT/models/quarters"]);
}

#[test]
fn missing_data_set_leaves_its_rows_out() {
    let workplace = prepared(&[]);
    fs::remove_dir_all(workplace.at("data/quarters")).unwrap();
    let tiny = "- **tiny** was not run: DATA/quarters is missing.";
    let strict = "- **strict** was not run: not asked for.";
    workplace.succeed(&line("--recipes recipes.toml --only tiny"));
    assert_has(&workplace.read("out/RESULTS.md"), &[tiny, strict]);
    // The published table as well.
    workplace.succeed(&line(""));
    let published = "- **mnist-k2** was not run: DATA/mnist is missing.";
    assert_has(&workplace.read("out/RESULTS.md"), &[published]);
}

#[test]
fn row_that_fails_is_told_and_takes_no_other_along() {
    let broken = ("\"mlp:256,64\"\nsteps = 200", "\"mlp:7,64\"\nsteps = 200");
    let workplace = prepared(&[broken, ("start = \"tiny\"\n", "")]);
    let ended = workplace.run(&line("--recipes recipes.toml --only tiny,strict"));
    assert_eq!(ended.code, Some(1));
    assert_has(&ended.errors, &["failed: tiny"]);
    let tiny = "- **tiny** was not run: `parity-trainer train";
    let results = workplace.read("out/RESULTS.md");
    assert_has(&results, &[tiny, "- **strict**: lost"]);
}

#[test]
fn bad_recipes_and_arguments_get_one_line() {
    let workplace = prepared(&[]);
    let no_row = "--only nothing: no such row; there are mnist-k2, ";
    workplace.refused_at_once(&line("--only nothing"), &[no_row]);
    workplace.refused_at_once(&line("--budget 0"), &["--budget 0: out of range"]);
    for case in [
        "steps = 200 => stepz = 200 => row tiny: error: unexpected argument '--stepz'",
        "\"mlp:256,32\" => \"mpl\" => deployed model quarters: error: invalid value 'mpl'",
        "encoder = \"sum\" => encoder = \"telepathy\" => row tiny: error: invalid value",
        "\"elsewhere\" => \"nowhere\" => row no-model: no deployed model `nowhere`",
        "\"strict\" => \"tiny\" => row tiny: there are two of that name",
        "bound = 50 => bound = 50\nseeds = 0 => row tiny: seeds = 0; give at least 1",
        "start = \"tiny\" => start = \"strict\" => row strict: begins with strict, which is no deployed",
        "file = \"elsewhere.onnx\" =>  => give either `file` or settings",
    ] {
        let parts: Vec<&str> = case.split(" => ").collect();
        let [from, to, says] = parts.as_slice() else {
            panic!("{case}");
        };
        recipes(&workplace, &[(from, to)]);
        workplace.refused_at_once(&line("--recipes recipes.toml"), &["recipes.toml: ", says]);
    }
}
