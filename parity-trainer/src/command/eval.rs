//! `parity-trainer eval`.

use std::path::PathBuf;

use parapet_config::repository::CodeMetadata;
use parapet_decoder::Calibration;
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parity_trainer::data::Samples;
use parity_trainer::deployed::{
    self, Deployed, DeployedError, DeployedModel, InputScaling, LearnedEntry, OpenOptions,
    ParityEntry,
};
use parity_trainer::evaluation::{
    CodeEvaluation, CodedModels, EvaluationPlan, evaluate, evaluate_with, markdown, overall_plot,
    reliability_plot,
};
use parity_trainer::{SetupError, TrainError};
use serde::Serialize;

use super::subject::{RESAMPLES, SubjectArgs, few, write};
use super::write_json;
use crate::progress::Counter;
use crate::report;

/// Arguments of `eval`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Its parity models, one for each row of the code that is there; or its learned code
    #[arg(
        long,
        value_name = "REPOSITORY/NAME,..",
        value_delimiter = ',',
        required = true
    )]
    parity: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    deployed: &'a str,
    parity: Vec<&'a str>,
    code: String,
    transform: &'a parapet_encoder::OutputTransform,
    data_sha256: &'a str,
    seed: u64,
    evaluation: &'a CodeEvaluation,
    /// The deployed model as its own parity model; beside a learned code, that of the sum.
    untrained_control: &'a CodeEvaluation,
}

/// Evaluates, prints and writes the report.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let mut data = args.subject.load()?;
    let judged = Judged::open(args, threads, &data.test)?;
    let (metadata, scaling) = judged.trained_for()?;
    let deployed = args.subject.open(&mut data, scaling, threads)?;
    let test = &data.test;
    if metadata.deployed != deployed.name {
        let (wanted, name) = (&metadata.deployed, &deployed.name);
        eprintln!("warning: the code was trained for {wanted:?}, this is {name:?}");
    }
    let folder = args.subject.report_folder()?;
    let spec = &metadata.spec;
    let plan = EvaluationPlan {
        groupings: 1,
        resamples: RESAMPLES,
        seed: args.subject.seed,
    };
    let trained = judged.evaluate(deployed.model.as_ref(), spec, test, plan)?;
    let control = judged.control(deployed.model.as_ref(), spec, test, plan)?;

    let names = judged.names();
    let code = parapet_encoder::Code::try_from(spec)?.label();
    if let Some(folder) = folder {
        let title = format!("{code}: {} for {}", names.join(", "), deployed.name);
        let text = markdown(&title, &trained, &control, &data.class_names);
        write(folder, "evaluation.md", &text)?;
        write(
            folder,
            "reliability.svg",
            &reliability_plot(&trained.calibration)?,
        )?;
        if let Some(plot) = overall_plot(&trained, &control)? {
            write(folder, "overall.svg", &plot)?;
        }
        let report = Report {
            deployed: &deployed.name,
            parity: names,
            code: code.clone(),
            transform: &spec.transform,
            data_sha256: &data.sha256,
            seed: args.subject.seed,
            evaluation: &trained,
            untrained_control: &control,
        };
        write_json(Some(&folder.join("evaluation.json")), &report)?;
    }
    let mut table = vec![("code".to_owned(), code)];
    table.extend(report::evaluation(&trained));
    table.push((
        "ECE of the confidence".to_owned(),
        format!("{:.3}", trained.calibration.expected_error),
    ));
    let untrained = report::evaluation(&control);
    table.extend(
        untrained
            .into_iter()
            .skip(usize::from(control.accuracy_deployed.is_some()))
            .map(|(label, value)| (format!("{label}, untrained control"), value)),
    );
    if let Some(folder) = folder {
        table.push(("written to".to_owned(), folder.display().to_string()));
    }
    report::print(&table);
    Ok(())
}

#[derive(Debug)]
enum Judged {
    Parity(Vec<ParityEntry>),
    Learned(Box<LearnedEntry>),
}

impl Judged {
    /// Evaluates the deployed model as its own parity model. A learned code has no parity models to
    /// leave untrained: beside it stands the sum.
    fn control(
        &self,
        deployed: &dyn DeployedModel,
        spec: &CodeSpec,
        test: &Samples,
        plan: EvaluationPlan,
    ) -> Result<CodeEvaluation, TrainError> {
        let code = match spec.encoder.has_parity_models() {
            true => spec.clone(),
            false => CodeSpec::new(EncoderKind::Sum, spec.k, spec.r),
        };
        let transform = &code.transform;
        let untrained = Untrained {
            deployed,
            transform,
        };
        let rows = self.rows(spec).into_iter();
        let parity: Vec<(usize, &dyn DeployedModel)> = rows
            .map(|row| (row, &untrained as &dyn DeployedModel))
            .collect();
        let models = CodedModels {
            deployed,
            parity: &parity,
            code: &code,
            calibrations: &[],
        };
        let mut progress = Counter::new("untrained control", "groups evaluated");
        let control = evaluate(models, test, plan, |done, groups| progress.at(done, groups))?;
        progress.finish();
        Ok(control)
    }

