//! `parity-trainer eval-berrut`.

use std::fmt::Write as _;

use parapet_encoder::{CodeSpec, DEFAULT_FLOOR, EncoderKind, OutputTransform};
use parity_trainer::TrainError;
use parity_trainer::data::Samples;
use parity_trainer::deployed::{DeployedModel, InputScaling};
use parity_trainer::evaluation::{
    ByLosses, ByWorker, CodedModels, EvaluationPlan, InterpolationPlan, evaluate, evaluate_interpolation,
};
use serde::Serialize;

use super::subject::{RESAMPLES, SubjectArgs, write};
use super::write_json;
use crate::progress::Counter;
use crate::report;

/// Arguments of `eval-berrut`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Queries in a group
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_value = "2,4,8,12")]
    k: Vec<usize>,
    /// Coded queries beyond k; in the systematic form, coded queries beside the k
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    spare: u8,
    /// Which queries are coded
    #[arg(long, value_enum, value_delimiter = ',', default_value = "every,systematic")]
    form: Vec<Form>,
    /// In which domain outputs are interpolated
    #[arg(long, value_enum, value_delimiter = ',', default_value = "raw,log-softmax")]
    transform: Vec<Transform>,
    /// What the model's input is scaled with: input = (sample - mean) * scale
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    input_scale: f32,
    /// What is subtracted first, one for all values or one for each channel
    #[arg(long, value_name = "MEAN,..", value_delimiter = ',', allow_negative_numbers = true)]
    input_mean: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Every query is coded, as the authors do
    Every,
    /// Queries are sent as they are, and coded ones beside them
    Systematic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Transform {
    Raw,
    LogSoftmax,
}

impl Transform {
    fn of(self) -> OutputTransform {
        match self {
            Self::Raw => OutputTransform::Raw,
            Self::LogSoftmax => OutputTransform::LogSoftmax { floor: DEFAULT_FLOOR },
        }
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    deployed: &'a str,
    data_sha256: &'a str,
    seed: u64,
    samples: usize,
    accuracy_deployed: Option<f64>,
    codes: &'a [Code],
}

/// Figures of one code.
#[derive(Debug, Serialize)]
struct Code {
    form: Form,
    k: usize,
    spare: usize,
    transform: OutputTransform,
    groups: usize,
    /// By how many outputs are missing: of the coded ones where every query is coded, of the queries' own in the systematic
    /// form.
    by_losses: Vec<ByLosses>,
    /// Where every query is coded, by which output is missing.
    by_worker: Vec<ByWorker>,
}

/// Evaluates, prints and writes the report.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let mut data = args.subject.load()?;
    let scaling = InputScaling { scale: args.input_scale, mean: args.input_mean.clone() };
    let deployed = args.subject.open(&mut data, &scaling, threads)?;
    let (test, folder) = (&data.test, args.subject.report_folder()?);
    let (mut codes, mut accuracy) = (Vec::new(), None);
    for &form in &args.form {
        for &k in &args.k {
            for &transform in &args.transform {
                let wanted = (form, k, transform.of());
                let (code, accuracy_deployed) = evaluated(args, wanted, deployed.model.as_ref(), test)?;
                accuracy = accuracy_deployed;
                codes.push(code);
            }
        }
    }
    let mut table = vec![("deployed model".to_owned(), deployed.name.clone())];
    table.extend(accuracy.map(|part| ("A_a, deployed model".to_owned(), report::percent(part))));
    table.extend(codes.iter().flat_map(rows));
    if let Some(folder) = folder {
        write(folder, "berrut.md", &markdown(&deployed.name, accuracy, &codes))?;
        let report = Report {
            deployed: &deployed.name,
            data_sha256: &data.sha256,
            seed: args.subject.seed,
            samples: test.len(),
            accuracy_deployed: accuracy,
            codes: &codes,
        };
        write_json(Some(&folder.join("berrut.json")), &report)?;
        table.push(("written to".to_owned(), folder.display().to_string()));
    }
    report::print(&table);
    Ok(())
}

fn evaluated(
    args: &Args,
    (form, k, transform): (Form, usize, OutputTransform),
    deployed: &dyn DeployedModel,
    test: &Samples,
) -> Result<(Code, Option<f64>), TrainError> {
    let (spare, seed) = (usize::from(args.spare), args.subject.seed);
    let mut counter = Counter::new(&format!("k = {k}"), "groups evaluated");
    let progress = |done, groups| counter.at(done, groups);
    let (groups, by_losses, by_worker, accuracy) = match form {
        Form::Every => {
            let transform = transform.clone();
            let plan = InterpolationPlan { k, spare, transform, resamples: RESAMPLES, seed };
            let report = evaluate_interpolation(deployed, test, &plan, progress)?;
            (report.groups, report.by_losses, report.by_worker, report.accuracy_deployed)
        }
        Form::Systematic => {
            let transform = transform.clone();
            let code = &CodeSpec { transform, ..CodeSpec::new(EncoderKind::Berrut, k, spare) };
            let rows: Vec<(usize, &dyn DeployedModel)> = (0..spare).map(|row| (row, deployed)).collect();
            let models = CodedModels { deployed, parity: &rows, code, calibrations: &[] };
            let plan = EvaluationPlan { groupings: 1, resamples: RESAMPLES, seed };
            let report = evaluate(models, test, plan, progress)?;
            (report.groups, report.by_losses, Vec::new(), report.accuracy_deployed)
        }
    };
    counter.finish();
    Ok((Code { form, k, spare, transform, groups, by_losses, by_worker }, accuracy))
}

impl Code {
    fn title(&self) -> String {
        let (k, spare) = (self.k, self.spare);
        let domain = if self.transform.is_raw() { "raw" } else { "log-softmax" };
        match self.form {
            Form::Every => format!("berrut-k{k}-s{spare} (every query coded), {domain}"),
            Form::Systematic => format!("berrut-k{k}-r{spare} (systematic), {domain}"),
        }
    }
}

fn rows(code: &Code) -> impl Iterator<Item = (String, String)> {
    code.by_losses.iter().map(|losses| {
        let figure = losses.accuracy.unwrap_or(losses.agreement);
        let what = if losses.accuracy.is_some() { "A_d" } else { "agreement" };
        (format!("{}, {what} with {} missing", code.title(), losses.missing), report::estimate(figure))
    })
}

fn markdown(deployed: &str, accuracy: Option<f64>, codes: &[Code]) -> String {
    let mut text = format!("# Interpolation for {deployed}\n\n");
    // Writing to a String cannot fail.
    let _ = write_markdown(&mut text, accuracy, codes);
    text
}

fn write_markdown(text: &mut String, accuracy: Option<f64>, codes: &[Code]) -> std::fmt::Result {
    if let Some(accuracy) = accuracy {
        writeln!(text, "A_a, accuracy of the deployed model: {}.\n", report::percent(accuracy))?;
    }
    writeln!(
        text,
        "| code | outputs missing | A_d | agreement with the deployed model |\n|---|---|---|---|"
    )?;
    for code in codes {
        for losses in &code.by_losses {
            let accuracy = losses.accuracy.map(report::estimate).unwrap_or_default();
            let (title, missing, agreement) =
                (code.title(), losses.missing, report::estimate(losses.agreement));
            writeln!(text, "| {title} | {missing} | {accuracy} | {agreement} |")?;
        }
    }
    writeln!(
        text,
        "\nAverages over every pattern of so many missing outputs and over all groups of a seeded shuffle of the test set. In \
         brackets: 95 % bootstrap intervals over groups."
    )
}
