//! Records of runs, and runs that are not the same.

use std::fs;

use super::*;

const OTHER: &str = "belongs to a run with other settings";

#[test]
fn deployed_models_training_is_recorded() {
    let workplace = workplace();
    workplace.succeed(&train_deployed("one"));
    let log = workplace.read("models/.runs/one/log.jsonl");
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["step"], 80, "{log}");
    let curve = workplace.read("models/.runs/one/curve.svg");
    assert!(curve.contains("accuracy, %") && curve.contains("cross-entropy"));
    let environment = workplace.toml("models/.runs/one/environment.toml");
    assert_eq!(environment["network"].as_str(), Some("resnet8:4"));

    workplace.succeed("train-deployed --config models/.runs/one/config.toml --name two");
    assert!(workplace.model("one") == workplace.model("two"), "the models differ");

    // A checkpoint of a parity model, or of other settings, is another run's.
    let changed = format!("{} --resume --learning-rate 0.1", train_deployed("one"));
    workplace.refused(&changed, &[OTHER]);
    workplace.succeed(&train("three", "--network mlp:256,8 --steps 20"));
    workplace.refused(&format!("{} --resume", train_deployed("three")), &[OTHER]);
}

#[test]
fn two_runs_keep_out_of_each_others_way() {
    let workplace = workplace();
    let long = "--network mlp:256,64 --steps 3000000 --checkpoint-steps 50";
    let line = train("long", long);
    let mut running = workplace.start(&line);
    running.wait_for(": checkpoint ", 1);
    let process = running.child.id();
    let holder = &format!("another run (process {process}) is at work there");
    let other = format!("{} --run models/.runs/long", train("other", long));
    for (line, parts) in [
        (line.clone(), ["models/long: ", holder]),
        (format!("{line} --resume"), ["", holder]),
        // The same run's folder under another name.
        (other, ["models/.runs/long: ", "with --run"]),
        // The same entry from another run's folder.
        (format!("{line} --run elsewhere"), ["with --name", holder]),
        (train_deployed("long"), ["", holder]),
    ] {
        workplace.refused(&line, &parts);
    }
    // The remains of a killed process block no other.
    running.kill();
    workplace.succeed(&train("long", "--network mlp:256,64 --steps 5"));
}

#[test]
fn only_the_same_run_is_resumed() {
    let workplace = workplace();
    let line = train("other", "--network mlp:256,64 --steps 60 --checkpoint-steps 20");
    let resume = format!("{line} --resume");
    workplace.refused(&resume, &["no run to resume; leave --resume away"]);
    workplace.succeed(&line);
    let before = workplace.model("other");
    workplace.refused(&format!("{resume} --learning-rate 0.001"), &[OTHER]);

    // The newest is torn: the one before is taken, and the same model comes out.
    common::tear(&workplace.checkpoints("other").pop().unwrap());
    let errors = workplace.succeed(&resume).errors;
    assert_has(&errors, &["not a whole checkpoint", "after step 40"]);
    assert!(workplace.model("other") == before, "the models differ");
}

#[test]
fn run_is_recorded_and_can_be_had_again_from_its_config() {
    let workplace = workplace();
    let line = "train --model models/quarters --data . --encoder sum --network mlp:256,32 --steps \
        120 --transform auto --seed 7 --augment none --out models";
    let errors = workplace.succeed(line).errors;
    assert_has(&errors, &["raw outputs, loss mse: ", "log_softmax outputs, loss mse: "]);
    let run = "models/.runs/quarters-parity";
    let log = workplace.read(&format!("{run}/log.jsonl"));
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["step"], 120);
    for key in ["epoch", "loss", "learning_rate", "agreement", "validation_agreement"] {
        assert!(last[key].is_number(), "{key}: {last}");
    }
    assert!(last["rows_per_second"].is_number(), "{last}");
    assert!(workplace.read(&format!("{run}/curve.svg")).contains("agreement, %"));
    let environment = workplace.toml(&format!("{run}/environment.toml"));
    assert_eq!(environment["seed"].as_str(), Some("7"));
    let libtorch = environment["libtorch"].as_str().unwrap();
    assert!(libtorch.starts_with('2'), "{environment}");

    let again = format!("train --config {run}/config.toml --name again --run again-run");
    assert_has(&workplace.succeed(&again).errors, &["reuses its outputs for"]);
    let (first, second) = (workplace.model("quarters-parity"), workplace.model("again"));
    assert!(first == second, "the models differ");

    let wrong = "model = \"m\"\nlearning-rat = 1\n";
    fs::write(workplace.at("wrong.toml"), wrong).unwrap();
    workplace.refused_at_once("train --config wrong.toml", &["wrong.toml: ", "learning-rat"]);
}

#[test]
fn name_in_a_file_names_no_folder_elsewhere() {
    let workplace = workplace();
    let precious = workplace.at("precious");
    fs::create_dir(&precious).unwrap();
    for name in [precious.to_str().unwrap(), "../precious", "-x"] {
        let config = format!("model = \"m\"\ndata = \"d\"\nout = \"models\"\nname = {name:?}\n");
        fs::write(workplace.at("elsewhere.toml"), config).unwrap();
        let line = "train --config elsewhere.toml";
        workplace.refused_at_once(line, &["a model's name has letters"]);
    }
    assert!(precious.is_dir());
}

#[test]
fn each_row_of_a_code_gets_a_model() {
    let workplace = workplace();
    workplace.succeed(&train("two", "--network mlp:256,32 --steps 40 --r 2"));
    for row in 0..2 {
        let card = workplace.toml(&format!("models/two-{row}/model.toml"));
        let own = card["code"].get("row").and_then(toml::Value::as_integer);
        assert_eq!(own.unwrap_or(0), row);
        assert_eq!(card["code"]["r"].as_integer(), Some(2));
    }
}
