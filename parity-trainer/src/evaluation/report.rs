//! An evaluation as Markdown, with plots.

use super::{ByClass, BySlot, Calibration, CodeEvaluation, Estimate};
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
    if let Some(accuracy) = trained.accuracy_deployed.map(percent) {
        text += &format!("| 0 | A_a, accuracy of the deployed model | {accuracy} | |\n");
    }
    for (own, control) in trained.by_losses.iter().zip(&control.by_losses) {
        let missing = own.missing;
        let agreement = (Some(own.agreement), Some(control.agreement));
        for (name, (own, control), decimals, unit) in [
            (
                "A_d, accuracy of reconstructions",
                (own.accuracy, control.accuracy),
                1,
                " %",
            ),
            (
                "loss, A_a - A_d over the same queries",
                (own.loss, control.loss),
                2,
                " points",
            ),
            ("agreement with the deployed model", agreement, 1, " %"),
        ] {
            let told = |figure: Option<Estimate>| Some(figure?.hundredths(decimals, unit));
            if let Some((own, control)) = told(own).zip(told(control)) {
                text += &format!("| {missing} | {name} | {own} | {control} |\n");
            }
        }
    }
    text += &format!(
        "\nIn brackets: 95 % bootstrap intervals over groups, those of losses paired. The \
            untrained control is the deployed model used as its own parity model.\n\nConfidence: \
            ECE {:.3}.\n",
        trained.calibration.expected_error
    );
    if !trained.overall.is_empty() {
        text += "\n| f, part of answers reconstructed | A_o |\n|---|---|\n";
    }
    for point in &trained.overall {
        let (fraction, accuracy) = (percent(point.fraction), percent(point.accuracy));
        text += &format!("| {fraction} | {accuracy} |\n");
    }
    text += "\n| slot | A_d | agreement | reconstructions |\n|---|---|---|---|\n";
    for BySlot { slot, figures } in &trained.by_slot {
        let (accuracy, count) = (known(figures.accuracy), figures.reconstructions);
        let agreement = percent(figures.agreement);
        text += &format!("| {slot} | {accuracy} | {agreement} | {count} |\n");
    }
    text += "\n| class | A_a | A_d | agreement | reconstructions |\n|---|---|---|---|---|\n";
    for ByClass { class, figures } in &trained.by_class {
        let name = class_names.get(*class).cloned();
        let name = name.unwrap_or_else(|| class.to_string());
        let (accuracy, count) = (known(figures.accuracy), figures.reconstructions);
        let (exact, agreement) = (known(figures.accuracy_deployed), percent(figures.agreement));
        text += &format!("| {name} | {exact} | {accuracy} | {agreement} | {count} |\n");
    }
    text
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

fn known(part: Option<f64>) -> String {
    part.map_or_else(String::new, percent)
}

fn series(label: &str, points: Vec<(f64, f64)>) -> Series {
    let label = label.to_owned();
    Series { label, points }
}

/// Confidence against the part that is right, as SVG.
pub fn reliability_plot(calibration: &Calibration) -> Result<String> {
    let bins = calibration.bins.iter();
    let measured = bins.map(|bin| (bin.confidence, bin.right)).collect();
    let panel = Panel {
        x: "confidence of the reconstruction".to_owned(),
        y: "part that is right".to_owned(),
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
    let line = |label: &str, report: &CodeEvaluation| {
        let points = report.overall.iter();
        let points = points.map(|point| (point.fraction, 100.0 * point.accuracy));
        series(label, points.collect())
    };
    let panel = Panel {
        x: "f, part of the answers that are reconstructed".to_owned(),
        y: "A_o, %".to_owned(),
        y_range: None,
        series: vec![
            line("parity models", trained),
            line("untrained control", control),
        ],
    };
    draw("Overall accuracy", &[panel]).map(Some)
}
