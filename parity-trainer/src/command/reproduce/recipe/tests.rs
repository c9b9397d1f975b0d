//! Recipes read, cut to a budget, and told as commands.

use super::*;

fn row<'a>(recipes: &'a Recipes, name: &str) -> &'a RowRecipe {
    recipes.rows.iter().find(|row| row.name == name).unwrap()
}

fn steps(recipes: &Recipes, name: &str) -> i64 {
    row(recipes, name)
        .train
        .get("steps")
        .and_then(toml::Value::as_integer)
        .unwrap()
}

#[test]
fn the_published_recipes_are_commands_that_the_program_takes() {
    let recipes = Recipes::published().unwrap();
    // Every line of the acceptance table has its row.
    for (name, bound) in [
        ("mnist-k2", Some(0.0)),
        ("mnist-k3", Some(0.3)),
        ("mnist-k4", Some(0.5)),
        ("fashion-k2", Some(2.5)),
        ("fashion-k3", Some(7.0)),
        ("fashion-k4", Some(12.0)),
        ("spoken-k2", Some(0.7)),
        ("spoken-k3", Some(2.0)),
        ("spoken-k4", Some(4.0)),
        ("cifar-k2", Some(8.0)),
        ("text-k2", Some(3.0)),
        ("letter-k2-sum", None),
        ("letter-k2-weighted", None),
        ("letter-k2-learned", None),
        ("ppocr-k2", None),
    ] {
        let row = row(&recipes, name);
        assert_eq!(row.bound, bound, "{name}");
        assert!(row.unsupported.is_none() || row.optional, "{name}");
        let grid = row
            .train
            .get("network")
            .and_then(|network| network.as_str()?.strip_prefix("cells:"));
        if let Some(grid) = grid {
            let wide = row.train.get("k").and_then(toml::Value::as_integer) == Some(2);
            assert!(
                grid.starts_with(if wide { "1x2:" } else { "2x2:" }),
                "{name}: {grid}"
            );
        }
    }
    let judged = recipes.rows.iter().filter(|row| row.bound.is_some());
    assert!(
        judged.clone().all(|row| row.seeds >= 3),
        "a row with a bound is judged by three seeds"
    );
    for (name, least) in [
        ("mnist", 99.0),
        ("fashion", 91.0),
        ("spoken", 98.5),
        ("cifar", 80.0),
    ] {
        assert_eq!(
            recipes.deployed.get(name).unwrap().least,
            Some(least),
            "{name}"
        );
    }
}

#[test]
fn a_budget_scales_what_is_asked_for() {
    let all = Recipes::published().unwrap();
    let some = all.clone().only(&["fashion-k2".to_owned()]).unwrap();
    let minutes = some.minutes();
    let fashion = row(&all, "fashion-k2");
    let trainings = fashion.minutes * f64::from(fashion.seeds);
    assert_eq!(
        minutes,
        trainings + all.deployed.get("fashion").unwrap().minutes
    );
    let half = some.within(Some(minutes / 2.0)).unwrap();
    assert_eq!(steps(&half, "fashion-k2"), steps(&all, "fashion-k2") / 2);
    assert_eq!(steps(&half, "mnist-k2"), steps(&all, "mnist-k2"));
    let epochs = |recipes: &Recipes, name: &str| {
        let model = recipes.deployed.get(name).unwrap();
        model
            .train
            .get("epochs")
            .and_then(toml::Value::as_integer)
            .unwrap()
    };
    assert_eq!(epochs(&half, "fashion"), epochs(&all, "fashion") / 2);
    assert_eq!(epochs(&half, "cifar"), epochs(&all, "cifar"));
    let least = all.clone().within(Some(1e-6)).unwrap();
    assert!(least.rows.iter().all(|row| steps(&least, &row.name) == 1));
    for budget in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(all.clone().within(Some(budget)).is_err(), "{budget}");
    }
}

#[test]
fn commands_are_told_with_folders_by_name() {
    let recipes = Recipes::published().unwrap();
    let text = row(&recipes, "text-k2");
    assert!(recipes.train(text).to_string().starts_with(
        "parity-trainer train --model OUT/models/text --data DATA/text-spamassassin1024 "
    ));
    let mnist = row(&recipes, "mnist-k2");
    assert_eq!(
        recipes.evaluate(mnist).to_string(),
        "parity-trainer eval --model MODELS/ccexam_mnist.onnx --data DATA/mnist --parity \
            OUT/models/mnist-k2 --out OUT/reports/mnist-k2"
    );
    let mut rows = mnist.clone();
    rows.train.insert("r".to_owned(), 2.into());
    let line = recipes.evaluate(&rows).to_string();
    assert!(
        line.contains("--parity OUT/models/mnist-k2-0,OUT/models/mnist-k2-1 "),
        "{line}"
    );
    rows.train.insert("row".to_owned(), 1.into());
    let line = recipes.evaluate(&rows).to_string();
    assert!(line.contains("--parity OUT/models/mnist-k2-1 "), "{line}");
}
