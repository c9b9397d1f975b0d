//! `parity-trainer eval` from end to end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod common;

use common::{Workplace, assert_has};

#[test]
fn code_of_two_rows_is_evaluated_for_every_loss() {
    let workplace = Workplace::with_model(300, 120, "--network mlp:256,16 --epochs 6");
    workplace.succeed(
        "train --model models/quarters --data . --k 3 --r 2 --encoder sum --network mlp:256,64 \
            --steps 300 --transform raw --augment none --out models --name p",
    );
    let eval = "eval --model models/quarters --data . --parity";
    let table = workplace.succeed(&format!("{eval} models/p-0,models/p-1 --out report")).out;
    assert_has(&table, &["A_d, reconstructed of 2 missing"]);

    let report = workplace.json("report/evaluation.json");
    let losses = &report["evaluation"]["by_losses"];
    // 40 groups: 3 slots by 2 rows; 3 pairs of 2, both rows.
    assert_eq!(losses[0]["reconstructions"], 240);
    assert_eq!(losses[1]["reconstructions"], 240);
    // Of four classes.
    assert!(losses[0]["agreement"]["value"].as_f64() > Some(0.6), "{report}");
    let accuracy = &losses[0]["accuracy"];
    assert!(accuracy["interval"][0].as_f64() <= accuracy["value"].as_f64(), "{accuracy}");
    for file in ["evaluation.md", "reliability.svg"] {
        assert!(workplace.at("report").join(file).is_file(), "{file}");
    }
    workplace.refused(&format!("{eval} models/p-0,models/p-0"), &["they are the same row"]);
    workplace.refused(&format!("{eval} models/quarters"), &["--parity wants parity models"]);
    let line = "eval --model models/p-0 --data . --parity models/p-1";
    workplace.refused(line, &["is a parity model; --model wants the deployed one"]);
}
