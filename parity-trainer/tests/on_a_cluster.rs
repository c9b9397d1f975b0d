//! Training on processes: the same model as in one, byte for byte, on any number of workers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::fs;

use common::{Running, Workplace, assert_has};

/// A cluster on this machine. It ends with this.
struct Cluster {
    registry: String,
    _running: Running,
}

impl Cluster {
    fn up(workplace: &Workplace, servers: usize, workers: usize) -> Self {
        let up = format!("cluster up --listen 127.0.0.1:0 --servers {servers} --workers {workers}");
        let mut running = workplace.start(&up);
        let line = running.wait_for("registry ", 1);
        let (_, rest) = line.split_once("registry ").unwrap();
        Self { registry: rest.split(';').next().unwrap().to_owned(), _running: running }
    }
}

fn workplace() -> Workplace {
    Workplace::with_model(200, 60, "--network mlp:256,32 --epochs 2 --seed 5")
}

fn line(name: &str, rest: &str) -> String {
    let network = match rest.contains("--network") {
        true => "",
        false => "--network mlp:256,64 --steps 40",
    };
    format!(
        "train --model models/quarters --data . --k 2 --encoder sum {network} --seed 5 --augment \
            none --transform raw --out models --name {name} {rest}"
    )
}

fn train(workplace: &Workplace, name: &str, rest: &str) -> Vec<u8> {
    workplace.succeed(&line(name, rest));
    workplace.model(name)
}

#[test]
fn cluster_gives_the_model_of_one_process() {
    let workplace = workplace();
    let train = |name: &str, rest: &str| train(&workplace, name, rest);
    // Batch norm's running moments are measured by the process that computes a part, and belong to
    // the model that is written.
    let moments = "--network resnet8:4 --steps 12 --validate-every 3 --checkpoint-steps 5";
    // In segments, whose gradients travel apart.
    let large = "--network mlp:256,192,128,128 --steps 12 --checkpoint-steps 5";
    for (settings, workers) in [("", [0, 2]), (moments, [0, 3]), (large, [0, 2])] {
        let alone = train("alone", settings);
        let mut in_parts = Vec::new();
        for workers in workers {
            let cluster = Cluster::up(&workplace, 2, workers);
            let on = format!("{settings} --cluster {}", cluster.registry);
            let sequential = train("sequential", &format!("{on} --executors 1"));
            assert!(sequential == alone, "one executor and {workers} workers: another model");
            let compressed = train("compressed", &format!("{on} --executors 1 --filters lz4"));
            assert!(compressed == alone, "compression changes the model");
            let parts = train("parts", &on);
            // The run has checkpoints, which any backend goes on from.
            let resumed = train("parts", &format!("{settings} --resume"));
            assert!(parts == resumed, "what is in its checkpoint");
            in_parts.push(parts);
        }
        assert!(in_parts[0] == in_parts[1], "the model depends on the number of workers");
        if settings == moments {
            assert!(in_parts[0] != alone, "its parts are normalised by themselves");
        }
    }
}

/// The model depends on the processes' speeds, unless one makes all steps alone.
#[test]
fn processes_learn_with_stale_weights() {
    let workplace = workplace();
    let train = |name: &str, rest: &str| train(&workplace, name, rest);
    let alone = train("alone", "");
    let in_process = train("in-process", "--consistency ssp:2");
    assert!(in_process == alone, "one process misses nothing");
    let cluster = Cluster::up(&workplace, 2, 2);
    let on = format!("--cluster {} --consistency ssp:2", cluster.registry);
    let sequential = train("sequential", &format!("{on} --executors 1"));
    assert!(sequential == alone, "one executor misses nothing");
    let stale = line("stale", &format!("--network mlp:256,64 --steps 200 {on}"));
    workplace.succeed(&format!("{stale} --json stale.json"));
    let report = workplace.json("stale.json");
    assert!(report["agreement"].as_f64() > Some(0.8), "{report}");
    let errors = workplace.succeed(&format!("{stale} --resume")).errors;
    assert_has(&errors, &["goes on after step 200"]);
}

/// The optimiser's state lies on the servers, so that a checkpoint is put together from all of
/// them, and taken apart again.
#[test]
fn checkpoint_of_three_servers_is_gone_on_from_on_two_and_on_five() {
    let workplace = workplace();
    let settings = "--network mlp:256,64 --steps 400 --checkpoint-steps 30 --executors 2";
    let on = |cluster: &Cluster| format!("{settings} --cluster {}", cluster.registry);
    let three = Cluster::up(&workplace, 3, 1);
    let straight = train(&workplace, "straight", &on(&three));
    let mut running = workplace.start(&line("killed", &on(&three)));
    running.wait_for(": checkpoint ", 2);
    running.kill();
    drop(three);
    assert!(!workplace.at("models/killed").exists(), "it was killed before its end");

    for (servers, is_torn) in [(2, false), (5, true)] {
        let name = format!("on-{servers}");
        let run = workplace.at(&format!("models/.runs/{name}"));
        fs::create_dir(&run).unwrap();
        for file in fs::read_dir(workplace.at("models/.runs/killed")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), run.join(file.file_name())).unwrap();
        }
        let whole = workplace.checkpoints(&name);
        assert_eq!(whole.len(), 2, "{whole:?}");
        if is_torn {
            // As a disk may leave it that was never told to keep it: its name is there, not all of
            // it is.
            common::tear(&whole[1]);
        }
        let expected = &whole[usize::from(!is_torn)];
        let cluster = Cluster::up(&workplace, servers, 1);
        let resume = line(&name, &format!("{} --resume", on(&cluster)));
        let errors = workplace.succeed(&resume).errors;
        assert_eq!(errors.contains("not a whole checkpoint"), is_torn, "{errors}");
        let stem = expected.file_stem().unwrap().to_str().unwrap();
        let step = stem.trim_start_matches("checkpoint-").trim_start_matches('0');
        assert_has(&errors, &[&format!("goes on after step {step}")]);
        assert!(workplace.model(&name) == straight, "another model on {servers} servers");
    }
}

#[test]
fn cluster_that_is_not_there_is_one_line() {
    let workplace = Workplace::empty();
    for (registry, part) in
        [("parapet://127.0.0.1:1", "does not answer"), ("nowhere", "names no registry")]
    {
        let ended = workplace.run(&format!("worker --registry {registry}"));
        assert_ne!(ended.code, Some(0));
        assert_has(&ended.errors, &[part]);
    }
}
