//! Models whose outputs are no class scores: trained for by their kind, measured by it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod served;

use common::{SIDE, Workplace, assert_has};
use parapet_onnx::GraphBuilder;

/// Weights of a layer that gives each quarter of the image its mean light, 0 to 1 each.
fn quarters(graph: GraphBuilder) -> GraphBuilder {
    let is_in = |quarter: usize, at: usize| {
        let (right, low) = (at % SIDE >= SIDE / 2, at / SIDE >= SIDE / 2);
        quarter == usize::from(right) + 2 * usize::from(low)
    };
    let pixels = SIDE * SIDE;
    let weight = |at: usize| f32::from(u8::from(is_in(at / pixels, at % pixels))) * 4.0;
    let weights: Vec<f32> = (0..4 * pixels).map(|at| weight(at) / pixels as f32).collect();
    graph.flatten().gemm(&weights, &[0.0; 4])
}

/// Scores of the quarters, sharpened: nearly 1 for the bright one.
fn bright(graph: GraphBuilder) -> GraphBuilder {
    let sharp: Vec<f32> = (0..16).map(|at| if at % 5 == 0 { 8.0 } else { 0.0 }).collect();
    quarters(graph).gemm(&sharp, &[0.0; 4]).softmax()
}

/// A deployed model of each kind for images of a bright quarter, and its tolerance.
pub(crate) fn models() -> [(&'static str, &'static str, Vec<u8>); 5] {
    let start = || GraphBuilder::new("input", &[1, SIDE, SIDE]);
    // The side and the height of the light, from -1 to 1.
    let light = [-2.0, 2.0, -1.0, 1.0];
    let regression = quarters(start()).gemm(&light, &[0.0]);
    // Right, low, and either.
    let labels = [-9.0, 9.0, -9.0, 9.0, -9.0, -9.0, 9.0, 9.0, -9.0, 9.0, 9.0, 9.0];
    let labels = quarters(start()).gemm(&labels, &[0.0, 0.0, -2.0]).sigmoid();
    let direction: Vec<f32> = (0..24).map(|at| (at * 7 % 11) as f32 - 5.0).collect();
    let embedding = bright(start()).gemm(&direction, &[0.5; 6]);
    // The quarter's corners, a row for each coordinate.
    let corners = [0., 8., 0., 8., 0., 0., 8., 8., 8., 16., 8., 16., 8., 8., 16., 16.];
    let localiser = bright(start()).gemm(&corners, &[0.0; 4]).reshape(&[1, 4]);
    let map: Vec<f32> = (0..32).map(|at| if at % 4 == at / 4 % 4 { 2.0 } else { 0.5 }).collect();
    let map = bright(start()).gemm(&map, &[0., 0., 0., 0., 0.6, 0.6, 0.6, 0.6]).reshape(&[2, 2, 2]);
    [
        ("regression:0.25", "[2, 1]", regression.finish("output").unwrap()),
        ("multi_label", "[2, 3]", labels.finish("output").unwrap()),
        ("embedding", "[2, 6]", embedding.finish("output").unwrap()),
        ("boxes", "[2, 1, 4]", localiser.finish("output").unwrap()),
        ("map", "[2, 2, 2, 2]", map.finish("output").unwrap()),
    ]
}

#[test]
fn each_kind_is_learned_and_one_step_is_not_enough() {
    let workplace = Workplace::new(3000, 100);
    for (kind, shape, onnx) in models() {
        std::fs::write(workplace.at("model.onnx"), onnx).unwrap();
        let line = format!(
            "train --model model.onnx --output-kind {kind} --data . --k 2 --augment none --seed 5 \
             --network mlp:256,32 --out models --name parity --json report.json"
        );
        let agreement = |steps: usize| {
            workplace.succeed(&format!("{line} --steps {steps}"));
            workplace.json("report.json")["agreement"].as_f64().unwrap()
        };
        let [untrained, trained] = [1, 1200].map(agreement);
        assert!(trained > 0.9, "{kind}: {trained}");
        assert!(untrained < 0.8, "{kind}: {untrained}");
        let card = workplace.toml("models/parity/model.toml");
        assert_eq!(card["outputs"][0]["shape"].to_string(), shape);
        let calibration = &card["code"]["calibration"];
        assert_eq!(calibration["agreement"].as_array().map(Vec::len), Some(1));
        assert!(calibration["error"].as_float().is_some(), "{card}");
        let eval = format!(
            "eval --model model.onnx --output-kind {kind} --data . --parity models/parity --out report"
        );
        assert_has(&workplace.succeed(&eval).out, &["agreement"]);
        let by_class = &workplace.json("report/evaluation.json")["evaluation"]["by_class"];
        assert_eq!(by_class.as_object().map(serde_json::Map::len), Some(0));
    }
}

#[test]
fn a_sum_is_learned_for_a_map_in_its_shape() {
    let workplace = Workplace::new(100, 40);
    let [.., (kind, _, onnx)] = models();
    std::fs::write(workplace.at("model.onnx"), onnx).unwrap();
    workplace.succeed(&format!(
        "train --model model.onnx --output-kind {kind} --data . --encoder sum --steps 20 \
         --network mlp:256,8 --out models --name parity"
    ));
    let card = workplace.toml("models/parity/model.toml");
    assert_eq!(card["outputs"][0]["shape"].to_string(), "[2, 2, 2]");
}

#[test]
fn a_kind_that_is_missing_or_does_not_fit_is_refused_with_its_flag() {
    let workplace = Workplace::new(40, 20);
    let [(.., onnx), ..] = models();
    std::fs::write(workplace.at("model.onnx"), onnx).unwrap();
    let line = "train --model model.onnx --data . --out models";
    for (more, part) in [
        ("", "output.kind: missing"),
        ("--output-kind classes", "output.kind: \"classes\""),
        ("--output-kind boxes", "boxes end in an axis of 4"),
        ("--output-kind regression", "output.tolerance: missing"),
    ] {
        workplace.refused(&format!("{line} {more}"), &[part, "--output-kind"]);
    }
    let unknown = workplace.run(&format!("{line} --output-kind number"));
    assert_has(&unknown.errors, &["--output-kind", "multi_label"]);
}
