//! The binary from end to end: entries that are complete, figures that hold, and one clear line for
//! bad input.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::Path;

use common::{complaint, trainer, write_quarters};

fn train_deployed(folder: &Path) {
    let line = "train-deployed --data . --network mlp:256,32 --epochs 8 --seed 5 --augment none \
        --out models --name quarters";
    let output = trainer(folder, line);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_parity_model_is_trained_for_a_deployed_one() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 400, 100);
    train_deployed(folder.path());
    let line = "train --model models/quarters --data . --k 2 --encoder sum --network mlp:256,64 \
        --steps 300 --seed 5 --augment none --transform raw --out models --name quarters-parity \
        --json report.json";
    let output = trainer(folder.path(), line);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let report = fs::read_to_string(folder.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["code"], "sum-k2-r1");
    assert_eq!(report["reconstructions"], 1000);
    assert!(
        report["accuracy_deployed"].as_f64().unwrap() > 0.95,
        "{report}"
    );
    assert!(
        report["accuracy_reconstructed"].as_f64().unwrap() > 0.8,
        "{report}"
    );

    let entry = folder.path().join("models/quarters-parity");
    let card: toml::Table = fs::read_to_string(entry.join("model.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(card["code"]["deployed"].as_str(), Some("quarters"));
    assert_eq!(card["code"]["encoder"].as_str(), Some("sum"));
    assert_eq!(card["code"]["generator"].as_array().map(Vec::len), Some(1));
    assert_eq!(card["inputs"][0]["shape"].as_array().map(Vec::len), Some(3));
    assert_eq!(card["training"]["seed"].as_integer(), Some(5));
    assert!(
        card["code"]["calibration"]["agreement"].is_array(),
        "{card}"
    );
    assert!(entry.join("1/model.onnx").is_file());
    let entries: Vec<_> = fs::read_dir(folder.path().join("models"))
        .unwrap()
        .collect();
    assert_eq!(
        entries.len(),
        4,
        "two entries, the cache and the runs, nothing half-written: {entries:?}"
    );
}

#[test]
fn images_alone_are_enough_for_a_parity_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_quarters(folder, 400, 100);
    train_deployed(folder);
    let images = folder.join("images");
    fs::create_dir(&images).unwrap();
    for file in ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte"] {
        fs::copy(folder.join(file), images.join(file)).unwrap();
    }
    let line = "train --model models/quarters --data images --encoder sum --network mlp:256,64 \
        --steps 300 --seed 5 --augment none --transform raw --out models --name parity --json \
        report.json";
    let message = common::succeed_saying(folder, line);
    assert!(
        message.contains("test samples of shape [1, 16, 16], no labels"),
        "{message}"
    );
    let report = fs::read_to_string(folder.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(
        report["accuracy_deployed"].is_null() && report["accuracy_reconstructed"].is_null(),
        "{report}"
    );
    assert!(report["agreement"].as_f64().unwrap() > 0.8, "{report}");

    let line = "eval --model models/quarters --data images --parity models/parity --out report";
    let told = common::succeed(folder, line);
    assert!(
        told.contains("agreement") && !told.contains("A_a") && !told.contains("A_d"),
        "{told}"
    );
    let report = fs::read_to_string(folder.join("report/evaluation.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(
        report["evaluation"]["accuracy_deployed"].is_null(),
        "{report}"
    );
    assert!(
        report["evaluation"]["by_losses"][0]["agreement"]["value"]
            .as_f64()
            .unwrap()
            > 0.8,
        "{report}"
    );

    let line = "train-deployed --data images --out models --name unlabelled";
    let message = common::last_complaint(folder, line);
    assert!(
        message.contains("images: has no labels, which are needed to train"),
        "{message}"
    );
    assert!(!folder.join("models/.runs/unlabelled").exists());
}

#[test]
fn one_seed_makes_one_model() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 60, 20);
    let model = || {
        train_deployed(folder.path());
        fs::read(folder.path().join("models/quarters/1/model.onnx")).unwrap()
    };
    assert!(model() == model());
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 60, 20);
    train_deployed(folder.path());
    let parity = |rest: &str| {
        let line = format!(
            "train --model models/quarters --data . --out models --name parity --steps 1 {rest}"
        );
        let message = complaint(folder.path(), &line);
        assert!(!folder.path().join("models/parity").exists());
        message
    };
    assert!(parity("--k 1").contains("code.k: 1"));
    assert!(parity("--k 2 --r 3 --encoder sum").contains("code.r: 3"));
    assert!(parity("--k 2 --row 1 --encoder sum").contains("--row 1: the code has rows 0 to 0"));
    assert!(parity("--k 3 --r 2 --encoder concat").contains("\"concat\" supports r = 1"));
    assert!(parity("--network mlp:100,5").contains("takes samples of 100 values"));
    assert!(parity("--input-mean 1,2").contains("--input-mean: 2 values; give 1"));
    assert!(
        parity("--validation 0.9")
            .contains("--validation 0.9: out of range; give a number from 0.01 to 0.5")
    );
    assert!(parity("--network resnet").contains("no such network"));

    let out = "--out models --name parity";
    let missing = complaint(
        folder.path(),
        &format!("train --model models/none --data . {out}"),
    );
    assert!(
        missing.contains("models/none: no such model; give"),
        "{missing}"
    );
    let no_data = complaint(
        folder.path(),
        &format!("train-deployed --data nowhere {out}"),
    );
    assert!(
        no_data.contains("no train-images-idx3-ubyte[.gz]"),
        "{no_data}"
    );
    assert_eq!(no_data.lines().count(), 1, "{no_data}");
    let report = parity("--json nowhere/report.json");
    assert!(
        report.contains("--json nowhere/report.json: there is no folder nowhere"),
        "{report}"
    );
    let name = complaint(
        folder.path(),
        "train-deployed --data . --out models --name ../escape",
    );
    assert!(name.contains("a model's name has letters"), "{name}");
}

