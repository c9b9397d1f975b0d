//! `parity-trainer reproduce`: the accuracy table, each row by commands that users can
//! give by hand.
//!
//! Rows of a recipe become command lines of `train-deployed`, `train` and `eval`; a row that goes
//! wrong takes no other along. A row that is finished is not run again unless its recipe changes;
//! one that was interrupted goes on from its last checkpoint.

mod recipe;
mod record;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use parity_trainer::TrainError;
use parity_trainer::run::{RunFolder, lock};

use recipe::{CommandLine, MODELS, Recipes, Roots, RowRecipe};
use record::{Cost, Outcome, Record, Records, machine, of_deployed};
use table::{Row, Run};

use super::interrupt::Interrupt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder with the data sets: mnist, fashion-mnist and so on
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// The folder with the ONNX files of deployed models that others have trained
    #[arg(long, value_name = "FOLDER")]
    models: PathBuf,
    /// Where models, reports and RESULTS.md go; finished rows found there are kept
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Minutes that all the rows asked for may take, on one core like that of the published
    /// figures; steps and epochs are fewer or more accordingly [default: as published]
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    /// Only these rows
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Other recipes than the table's
    #[arg(long, value_name = "FILE")]
    recipes: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let recipes = recipes(args)?;
    for (name, folder) in [("data", &args.data), ("models", &args.models)] {
        if !folder.is_dir() {
            let problem = format!("--{name} {}: no such folder", folder.display());
            return Err(TrainError::settings(None, &problem));
        }
    }
    let _lock = lock(&args.out.join("lock"), &args.out, "out")?;
    let interrupt = Interrupt::listen()?;
    interrupt.wait_for_step();
    let mut reproduction = Reproduction {
        recipes: &recipes,
        roots: Roots {
            data: args.data.clone(),
            models: args.models.clone(),
            out: args.out.clone(),
        },
        records: Records::at(&args.out)?,
        threads,
        interrupt,
        why_not: BTreeMap::new(),
    };
    let runs: Vec<RowRecipe> = recipes.asked().flat_map(|row| recipes.runs(row)).collect();
    let count = runs.len();
    let mut failed = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let (number, name, minutes) = (at + 1, run.name.as_str(), run.minutes);
        eprintln!("training {number} of {count}: {name}, about {minutes:.0} min");
        let why = match recipes.missing(run, &reproduction.roots) {
            Some(missing) => Some(format!("{missing} is missing")),
            None => reproduction.run(run).err().map(|error| {
                failed.push(name);
                error.first_line()
            }),
        };
        let is_interrupted = reproduction.interrupt.is_asked();
        if let Some(why) = why {
            let why = if is_interrupted {
                "interrupted".to_owned()
            } else {
                why
            };
            eprintln!("{name}: {why}");
            reproduction.why_not.insert(name, why);
        }
        reproduction.write_results()?;
        if is_interrupted {
            return Err(TrainError::Interrupted(
                "the same command goes on where it was",
            ));
        }
    }
    println!("written to  {}", args.out.join(table::RESULTS).display());
    if failed.is_empty() {
        return Ok(());
    }
    let failed = failed.join(", ");
    let hint = "RESULTS.md says how, the same command tries again";
    Err(TrainError::Failed(format!("failed: {failed}; {hint}")))
}

fn recipes(args: &Args) -> Result<Recipes, TrainError> {
    let recipes = match &args.recipes {
        None => Recipes::published()?,
        Some(path) => {
            let unread = |error| TrainError::settings(Some(path), &format!("cannot read: {error}"));
            Recipes::parse(&fs::read_to_string(path).map_err(unread)?, path)?
        }
    };
    let recipes = recipes.only(&args.only)?;
    match args.budget {
        Some(budget) => recipes.within(budget),
        None => Ok(recipes),
    }
}

struct Reproduction<'a> {
    recipes: &'a Recipes,
    roots: Roots,
    records: Records,
    threads: usize,
    interrupt: Arc<Interrupt>,
    /// Reasons, by training, for which there are no figures.
    why_not: BTreeMap<&'a str, String>,
}

