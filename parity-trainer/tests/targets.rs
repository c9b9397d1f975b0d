//! Data whose labels are numbers: a localiser is trained on boxes, and judged by them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{SIDE, Workplace, write_quarters};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

/// Images of a bright rectangle, and its corners as parts of the side.
fn write_boxes(workplace: &Workplace) {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut arrays = Vec::new();
    for (split, count) in [("train", 1500), ("test", 200)] {
        let (mut images, mut boxes) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let [x1, y1] = [0; 2].map(|_| rng.random_range(0..SIDE - 7));
            let [x2, y2] = [x1, y1].map(|start| rng.random_range(start + 6..SIDE));
            for at in 0..SIDE * SIDE {
                let is_in = (x1..x2).contains(&(at % SIDE)) && (y1..y2).contains(&(at / SIDE));
                images.push(u8::from(is_in) * 200 + rng.random_range(0..40u8));
            }
            boxes.extend([x1, y1, x2, y2].map(|corner| corner as f32 / SIDE as f32));
        }
        let images = Tensor::from_slice(&images).view([-1, SIDE as i64, SIDE as i64]);
        arrays.push((format!("x_{split}"), images));
        arrays.push((format!("y_{split}"), Tensor::from_slice(&boxes).view([-1, 4])));
    }
    Tensor::write_safetensors(&arrays, workplace.at("boxes.safetensors")).unwrap();
}

#[test]
fn a_localiser_and_its_reconstructions_are_judged_by_boxes() {
    let workplace = Workplace::empty();
    write_boxes(&workplace);
    workplace.succeed(
        "train-deployed --data boxes.safetensors --output-kind boxes:0.25 --network mlp:256,96 \
         --epochs 60 --learning-rate 0.003 --out models --name boxes --json deployed.json",
    );
    let accuracy = workplace.json("deployed.json")["accuracy_deployed"].as_f64().unwrap();
    assert!(accuracy > 0.85, "{accuracy}");
    let card = workplace.toml("models/boxes/model.toml");
    assert_eq!(card["output"]["kind"].as_str(), Some("boxes"));
    let train = |steps: usize| {
        workplace.succeed(&format!(
            "train --model models/boxes --data boxes.safetensors --k 2 --seed 5 --steps {steps} \
             --network mlp:256,64 --augment none --learning-rate 0.003 --out models --name parity \
             --json report.json"
        ));
        let report = workplace.json("report.json");
        ["accuracy_deployed", "accuracy_reconstructed"].map(|figure| report[figure].as_f64())
    };
    let [_, untrained] = train(1);
    let [own, made] = train(1500);
    assert_eq!(own, Some(accuracy));
    assert!(untrained < Some(0.3) && made > Some(0.7), "{untrained:?}, {made:?}");
    workplace.succeed(
        "eval --model models/boxes --data boxes.safetensors --parity models/parity --out report",
    );
    let losses = &workplace.json("report/evaluation.json")["evaluation"]["by_losses"][0];
    let [value, low] = ["/loss/value", "/loss/interval/0"].map(|at| losses.pointer(at).cloned());
    assert!(value.is_some_and(|value| value.is_number()), "{losses}");
    assert!(low.is_none_or(|low| low.is_number()), "{losses}");
}

#[test]
fn targets_without_their_kind_and_kinds_without_targets_are_refused() {
    let workplace = Workplace::empty();
    write_boxes(&workplace);
    let line = "train-deployed --name m --out models --network mlp:256,8 --data boxes.safetensors";
    for (more, part) in [
        ("", "say what they are with --output-kind"),
        ("--output-kind classes", "say what they are with --output-kind"),
        ("--output-kind regression", "output.tolerance: missing"),
        ("--output-kind map", "output.kind: \"map\""),
        ("--output-kind boxes --augment shift", "--augment: targets do not move"),
    ] {
        workplace.refused(&format!("{line} {more}"), &[part]);
    }
    write_quarters(workplace.path(), 20, 10);
    std::fs::remove_file(workplace.at("boxes.safetensors")).unwrap();
    let line = "train-deployed --name m --out models --network mlp:256,8 --data .";
    workplace.refused(&format!("{line} --output-kind boxes"), &["only classes can be learned"]);
}
