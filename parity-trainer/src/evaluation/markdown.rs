//! An evaluation as Markdown.

use std::fmt::Write as _;

use super::{CodeEvaluation, Estimate};

/// The report of the code `title`; `control` is the same with the deployed model as its own parity
/// model. Classes are named after `class_names` where it has them.
pub fn markdown(
    title: &str,
    trained: &CodeEvaluation,
    control: &CodeEvaluation,
    class_names: &[String],
) -> String {
    let mut text = format!(
        "# {title}\n\n{} test samples, {} groups.\n\n",
        trained.samples, trained.groups
    );
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, trained, control, class_names);
    text
}

fn write_all(
    text: &mut String,
    trained: &CodeEvaluation,
    control: &CodeEvaluation,
    class_names: &[String],
) -> std::fmt::Result {
    writeln!(
        text,
        "| missing at once | figure | parity models | untrained control |\n|---|---|---|---|"
    )?;
    if let Some(accuracy) = trained.accuracy_deployed {
        writeln!(
            text,
            "| 0 | A_a, accuracy of the deployed model | {} | |",
            percent(accuracy)
        )?;
    }
    for (losses, control) in trained.by_losses.iter().zip(&control.by_losses) {
        let missing = losses.missing;
        if let (Some(own), Some(control)) = (losses.accuracy, control.accuracy) {
            let (own, control) = (estimate(own), estimate(control));
            writeln!(
                text,
                "| {missing} | A_d, accuracy of reconstructions | {own} | {control} |"
            )?;
        }
        if let (Some(own), Some(control)) = (losses.loss, control.loss) {
            let (own, control) = (points(own), points(control));
            writeln!(
                text,
                "| {missing} | loss, A_a - A_d over the same queries | {own} | {control} |"
            )?;
        }
        let (own, control) = (estimate(losses.agreement), estimate(control.agreement));
        writeln!(
            text,
            "| {missing} | agreement with the deployed model | {own} | {control} |"
        )?;
    }
    writeln!(
        text,
        "\nIn brackets: 95 % bootstrap intervals over groups, those of losses paired. The \
            untrained control is the deployed model used as its own parity model.\n\nConfidence: \
            ECE {:.3}.",
        trained.calibration.expected_error
    )?;
    if !trained.overall.is_empty() {
        let head = "\n| f, part of answers reconstructed | A_o |\n|---|---|";
        writeln!(text, "{head}")?;
        for point in &trained.overall {
            let (fraction, accuracy) = (percent(point.fraction), percent(point.accuracy));
            writeln!(text, "| {fraction} | {accuracy} |")?;
        }
    }
    write_parts(text, trained, class_names)
}

/// Tables by slot and by class.
fn write_parts(
    text: &mut String,
    trained: &CodeEvaluation,
    class_names: &[String],
) -> std::fmt::Result {
    writeln!(
        text,
        "\n| slot | A_d | agreement | reconstructions |\n|---|---|---|---|"
    )?;
    for slot in &trained.by_slot {
        let (accuracy, agreement) = (known(slot.accuracy), percent(slot.agreement));
        writeln!(
            text,
            "| {} | {accuracy} | {agreement} | {} |",
            slot.slot, slot.reconstructions
        )?;
    }
    writeln!(
        text,
        "\n| class | A_a | A_d | agreement | reconstructions |\n|---|---|---|---|---|"
    )?;
    for class in &trained.by_class {
        let name = class_names
            .get(class.class)
            .cloned()
            .unwrap_or_else(|| class.class.to_string());
        let (exact, accuracy) = (known(class.accuracy_deployed), known(class.accuracy));
        let agreement = percent(class.agreement);
        writeln!(
            text,
            "| {name} | {exact} | {accuracy} | {agreement} | {} |",
            class.reconstructions
        )?;
    }
    Ok(())
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

fn points(loss: Estimate) -> String {
    let points = |part: f64| format!("{:.2}", 100.0 * part);
    match loss.interval {
        Some((low, high)) => format!(
            "{} points [{}, {}]",
            points(loss.value),
            points(low),
            points(high)
        ),
        None => format!("{} points", points(loss.value)),
    }
}

fn known(part: Option<f64>) -> String {
    part.map_or_else(String::new, percent)
}

fn estimate(estimate: Estimate) -> String {
    match estimate.interval {
        Some((low, high)) => format!(
            "{} [{:.1}, {:.1}]",
            percent(estimate.value),
            100.0 * low,
            100.0 * high
        ),
        None => percent(estimate.value),
    }
}