impl Reproduction<'_> {
    /// Sees to the figures of one of a row's trainings.
    fn run(&self, run: &RowRecipe) -> Result<(), TrainError> {
        if let Some(command) = self.recipes.train_deployed(run) {
            let (name, digest) = (of_deployed(&run.deployed), command.digest());
            self.train(&name, digest, &[command], || Ok(()))?;
        }
        if self.finished(run).is_some() {
            eprintln!("{}: done before", run.name);
            return Ok(());
        }
        let commands = [self.recipes.train(run), self.recipes.evaluate(run)];
        let reports = self.roots.place(&run.reports());
        let digest = self.recipes.digest(run);
        self.train(&run.name, digest, &commands, || Outcome::read(&reports))
    }

    /// Trains by the first of `commands`, then runs the others and writes the record `name`, unless
    /// there is one of this digest. Goes on from the last checkpoint of the same digest.
    fn train<O: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        name: &str,
        digest: String,
        commands: &[CommandLine],
        outcome: impl FnOnce() -> Result<O, TrainError>,
    ) -> Result<(), TrainError> {
        let record: Option<Record<O>> = self.records.read(name);
        if record.is_some_and(|record| record.digest == digest) {
            return Ok(());
        }
        let [train, rest @ ..] = commands else {
            return Ok(());
        };
        let run = format!("{MODELS}/.runs/{name}-{digest:.16}");
        let at_least = RunFolder(self.roots.place(&run)).is_begun();
        let mut line = train.clone();
        line.flag("resume-if-begun");
        line.setting("run", run);
        let spent = self.command(&line)?;
        for line in rest {
            self.command(line)?;
        }
        let record = Record {
            digest,
            commands: commands.iter().map(CommandLine::to_string).collect(),
            cost: Cost { at_least, ..spent },
            outcome: outcome()?,
        };
        self.records.write(name, &record)
    }

    fn command(&self, line: &CommandLine) -> Result<Cost, TrainError> {
        eprintln!("$ {line}");
        let (begun, before) = (Instant::now(), processor_seconds());
        let failed = |reason| TrainError::Failed(format!("`{line}` failed: {reason}"));
        let (cli, matches) = line.parse(&self.roots).map_err(failed)?;
        let ended = cli.command.run(&matches, self.threads);
        self.interrupt.wait_for_step();
        ended.map_err(|error| failed(error.first_line()))?;
        Ok(Cost {
            seconds: begun.elapsed().as_secs_f64(),
            processor_seconds: processor_seconds() - before,
            at_least: false,
        })
    }

    /// A training's record, if it is of the recipe as it is now.
    fn finished(&self, run: &RowRecipe) -> Option<Record> {
        let record: Record = self.records.read(&run.name)?;
        (record.digest == self.recipes.digest(run)).then_some(record)
    }

    fn write_results(&self) -> Result<(), TrainError> {
        let rows: Vec<Row<'_>> = self.recipes.rows.iter().map(|row| self.row(row)).collect();
        let text = table::markdown(&rows, &machine(self.threads), &self.recipes.notes);
        let path = self.roots.out.join(table::RESULTS);
        fs::write(&path, text).map_err(TrainError::write(&path))
    }

    /// The row as it is told, with what is known of its trainings.
    fn row<'a>(&'a self, recipe: &'a RowRecipe) -> Row<'a> {
        let run = |run: RowRecipe| {
            let known = self.why_not.get(run.name.as_str()).cloned();
            let left_out = recipe.is_left_out.then(|| "not asked for".to_owned());
            Run {
                record: self.finished(&run),
                why_not: known.or(left_out),
                seed: run.seed(),
            }
        };
        Row {
            recipe,
            deployed: &self.recipes.deployed[&recipe.deployed],
            runs: self.recipes.runs(recipe).into_iter().map(run).collect(),
            trained: self.records.read(&of_deployed(&recipe.deployed)),
        }
    }
}

/// Processor time of this process; other work on the machine, or a pause of it, does not count.
fn processor_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    })
}