    fn open(args: &Args, threads: usize, test: &Samples) -> Result<Self, TrainError> {
        for path in &args.parity {
            if let Some(learned) = deployed::open_learned(path, &test.shape)? {
                if args.parity.len() > 1 {
                    let problem = "a learned code stands alone; name nothing beside it";
                    return Err(SetupError::Misplaced {
                        name: "parity",
                        problem,
                    }
                    .into());
                }
                return Ok(Self::Learned(Box::new(learned)));
            }
        }
        Ok(Self::Parity(open_parity(args, threads, test)?))
    }

    fn trained_for(&self) -> Result<(&CodeMetadata, &InputScaling), TrainError> {
        match self {
            Self::Learned(entry) => Ok((&entry.code, &entry.scaling)),
            Self::Parity(entries) => match entries.first() {
                Some(first) => Ok((&first.code, &first.scaling)),
                None => Err(SetupError::Needed { name: "parity" }.into()),
            },
        }
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Self::Learned(entry) => vec![&entry.name],
            Self::Parity(entries) => entries
                .iter()
                .map(|entry| entry.model.name.as_str())
                .collect(),
        }
    }

    /// The parity rows that are there.
    fn rows(&self, spec: &CodeSpec) -> Vec<usize> {
        match self {
            Self::Learned(_) => (0..spec.r).collect(),
            Self::Parity(entries) => entries.iter().map(|entry| entry.code.row).collect(),
        }
    }

    fn evaluate(
        &self,
        deployed: &dyn DeployedModel,
        code: &CodeSpec,
        test: &Samples,
        plan: EvaluationPlan,
    ) -> Result<CodeEvaluation, TrainError> {
        let calibrations: Option<Vec<Calibration>> = match self {
            // One table stands for all rows.
            Self::Learned(entry) => (0..code.r)
                .map(|_| entry.code.calibration.clone())
                .collect(),
            Self::Parity(entries) => entries
                .iter()
                .map(|entry| entry.code.calibration.clone())
                .collect(),
        };
        let calibrations = calibrations.unwrap_or_default();
        let (name, parity): (_, Vec<(usize, &dyn DeployedModel)>) = match self {
            Self::Learned(_) => (
                "learned code",
                (0..code.r).map(|row| (row, deployed)).collect(),
            ),
            Self::Parity(entries) => {
                let models = entries
                    .iter()
                    .map(|entry| (entry.code.row, entry.model.model.as_ref()));
                ("parity models", models.collect())
            }
        };
        let models = CodedModels {
            deployed,
            parity: &parity,
            code,
            calibrations: &calibrations,
        };
        let mut progress = Counter::new(name, "groups evaluated");
        let step = |done, groups| progress.at(done, groups);
        let evaluation = match self {
            Self::Parity(_) => evaluate(models, test, plan, step)?,
            Self::Learned(entry) => {
                let coders = (entry.learned.encoder(), entry.learned.decoder());
                evaluate_with(models, coders, test, plan, step)?
            }
        };
        progress.finish();
        Ok(evaluation)
    }
}

/// The deployed model as its own parity model: it answers in the domain in which the code adds.
#[derive(Debug)]
struct Untrained<'a> {
    deployed: &'a dyn DeployedModel,
    transform: &'a OutputTransform,
}

impl DeployedModel for Untrained<'_> {
    fn input_shape(&self) -> &[usize] {
        self.deployed.input_shape()
    }

    fn output_shape(&self) -> &[usize] {
        self.deployed.output_shape()
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
        let mut outputs = self.deployed.infer(samples)?;
        self.transform.apply(&mut outputs, self.deployed.outputs());
        Ok(outputs)
    }
}

/// The parity models, which must be rows of one code, each another.
fn open_parity(
    args: &Args,
    threads: usize,
    test: &Samples,
) -> Result<Vec<ParityEntry>, TrainError> {
    let options = OpenOptions {
        threads,
        ..OpenOptions::default()
    };
    let mut entries: Vec<ParityEntry> = Vec::new();
    for path in &args.parity {
        let entry = deployed::open_parity(path, &options, &test.shape, few(test))?;
        for other in &entries {
            let problem = match () {
                () if other.code.row == entry.code.row => "they are the same row",
                () if other.code.spec != entry.code.spec => "their codes differ",
                () if other.code.deployed != entry.code.deployed => "their deployed models differ",
                () if other.scaling != entry.scaling => "their input scalings differ",
                () => continue,
            };
            let name = |entry: &Deployed| entry.name.clone();
            let (first, second) = (name(&other.model), name(&entry.model));
            return Err(SetupError::Codes {
                first,
                second,
                problem,
            }
            .into());
        }
        entries.push(entry);
    }
    Ok(entries)
}
