//! The trainings of a row: one for each of its seeds, alike in all else.

use super::recipe::{Recipes, RowRecipe};

impl Recipes {
    /// The trainings of `row`, each as a row of one seed: the row itself, then `NAME-seed2` and so
    /// on with the seeds that follow the row's own. A training begins with the one of the same
    /// number of the row that it begins with, where that has as many; the deployed model is the
    /// same for all.
    pub(super) fn runs(&self, row: &RowRecipe) -> Vec<RowRecipe> {
        (0..row.seeds).map(|number| self.run(row, number)).collect()
    }

    fn run(&self, row: &RowRecipe, number: u32) -> RowRecipe {
        let mut run = RowRecipe {
            seeds: 1,
            ..row.clone()
        };
        if number == 0 {
            return run;
        }
        run.name = name(&row.name, number);
        run.train
            .insert("seed".to_owned(), (row.seed() + i64::from(number)).into());
        let has_as_many = |start: &str| {
            self.rows
                .iter()
                .any(|other| other.name == start && number < other.seeds)
        };
        run.start = run.start.map(|start| match has_as_many(&start) {
            true => name(&start, number),
            false => start,
        });
        run
    }
}

impl RowRecipe {
    /// The seed of its first training.
    pub(super) fn seed(&self) -> i64 {
        self.train
            .get("seed")
            .and_then(toml::Value::as_integer)
            .unwrap_or(0)
    }
}

fn name(row: &str, number: u32) -> String {
    match number {
        0 => row.to_owned(),
        number => format!("{row}-seed{}", number + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipes() -> Recipes {
        let text = r#"
            [deployed.digits]
            title = "digits"
            data = "digits"
            file = "digits.onnx"
            [[row]]
            name = "a"
            deployed = "digits"
            minutes = 2
            seeds = 3
            train = { k = 2, seed = 7 }
            [[row]]
            name = "b"
            deployed = "digits"
            minutes = 1
            seeds = 2
            start = "a"
            train = { k = 3 }
            [[row]]
            name = "c"
            deployed = "digits"
            minutes = 1
            seeds = 3
            start = "b"
            train = { k = 4 }
        "#;
        Recipes::parse(text, None).unwrap()
    }

    fn runs(recipes: &Recipes, row: usize) -> Vec<(String, i64, Option<String>)> {
        let runs = recipes.runs(&recipes.rows[row]);
        runs.into_iter()
            .map(|run| (run.name.clone(), run.seed(), run.start))
            .collect()
    }

    #[test]
    fn each_seed_is_a_training_with_a_name_of_its_own() {
        let recipes = recipes();
        let expected = [("a", 7), ("a-seed2", 8), ("a-seed3", 9)];
        let expected = expected.map(|(name, seed)| (name.to_owned(), seed, None));
        assert_eq!(runs(&recipes, 0), expected);
    }

    #[test]
    fn a_seed_begins_with_the_same_seed_where_there_is_one() {
        let recipes = recipes();
        let starts = |row| -> Vec<Option<String>> {
            runs(&recipes, row)
                .into_iter()
                .map(|(_, _, start)| start)
                .collect()
        };
        let some = |names: &[&str]| {
            names
                .iter()
                .map(|name| Some((*name).to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(1), some(&["a", "a-seed2"]));
        assert_eq!(
            starts(2),
            some(&["b", "b-seed2", "b"]),
            "b has no third seed"
        );
    }

    #[test]
    fn a_seed_is_the_same_commands_as_a_row_written_out() {
        let recipes = recipes();
        let second = &recipes.runs(&recipes.rows[1])[1];
        assert_eq!(
            recipes.train(second).to_string(),
            "parity-trainer train --model MODELS/digits.onnx --data DATA/digits --k 3 --seed 1 \
             --start OUT/models/a-seed2 --out OUT/models --name b-seed2"
        );
        assert!(
            recipes
                .evaluate(second)
                .to_string()
                .ends_with("--out OUT/reports/b-seed2")
        );
        assert_eq!(recipes.begins_with(second).unwrap().name, "a-seed2");
    }
}
