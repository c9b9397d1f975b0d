//! Real runs that are killed, interrupted and damaged: what comes out is what an undisturbed run
//! gives, to the bit.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod records;

use common::{Workplace, assert_has};

fn workplace() -> Workplace {
    Workplace::with_model(120, 20, "--network mlp:256,16 --epochs 3")
}

const MLP: &str = "--network mlp:256,64 --steps 3000 --checkpoint-steps 50";

fn train(name: &str, rest: &str) -> String {
    let code = match rest.contains("--encoder") {
        true => "",
        false => "--encoder sum --transform raw",
    };
    format!(
        "train --model models/quarters --data . {code} --augment none --batch 16 --seed 3 --out \
            models --name {name} {rest}"
    )
}

/// Kills a run in the middle, resumes it, and compares it with one that ran through.
fn survives_a_kill(line: impl Fn(&str) -> String) {
    let workplace = workplace();
    workplace.succeed(&line("straight"));
    let mut running = workplace.start(&line("killed"));
    running.wait_for(": checkpoint ", 3);
    running.kill();
    assert!(!workplace.at("models/killed").exists(), "it was killed before its end");
    let errors = workplace.succeed(&format!("{} --resume", line("killed"))).errors;
    assert_has(&errors, &["killed: goes on after step "]);
    let (straight, killed) = (workplace.model("straight"), workplace.model("killed"));
    assert!(straight == killed, "the models differ");
    assert_eq!(workplace.checkpoints("killed").len(), 2);
}

#[test]
fn killed_run_ends_as_if_nothing_had_happened() {
    survives_a_kill(|name| train(name, MLP));
}

#[test]
fn running_moments_survive_a_kill() {
    let settings = "--network resnet8:4 --steps 60 --checkpoint-steps 8 --clip 1";
    survives_a_kill(|name| train(name, settings));
}

#[test]
fn learned_codes_training_survives_a_kill() {
    let settings = "--encoder learned --network mlp:512,48 --steps 600 --checkpoint-steps 15 \
        --trial-share 0.02";
    survives_a_kill(|name| train(name, settings));
}

#[test]
fn the_best_of_several_seeds_is_kept_also_after_an_interruption() {
    let workplace = workplace();
    let settings = "--network mlp:256,64 --steps 3000 --checkpoint-steps 50";
    let line = train("several", &format!("{settings} --seeds 2"));
    let mut running = workplace.start(&line);
    running.wait_for("several-seed4: checkpoint ", 2);
    running.interrupt();
    assert!(!workplace.at("models/several").exists(), "it was interrupted before its end");
    let errors = workplace.succeed(&format!("{line} --resume")).errors;
    assert_has(&errors, &["several-seed4: goes on after step "]);
    let mut alone: Vec<(f64, u64)> = Vec::new();
    for seed in [3, 4] {
        let one = train(&format!("alone{seed}"), settings);
        workplace.succeed(&one.replace("--seed 3", &format!("--seed {seed}")));
        let log = workplace.read(&format!("models/.runs/alone{seed}/log.jsonl"));
        let agreement = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["validation_agreement"]
                .as_f64()
        };
        alone.push((log.lines().filter_map(agreement).fold(0.0, f64::max), seed));
    }
    let best = if alone[1].0 > alone[0].0 { 4 } else { 3 };
    assert_has(&errors, &[&format!("several: seed {best} is the best")]);
    assert!(workplace.model("several") == workplace.model(&format!("alone{best}")));
}

/// Running moments, augmented samples and the order of a pass have to come back.
fn train_deployed(name: &str) -> String {
    format!(
        "train-deployed --data . --network resnet8:4 --epochs 10 --batch 16 --augment shift \
            --seed 3 --checkpoint-steps 5 --out models --name {name}"
    )
}

#[test]
fn deployed_models_training_survives_a_kill() {
    survives_a_kill(train_deployed);
}

#[test]
fn ctrl_c_ends_a_trial_at_once() {
    let workplace = workplace();
    let settings = "--encoder sum --transform auto --network mlp:256,64 --steps 3000000 \
        --trial-share 1";
    let mut running = workplace.start(&train("tried", settings));
    running.wait_for("choice: tries ", 1);
    let rest = running.interrupt();
    let last = rest.last().unwrap();
    assert_eq!(last, "error: interrupted; run the same command again");
    let has_ended = rest.iter().any(|line| line.contains("% agreement after"));
    assert!(!has_ended, "a trial ended: {rest:?}");
    for path in ["models/tried", "models/.partial"] {
        assert!(!workplace.at(path).exists(), "{path}");
    }
}

#[test]
fn ctrl_c_writes_a_checkpoint_and_says_how_to_go_on() {
    let workplace = workplace();
    let settings = "--network mlp:256,64 --steps 3000 --checkpoint-steps 400";
    workplace.succeed(&train("straight", settings));
    let mut running = workplace.start(&train("stopped", settings));
    running.wait_for(": checkpoint ", 1);
    let last = running.interrupt().pop().unwrap();
    assert_has(&last, &["interrupted; the same command with --resume"]);
    workplace.succeed(&format!("{} --resume", train("stopped", settings)));
    let (straight, stopped) = (workplace.model("straight"), workplace.model("stopped"));
    assert!(straight == stopped, "the models differ");
}

#[test]
fn job_that_may_be_started_again_takes_one_command() {
    let workplace = workplace();
    let settings = "--network mlp:256,64 --steps 60 --checkpoint-steps 20 --resume-if-begun";
    let deployed = "train-deployed --data . --network mlp:256,16 --epochs 2 --augment none --out \
        models --name own --checkpoint-steps 1 --resume-if-begun";
    for (line, again) in [
        (train("job", settings), "after step 60"),
        (train("rows", &format!("{settings} --r 2")), "after step 60"),
        (deployed.to_owned(), "goes on after step"),
    ] {
        let errors = workplace.succeed(&line).errors;
        assert!(!errors.contains("goes on"), "{errors}");
        assert_has(&workplace.succeed(&line).errors, &[again]);
    }
    let other = format!("{} --learning-rate 0.001", train("job", settings));
    workplace.refused(&other, &["belongs to a run with other settings"]);
}