#[test]
fn a_model_without_class_scores_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_quarters(folder, 60, 20);
    for file in ["train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    let (shape, values) = ([1, common::SIDE, common::SIDE], common::SIDE * common::SIDE);
    let one_value = parapet_onnx::linear_model(&shape, &vec![0.01; values], &[0.0]).unwrap();
    let three_axes = parapet_onnx::GraphBuilder::new("input", &shape)
        .relu()
        .finish("output")
        .unwrap();
    for (name, graph, says) in [
        (
            "value",
            one_value,
            "value.onnx: its output has one value a sample, ",
        ),
        (
            "map",
            three_axes,
            "map.onnx: its output has the shape [1, 16, 16] a sample, ",
        ),
    ] {
        fs::write(folder.join(format!("{name}.onnx")), graph).unwrap();
        for encoder in ["sum", "learned"] {
            let line = format!(
                "train --model {name}.onnx --data . --encoder {encoder} --network mlp:256,8 \
                    --steps 2 --augment none --transform raw --out models --name parity"
            );
            let message = common::last_complaint(folder, &line);
            assert!(
                message.contains(says) && message.contains("top class"),
                "{message}"
            );
            assert!(!folder.join("models").exists(), "nothing was trained");
        }
    }
}

#[test]
fn data_of_one_class_train_no_deployed_model() {
    let folder = tempfile::tempdir().unwrap();
    for (split, count) in [("train", 40), ("t10k", 10)] {
        let bytes: Vec<u8> = (0..count * 6).map(|value| value as u8).collect();
        let (images, labels) = (
            common::idx(&[count, 6], &bytes),
            common::idx(&[count], &vec![0; count]),
        );
        fs::write(
            folder.path().join(format!("{split}-images-idx2-ubyte")),
            images,
        )
        .unwrap();
        fs::write(
            folder.path().join(format!("{split}-labels-idx1-ubyte")),
            labels,
        )
        .unwrap();
    }
    let line = "train-deployed --data . --network mlp:6 --epochs 1 --out models --name constant";
    let message = common::last_complaint(folder.path(), line);
    assert!(
        message.contains("all of its labels are one class"),
        "{message}"
    );
    assert!(!folder.path().join("models").exists());
}

#[test]
fn concatenation_wants_images() {
    let folder = tempfile::tempdir().unwrap();
    for (split, count) in [("train", 40), ("t10k", 10)] {
        let bytes: Vec<u8> = (0..count * 6).map(|value| value as u8).collect();
        let labels: Vec<u8> = (0..count).map(|value| (value % 2) as u8).collect();
        let (images, labels) = (
            common::idx(&[count, 6], &bytes),
            common::idx(&[count], &labels),
        );
        fs::write(
            folder.path().join(format!("{split}-images-idx2-ubyte")),
            images,
        )
        .unwrap();
        fs::write(
            folder.path().join(format!("{split}-labels-idx1-ubyte")),
            labels,
        )
        .unwrap();
    }
    let line = "train-deployed --data . --network mlp:6 --epochs 1 --out models --name vectors";
    assert!(trainer(folder.path(), line).status.success());
    let line = "train --model models/vectors --data . --encoder concat --steps 1 --out models \
        --name parity";
    let message = complaint(folder.path(), line);
    assert!(message.contains("use encoder = \"sum\""), "{message}");
}

#[test]
fn a_device_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let line = |device: &str| {
        format!("train-deployed --data . --out models --name quarters --device {device}")
    };
    let message = complaint(folder.path(), &line("cuda:99"));
    assert!(
        message.contains("--device cuda:99: libtorch sees ") && message.contains("--device cpu"),
        "{message}"
    );
    let output = trainer(folder.path(), &line("tpu"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("give cpu, cuda or cuda:N"));
}

/// The same training on the processor and on a card; only where there is one.
#[test]
fn a_card_learns_what_the_processor_learns() {
    if !tch::Cuda::is_available() {
        eprintln!("NOT TESTED: there is no CUDA here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 400, 100);
    train_deployed(folder.path());
    for network in ["mlp:256,64", "resnet8:4"] {
        let loss = |device: &str| {
            let name = format!("parity-{device}");
            let line = format!(
                "train --model models/quarters --data . --k 2 --encoder sum --network {network} \
                    --steps 40 --seed 5 --augment none --transform raw --out {device} --name \
                    {name} --json {device}.json --device {device}"
            );
            let output = trainer(folder.path(), &line);
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let weights =
                fs::read(folder.path().join(device).join(name).join("1/model.onnx")).unwrap();
            let report = fs::read_to_string(folder.path().join(format!("{device}.json"))).unwrap();
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            (
                weights.len(),
                report["accuracy_reconstructed"].as_f64().unwrap(),
            )
        };
        let (processor, card) = (loss("cpu"), loss("cuda"));
        assert_eq!(processor.0, card.0);
        assert!(
            (processor.1 - card.1).abs() < 0.02,
            "{network}: {} and {}",
            processor.1,
            card.1
        );
    }
}
