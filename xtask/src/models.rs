//! The models of the demo and the benchmarks, trained on the Fashion-MNIST subset that the
//! repository carries.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::workspace;
use crate::workspace::{demo as folder, step};

/// A model that can be trained here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    Deployed,
    /// A cheaper one for the same task.
    Small,
    /// The parity model of concatenation with r = 1.
    Parity {
        /// Queries in a group, 2 to 4.
        k: usize,
    },
}

impl Model {
    /// Its name in the repository.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Deployed => "fashion".to_owned(),
            Self::Small => "fashion-small".to_owned(),
            Self::Parity { k: 2 } => "fashion-parity".to_owned(),
            Self::Parity { k } => format!("fashion-parity-k{k}"),
        }
    }

    fn title(self) -> String {
        match self {
            Self::Deployed => "the deployed model".to_owned(),
            Self::Small => "a cheaper model".to_owned(),
            Self::Parity { k } => format!("the parity model (k = {k}, concatenation)"),
        }
    }

    fn arguments(self) -> Vec<String> {
        let arguments: &[&str] = match self {
            Self::Deployed => &["train-deployed", "--network", "lenet:16", "--epochs", "60"],
            Self::Small => &["train-deployed", "--network", "lenet:4", "--epochs", "15"],
            Self::Parity { k: 2 } => &[
                "train",
                "--encoder",
                "concat",
                "--network",
                "cells:1x2:lenet:24x3",
                "--steps",
                "4000",
            ],
            Self::Parity { .. } => &[
                "train",
                "--encoder",
                "concat",
                "--network",
                "cells:2x2:lenet:24x3",
                "--steps",
                "4000",
            ],
        };
        let mut arguments: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        if let Self::Parity { k } = self {
            // Trials of other transforms would take time, and raw outputs do best for these models.
            arguments.extend(["--transform".to_owned(), "raw".to_owned()]);
            let deployed = repository()
                .join(Self::Deployed.name())
                .display()
                .to_string();
            arguments.extend([
                "--model".to_owned(),
                deployed,
                "--k".to_owned(),
                k.to_string(),
            ]);
        }
        arguments
    }

    fn is_there(self) -> bool {
        repository().join(self.name()).join("model.toml").is_file()
    }
}

/// Where they are.
pub(crate) fn repository() -> PathBuf {
    folder().join("models")
}

/// The data that they learn from and are asked about.
pub(crate) fn data() -> PathBuf {
    workspace::root().join("deploy/local/data/fashion2k")
}

/// Trains `models`, the deployed one first; `reuse` keeps those that are there. The trainer must
/// have been built.
pub(crate) fn train(models: &[Model], seed: u64, reuse: bool) -> Result<()> {
    let started = Instant::now();
    let trainer = workspace::target().join("debug/parity-trainer");
    let wanted: Vec<Model> = models
        .iter()
        .copied()
        .filter(|model| !(reuse && model.is_there()))
        .collect();
    for model in &wanted {
        step(&format!("training {}", model.title()));
        let status = Command::new(&trainer)
            .args(model.arguments())
            .args(["--name", &model.name()])
            .arg("--data")
            .arg(data())
            .arg("--out")
            .arg(repository())
            .args(["--seed", &seed.to_string(), "--augment", "shift-flip"])
            .status()
            .with_context(|| format!("cannot start {}", trainer.display()))?;
        ensure!(status.success(), "training failed ({status})");
    }
    if !wanted.is_empty() {
        eprintln!("    trained in {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}
