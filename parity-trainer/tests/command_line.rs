//! The binary from end to end: entries that are complete, figures that hold, and one clear line for
//! bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{Workplace, assert_has};

const DEPLOYED: &str = "--network mlp:256,32 --epochs 8 --seed 5";
const PARITY: &str = "--encoder sum --network mlp:256,64 --steps 300 --seed 5 --augment none \
    --transform raw";

#[test]
fn parity_model_is_trained_for_a_deployed_one() {
    let workplace = Workplace::with_model(400, 100, DEPLOYED);
    workplace.succeed(&format!(
        "train --model models/quarters --data . --k 2 {PARITY} --out models --json report.json"
    ));
    let report = workplace.json("report.json");
    assert_eq!(report["code"], "sum-k2-r1");
    assert_eq!(report["reconstructions"], 1000);
    for (figure, least) in [("accuracy_deployed", 0.95), ("accuracy_reconstructed", 0.8)] {
        assert!(report[figure].as_f64() > Some(least), "{report}");
    }

    let card = workplace.toml("models/quarters-parity/model.toml");
    let code = &card["code"];
    assert_eq!(code["deployed"].as_str(), Some("quarters"));
    assert_eq!(code["encoder"].as_str(), Some("sum"));
    assert_eq!(code["generator"].as_array().map(Vec::len), Some(1));
    assert_eq!(card["inputs"][0]["shape"].as_array().map(Vec::len), Some(3));
    assert_eq!(card["training"]["seed"].as_integer(), Some(5));
    assert!(code["calibration"]["agreement"].is_array(), "{card}");
    let model = workplace.at("models/quarters-parity/1/model.onnx");
    assert!(model.is_file());
    let entries = fs::read_dir(workplace.at("models")).unwrap().count();
    let whole = "two entries, the cache and the runs, nothing half-written";
    assert_eq!(entries, 4, "{whole}");
}

#[test]
fn images_alone_are_enough_for_a_parity_model() {
    let workplace = Workplace::with_model(400, 100, DEPLOYED);
    fs::create_dir(workplace.at("images")).unwrap();
    for file in ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte"] {
        fs::copy(workplace.at(file), workplace.at("images").join(file)).unwrap();
    }
    let train = format!(
        "train --model models/quarters --data images {PARITY} --out models --name parity --json \
            report.json"
    );
    let errors = workplace.succeed(&train).errors;
    assert_has(&errors, &["test samples of shape [1, 16, 16], no labels"]);
    let report = workplace.json("report.json");
    assert!(report["accuracy_deployed"].is_null(), "{report}");
    assert!(report["accuracy_reconstructed"].is_null(), "{report}");
    assert!(report["agreement"].as_f64() > Some(0.8), "{report}");

    let eval = "eval --model models/quarters --data images --parity models/parity --out report";
    let told = workplace.succeed(eval).out;
    assert!(told.contains("agreement"), "{told}");
    assert!(!told.contains("A_a") && !told.contains("A_d"), "{told}");
    let report = &workplace.json("report/evaluation.json")["evaluation"];
    assert!(report["accuracy_deployed"].is_null(), "{report}");
    let agreement = &report["by_losses"][0]["agreement"]["value"];
    assert!(agreement.as_f64() > Some(0.8), "{report}");

    let line = "train-deployed --data images --out models --name unlabelled";
    workplace.refused(line, &["images: has no labels, which are needed to train"]);
    assert!(!workplace.at("models/.runs/unlabelled").exists());
}

#[test]
fn one_seed_makes_one_model() {
    let workplace = Workplace::new(60, 20);
    let model = || {
        workplace.train_deployed(DEPLOYED);
        workplace.model("quarters")
    };
    assert!(model() == model());
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let workplace = Workplace::with_model(60, 20, DEPLOYED);
    let out = "--data . --out models --name parity";
    for case in [
        "--k 1 => code.k: 1",
        "--k 2 --r 3 --encoder sum => code.r: 3",
        "--k 3 --r 2 --encoder concat => \"concat\" has r = 1 and a generator of ones",
        "--network mlp:100,5 => takes samples of 100 values",
        "--input-mean 1,2 => --input-mean: 2 values; give 1",
        "--validation 0.9 => --validation 0.9: out of range; give a number from 0.01 to 0.5",
        "--json nowhere/report.json => --json nowhere/report.json: there is no folder nowhere",
    ] {
        let (settings, part) = case.split_once(" => ").unwrap();
        let train = format!("train --model models/quarters {out} --steps 1 {settings}");
        workplace.refused(&train, &[part]);
        assert!(!workplace.at("models/parity").exists());
    }
    let none = format!("train --model models/none {out}");
    workplace.refused(&none, &["models/none: no such model; give"]);
    let nowhere = "train-deployed --data nowhere --out models --name parity";
    workplace.refused_at_once(nowhere, &["no train-images-idx3-ubyte[.gz]"]);
    for (setting, named) in [
        ("batch = \"many\"", "batch: invalid type: string \"many\", expected a whole number"),
        ("bach = 8", "unknown setting `bach`"),
    ] {
        fs::write(workplace.at("wrong.toml"), format!("# mine\n\n{setting}\n")).unwrap();
        let named = format!("wrong.toml: line 3: {named}");
        workplace.refused_at_once("train-deployed --config wrong.toml", &[&named]);
    }
    fs::write(workplace.at("wrong.toml"), "steps = \"many\"\n").unwrap();
    let named = "wrong.toml: line 1: steps: invalid type: string \"many\", expected";
    workplace.refused_at_once("train --config wrong.toml", &[named]);
    let no_data = "--data is needed, here or as `data` in";
    workplace.refused_at_once("train-deployed", &[no_data]);
    let network = format!("train --model models/quarters {out} --network resnet");
    let name = format!("train-deployed {out}/../escape");
    for (line, part) in [(network, "no such network"), (name, "a model's name has letters")] {
        let ended = workplace.run(&line);
        assert_eq!(ended.code, Some(2));
        assert_has(&ended.errors, &[part]);
    }
}

