//! `parity-trainer eval` from end to end.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{last_complaint, succeed, write_quarters};

#[test]
fn a_code_of_two_rows_is_evaluated_for_every_loss() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    write_quarters(folder, 300, 120);
    let line = "train-deployed --data . --network mlp:256,16 --epochs 6 --augment none --out \
        models --name quarters";
    succeed(folder, line);
    let line = "train --model models/quarters --data . --k 3 --r 2 --encoder sum --network \
        mlp:256,64 --steps 300 --transform raw --augment none --out models --name p";
    succeed(folder, line);
    let eval = "eval --model models/quarters --data . --parity";
    let table = succeed(
        folder,
        &format!("{eval} models/p-0,models/p-1 --out report"),
    );
    assert!(
        table.contains("A_d, reconstructed of 2 missing") && table.contains("untrained control"),
        "{table}"
    );

    let report = fs::read_to_string(folder.join("report/evaluation.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let losses = &report["evaluation"]["by_losses"];
    // 40 groups: 3 slots by 2 rows; 3 pairs of 2, both rows.
    assert_eq!(
        (&losses[0]["reconstructions"], &losses[1]["reconstructions"]),
        (&240.into(), &240.into())
    );
    let figure = |report: &serde_json::Value| {
        report["by_losses"][0]["agreement"]["value"]
            .as_f64()
            .unwrap()
    };
    assert!(
        figure(&report["evaluation"]) > figure(&report["untrained_control"]),
        "{report}"
    );
    let interval = &losses[0]["accuracy"]["interval"];
    assert!(
        interval[0].as_f64().unwrap() <= losses[0]["accuracy"]["value"].as_f64().unwrap(),
        "{interval}"
    );
    for file in ["evaluation.md", "reliability.svg", "overall.svg"] {
        assert!(folder.join("report").join(file).is_file(), "{file}");
    }

    let message = last_complaint(folder, &format!("{eval} models/p-0,models/p-0"));
    assert!(message.contains("they are the same row"), "{message}");
    let message = last_complaint(folder, &format!("{eval} models/quarters"));
    assert!(
        message.contains("--parity wants parity models"),
        "{message}"
    );

    let message = last_complaint(
        folder,
        "eval --model models/p-0 --data . --parity models/p-1",
    );
    assert!(
        message.contains("is a parity model; --model wants the deployed one"),
        "{message}"
    );
}
