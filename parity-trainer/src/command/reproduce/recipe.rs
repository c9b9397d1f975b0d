//! Recipes: what each row of the table is made with, as command lines.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use parity_trainer::TrainError;
use serde::Deserialize;
use sha2::{Digest, Sha256};

const PUBLISHED: &str = include_str!("../../../recipes/accuracy.toml");
pub(super) const MODELS: &str = "OUT/models";
/// Steps of a row that names none.
const STEPS: i64 = 4000;
const EPOCHS: i64 = 20;

#[derive(Debug, Clone, Default)]
pub(super) struct Roots {
    pub(super) data: PathBuf,
    pub(super) models: PathBuf,
    pub(super) out: PathBuf,
}

impl Roots {
    /// Resolves a path whose folder stands by name: `DATA/mnist`.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        match path.split_once('/') {
            Some(("DATA", rest)) => self.data.join(rest),
            Some(("MODELS", rest)) => self.models.join(rest),
            Some(("OUT", rest)) => self.out.join(rest),
            _ => PathBuf::from(path),
        }
    }
}

/// A command line without the program's name. Folders stand by name.
#[derive(Debug, Clone)]
pub(super) struct CommandLine(Vec<String>);

impl CommandLine {
    fn new(command: &str) -> Self {
        Self(vec![command.to_owned()])
    }

    pub(super) fn flag(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    pub(super) fn setting(&mut self, name: &str, value: impl Into<String>) {
        self.flag(name);
        self.0.push(value.into());
    }

    fn settings(&mut self, table: &toml::Table) {
        for (name, value) in table {
            self.setting(name, plain(value));
        }
    }

    /// Parses the line, with its folders in `roots`; fails with the first line of the program's
    /// complaint.
    pub(super) fn parse(&self, roots: &Roots) -> Result<(crate::Cli, ArgMatches), String> {
        let argument = |word: &String| {
            let paths = word.split(',').map(|path| roots.place(path));
            let paths: Vec<OsString> = paths.map(PathBuf::into_os_string).collect();
            paths.join(",".as_ref())
        };
        let arguments = self.0.iter().map(argument);
        let arguments = std::iter::once(OsString::from("parity-trainer")).chain(arguments);
        let matches = crate::Cli::command().try_get_matches_from(arguments);
        let parsed = matches.and_then(|all| Ok((crate::Cli::from_arg_matches(&all)?, all)));
        parsed.map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().to_owned()
        })
    }

    fn check(&self) -> Result<(), String> {
        self.parse(&Roots::default()).map(drop)
    }

    pub(super) fn digest(&self) -> String {
        digest(&[&self.to_string()])
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parity-trainer {}", self.0.join(" "))
    }
}

/// A value as a flag has it: text without quotes, lists with commas.
pub(super) fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

