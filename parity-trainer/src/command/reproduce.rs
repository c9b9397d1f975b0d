//! `parity-trainer reproduce`: the accuracy table, each row by commands that users can give, too.
//!
//! Rows of a recipe become command lines of `train-deployed`, `train` and `eval`; a row that goes
//! wrong takes no other along. A training that is finished is not run again unless its commands
//! change; one that was interrupted goes on from its last checkpoint.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use parapet_config::toml_file;
use parity_trainer::run::lock;
use parity_trainer::{TrainError, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::interrupt::Interrupt;
use table::Figures;

const PUBLISHED: &str = include_str!("../../recipes/accuracy.toml");
/// The commands that made a training's report, written when all of them have ended.
const COMMANDS: &str = "commands.txt";
const RESULTS: &str = "RESULTS.md";

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
    /// Only these rows
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Other recipes than the table's
    #[arg(long, value_name = "FILE")]
    recipes: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipes {
    deployed: BTreeMap<String, DeployedRecipe>,
    /// In the order in which they are run and listed.
    #[serde(rename = "row")]
    rows: Vec<RowRecipe>,
    /// Text after the table, Markdown.
    #[serde(default)]
    notes: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeployedRecipe {
    title: String,
    data: String,
    /// Its file, in `--models`; none for a model that is trained here.
    file: Option<String>,
    train: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowRecipe {
    name: String,
    deployed: String,
    /// Flags of `train` besides the model, the data and the seed.
    train: String,
    /// The greatest loss A_a - A_d that meets the aim, points; none where there is no aim.
    bound: Option<f64>,
    /// Trainings, with the seeds from 1 on.
    #[serde(default = "three")]
    seeds: u32,
}

fn three() -> u32 {
    3
}

/// One training: its name and the commands that make it. Folders stand by name.
struct Training {
    name: String,
    commands: Vec<String>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let recipes = Recipes::read(args.recipes.as_deref())?;
    let known: Vec<&str> = recipes.rows.iter().map(|row| row.name.as_str()).collect();
    if let Some(name) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
        let problem = format!("--only {name}: no such row; there are {}", known.join(", "));
        return Err(TrainError::settings(None, &problem));
    }
    for (name, folder) in [("data", &args.data), ("models", &args.models)] {
        let problem = format!("--{name} {}: no such folder", folder.display());
        ensure!(folder.is_dir(), TrainError::settings(None, &problem));
    }
    let _lock = lock(&args.out.join("lock"), &args.out, "out")?;
    let interrupt = Interrupt::listen()?;
    interrupt.wait_for_step();
    let mut reproduction =
        Reproduction { recipes: &recipes, args, threads, interrupt, why_not: BTreeMap::new() };
    let is_asked = |row: &&RowRecipe| args.only.is_empty() || args.only.contains(&row.name);
    for row in recipes.rows.iter().filter(is_asked) {
        for seed in 1..=row.seeds {
            let ended = reproduction.row(row, seed);
            let is_interrupted = reproduction.interrupt.is_asked();
            if let Err(error) = ended
                && !is_interrupted
            {
                let name = recipes.training(row, seed).name;
                eprintln!("{name}: {}", error.first_line());
                reproduction.why_not.insert(name, error.first_line());
            }
            reproduction.write_results()?;
            let advice = "the same command goes on where it was";
            ensure!(!is_interrupted, TrainError::Interrupted(advice));
        }
    }
    println!("written to  {}", args.out.join(RESULTS).display());
    if reproduction.why_not.is_empty() {
        return Ok(());
    }
    let failed: Vec<&str> = reproduction.why_not.keys().map(String::as_str).collect();
    let hint = "RESULTS.md says how, the same command tries again";
    let failed = failed.join(", ");
    Err(TrainError::Failed(format!("failed: {failed}; {hint}")))
}

impl Recipes {
    /// Reads the recipes of a file, or the published ones; the commands take all their flags.
    fn read(path: Option<&Path>) -> Result<Self, TrainError> {
        let place = path.unwrap_or(Path::new("recipes"));
        let wrong = |problem: String| TrainError::settings(Some(place), &problem);
        let text = match path {
            None => PUBLISHED.to_owned(),
            Some(path) => {
                fs::read_to_string(path).map_err(|error| wrong(format!("cannot read: {error}")))?
            }
        };
        let recipes: Self = toml_file::parse(&text).map_err(wrong)?;
        let mut names = BTreeSet::new();
        for row in &recipes.rows {
            let in_row = |problem: String| wrong(format!("row {}: {problem}", row.name));
            let Some(deployed) = recipes.deployed.get(&row.deployed) else {
                return Err(in_row(format!("no deployed model `{}`", row.deployed)));
            };
            let problem = "give either `file` or the flags `train`";
            ensure!(
                deployed.file.is_some() != deployed.train.is_some(),
                wrong(format!("deployed model {}: {problem}", row.deployed))
            );
            let is_named = row.seeds > 0 && names.insert(&row.name);
            ensure!(is_named, in_row("a row has seeds, and a name of its own".to_owned()));
            let trainings = [recipes.deployed(row), Some(recipes.training(row, 1))];
            for command in trainings.into_iter().flatten().flat_map(|one| one.commands) {
                parse(&command, |_| None).map_err(in_row)?;
            }
        }
        Ok(recipes)
    }

    /// The training of a row's deployed model, of one that is trained here.
    fn deployed(&self, row: &RowRecipe) -> Option<Training> {
        let DeployedRecipe { data, train, .. } = &self.deployed[&row.deployed];
        let (name, flags) = (&row.deployed, train.as_ref()?);
        let command = format!("train-deployed --data DATA/{data} {flags}");
        Some(Training {
            name: format!("deployed-{name}"),
            commands: vec![format!("{command} --out OUT/models --name {name}")],
        })
    }

    fn training(&self, row: &RowRecipe, seed: u32) -> Training {
        let recipe = &self.deployed[&row.deployed];
        let model = match &recipe.file {
            Some(file) => format!("MODELS/{file}"),
            None => format!("OUT/models/{}", row.deployed),
        };
        let (flags, name) = (&row.train, format!("{}-seed{seed}", row.name));
        let both = format!("--model {model} --data DATA/{}", recipe.data);
        let report = format!("OUT/reports/{name}");
        let mut words = flags.split_whitespace().skip_while(|word| *word != "--r").skip(1);
        let parity = match words.next().and_then(|rows| rows.parse::<u32>().ok()) {
            Some(rows) if rows > 1 => (0..rows)
                .map(|row| format!("OUT/models/{name}-{row}"))
                .collect::<Vec<_>>()
                .join(","),
            _ => format!("OUT/models/{name}"),
        };
        let training = format!("train {both} {flags} --seed {seed} --out OUT/models --name {name}");
        Training {
            commands: vec![
                format!("{training} --json {report}/training.json"),
                format!("eval {both} --parity {parity} --out {report}"),
            ],
            name,
        }
    }
}

/// Parses a command, with its folders replaced; fails with the complaint's first line.
fn parse(
    command: &str,
    place: impl Fn(&str) -> Option<PathBuf>,
) -> Result<(crate::Cli, ArgMatches), String> {
    let placed = |part: &str| {
        let path = part.split_once('/').and_then(|(root, rest)| Some(place(root)?.join(rest)));
        path.map_or_else(|| OsString::from(part), PathBuf::into_os_string)
    };
    let argument =
        |word: &str| word.split(',').map(placed).collect::<Vec<_>>().join(OsStr::new(","));
    let arguments = command.split_whitespace().map(argument);
    let arguments = std::iter::once(OsString::from("parity-trainer")).chain(arguments);
    let matches = crate::Cli::command().try_get_matches_from(arguments);
    matches
        .and_then(|all| Ok((crate::Cli::from_arg_matches(&all)?, all)))
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

struct Reproduction<'a> {
    recipes: &'a Recipes,
    args: &'a Args,
    threads: usize,
    interrupt: Arc<Interrupt>,
    /// Reasons, by training, for which there are no figures.
    why_not: BTreeMap<String, String>,
}

impl Reproduction<'_> {
    /// Sees to one of a row's trainings, and to its deployed model before.
    fn row(&self, row: &RowRecipe, seed: u32) -> Result<(), TrainError> {
        let training = self.recipes.training(row, seed);
        let mut before = String::new();
        if let Some(deployed) = self.recipes.deployed(row) {
            before = deployed.commands.join("\n");
            self.train(&deployed, "")?;
        }
        self.train(&training, &before)
    }

    /// Runs a training's commands, unless the same ones, after the same `before`, have ended
    /// earlier. Goes on from the last checkpoint of the same.
    fn train(&self, training: &Training, before: &str) -> Result<(), TrainError> {
        let Training { name, commands } = training;
        let report = self.args.out.join("reports").join(name);
        let (made, text) = (report.join(COMMANDS), commands.join("\n"));
        let text = format!("{before}\n{text}\n");
        if fs::read_to_string(&made).is_ok_and(|earlier| earlier == text) {
            eprintln!("{name}: done before");
            return Ok(());
        }
        fs::create_dir_all(&report).map_err(TrainError::write(&report))?;
        let digest = format!("{:x}", Sha256::digest(&text));
        let run = format!("--resume-if-begun --run OUT/models/.runs/{name}-{digest:.16}");
        for (at, command) in commands.iter().enumerate() {
            match at {
                0 => self.command(&format!("{command} {run}"))?,
                _ => self.command(command)?,
            }
        }
        fs::write(&made, text).map_err(TrainError::write(&made))
    }

    fn command(&self, command: &str) -> Result<(), TrainError> {
        eprintln!("$ parity-trainer {command}");
        let failed = |reason| TrainError::Failed(format!("`{command}` failed: {reason}"));
        let place = |root: &str| match root {
            "DATA" => Some(self.args.data.clone()),
            "MODELS" => Some(self.args.models.clone()),
            "OUT" => Some(self.args.out.clone()),
            _ => None,
        };
        let (cli, matches) = parse(command, place).map_err(failed)?;
        let ended = cli.command.run(&matches, self.threads);
        self.interrupt.wait_for_step();
        ended.map_err(|error| failed(error.first_line()))
    }

    fn write_results(&self) -> Result<(), TrainError> {
        let reports = self.args.out.join("reports");
        let rows = self.recipes.rows.iter().map(|recipe| {
            let trainings = (1..=recipe.seeds).map(|seed| self.recipes.training(recipe, seed).name);
            let trainings: Vec<String> = trainings.collect();
            let runs = trainings.iter().filter_map(|name| Figures::read(&reports.join(name)));
            table::Row {
                name: &recipe.name,
                deployed: &self.recipes.deployed[&recipe.deployed].title,
                bound: recipe.bound,
                seeds: trainings.len(),
                runs: runs.collect(),
                why_not: trainings.iter().find_map(|name| self.why_not.get(name)),
            }
        });
        let text = table::markdown(&rows.collect::<Vec<_>>(), &self.recipes.notes);
        let path = self.args.out.join(RESULTS);
        fs::write(&path, text).map_err(TrainError::write(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_recipes_are_commands_that_the_program_takes() {
        let recipes = Recipes::read(None).unwrap();
        let judged = recipes.rows.iter().filter(|row| row.bound.is_some());
        assert_eq!(judged.count(), 16);
        let commands = recipes.training(&recipes.rows[0], 2).commands;
        assert!(commands[0].contains("--k 2 --seed 2 "), "{commands:?}");
        let two = recipes.rows.iter().find(|row| row.name == "mnist-k2-r2").unwrap();
        let [_, eval] = recipes.training(two, 1).commands.try_into().unwrap();
        let both = "--parity OUT/models/mnist-k2-r2-seed1-0,OUT/models/mnist-k2-r2-seed1-1 ";
        assert!(eval.contains(both), "{eval}");
        let placed = parse(&eval, |root| Some(Path::new("/").join(root))).unwrap();
        let parity = format!("{:?}", placed.0);
        assert!(parity.contains("/OUT/models/mnist-k2-r2-seed1-1"), "{parity}");
    }
}
