//! Recipes read, cut to a budget, and told as commands.

use super::*;

fn row<'a>(recipes: &'a Recipes, name: &str) -> &'a RowRecipe {
    recipes.rows.iter().find(|row| row.name == name).unwrap()
}

fn steps(recipes: &Recipes, name: &str) -> i64 {
    row(recipes, name).number("steps").unwrap()
}

#[test]
fn published_recipes_are_commands_that_the_program_takes() {
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
    ] {
        let row = row(&recipes, name);
        assert_eq!(row.bound, bound, "{name}");
        assert!(
            bound.is_none() || row.seeds >= 3,
            "{name} is judged by three seeds"
        );
        let network = row.train.get("network").and_then(toml::Value::as_str);
        if let Some(grid) = network.and_then(|network| network.strip_prefix("cells:")) {
            let wanted = if row.number("k") == Some(2) {
                "1x2:"
            } else {
                "2x2:"
            };
            assert!(grid.starts_with(wanted), "{name}: {grid}");
        }
    }
    let aims = [
        ("mnist", 99.0),
        ("fashion", 91.0),
        ("spoken", 98.5),
        ("cifar", 80.0),
    ];
    for (name, least) in aims {
        assert_eq!(recipes.deployed[name].least, Some(least), "{name}");
    }
}

#[test]
fn budget_scales_what_is_asked_for() {
    let all = Recipes::published().unwrap();
    let some = all.clone().only(&["fashion-k2".to_owned()]).unwrap();
    let minutes = some.minutes();
    let fashion = row(&all, "fashion-k2");
    let trainings = fashion.minutes * f64::from(fashion.seeds);
    assert_eq!(minutes, trainings + all.deployed["fashion"].minutes);
    let half = some.within(minutes / 2.0).unwrap();
    assert_eq!(steps(&half, "fashion-k2"), steps(&all, "fashion-k2") / 2);
    assert_eq!(steps(&half, "mnist-k2"), steps(&all, "mnist-k2"));
    let epochs =
        |recipes: &Recipes, name: &str| recipes.deployed[name].train["epochs"].as_integer();
    let whole = epochs(&all, "fashion").unwrap();
    assert_eq!(epochs(&half, "fashion"), Some(whole / 2));
    assert_eq!(epochs(&half, "cifar"), epochs(&all, "cifar"));
    let least = all.clone().within(1e-6).unwrap();
    assert!(least.rows.iter().all(|row| steps(&least, &row.name) == 1));
    for budget in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(all.clone().within(budget).is_err(), "{budget}");
    }
}

#[test]
fn commands_are_told_with_folders_by_name() {
    let recipes = Recipes::published().unwrap();
    let train = recipes.train(row(&recipes, "text-k2")).to_string();
    let begin = "parity-trainer train --model OUT/models/text --data DATA/text-spamassassin1024 ";
    assert!(train.starts_with(begin), "{train}");
    let mnist = row(&recipes, "mnist-k2");
    let evaluate = |rows: &[(&str, i64)]| {
        let mut row = mnist.clone();
        for (name, value) in rows {
            row.train.insert((*name).to_owned(), (*value).into());
        }
        recipes.evaluate(&row).to_string()
    };
    for (rows, parity) in [
        (&[][..], "OUT/models/mnist-k2"),
        (&[("r", 2)], "OUT/models/mnist-k2-0,OUT/models/mnist-k2-1"),
    ] {
        let line = format!(
            "parity-trainer eval --model MODELS/ccexam_mnist.onnx --data DATA/mnist --parity \
             {parity} --out OUT/reports/mnist-k2"
        );
        assert_eq!(evaluate(rows), line);
    }
}

/// Row `a` has three seeds, `b` two and begins with `a`, `c` three and begins with `b`.
fn seeds() -> Recipes {
    let rows = [
        ("a", 3, "", ", seed = 7"),
        ("b", 2, "start = 'a'", ""),
        ("c", 3, "start = 'b'", ""),
    ];
    let model = "[deployed.digits]\ntitle = 'digits'\ndata = 'digits'\nfile = 'digits.onnx'\n";
    let rows = rows.map(|(name, seeds, start, seed)| {
        format!(
            "[[row]]\nname = '{name}'\ndeployed = 'digits'\nminutes = 1\nseeds = {seeds}\n{start}\n\
             train = {{ k = 3{seed} }}\n"
        )
    });
    Recipes::parse(&(model.to_owned() + &rows.concat()), Path::new("recipes")).unwrap()
}

#[test]
fn each_seed_is_a_training_that_begins_with_the_same_seed_where_there_is_one() {
    let recipes = seeds();
    let runs = |row: usize| {
        let runs = recipes.runs(&recipes.rows[row]).into_iter();
        runs.map(|run| (run.name.clone(), run.seed(), run.start.unwrap_or_default()))
    };
    let expected = [
        vec![("a", 7, ""), ("a-seed2", 8, ""), ("a-seed3", 9, "")],
        vec![("b", 0, "a"), ("b-seed2", 1, "a-seed2")],
        // b has no third seed.
        vec![
            ("c", 0, "b"),
            ("c-seed2", 1, "b-seed2"),
            ("c-seed3", 2, "b"),
        ],
    ];
    for (row, expected) in expected.into_iter().enumerate() {
        let expected = expected.into_iter();
        let owned = expected.map(|(name, seed, start)| (name.to_owned(), seed, start.to_owned()));
        assert_eq!(runs(row).collect::<Vec<_>>(), owned.collect::<Vec<_>>());
    }
}

#[test]
fn seed_is_the_same_commands_as_a_row_written_out() {
    let recipes = seeds();
    let second = &recipes.runs(&recipes.rows[1])[1];
    assert_eq!(
        recipes.train(second).to_string(),
        "parity-trainer train --model MODELS/digits.onnx --data DATA/digits --k 3 --seed 1 --start \
         OUT/models/a-seed2 --out OUT/models --name b-seed2"
    );
    let evaluate = recipes.evaluate(second).to_string();
    assert!(
        evaluate.ends_with("--out OUT/reports/b-seed2"),
        "{evaluate}"
    );
    let digest = recipes.digest(second);
    let mut other = recipes.clone();
    other.rows[0].train.insert("steps".to_owned(), 5.into());
    assert_ne!(
        other.digest(second),
        digest,
        "it begins with another training"
    );
}
