//! `reproduce` from end to end: rows are run once, what is missing is told, and RESULTS.md says it
//! all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{Workplace, assert_has, write_quarters};

const RECIPES: &str = r#"
notes = "Notes: four quarters.\n"

[deployed.quarters]
title = "quarters, own MLP"
data = "quarters"
train = "--network mlp:256,32 --epochs 8 --augment none --seed 5"

[deployed.elsewhere]
title = "a file that is not there"
data = "quarters"
file = "elsewhere.onnx"

[[row]]
name = "tiny"
deployed = "quarters"
bound = 50
train = "--k 2 --encoder sum --network mlp:256,64 --steps 200 --augment none --transform raw"

[[row]]
name = "strict"
deployed = "quarters"
bound = -100
seeds = 1
train = "--k 2 --network mlp:256,8 --steps 4 --augment none"

[[row]]
name = "no-model"
deployed = "elsewhere"
seeds = 1
train = "--k 2"
"#;

const ALL: &str = "reproduce --data data --models files --out out --recipes recipes.toml";

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
fn rows_are_run_once_and_listed_with_what_failed() {
    let workplace = prepared(&[]);
    let ended = workplace.run(ALL);
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    assert_has(&ended.errors, &["failed: no-model-seed1; "]);
    let results = workplace.read("out/RESULTS.md");
    let wanted = [
        "- **no-model** is not complete: `train --model MODELS/elsewhere.onnx",
        "| sum-k2-r1 | mlp:256,64 |",
        "| 50 | met |",
        "| stack-slots-k2-r1 | mlp:256,8 |",
        "| -100 | **missed** |",
        "\nNot run: no-model",
        "\nNotes: four quarters.\n",
    ];
    assert_has(&results, &wanted);
    for seed in 1..=3 {
        let report = format!("out/reports/tiny-seed{seed}");
        let commands = workplace.read(&format!("{report}/commands.txt"));
        assert_has(&commands, &["train-deployed ", &format!("--seed {seed} ")]);
        // A_d over every erasure of every group of the test set.
        let report = workplace.json(&format!("{report}/evaluation.json"));
        let figures = &report["evaluation"]["by_losses"][0];
        assert_eq!(figures["reconstructions"], 100);
        assert!(figures["loss"]["interval"].is_array(), "{figures}");
    }

    let model = || {
        let file = fs::metadata(workplace.at("out/models/tiny-seed1/1/model.onnx"));
        file.unwrap().modified().unwrap()
    };
    let before = model();
    let again = workplace.run(ALL).errors;
    assert_has(&again, &["deployed-quarters: done", "tiny-seed1: done"]);
    assert_eq!(model(), before);
    assert_eq!(workplace.read("out/RESULTS.md"), results);

    // Another recipe is another row; the deployed model and the other rows stay.
    recipes(&workplace, &[("--steps 200", "--steps 3")]);
    let changed = workplace.succeed(&format!("{ALL} --only tiny")).errors;
    assert_has(&changed, &["deployed-quarters: done before"]);
    assert!(!changed.contains("tiny-seed1: done before"), "{changed}");
    assert!(model() != before);
    assert_has(&workplace.read("out/RESULTS.md"), &["**missed**"]);
}

#[test]
fn interrupted_row_goes_on_where_it_was() {
    let workplace = prepared(&[("--steps 200", "--steps 20000"), ("bound = 50", "seeds = 1")]);
    let tiny = format!("{ALL} --only tiny");
    let mut running = workplace.start(&tiny);
    running.wait_for("tiny-seed1: step 2000/20000", 1);
    let process = running.child.id();
    let holder = format!("error: out: another run (process {process}) is at work there; ");
    workplace.refused_at_once(ALL, &[&holder, "--out"]);
    running.interrupt();
    let errors = workplace.succeed(&tiny).errors;
    assert_has(&errors, &["quarters: done before", "tiny-seed1: goes on after step"]);
}

#[test]
fn bad_recipes_and_arguments_get_one_line() {
    let workplace = prepared(&[]);
    let no_row = "--only nothing: no such row; there are tiny, strict, no-model";
    workplace.refused_at_once(&format!("{ALL} --only nothing"), &[no_row]);
    let published = "reproduce --data nowhere --models files --out out";
    workplace.refused_at_once(published, &["--data nowhere: no such folder"]);
    for case in [
        "--steps 200 => --stepz 200 => row tiny: error: unexpected argument '--stepz'",
        "mlp:256,32 => mpl => row tiny: error: invalid value 'mpl'",
        "--encoder sum => --encoder telepathy => row tiny: error: invalid value",
        "\"elsewhere\" => \"nowhere\" => row no-model: no deployed model `nowhere`",
        "\"strict\" => \"tiny\" => row tiny: a row has seeds, and a name of its own",
        "bound = 50 => seeds = 0 => row tiny: a row has seeds, and a name of its own",
        "file = \"elsewhere.onnx\" =>  => deployed model elsewhere: give either `file` or",
    ] {
        let parts: Vec<&str> = case.split(" => ").collect();
        let [from, to, says] = parts.as_slice() else {
            panic!("{case}");
        };
        recipes(&workplace, &[(from, to)]);
        workplace.refused_at_once(ALL, &["recipes.toml: ", says]);
    }
}