fn digest(parts: &[&str]) -> String {
    format!("{:x}", Sha256::digest(parts.join("\n")))
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipes {
    #[serde(default)]
    pub(super) deployed: BTreeMap<String, DeployedRecipe>,
    /// Rows, in the order in which they are run and told. The deployed model of each is there.
    #[serde(rename = "row")]
    pub(super) rows: Vec<RowRecipe>,
    /// Text after the table, Markdown.
    #[serde(default)]
    pub(super) notes: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeployedRecipe {
    pub(super) title: String,
    data: String,
    /// Its file, in `--models`; none for a model that is trained here.
    file: Option<String>,
    /// The accuracy that it should have at least, percent.
    pub(super) least: Option<f64>,
    /// Settings that were chosen by figures of the test set; the table marks them.
    #[serde(default)]
    pub(super) chosen_on_test: String,
    /// Minutes that its training takes on one core.
    #[serde(default)]
    minutes: f64,
    #[serde(default)]
    train: toml::Table,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowRecipe {
    /// Its name, and the parity model's.
    pub(super) name: String,
    pub(super) deployed: String,
    /// The greatest loss A_a - A_d that meets the aim, points; none where there is no aim.
    pub(super) bound: Option<f64>,
    /// Minutes that one training takes on one core.
    pub(super) minutes: f64,
    /// Trainings, with the seed of `train` and those that follow it.
    #[serde(default = "one")]
    seeds: u32,
    /// Settings that were chosen by figures of the test set; the table marks them.
    #[serde(default)]
    pub(super) chosen_on_test: String,
    /// Figures that others, or earlier runs, have reached.
    #[serde(default)]
    pub(super) reference: String,
    /// Attempts at a row that misses its aim.
    #[serde(default)]
    pub(super) tried: String,
    /// A model whose weights the training begins with: a deployed model or an earlier row.
    pub(super) start: Option<String>,
    pub(super) train: toml::Table,
    /// True if the user has not asked for it.
    #[serde(skip)]
    pub(super) is_left_out: bool,
}

fn one() -> u32 {
    1
}

impl RowRecipe {
    pub(super) fn seed(&self) -> i64 {
        self.number("seed").unwrap_or(0)
    }

    fn number(&self, setting: &str) -> Option<i64> {
        self.train.get(setting)?.as_integer()
    }

    pub(super) fn reports(&self) -> String {
        format!("OUT/reports/{}", self.name)
    }
}

impl Recipes {
    pub(super) fn published() -> Result<Self, TrainError> {
        Self::parse(PUBLISHED, Path::new("recipes"))
    }

    /// Reads recipes whose settings the commands take.
    pub(super) fn parse(text: &str, place: &Path) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::settings(Some(place), &problem);
        let recipes: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut known: BTreeSet<String> = recipes.deployed.keys().cloned().collect();
        let mut names = BTreeSet::new();
        for row in &recipes.rows {
            let in_row = |problem: String| wrong(format!("row {}: {problem}", row.name));
            let in_model =
                |problem: &str| wrong(format!("deployed model {}: {problem}", row.deployed));
            let Some(deployed) = recipes.deployed.get(&row.deployed) else {
                return Err(in_row(format!("no deployed model `{}`", row.deployed)));
            };
            if row.seeds == 0 {
                return Err(in_row("seeds = 0; give at least 1".to_owned()));
            }
            for run in recipes.runs(row) {
                if !names.insert(run.name) {
                    return Err(in_row("there are two of that name".to_owned()));
                }
            }
            if let Some(start) = row.start.as_ref().filter(|start| !known.contains(*start)) {
                let problem = "which is no deployed model and no earlier row";
                return Err(in_row(format!("begins with {start}, {problem}")));
            }
            known.insert(row.name.clone());
            if deployed.file.is_some() != deployed.train.is_empty() {
                return Err(in_model("give either `file` or settings under `train`"));
            }
            if let Some(line) = recipes.train_deployed(row) {
                line.check().map_err(|problem| in_model(&problem))?;
            }
            recipes.train(row).check().map_err(in_row)?;
            recipes.evaluate(row).check().map_err(in_row)?;
        }
        Ok(recipes)
    }

    /// Leaves out all but the rows named, if any is.
    pub(super) fn only(mut self, names: &[String]) -> Result<Self, TrainError> {
        let known: Vec<&str> = self.rows.iter().map(|row| row.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let problem = format!("--only {name}: no such row; there are {}", known.join(", "));
            return Err(TrainError::settings(None, &problem));
        }
        for row in &mut self.rows {
            row.is_left_out = !names.is_empty() && !names.contains(&row.name);
        }
        Ok(self)
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = &RowRecipe> {
        self.rows.iter().filter(|row| !row.is_left_out)
    }

    /// With steps and epochs of the rows asked for as many as fit into `budget` minutes together.
    pub(super) fn within(mut self, budget: f64) -> Result<Self, TrainError> {
        if !(budget > 0.0 && budget.is_finite()) {
            let problem = "out of range; give a number greater than 0";
            return Err(TrainError::Input(format!("--budget {budget}: {problem}")));
        }
        let share = budget / self.minutes().max(1e-9);
        let scale = |table: &mut toml::Table, name: &str, default: i64| {
            let count = table.get(name).and_then(toml::Value::as_integer);
            let scaled = (count.unwrap_or(default) as f64 * share).round() as i64;
            table.insert(name.to_owned(), scaled.max(1).into());
        };
        let needed: Vec<String> = self.asked().map(|row| row.deployed.clone()).collect();
        for (name, deployed) in &mut self.deployed {
            if needed.contains(name) && deployed.file.is_none() {
                deployed.minutes *= share;
                scale(&mut deployed.train, "epochs", EPOCHS);
            }
        }
        for row in self.rows.iter_mut().filter(|row| !row.is_left_out) {
            row.minutes *= share;
            scale(&mut row.train, "steps", STEPS);
        }
        Ok(self)
    }

    /// Minutes of all the rows asked for and of the deployed models that they need.
    fn minutes(&self) -> f64 {
        let needed: BTreeSet<&str> = self.asked().map(|row| row.deployed.as_str()).collect();
        let deployed = needed.iter().map(|name| self.deployed[*name].minutes);
        let rows = self.asked().map(|row| row.minutes * f64::from(row.seeds));
        rows.chain(deployed).sum()
    }

    /// The trainings of `row`, each as a row of one seed: the row itself, then `NAME-seed2` and so
    /// on with the seeds that follow the row's own. A training begins with the one of the same
    /// number of the row that it begins with, where that has as many; the deployed model is the
    /// same for all.
    pub(super) fn runs(&self, row: &RowRecipe) -> Vec<RowRecipe> {
        let name = |row: &str, number: u32| match number {
            1 => row.to_owned(),
            number => format!("{row}-seed{number}"),
        };
        let run = |number: u32| {
            let mut run = row.clone();
            run.seeds = 1;
            run.name = name(&row.name, number);
            if number > 1 {
                let seed = row.seed() + i64::from(number) - 1;
                run.train.insert("seed".to_owned(), seed.into());
            }
            let mut rows = self.rows.iter();
            let start = rows.find(|other| row.start.as_ref() == Some(&other.name));
            if let Some(start) = start.filter(|start| number <= start.seeds) {
                run.start = Some(name(&start.name, number));
            }
            run
        };
        (1..=row.seeds).map(run).collect()
    }

    pub(super) fn train_deployed(&self, row: &RowRecipe) -> Option<CommandLine> {
        let recipe = &self.deployed[&row.deployed];
        if recipe.file.is_some() {
            return None;
        }
        let mut line = CommandLine::new("train-deployed");
        line.setting("data", self.data(row));
        line.settings(&recipe.train);
        line.setting("out", MODELS);
        line.setting("name", &row.deployed);
        Some(line)
    }

    pub(super) fn train(&self, row: &RowRecipe) -> CommandLine {
        let mut line = self.line("train", row);
        line.settings(&row.train);
        if let Some(start) = &row.start {
            line.setting("start", format!("{MODELS}/{start}"));
        }
        line.setting("out", MODELS);
        line.setting("name", &row.name);
        line
    }

    pub(super) fn evaluate(&self, row: &RowRecipe) -> CommandLine {
        let mut line = self.line("eval", row);
        for name in ["input", "output"] {
            if let Some(tensor) = row.train.get(name) {
                line.setting(name, plain(tensor));
            }
        }
        // `NAME`, or `NAME-0` and so on for a code of several rows.
        let entry = format!("{MODELS}/{}", row.name);
        let entries = match row.number("r").unwrap_or(1) {
            1 => vec![entry],
            r => (0..r).map(|at| format!("{entry}-{at}")).collect(),
        };
        line.setting("parity", entries.join(","));
        line.setting("out", row.reports());
        line
    }

    fn line(&self, command: &str, row: &RowRecipe) -> CommandLine {
        let model = match &self.deployed[&row.deployed].file {
            Some(file) => format!("MODELS/{file}"),
            None => format!("{MODELS}/{}", row.deployed),
        };
        let mut line = CommandLine::new(command);
        line.setting("model", model);
        line.setting("data", self.data(row));
        line
    }

    fn data(&self, row: &RowRecipe) -> String {
        format!("DATA/{}", self.deployed[&row.deployed].data)
    }

    /// Returns the data or the deployed model's file, if the row's is not in `roots`.
    pub(super) fn missing(&self, row: &RowRecipe, roots: &Roots) -> Option<String> {
        let file = self.deployed[&row.deployed].file.as_ref();
        let file = file.map(|file| format!("MODELS/{file}"));
        let mut needed = std::iter::once(self.data(row)).chain(file);
        needed.find(|path| !roots.place(path).exists())
    }

    /// Digest of all that decides a training's figures.
    pub(super) fn digest(&self, run: &RowRecipe) -> String {
        let train_deployed = self.train_deployed(run).map(|line| line.to_string());
        let mut parts = vec![
            self.train(run).to_string(),
            self.evaluate(run).to_string(),
            train_deployed.unwrap_or_default(),
        ];
        let mut runs = self.rows.iter().flat_map(|row| self.runs(row));
        if let Some(start) = runs.find(|other| run.start.as_ref() == Some(&other.name)) {
            // Rows begin with earlier ones only, so that this ends.
            parts.push(self.digest(&start));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        digest(&parts)
    }
}

#[cfg(test)]
mod tests;
