//! An evaluation as Markdown, with plots.

use std::collections::BTreeMap;

use super::{Calibration, CodeEvaluation, Estimate, Figures, percent};
use crate::Result;
use crate::run::plot::{Panel, Series, draw};

/// The report of the code `title`. Classes are named after `class_names` where it has them.
pub fn markdown(title: &str, trained: &CodeEvaluation, class_names: &[String]) -> String {
    let (samples, groups) = (trained.samples, trained.groups);
    let mut text = format!("# {title}\n\n{samples} test samples, {groups} groups.\n\n");
    text += "| missing at once | figure | |\n|---|---|---|\n";
    if let Some(accuracy) = trained.accuracy_deployed {
        let accuracy = percent(accuracy, 1);
        text += &format!("| 0 | A_a, accuracy of the deployed model | {accuracy} |\n");
    }
    for losses in &trained.by_losses {
        let missing = losses.missing;
        let mut row = |name, figure: Option<Estimate>, decimals, unit| {
            if let Some(figure) = figure {
                let figure = figure.hundredths(decimals, unit);
                text += &format!("| {missing} | {name} | {figure} |\n");
            }
        };
        let agreement = "agreement with the deployed model";
        row("A_d, accuracy of reconstructions", losses.accuracy, 1, " %");
        row("loss, A_a - A_d", losses.loss, 2, " points");
        row(agreement, Some(losses.agreement), 1, " %");
    }
    text += &format!(
        "\nIn brackets: 95 % bootstrap intervals over groups, those of losses paired, over the \
            same queries.\n\nConfidence: ECE {:.3}.\n",
        trained.calibration.expected_error
    );
    text += &parts("slot", &trained.by_slot, &[]);
    text += &parts("class", &trained.by_class, class_names);
    text
}

/// The table of the figures of each `part`, which has one of `names`, or its number.
fn parts(part: &str, all: &BTreeMap<usize, Figures>, names: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n| {part} | A_a | A_d | agreement | reconstructions |\n|---|---|---|---|---|\n");
    for (&number, figures) in all {
        let known = |part: Option<f64>| part.map_or(String::new(), |part| percent(part, 1));
        let cells = [
            names.get(number).cloned().unwrap_or_else(|| number.to_string()),
            known(figures.accuracy_deployed),
            known(figures.accuracy),
            percent(figures.agreement, 1),
            figures.reconstructions.to_string(),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// Confidence against the part that is right, as SVG.
pub fn reliability_plot(calibration: &Calibration) -> Result<String> {
    let bins = calibration.bins.iter();
    let series = |label, points| Series { label, points };
    let panel = Panel {
        x: "confidence of the reconstruction",
        y: "part that is right",
        y_range: Some((0.0, 1.0)),
        series: vec![
            series("reconstructions", bins.map(|bin| (bin.confidence, bin.right)).collect()),
            series("calibrated", vec![(0.0, 0.0), (1.0, 1.0)]),
        ],
    };
    draw(&format!("Reliability (ECE {:.3})", calibration.expected_error), &[panel])
}