#[test]
fn model_of_no_known_kind_is_refused_in_one_line() {
    let workplace = Workplace::new(60, 20);
    for file in ["train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"] {
        fs::remove_file(workplace.at(file)).unwrap();
    }
    let (shape, values) = ([1, common::SIDE, common::SIDE], common::SIDE * common::SIDE);
    let one_value = parapet_onnx::linear_model(&shape, &vec![0.01; values], &[0.0]);
    let three_axes = parapet_onnx::GraphBuilder::new("input", &shape).relu();
    let (one_says, three_say) = ("[1]", "[1, 16, 16]");
    for (name, graph, says) in
        [("value", one_value, one_says), ("map", three_axes.finish("output"), three_say)]
    {
        fs::write(workplace.at(&format!("{name}.onnx")), graph.unwrap()).unwrap();
        for encoder in ["sum", "learned"] {
            let line = format!(
                "train --model {name}.onnx --data . --encoder {encoder} --network mlp:256,8 \
                    --steps 2 --augment none --transform raw --out models --name parity"
            );
            let says = format!("{name}.onnx: output.kind: missing, for an output of shape {says};");
            workplace.refused(&line, &[&says, "--output-kind"]);
            assert!(!workplace.at("models").exists(), "something was trained");
        }
    }
}

#[test]
fn data_of_one_class_train_no_deployed_model() {
    let workplace = Workplace::empty();
    common::write_vectors(workplace.path(), |_| 0);
    let line = "train-deployed --data . --network mlp:6 --epochs 1 --out models --name constant";
    workplace.refused(line, &["all of its labels are one class"]);
    assert!(!workplace.at("models").exists());
}

#[test]
fn concatenation_wants_images() {
    let workplace = Workplace::empty();
    common::write_vectors(workplace.path(), |number| (number % 2) as u8);
    workplace.train_deployed("--network mlp:6 --epochs 1");
    let line = "train --model models/quarters --data . --encoder concat --steps 1 --out models \
        --name parity";
    workplace.refused(line, &["use \"sum\""]);
}

#[test]
fn device_that_is_not_there_is_refused() {
    let workplace = Workplace::empty();
    let line = "train-deployed --data . --out models --name quarters --device";
    let parts = ["--device cuda:99: libtorch sees ", "--device cpu"];
    workplace.refused_at_once(&format!("{line} cuda:99"), &parts);
    let ended = workplace.run(&format!("{line} tpu"));
    assert_eq!(ended.code, Some(2));
    assert_has(&ended.errors, &["give cpu, cuda or cuda:N"]);
}

/// The same training on the processor and on a card; only where there is one.
#[test]
fn card_learns_what_the_processor_learns() {
    if !tch::Cuda::is_available() {
        eprintln!("NOT TESTED: there is no CUDA here");
        return;
    }
    let workplace = Workplace::with_model(400, 100, DEPLOYED);
    for network in ["mlp:256,64", "resnet8:4"] {
        let figures = |device: &str| {
            workplace.succeed(&format!(
                "train --model models/quarters --data . --k 2 --encoder sum --network {network} \
                    --steps 40 --seed 5 --augment none --transform raw --out models --name \
                    {device} --json {device}.json --device {device}"
            ));
            let report = workplace.json(&format!("{device}.json"));
            let accuracy = report["accuracy_reconstructed"].as_f64().unwrap();
            (workplace.model(device).len(), accuracy)
        };
        let (processor, card) = (figures("cpu"), figures("cuda"));
        assert_eq!(processor.0, card.0);
        let apart = (processor.1 - card.1).abs();
        assert!(apart < 0.02, "{network}: {processor:?} and {card:?}");
    }
}
