//! Recipes: what each row of the table is made with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parity_trainer::SetupError;
use serde::Deserialize;

use super::command_line::{CommandLine, Root, Roots};

/// The table's own recipes.
const PUBLISHED: &str = include_str!("../../../recipes/accuracy.toml");
/// The model repository, in `--out`.
const MODELS: &str = "models";
/// Where runs keep their checkpoints, in `--out`.
pub(super) const RUNS: &str = "models/.runs";
/// Steps of a row that names none.
const STEPS: i64 = 4000;
/// Epochs of a deployed model that names none.
const EPOCHS: i64 = 20;

/// Everything that is to be made.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipes {
    /// Deployed models, by name.
    #[serde(default)]
    pub(super) deployed: BTreeMap<String, DeployedRecipe>,
    /// Rows, in the order in which they are run and told.
    #[serde(rename = "row")]
    pub(super) rows: Vec<RowRecipe>,
    /// Text after the table, Markdown.
    #[serde(default)]
    pub(super) notes: String,
}

/// Deployed model: a given file, or one that is trained.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeployedRecipe {
    /// Title in the table.
    pub(super) title: String,
    pub(super) data: String,
    /// True if it takes lines of text, which are made of that data set's digits.
    #[serde(default)]
    pub(super) lines: bool,
    /// Its file, in `--models`; none for a model that is trained here.
    pub(super) file: Option<String>,
    /// The accuracy that it should have at least, percent.
    pub(super) least: Option<f64>,
    /// Settings that were chosen by figures of the test set; the table marks them.
    #[serde(default)]
    pub(super) chosen_on_test: String,
    /// Minutes that its training takes on one core.
    #[serde(default)]
    pub(super) minutes: f64,
    /// Settings of `train-deployed`.
    #[serde(default)]
    pub(super) train: toml::Table,
}

/// A row of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowRecipe {
    /// Its name, and the parity model's.
    pub(super) name: String,
    /// Its deployed model's name.
    pub(super) deployed: String,
    /// The greatest loss A_a - A_d that meets the aim, points; none where there is no aim.
    pub(super) bound: Option<f64>,
    /// Minutes that one training takes on one core.
    pub(super) minutes: f64,
    /// Trainings, with the seed of `train` and those that follow it.
    #[serde(default = "one")]
    pub(super) seeds: u32,
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
    /// True if it may be passed over by a build that does not know its settings.
    #[serde(default)]
    pub(super) optional: bool,
    /// Settings of `train`.
    pub(super) train: toml::Table,
    /// Settings that this build does not know.
    #[serde(skip)]
    pub(super) unsupported: Option<String>,
    /// True if the user has not asked for it.
    #[serde(skip)]
    pub(super) left_out: bool,
}

fn one() -> u32 {
    1
}

/// The folder of a row's reports, in `--out`.
pub(super) fn reports(name: &str) -> String {
    format!("reports/{name}")
}

impl Recipes {
    pub(super) fn published() -> Result<Self, SetupError> {
        Self::parse(PUBLISHED, None)
    }

    /// # Errors
    /// If the text is no recipes, or one has settings that its command does not take.
    pub(super) fn parse(text: &str, place: Option<&Path>) -> Result<Self, SetupError> {
        let wrong = |problem: &str| {
            SetupError::config(Some(place.unwrap_or(Path::new("recipes"))), problem)
        };
        let mut recipes: Self = toml::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let mut unsupported = BTreeMap::new();
        for (at, row) in recipes.rows.iter().enumerate() {
            let name = &row.name;
            let deployed = recipes.deployed.get(&row.deployed).ok_or_else(|| {
                wrong(&format!("row {name}: no deployed model `{}`", row.deployed))
            })?;
            if row.seeds == 0 {
                return Err(wrong(&format!("row {name}: seeds = 0; give at least 1")));
            }
            let before: Vec<String> = recipes
                .rows
                .iter()
                .take(at)
                .flat_map(|other| recipes.names(other))
                .collect();
            if let Some(name) = recipes
                .names(row)
                .into_iter()
                .find(|name| before.contains(name))
            {
                return Err(wrong(&format!("row {name}: there are two of that name")));
            }
            let earlier = |start: &String| {
                recipes.deployed.contains_key(start)
                    || recipes
                        .rows
                        .iter()
                        .take(at)
                        .any(|other| other.name == *start)
            };
            if let Some(start) = row.start.as_ref().filter(|start| !earlier(start)) {
                let problem = format!(
                    "row {name}: begins with {start}, which is no deployed model and no earlier row"
                );
                return Err(wrong(&problem));
            }
            if deployed.file.is_some() != deployed.train.is_empty() {
                let problem = "give either `file` or settings under `train`";
                return Err(wrong(&format!(
                    "deployed model {}: {problem}",
                    row.deployed
                )));
            }
            let trained = recipes
                .train_deployed(row)
                .map_or(Ok(()), |line| parses(&line));
            trained
                .map_err(|problem| wrong(&format!("deployed model {}: {problem}", row.deployed)))?;
            match parses(&recipes.train(row)).and_then(|()| parses(&recipes.evaluate(row))) {
                Err(problem) if row.optional => {
                    unsupported.insert(at, format!("this build cannot train it ({problem})"));
                }
                outcome => outcome.map_err(|problem| wrong(&format!("row {name}: {problem}")))?,
            }
        }
        for (at, problem) in unsupported {
            if let Some(row) = recipes.rows.get_mut(at) {
                row.unsupported = Some(problem);
            }
        }
        Ok(recipes)
    }

