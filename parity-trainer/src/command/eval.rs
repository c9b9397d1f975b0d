//! `parity-trainer eval`.

use std::fs;
use std::path::PathBuf;

use parapet_config::repository::ModelToml;
use parapet_decoder::OutputSpec;
use parapet_encoder::{Code, CodeSpec};
use parity_trainer::data::Samples;
use parity_trainer::deployed::{self, CodeEntry, CodeNetworks, Deployed, OpenOptions};
use parity_trainer::evaluation::{
    CodeEvaluation, CodedModels, EvaluationPlan, ParityRow, evaluate, markdown, reliability_plot,
};
use parity_trainer::{TrainError, ensure};
use serde_json::json;

use super::{check_classes, load_data, write_json};
use crate::progress::Progress;
use crate::report;

const RESAMPLES: usize = 1000;
const TRIAL_SAMPLES: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// The data whose test set is asked about; without labels there is agreement only
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// The deployed model's input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    input: Option<String>,
    /// The deployed model's output, of a model with several
    #[arg(long, value_name = "TENSOR")]
    output: Option<String>,
    /// Kind of that output, as `train --output-kind` has it
    #[arg(long, value_name = "KIND[:TOLERANCE]")]
    output_kind: Option<OutputSpec>,
    /// Folder for the report: JSON, Markdown, plots
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Seed of the groups and of the resamples
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Its parity models, one for each row of the code that is there; or its learned code
    #[arg(long, value_name = "REPOSITORY/NAME,..")]
    #[arg(value_delimiter = ',', required = true)]
    parity: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let mut data = load_data(&args.data)?;
    let options = OpenOptions {
        input: args.input.clone(),
        output: args.output.clone(),
        kind: args.output_kind,
        lengths: None,
        threads,
    };
    let entries = open(args, threads, &data.test)?;
    let Some(CodeEntry { code, scaling, .. }) = entries.first() else {
        return Err(TrainError::Input("--parity is needed".to_owned()));
    };
    if let Some(padding) = &code.padding {
        let file = args.parity[0].join(ModelToml::FILE_NAME);
        let (field, test) = (format!("{}: code.padding", file.display()), &data.test);
        deployed::check_padding(&field, padding, &test.values, &test.shape)?;
    }
    scaling.check(&data.test.shape)?;
    scaling.apply(&data.test.shape, &mut data.test.values);
    let test = &data.test;
    let deployed = deployed::open(&args.model, &options, &test.shape, few(test))?;
    check_classes(&data, &deployed)?;
    if code.deployed != deployed.name {
        let (wanted, name) = (&code.deployed, &deployed.name);
        eprintln!("warning: the code was trained for {wanted:?}, this is {name:?}");
    }
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).map_err(TrainError::write(folder))?;
    }
    let spec = &code.spec;
    let evaluation = evaluate_code(&entries, &deployed, spec, test, args.seed)?;
    let code = Code::try_from(spec)?.label();
    let mut table = vec![("code".to_owned(), code.clone())];
    table.extend(report::evaluation(&evaluation));
    let error = evaluation.calibration.expected_error;
    table.push(("ECE of the confidence".to_owned(), format!("{error:.3}")));
    if let Some(folder) = &args.out {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(TrainError::write(&path))
        };
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let title = format!("{code}: {} for {}", names.join(", "), deployed.name);
        write("evaluation.md", &markdown(&title, &evaluation, &data.class_names))?;
        write("reliability.svg", &reliability_plot(&evaluation.calibration)?)?;
        let report = json!({
            "deployed": deployed.name,
            "parity": names,
            "code": code,
            "transform": spec.transform,
            "data_sha256": data.sha256,
            "seed": args.seed,
            "evaluation": evaluation,
        });
        write_json(&folder.join("evaluation.json"), &report)?;
        table.push(("written to".to_owned(), folder.display().to_string()));
    }
    report::print(&table);
    Ok(())
}

pub(super) fn judge(
    name: &str,
    models: CodedModels<'_>,
    test: &Samples,
    plan: EvaluationPlan,
) -> Result<CodeEvaluation, TrainError> {
    let mut progress = Progress::new(name, "groups evaluated");
    let evaluation = evaluate(models, test, plan, |done, groups| progress.at(done, groups))?;
    progress.finish();
    Ok(evaluation)
}

fn open(args: &Args, threads: usize, test: &Samples) -> Result<Vec<CodeEntry>, TrainError> {
    let options = OpenOptions { threads, ..OpenOptions::default() };
    let mut entries: Vec<CodeEntry> = Vec::new();
    for path in &args.parity {
        let entry = deployed::open_code(path, &options, &test.shape, few(test))?;
        let stands_alone = matches!(entry.networks, CodeNetworks::Learned(_));
        let problem = "--parity: a learned code stands alone; name nothing beside it";
        ensure!(!stands_alone || args.parity.len() == 1, TrainError::Input(problem.to_owned()));
        for other in &entries {
            check_rows(other, &entry)?;
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn evaluate_code(
    entries: &[CodeEntry],
    deployed: &Deployed,
    code: &CodeSpec,
    test: &Samples,
    seed: u64,
) -> Result<CodeEvaluation, TrainError> {
    let plan = EvaluationPlan { groupings: 1, resamples: RESAMPLES, seed };
    let (agreement, deployed) = (deployed.agreement()?, deployed.model.as_ref());
    let (mut rows, mut learned) = (Vec::new(), None);
    for entry in entries {
        let calibration = entry.code.calibration.as_ref();
        let row = |row, model| ParityRow { row, model, calibration };
        match &entry.networks {
            CodeNetworks::Parity(model) => rows.push(row(entry.code.row, model.as_ref())),
            CodeNetworks::Learned(networks) => {
                // One table stands for all rows.
                rows.extend((0..code.r).map(|number| row(number, deployed)));
                learned = Some(networks.as_ref());
            }
        }
    }
    judge("code", CodedModels { deployed, agreement, parity: &rows, code, learned }, test, plan)
}

/// Refuses parity models that are not different rows of one code.
fn check_rows(one: &CodeEntry, other: &CodeEntry) -> Result<(), TrainError> {
    let problem = match () {
        () if one.code.row == other.code.row => "they are the same row",
        () if one.code.spec != other.code.spec => "their codes differ",
        () if one.code.deployed != other.code.deployed => "their deployed models differ",
        () if one.scaling != other.scaling => "their input scalings differ",
        () => return Ok(()),
    };
    Err(TrainError::Input(format!(
        "--parity: {} and {} are not rows of one code: {problem}; name the parity models of one \
         training",
        one.name, other.name
    )))
}

pub(super) fn few(samples: &Samples) -> &[f32] {
    let few = TRIAL_SAMPLES.min(samples.len()) * samples.sample_len();
    samples.values.get(..few).unwrap_or_default()
}
