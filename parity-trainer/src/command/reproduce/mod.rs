//! `parity-trainer reproduce`: the accuracy table, each row by commands that users can
//! give by hand.
//!
//! Rows of a recipe become command lines of `train-deployed`, `train` and `eval`, which run as
//! processes of their own: a row that goes wrong takes no other along. A row that is finished is
//! not run again unless its recipe changes; one that was interrupted goes on from its last
//! checkpoint.

mod child;
mod recipe;
mod record;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use parity_trainer::TrainError;
use parity_trainer::run::{RunFolder, lock};

pub(crate) use child::end_with_parent;
use recipe::{CommandLine, Recipes, Roots, RowRecipe};
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

/// Reason for which a training has no figures.
#[derive(Debug)]
enum Stop {
    /// It cannot be run here.
    NotRun(String),
    Failed(String),
    /// Nothing can be run.
    Error(TrainError),
}

impl From<TrainError> for Stop {
    fn from(error: TrainError) -> Self {
        Self::Error(error)
    }
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
    // A command that runs writes its checkpoint first.
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
        interrupt: &interrupt,
        why_not: BTreeMap::new(),
    };
    let runs: Vec<RowRecipe> = recipes.asked().flat_map(|row| recipes.runs(row)).collect();
    let count = runs.len();
    let mut failed = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let (number, name, minutes) = (at + 1, run.name.as_str(), run.minutes);
        eprintln!("training {number} of {count}: {name}, about {minutes:.0} min");
        let why = match reproduction.run(run) {
            Ok(()) => None,
            Err(Stop::NotRun(why)) => Some(why),
            Err(Stop::Failed(why)) => {
                failed.push(name);
                Some(why)
            }
            Err(Stop::Error(error)) => return Err(error),
        };
        if let Some(why) = why {
            eprintln!("{name}: {why}");
            reproduction.why_not.insert(name, why);
        }
        reproduction.write_results()?;
        if interrupt.is_asked() {
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
    interrupt: &'a Interrupt,
    /// Reasons, by training, for which there are no figures.
    why_not: BTreeMap<&'a str, String>,
}

impl Reproduction<'_> {
    /// Sees to the figures of one of a row's trainings.
    fn run(&self, run: &RowRecipe) -> Result<(), Stop> {
        for (path, hint) in self.recipes.needs(run) {
            if !self.roots.place(&path).exists() {
                return Err(Stop::NotRun(format!("{path} is missing{hint}")));
            }
        }
        self.train_deployed(run)?;
        if self.finished(run).is_some() {
            eprintln!("{}: done before", run.name);
            return Ok(());
        }
        let (train, evaluate) = (self.recipes.train(run), self.recipes.evaluate(run));
        let digest = self.recipes.digest(run);
        let cost = self.train(&run.name, &run.name, &digest, &train)?;
        self.command(&evaluate)?.0?;
        let outcome = Outcome::read(&self.roots.place(&run.reports())).map_err(Stop::Failed)?;
        let record = Record {
            digest,
            commands: vec![train.to_string(), evaluate.to_string()],
            cost,
            outcome,
        };
        Ok(self.records.write(&run.name, &record)?)
    }

    fn command(&self, line: &CommandLine) -> Result<(Result<(), Stop>, Cost), TrainError> {
        child::run(line, &self.roots, self.threads, self.interrupt)
    }

    /// Trains the entry `entry` by `line`, whose digest is noted as `record`: on from its last
    /// checkpoint if the same was begun before.
    fn train(
        &self,
        record: &str,
        entry: &str,
        digest: &str,
        line: &CommandLine,
    ) -> Result<Cost, Stop> {
        let is_again = self.records.begin(record, digest)?;
        let folder = RunFolder(self.roots.out.join("models/.runs").join(entry));
        let at_least = is_again && folder.is_begun();
        let mut line = line.clone();
        if at_least {
            line.flag("resume");
        } else {
            // A run of another recipe is none to go on with, even if this one ends before it has
            // begun.
            folder.discard()?;
        }
        let (ended, cost) = self.command(&line)?;
        ended?;
        Ok(Cost { at_least, ..cost })
    }

    /// A training's record, if it is of the recipe as it is now.
    fn finished(&self, run: &RowRecipe) -> Option<Record> {
        let record: Record = self.records.read(&run.name)?;
        (record.digest == self.recipes.digest(run)).then_some(record)
    }

    /// Trains the deployed model, if it is one of ours and not there yet.
    fn train_deployed(&self, row: &RowRecipe) -> Result<(), Stop> {
        let Some(command) = self.recipes.train_deployed(row) else {
            return Ok(());
        };
        let (name, digest) = (of_deployed(&row.deployed), command.digest());
        let record: Option<Record<()>> = self.records.read(&name);
        if record.is_some_and(|record| record.digest == digest) {
            return Ok(());
        }
        let cost = self.train(&name, &row.deployed, &digest, &command)?;
        let record = Record {
            digest,
            commands: vec![command.to_string()],
            cost,
            outcome: (),
        };
        Ok(self.records.write(&name, &record)?)
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