    /// Leaves out all but the rows named, if any is.
    ///
    /// # Errors
    /// If there is no row of a name.
    pub(super) fn only(mut self, names: &[String]) -> Result<Self, SetupError> {
        let known: Vec<&str> = self.rows.iter().map(|row| row.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let problem = format!("--only {name}: no such row; there are {}", known.join(", "));
            return Err(SetupError::config(None, &problem));
        }
        for row in &mut self.rows {
            row.left_out = !names.is_empty() && !names.contains(&row.name);
        }
        Ok(self)
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = &RowRecipe> {
        self.rows.iter().filter(|row| !row.left_out)
    }

    /// With steps and epochs of the rows asked for as many as fit into `budget` minutes together.
    ///
    /// # Errors
    /// If the budget is no time.
    pub(super) fn within(mut self, budget: Option<f64>) -> Result<Self, SetupError> {
        let Some(budget) = budget else {
            return Ok(self);
        };
        if !(budget > 0.0 && budget.is_finite()) {
            let range = "greater than 0".to_owned();
            return Err(SetupError::Range {
                name: "budget",
                value: budget,
                range,
            });
        }
        let share = budget / self.minutes().max(1e-9);
        let scale = |table: &mut toml::Table, name: &str, default: i64| {
            let count = table
                .get(name)
                .and_then(toml::Value::as_integer)
                .unwrap_or(default);
            let scaled = ((count as f64 * share).round() as i64).max(1);
            table.insert(name.to_owned(), scaled.into());
        };
        let needed: Vec<String> = self.asked().map(|row| row.deployed.clone()).collect();
        let ours = self
            .deployed
            .iter_mut()
            .filter(|(name, model)| needed.contains(*name) && model.file.is_none());
        for (_, deployed) in ours {
            deployed.minutes *= share;
            scale(&mut deployed.train, "epochs", EPOCHS);
        }
        for row in self.rows.iter_mut().filter(|row| !row.left_out) {
            row.minutes *= share;
            scale(&mut row.train, "steps", STEPS);
        }
        Ok(self)
    }

    /// Minutes of all the rows asked for and of the deployed models that they need.
    fn minutes(&self) -> f64 {
        let needed = |name: &str| self.asked().any(|row| row.deployed == name);
        let deployed = self
            .deployed
            .iter()
            .filter(|(name, _)| needed(name))
            .map(|(_, model)| model.minutes);
        self.asked()
            .map(|row| row.minutes * f64::from(row.seeds))
            .chain(deployed)
            .sum()
    }

    /// The training of a row's deployed model, if it is trained here.
    pub(super) fn train_deployed(&self, row: &RowRecipe) -> Option<CommandLine> {
        let recipe = self
            .deployed
            .get(&row.deployed)
            .filter(|recipe| recipe.file.is_none())?;
        let mut line = CommandLine::new("train-deployed");
        let (root, path) = data(&row.deployed, recipe);
        line.path("data", root, path);
        settings(&mut line, &recipe.train);
        line.path("out", Root::Out, MODELS);
        line.setting("name", &row.deployed.as_str().into());
        Some(line)
    }

    /// Tells a row's deployed model apart from one that was made otherwise.
    pub(super) fn deployed_recipe(&self, row: &RowRecipe) -> String {
        self.train_deployed(row)
            .map(|line| line.to_string())
            .unwrap_or_default()
    }

    /// The training of a row's parity model.
    pub(super) fn train(&self, row: &RowRecipe) -> CommandLine {
        let mut line = CommandLine::new("train");
        self.models_and_data(&mut line, row);
        settings(&mut line, &row.train);
        if let Some((root, path)) = self.start(row) {
            line.path("start", root, path);
        }
        line.path("out", Root::Out, MODELS);
        line.setting("name", &row.name.as_str().into());
        line
    }

    /// The evaluation of a row's parity model.
    pub(super) fn evaluate(&self, row: &RowRecipe) -> CommandLine {
        let mut line = CommandLine::new("eval");
        self.models_and_data(&mut line, row);
        for name in ["input", "output"] {
            if let Some(tensor) = row.train.get(name) {
                line.setting(name, tensor);
            }
        }
        line.paths("parity", Root::Out, &entries(row));
        line.path("out", Root::Out, reports(&row.name));
        line
    }

    /// The digits that a row's data are to be made of, and where the data go.
    pub(super) fn lines(&self, row: &RowRecipe) -> Option<[(Root, String); 2]> {
        let deployed = self
            .deployed
            .get(&row.deployed)
            .filter(|deployed| deployed.lines)?;
        Some([
            (Root::Data, deployed.data.clone()),
            data(&row.deployed, deployed),
        ])
    }

    /// Returns the files that the row needs, in the order of its making.
    pub(super) fn needs(&self, row: &RowRecipe) -> Vec<(Root, String)> {
        let Some(deployed) = self.deployed.get(&row.deployed) else {
            return Vec::new();
        };
        let file = deployed
            .file
            .iter()
            .map(|file| (Root::Models, file.clone()));
        std::iter::once((Root::Data, deployed.data.clone()))
            .chain(file)
            .collect()
    }

    /// The training whose parity model another begins with.
    pub(super) fn begins_with(&self, run: &RowRecipe) -> Option<RowRecipe> {
        let start = run.start.as_ref()?;
        self.rows
            .iter()
            .flat_map(|row| self.runs(row))
            .find(|other| other.name == *start)
    }

    /// Names of a row's trainings.
    fn names(&self, row: &RowRecipe) -> Vec<String> {
        self.runs(row).into_iter().map(|run| run.name).collect()
    }

    /// The entry that has to be there before the row can be begun: the one that it begins with,
    /// unless that is its own deployed model, which is trained before it.
    pub(super) fn start_needed(&self, row: &RowRecipe) -> Option<(Root, String)> {
        self.start(row)
            .filter(|_| row.start.as_ref() != Some(&row.deployed))
    }

    /// The entry that a row begins with.
    fn start(&self, row: &RowRecipe) -> Option<(Root, String)> {
        row.start
            .as_ref()
            .map(|start| (Root::Out, format!("{MODELS}/{start}")))
    }

    fn models_and_data(&self, line: &mut CommandLine, row: &RowRecipe) {
        let Some(deployed) = self.deployed.get(&row.deployed) else {
            return;
        };
        match &deployed.file {
            Some(file) => line.path("model", Root::Models, file),
            None => line.path("model", Root::Out, format!("{MODELS}/{}", row.deployed)),
        }
        let (root, path) = data(&row.deployed, deployed);
        line.path("data", root, path);
    }
}

/// Where the data of the deployed model `name` are.
fn data(name: &str, recipe: &DeployedRecipe) -> (Root, String) {
    if recipe.lines {
        (Root::Out, format!("data/{name}.safetensors"))
    } else {
        (Root::Data, recipe.data.clone())
    }
}

/// The entries of a row's parity models: `NAME`, or `NAME-0` and so on for a code of several rows.
fn entries(row: &RowRecipe) -> Vec<String> {
    let number = |name: &str| row.train.get(name).and_then(toml::Value::as_integer);
    let name = |end: String| format!("{MODELS}/{}{end}", row.name);
    match (number("r").unwrap_or(1), number("row")) {
        (1, _) => vec![name(String::new())],
        (_, Some(only)) => vec![name(format!("-{only}"))],
        (r, None) => (0..r).map(|at| name(format!("-{at}"))).collect(),
    }
}

fn settings(line: &mut CommandLine, table: &toml::Table) {
    for (name, value) in table {
        line.setting(name, value);
    }
}

/// Returns true if the program takes the line; what it says if not, shortened to one line.
fn parses(line: &CommandLine) -> Result<(), String> {
    let roots = Roots {
        data: PathBuf::new(),
        models: PathBuf::new(),
        out: PathBuf::new(),
    };
    let arguments = std::iter::once("parity-trainer".into()).chain(line.arguments(&roots));
    <crate::Cli as clap::Parser>::try_parse_from(arguments)
        .map(drop)
        .map_err(|error| {
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
}

#[cfg(test)]
mod tests;
