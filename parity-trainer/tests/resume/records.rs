//! Records of runs, and runs that are not the same.

use super::*;

#[test]
fn a_deployed_models_training_is_recorded() {
    let folder = workplace();
    let folder = folder.path();
    succeed_saying(folder, &train_deployed("one"));
    let run = folder.join("models/.runs/one");
    let log = fs::read_to_string(run.join("log.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["step"], 80, "{log}");
    let curve = fs::read_to_string(run.join("curve.svg")).unwrap();
    assert!(curve.contains("accuracy, %") && curve.contains("cross-entropy"));
    let environment: toml::Table = fs::read_to_string(run.join("environment.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(environment["network"].as_str(), Some("resnet8:4"));

    let again = "train-deployed --config models/.runs/one/config.toml --name two";
    succeed_saying(folder, again);
    assert!(
        model(folder, "one") == model(folder, "two"),
        "the models differ"
    );

    // A checkpoint of a parity model, or of other settings, is another run's.
    let refused = |line: &str| {
        let output = trainer(folder, line);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr)
            .unwrap()
            .lines()
            .last()
            .unwrap()
            .to_owned()
    };
    let other = "belongs to a run with other settings";
    let message = refused(&format!(
        "{} --resume --learning-rate 0.1",
        train_deployed("one")
    ));
    assert!(message.contains(other), "{message}");
    succeed_saying(folder, &train("three", "--network mlp:256,8 --steps 20"));
    let message = refused(&format!("{} --resume", train_deployed("three")));
    assert!(message.contains(other), "{message}");
}

#[test]
fn two_runs_keep_out_of_each_others_way() {
    let folder = workplace();
    let folder = folder.path();
    let long = "--network mlp:256,64 --steps 3000000 --checkpoint-steps 50";
    let line = train("long", long);
    let (mut child, _lines) = until_checkpoint(folder, &line, 1);
    let holder = format!("another run (process {}) is at work there", child.id());
    let refused = |line: &str| {
        let output = trainer(folder, line);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        message.lines().last().unwrap().to_owned()
    };
    let message = refused(&line);
    assert!(
        message.contains("models/long: ") && message.contains(&holder),
        "{message}"
    );
    let message = refused(&format!("{line} --resume"));
    assert!(message.contains(&holder), "{message}");
    // The same run's folder under another name, and the same entry from another run's folder.
    let message = refused(&format!("{} --run models/.runs/long", train("other", long)));
    assert!(
        message.contains("models/.runs/long: ") && message.contains("with --run"),
        "{message}"
    );
    let message = refused(&format!("{line} --run elsewhere"));
    assert!(
        message.contains(&holder) && message.contains("with --name"),
        "{message}"
    );
    let message = refused(&train_deployed("long"));
    assert!(message.contains(&holder), "{message}");

    // The remains of a killed process block no other.
    child.kill().unwrap();
    child.wait().unwrap();
    succeed_saying(folder, &train("long", "--network mlp:256,64 --steps 5"));
}

#[test]
fn only_the_same_run_is_resumed() {
    let folder = workplace();
    let folder = folder.path();
    let settings = "--network mlp:256,64 --steps 60 --checkpoint-steps 20";
    let refused = |line: &str| {
        let output = trainer(folder, line);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        message.lines().last().unwrap().to_owned()
    };
    let message = refused(&format!("{} --resume", train("other", settings)));
    assert!(
        message.contains("no run to resume; leave --resume away"),
        "{message}"
    );
    succeed_saying(folder, &train("other", settings));
    let before = model(folder, "other");
    let message = refused(&format!(
        "{} --resume --learning-rate 0.001",
        train("other", settings)
    ));
    assert!(
        message.contains("belongs to a run with other settings"),
        "{message}"
    );

    // The newest is torn: the one before is taken, and the same model comes out.
    let newest = checkpoints(folder, "other").pop().unwrap();
    let contents = fs::read(&newest).unwrap();
    fs::write(&newest, &contents[..contents.len() / 2]).unwrap();
    let message = succeed_saying(folder, &format!("{} --resume", train("other", settings)));
    assert!(
        message.contains("not a whole checkpoint") && message.contains("after step 40"),
        "{message}"
    );
    assert!(model(folder, "other") == before, "the models differ");
}

#[test]
fn a_run_is_recorded_and_can_be_had_again_from_its_config() {
    let folder = workplace();
    let folder = folder.path();
    let line = "train --model models/quarters --data . --encoder sum --network mlp:256,32 --steps \
        120 --transform auto --seed 7 --augment none --out models";
    let message = succeed_saying(folder, line);
    assert!(
        message.contains("transform raw: ") && message.contains("transform log_softmax: "),
        "{message}"
    );
    let run = folder.join("models/.runs/quarters-parity");
    let log = fs::read_to_string(run.join("log.jsonl")).unwrap();
    let records: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.last().unwrap()["step"], 120);
    let known = [
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "agreement",
        "validation_agreement",
        "rows_per_second",
    ];
    assert!(
        known
            .iter()
            .all(|key| records.last().unwrap()[key].is_number()),
        "{log}"
    );
    assert!(
        fs::read_to_string(run.join("curve.svg"))
            .unwrap()
            .contains("agreement, %")
    );
    let environment: toml::Table = fs::read_to_string(run.join("environment.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(environment["seed"].as_str(), Some("7"));
    assert!(
        environment["libtorch"].as_str().unwrap().starts_with('2'),
        "{environment}"
    );

    let config = run.join("config.toml");
    let again = format!(
        "train --config {} --name again --run again-run",
        config.display()
    );
    let message = succeed_saying(folder, &again);
    assert!(message.contains("reuses its outputs for"), "{message}");
    assert!(
        model(folder, "quarters-parity") == model(folder, "again"),
        "the models differ"
    );

    fs::write(
        folder.join("wrong.toml"),
        "model = \"m\"\nlearning-rat = 1\n",
    )
    .unwrap();
    let output = trainer(folder, "train --config wrong.toml");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("wrong.toml: ") && message.contains("learning-rat"),
        "{message}"
    );
    assert_eq!(
        (output.status.code(), message.lines().count()),
        (Some(2), 1),
        "{message}"
    );
}

#[test]
fn a_name_in_a_file_names_no_folder_elsewhere() {
    let folder = workplace();
    let folder = folder.path();
    let precious = folder.join("precious");
    fs::create_dir(&precious).unwrap();
    for name in [precious.to_str().unwrap(), "../precious", "-x"] {
        let config = format!("model = \"m\"\ndata = \"d\"\nout = \"models\"\nname = {name:?}\n");
        fs::write(folder.join("elsewhere.toml"), config).unwrap();
        let output = trainer(folder, "train --config elsewhere.toml");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("a model's name has letters"), "{message}");
        assert_eq!(
            (output.status.code(), message.lines().count()),
            (Some(2), 1),
            "{message}"
        );
    }
    assert!(precious.is_dir());
}

#[test]
fn each_row_of_a_code_gets_a_model() {
    let folder = workplace();
    let folder = folder.path();
    succeed_saying(
        folder,
        &train("two", "--network mlp:256,32 --steps 40 --r 2"),
    );
    for row in 0..2 {
        let card = fs::read_to_string(folder.join(format!("models/two-{row}/model.toml"))).unwrap();
        let card: toml::Table = card.parse().unwrap();
        assert_eq!(
            card["code"]
                .get("row")
                .and_then(toml::Value::as_integer)
                .unwrap_or(0),
            row
        );
        assert_eq!(card["code"]["r"].as_integer(), Some(2));
    }
}
