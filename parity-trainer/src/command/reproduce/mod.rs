//! `parity-trainer reproduce`: the accuracy table, each row by commands that users can
//! give by hand.
//!
//! A recipe says what to train on what; its rows become command lines of `train-deployed`, `train`
//! and `eval`, which run as processes of their own: what stands beside a figure in RESULTS.md is
//! what has made it, and a row that goes wrong takes no other along. A row that is finished is not
//! run again unless its recipe changes; one that was interrupted goes on from its last checkpoint.

mod child;
mod command_line;
mod lines;
mod recipe;
mod record;
mod seeds;
mod table;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use parity_trainer::run::{Lock, RunFolder};
use parity_trainer::{SetupError, TrainError};

pub(crate) use child::end_with_parent;
use child::{Children, Ended};
use command_line::{CommandLine, Root, Roots};
use recipe::{Recipes, RowRecipe};
use record::{Cost, DeployedRecord, Machine, Records, RowOutcome, RowRecord};
use verdict::{Row, Run};

use super::interrupt::Interrupt;

/// Arguments of `reproduce`.
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

/// Reason why a row has no figures.
#[derive(Debug)]
enum NoFigures {
    /// It cannot be run here.
    NotRun(String),
    Failed(String),
}

/// Runs what is not yet there, then tells all.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let recipes = match &args.recipes {
        None => Recipes::published()?,
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|source| SetupError::Read {
                path: path.clone(),
                source,
            })?;
            Recipes::parse(&text, Some(path))?
        }
    };
    let recipes = recipes.only(&args.only)?.within(args.budget)?;
    for (name, folder) in [("data", &args.data), ("models", &args.models)] {
        if !folder.is_dir() {
            let problem = format!("--{name} {}: no such folder", folder.display());
            return Err(SetupError::config(None, &problem).into());
        }
    }
    let roots = Roots {
        data: args.data.clone(),
        models: args.models.clone(),
        out: args.out.clone(),
    };
    let _lock = Lock::take(&args.out.join("lock"), &args.out, "out")?;
    let records = Records::at(&args.out)?;
    let interrupt = Interrupt::listen()?;
    // A command that runs writes its checkpoint first.
    interrupt.wait_for_step();
    let children = Children::new(&roots, threads, &interrupt)?;
    let mut reproduction = Reproduction {
        recipes: &recipes,
        roots: &roots,
        records,
        children,
        why: BTreeMap::new(),
    };
    let runs: Vec<RowRecipe> = recipes.asked().flat_map(|row| recipes.runs(row)).collect();
    let count = runs.len();
    for (at, run) in runs.iter().enumerate() {
        eprintln!(
            "training {} of {count}: {}, about {:.0} min",
            at + 1,
            run.name,
            run.minutes
        );
        if let Err(no_figures) = reproduction.run(run)? {
            let (NoFigures::NotRun(why) | NoFigures::Failed(why)) = &no_figures;
            eprintln!("{}: {why}", run.name);
            reproduction.why.insert(run.name.clone(), no_figures);
        }
        reproduction.write(threads)?;
        if interrupt.is_asked() {
            let hint = "the same command goes on where it was".to_owned();
            return Err(SetupError::Interrupted { hint }.into());
        }
    }
    let failed: Vec<&str> = reproduction
        .why
        .iter()
        .filter(|(_, why)| matches!(why, NoFigures::Failed(_)))
        .map(|(name, _)| name.as_str())
        .collect();
    println!("written to  {}", args.out.join(table::RESULTS).display());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(SetupError::Rows {
            rows: failed.join(", "),
        }
        .into())
    }
}

struct Reproduction<'a> {
    recipes: &'a Recipes,
    roots: &'a Roots,
    records: Records,
    children: Children<'a>,
    /// Trainings without figures.
    why: BTreeMap<String, NoFigures>,
}

