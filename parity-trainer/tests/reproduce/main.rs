//! `reproduce` from end to end: rows are run once, what is missing is told, and RESULTS.md says it
//! all.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod interrupted;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{command, trainer, write_quarters};

const RECIPES: &str = r#"
notes = "Notes: four quarters.\n"

[deployed.quarters]
title = "quarters, own MLP"
data = "quarters"
least = 90.0
minutes = 1

[deployed.quarters.train]
network = "mlp:256,32"
epochs = 8
augment = "none"
seed = 5

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

[row.train]
k = 2

[[row]]
name = "unknown"
deployed = "quarters"
minutes = 1
optional = true

[row.train]
encoder = "telepathy"
"#;

fn reproduce(folder: &Path, rest: &str) -> Output {
    let line = format!("reproduce --data data --models files --out out {rest}");
    trainer(folder, &line)
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["data/quarters", "files"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    write_quarters(&folder.path().join("data/quarters"), 400, 100);
    fs::write(folder.path().join("recipes.toml"), RECIPES).unwrap();
    folder
}

/// Checks what the table tells of each row.
fn check_table(results: &str) {
    for part in [
        "4 rows: 1 missed, 2 not run, 1 met",
        "- **strict**: lost",
        "Tried: nothing can meet this.",
        "- **no-model** was not run: MODELS/elsewhere.onnx is missing.",
        "- **unknown** was not run: this build cannot train it",
        "    parity-trainer train --model OUT/models/quarters --data DATA/quarters",
        "--start OUT/models/tiny",
    ] {
        assert!(results.contains(part), "{part:?} is not in {results}");
    }
    assert!(results.ends_with("\nNotes: four quarters.\n"), "{results}");
}

/// Checks the record of the row that was met.
fn check_json(folder: &Path) {
    let json = fs::read(folder.join("out/results.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["rows"][0]["verdict"], "met");
    // A_d over every erasure of every group of the test set.
    assert_eq!(
        json["rows"][0]["seeds"][0]["record"]["outcome"]["evaluation"]["by_losses"][0]["reconstructions"],
        100
    );
    let seeds = json["rows"][0]["seeds"].as_array().unwrap();
    let named: Vec<_> = seeds
        .iter()
        .map(|seed| (seed["name"].as_str().unwrap(), &seed["seed"]))
        .collect();
    assert_eq!(
        named,
        [
            ("tiny", &5.into()),
            ("tiny-seed2", &6.into()),
            ("tiny-seed3", &7.into())
        ]
    );
    assert!(
        seeds.iter().all(|seed| seed["loss_interval"].is_array()),
        "{json}"
    );
}

#[test]
fn rows_are_run_once_and_told() {
    let folder = prepared();
    let recipes = RECIPES.replace("bound = 50\n", "bound = 50\nseeds = 3\n");
    fs::write(folder.path().join("recipes.toml"), &recipes).unwrap();
    let output = reproduce(folder.path(), "--recipes recipes.toml");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    check_table(&results);
    check_json(folder.path());

    let model = || {
        fs::metadata(folder.path().join("out/models/tiny/1/model.onnx"))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = model();
    let again = reproduce(folder.path(), "--recipes recipes.toml");
    let errors = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        again.status.success() && errors.contains("tiny: done before"),
        "{errors}"
    );
    assert_eq!(model(), before);
    assert_eq!(
        fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap(),
        results
    );

    // Rows that are not asked for keep their place in the table.
    assert!(
        reproduce(folder.path(), "--recipes recipes.toml --only unknown")
            .status
            .success()
    );
    let some = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(some.contains("- **strict**: lost"), "{some}");

    // Another recipe is another row; the deployed model stays.
    fs::write(
        folder.path().join("recipes.toml"),
        recipes.replace("steps = 200", "steps = 3"),
    )
    .unwrap();
    let changed = reproduce(folder.path(), "--recipes recipes.toml --only tiny");
    let errors = String::from_utf8_lossy(&changed.stderr).into_owned();
    assert!(
        !errors.contains("done before") && !errors.contains("train-deployed"),
        "{errors}"
    );
    assert!(model() != before);
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(
        results.contains("- **strict** was not run: not asked for."),
        "it began with the old tiny: {results}"
    );
}

#[test]
fn a_row_trained_before_losses_had_intervals_is_evaluated_again_and_not_trained() {
    let folder = prepared();
    let line = "--recipes recipes.toml --only tiny";
    assert!(reproduce(folder.path(), line).status.success());
    let (record, results) = (
        folder.path().join("out/rows/tiny.json"),
        folder.path().join("out/RESULTS.md"),
    );
    let (told, new) = (
        fs::read_to_string(&results).unwrap(),
        fs::read(&record).unwrap(),
    );
    let mut old: serde_json::Value = serde_json::from_slice(&new).unwrap();
    for figures in ["evaluation", "untrained_control"] {
        let losses = old["outcome"][figures]["by_losses"].as_array_mut().unwrap();
        losses
            .iter_mut()
            .for_each(|losses| drop(losses.as_object_mut().unwrap().remove("loss")));
    }
    fs::write(&record, old.to_string()).unwrap();

    let output = reproduce(folder.path(), line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("tiny: trained before; evaluated again"),
        "{errors}"
    );
    assert!(
        errors.contains("$ parity-trainer eval") && !errors.contains("$ parity-trainer train"),
        "{errors}"
    );
    assert_eq!(fs::read_to_string(&results).unwrap(), told);
    assert_eq!(
        fs::read(&record).unwrap(),
        new,
        "its cost is that of the training"
    );
}

#[test]
fn a_row_that_begins_with_its_deployed_model_has_it_trained_first() {
    let folder = prepared();
    let recipes = RECIPES.replace("start = \"tiny\"", "start = \"quarters\"");
    let recipes = recipes.replace("\"mlp:256,64\"\nsteps = 4", "\"mlp:256,32\"\nsteps = 4");
    fs::write(folder.path().join("recipes.toml"), recipes).unwrap();
    let output = reproduce(folder.path(), "--recipes recipes.toml --only strict");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(results.contains("- **strict**: lost"), "{results}");
    assert!(results.contains("--start OUT/models/quarters"), "{results}");
}

#[test]
fn a_missing_data_set_leaves_its_rows_out() {
    let folder = prepared();
    fs::remove_dir_all(folder.path().join("data/quarters")).unwrap();
    let output = reproduce(folder.path(), "--recipes recipes.toml --only tiny");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(
        results.contains("- **tiny** was not run: DATA/quarters is missing."),
        "{results}"
    );
    assert!(
        results.contains("- **strict** was not run: not asked for."),
        "{results}"
    );

    // The published table as well.
    let output = reproduce(folder.path(), "");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(
        results.contains("- **mnist-k2** was not run: DATA/mnist is missing."),
        "{results}"
    );
}

#[test]
fn a_row_that_fails_is_told_and_takes_no_other_along() {
    let folder = prepared();
    let broken = RECIPES.replace(
        "network = \"mlp:256,64\"\nsteps = 200",
        "network = \"mlp:7,64\"\nsteps = 200",
    );
    fs::write(
        folder.path().join("recipes.toml"),
        broken.replace("start = \"tiny\"\n", ""),
    )
    .unwrap();
    let output = reproduce(folder.path(), "--recipes recipes.toml --only tiny,strict");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("failed: tiny"), "{errors}");
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(
        results.contains("- **tiny** was not run: `parity-trainer train"),
        "{results}"
    );
    assert!(results.contains("- **strict**: lost"), "{results}");
}

#[test]
fn bad_recipes_and_arguments_get_one_line() {
    let folder = prepared();
    let complaint = |rest: &str| {
        let output = reproduce(folder.path(), rest);
        assert_eq!(output.status.code(), Some(2), "{rest}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(
        complaint("--only nothing").contains("--only nothing: no such row; there are mnist-k2, ")
    );
    assert!(complaint("--budget 0").contains("--budget 0: out of range"));
    for (from, to, says) in [
        (
            "steps = 200",
            "stepz = 200",
            "row tiny: error: unexpected argument '--stepz'",
        ),
        (
            "network = \"mlp:256,32\"",
            "network = \"mpl\"",
            "deployed model quarters: error: invalid value 'mpl'",
        ),
        (
            "deployed = \"elsewhere\"",
            "deployed = \"nowhere\"",
            "row no-model: no deployed model `nowhere`",
        ),
        (
            "name = \"strict\"",
            "name = \"tiny\"",
            "row tiny: there are two of that name",
        ),
        (
            "bound = 50",
            "bound = 50\nseeds = 0",
            "row tiny: seeds = 0; give at least 1",
        ),
        (
            "start = \"tiny\"",
            "start = \"strict\"",
            "row strict: begins with strict, which is no deployed",
        ),
        (
            "file = \"elsewhere.onnx\"",
            "",
            "give either `file` or settings",
        ),
    ] {
        fs::write(
            folder.path().join("recipes.toml"),
            RECIPES.replacen(from, to, 1),
        )
        .unwrap();
        let message = complaint("--recipes recipes.toml");
        assert!(
            message.contains("recipes.toml: ") && message.contains(says),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
