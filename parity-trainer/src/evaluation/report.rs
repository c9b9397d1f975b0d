//! An evaluation as Markdown, with plots.

use std::collections::BTreeMap;

use super::{Calibration, CodeEvaluation, Estimate, Figures, percent};
use crate::Result;
use crate::run::plot::{Panel, Series, draw};

/// The report of the code `title`; `control` is the same with the deployed model as its own parity
/// model. Classes are named after `class_names` where it has them.
pub fn markdown(
    title: &str,
    trained: &CodeEvaluation,
    control: &CodeEvaluation,
    class_names: &[String],
) -> String {
    let (samples, groups) = (trained.samples, trained.groups);
    let mut text = format!("# {title}\n\n{samples} test samples, {groups} groups.\n\n");
    text += "| missing at once | figure | parity models | untrained control |\n|---|---|---|---|\n";
    if let Some(accuracy) = trained.accuracy_deployed {
        let accuracy = percent(accuracy, 1);
        text += &format!("| 0 | A_a, accuracy of the deployed model | {accuracy} | |\n");
    }
    for (own, control) in trained.by_losses.iter().zip(&control.by_losses) {
        let missing = own.missing;
        let mut row = |name, own: Option<Estimate>, control: Option<Estimate>, decimals, unit| {
            if let Some((own, control)) = own.zip(control) {
                let [own, control] = [own, control].map(|one| one.hundredths(decimals, unit));
                text += &format!("| {missing} | {name} | {own} | {control} |\n");
            }
        };
        let (accuracy, loss) = ("A_d, accuracy of reconstructions", "loss, A_a - A_d");
        row(accuracy, own.accuracy, control.accuracy, 1, " %");
        row(loss, own.loss, control.loss, 2, " points");
        let (own, control) = (Some(own.agreement), Some(control.agreement));
        row("agreement with the deployed model", own, control, 1, " %");
    }
    text += &format!(
        "\nIn brackets: 95 % bootstrap intervals over groups, those of losses paired, over the \
            same queries. The untrained control is the deployed model used as its own parity \
            model.\n\nConfidence: ECE {:.3}.\n",
        trained.calibration.expected_error
    );
    if !trained.overall.is_empty() {
        text += "\n| f, part of answers reconstructed | A_o |\n|---|---|\n";
    }
    for point in &trained.overall {
        let (fraction, accuracy) = (percent(point.fraction, 1), percent(point.accuracy, 1));
        text += &format!("| {fraction} | {accuracy} |\n");
    }
    text += &parts("slot", &trained.by_slot, &[]);
    text += &parts("class", &trained.by_class, class_names);
    text
}

/// The table of the figures of each `part`, which has one of `names`, or its number.
fn parts(part: &str, all: &BTreeMap<usize, Figures>, names: &[String]) -> String {
    let mut text =
        format!("\n| {part} | A_a | A_d | agreement | reconstructions |\n|---|---|---|---|---|\n");
    for (&number, figures) in all {
        let name = names.get(number).cloned();
        let name = name.unwrap_or_else(|| number.to_string());
        let known = |part: Option<f64>| part.map_or(String::new(), |part| percent(part, 1));
        let cells = [
            name,
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
    let measured = bins.map(|bin| (bin.confidence, bin.right)).collect();
    let panel = Panel {
        x: "confidence of the reconstruction",
        y: "part that is right",
        y_range: Some((0.0, 1.0)),
        series: vec![
            series("reconstructions", measured),
            series("calibrated", vec![(0.0, 0.0), (1.0, 1.0)]),
        ],
    };
    let title = format!("Reliability (ECE {:.3})", calibration.expected_error);
    draw(&title, &[panel])
}

/// A_o against the part of reconstructed answers, of the trained parity models and of the untrained
/// control, as SVG; nothing where there are no labels.
pub fn overall_plot(trained: &CodeEvaluation, control: &CodeEvaluation) -> Result<Option<String>> {
    if trained.overall.is_empty() {
        return Ok(None);
    }
    let line = |label, report: &CodeEvaluation| {
        let points = report.overall.iter();
        let points = points.map(|point| (point.fraction, 100.0 * point.accuracy));
        let points = points.collect();
        Series { label, points }
    };
    let panel = Panel {
        x: "f, part of the answers that are reconstructed",
        y: "A_o, %",
        y_range: None,
        series: vec![
            line("parity models", trained),
            line("untrained control", control),
        ],
    };
    draw("Overall accuracy", &[panel]).map(Some)
}