impl Reproduction<'_> {
    /// Sees to the figures of one of a row's trainings.
    fn run(&self, row: &RowRecipe) -> Result<Result<(), NoFigures>, TrainError> {
        if let Some(missing) = self.missing(row) {
            return Ok(Err(NoFigures::NotRun(missing)));
        }
        if let Some([digits, lines]) = self.recipes.lines(row) {
            let place = |(root, path): (Root, String)| self.roots.of(root).join(path);
            let (digits, lines) = (place(digits), place(lines));
            if !lines.is_file()
                && let Err(error) = lines::write(&digits, &lines)
            {
                return Ok(Err(NoFigures::Failed(error.to_string())));
            }
        }
        if let Some(why) = self.deployed(row)? {
            return Ok(Err(why));
        }
        let train = self.recipes.train(row);
        let cost = match self.finished(row) {
            Some(record) if record.outcome.is_complete() => {
                eprintln!("{}: done before", row.name);
                return Ok(Ok(()));
            }
            Some(record) => {
                eprintln!(
                    "{}: trained before; evaluated again for the interval of its loss",
                    row.name
                );
                record.cost
            }
            None => {
                let (ended, cost) = self.train(&row.name, &row.name, &self.digest(row), &train)?;
                if let Some(why) = unfinished(ended) {
                    return Ok(Err(why));
                }
                cost
            }
        };
        self.evaluate(row, &train, cost)
    }

    /// Evaluates what was trained by `train`, and writes the record.
    fn evaluate(
        &self,
        row: &RowRecipe,
        train: &CommandLine,
        cost: Cost,
    ) -> Result<Result<(), NoFigures>, TrainError> {
        let evaluate = self.recipes.evaluate(row);
        let (ended, _) = self.children.run(&evaluate)?;
        if let Some(why) = unfinished(ended) {
            return Ok(Err(why));
        }
        let outcome = match RowOutcome::read(&self.roots.out.join(recipe::reports(&row.name))) {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(NoFigures::Failed(error.to_string()))),
        };
        let commands = vec![train.to_string(), evaluate.to_string()];
        let digest = self.digest(row);
        self.records.save(
            &row.name,
            &RowRecord {
                digest,
                commands,
                cost,
                outcome,
            },
        )?;
        Ok(Ok(()))
    }

    /// Trains the entry `entry` by `line`, whose digest is noted as `record`: on from its last
    /// checkpoint if the same was begun before. What it has cost counts the times before.
    fn train(
        &self,
        record: &str,
        entry: &str,
        digest: &str,
        line: &CommandLine,
    ) -> Result<(Ended, Cost), TrainError> {
        let begun = self.records.begin(record, digest)?;
        let folder = RunFolder::at(self.roots.out.join(recipe::RUNS).join(entry));
        let mut line = line.clone();
        if begun.again && folder.is_begun() {
            line.flag("resume");
        } else {
            // A run of another recipe is none to go on with, even if this one ends before it has
            // begun.
            folder.discard()?;
        }
        let (ended, cost) = self.children.run(&line)?;
        let cost = begun.cost + cost;
        self.records.spent(record, digest, cost)?;
        Ok((ended, cost))
    }

    /// Of all that decides a row's figures.
    fn digest(&self, row: &RowRecipe) -> String {
        let (evaluate, deployed) = (
            self.recipes.evaluate(row),
            self.recipes.deployed_recipe(row),
        );
        let train = self.recipes.train(row);
        match self.recipes.begins_with(row) {
            // Rows begin with earlier ones only, so that this ends.
            Some(start) => train.digest(&[&evaluate, &deployed, &self.digest(&start)]),
            None => train.digest(&[&evaluate, &deployed]),
        }
    }

    /// A row's record, if it is of the recipe as it is now.
    fn finished(&self, row: &RowRecipe) -> Option<RowRecord> {
        let digest = self.digest(row);
        self.records
            .row(&row.name)
            .filter(|record| record.digest == digest)
    }

    /// Trains the deployed model, if it is one of ours and not there yet.
    fn deployed(&self, row: &RowRecipe) -> Result<Option<NoFigures>, TrainError> {
        let Some(command) = self.recipes.train_deployed(row) else {
            return Ok(None);
        };
        let (name, digest) = (&row.deployed, command.digest(&[]));
        if self
            .records
            .deployed(name)
            .is_some_and(|record| record.digest == digest)
        {
            return Ok(None);
        }
        let (ended, cost) = self.train(&record::of_deployed(name), name, &digest, &command)?;
        if let Some(why) = unfinished(ended) {
            return Ok(Some(why));
        }
        self.records.save_deployed(
            name,
            &DeployedRecord {
                digest,
                command: command.to_string(),
                cost,
            },
        )?;
        Ok(None)
    }

    /// Returns the input that the row needs and that is missing, in one line.
    fn missing(&self, row: &RowRecipe) -> Option<String> {
        if let Some(problem) = &row.unsupported {
            return Some(problem.clone());
        }
        let missing = |(root, path): (Root, String), hint: &str| {
            let place = self.roots.of(root).join(&path);
            (!place.exists()).then(|| format!("{}/{path} is missing{hint}", root.name()))
        };
        let needed = self.recipes.needs(row);
        needed
            .into_iter()
            .find_map(|need| missing(need, ""))
            .or_else(|| {
                let start = self.recipes.start_needed(row)?;
                missing(start, "; run the row that it begins with first")
            })
    }

    fn write(&self, threads: usize) -> Result<(), TrainError> {
        let rows: Vec<Row<'_>> = self
            .recipes
            .rows
            .iter()
            .map(|recipe| self.told(recipe))
            .collect();
        let machine = Machine::here(threads);
        let text = table::markdown(&rows, &machine, &self.recipes.notes);
        write(&self.roots.out.join(table::RESULTS), &text)?;
        super::write_json(
            Some(&self.roots.out.join("results.json")),
            &table::json(&rows, &machine),
        )
    }

    /// The row `recipe` as it is told, with what is known of its trainings.
    fn told<'a>(&'a self, recipe: &'a RowRecipe) -> Row<'a> {
        let why = |name: &str| match self.why.get(name) {
            Some(NoFigures::NotRun(why) | NoFigures::Failed(why)) => Some(why.clone()),
            None => recipe.left_out.then(|| "not asked for".to_owned()),
        };
        let run = |run: RowRecipe| Run {
            record: self.finished(&run),
            why: why(&run.name),
            seed: run.seed(),
            name: run.name,
        };
        Row {
            recipe,
            deployed: self.recipes.deployed.get(&recipe.deployed),
            runs: self.recipes.runs(recipe).into_iter().map(run).collect(),
            trained: self.records.deployed(&recipe.deployed),
        }
    }
}

fn unfinished(ended: Ended) -> Option<NoFigures> {
    match ended {
        Ended::Well => None,
        Ended::Interrupted => Some(NoFigures::NotRun("interrupted".to_owned())),
        Ended::Badly(why) => Some(NoFigures::Failed(why)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), TrainError> {
    fs::write(path, text).map_err(|source| TrainError::Write {
        path: path.to_path_buf(),
        source,
    })
}
