//! Rows that are interrupted, and go on.

use super::*;

const TINY: &str = "--recipes recipes.toml --only tiny";

/// Runs the row until it says something.
fn tiny_until(workplace: &Workplace, says: &str) -> common::Running {
    let mut running = workplace.start(&line(TINY));
    running.wait_for(says, 1);
    running
}

#[test]
fn interrupted_row_goes_on_where_it_was() {
    let workplace = prepared(&[("steps = 200", "steps = 20000")]);
    let mut running = tiny_until(&workplace, "tiny: step 2000/20000");
    let process = running.child.id();
    let holder = format!("error: out: another run (process {process}) is at work there; ");
    workplace.refused_at_once(&line("--recipes recipes.toml"), &[&holder, "--out"]);
    running.interrupt();
    let errors = workplace.succeed(&line(TINY)).errors;
    assert_has(&errors, &["tiny: goes on after step"]);
    assert!(!errors.contains("train-deployed"), "{errors}");

    // A row of another recipe that ends before it has begun leaves nothing of the old one to go on
    // with.
    recipes(&workplace, &[("steps = 200", "steps = 10000")]);
    tiny_until(&workplace, "$ parity-trainer train ").interrupt();
    workplace.succeed(&line(TINY));
}

#[test]
fn interrupted_deployed_model_goes_on_where_it_was() {
    let workplace = prepared(&[("epochs = 8", "epochs = 3000")]);
    tiny_until(&workplace, "quarters: step 2100/21000").interrupt();
    assert!(!workplace.at("out/models/quarters").exists());
    let errors = workplace.succeed(&line(TINY)).errors;
    assert_has(&errors, &["quarters: goes on after step"]);
    let record = workplace.read("out/rows/deployed-quarters.json");
    assert_has(&record, &["train-deployed --data DATA/quarters"]);
    assert!(!record.contains("--resume"), "{record}");
}
