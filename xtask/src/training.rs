//! Trainings of a small parity model, by one process or on a cluster of processes.

use crate::prelude::*;
use std::fs;

/// A folder of trainings, and the settings that all of them have.
pub(crate) struct Trainings {
    pub(crate) trainer: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) steps: u64,
}

impl Trainings {
    /// Makes the folder of the step `name` empty, and trains the deployed model to learn from.
    pub(crate) fn new(name: &str, trainer: &Path, steps: u64) -> Result<Self> {
        let (sh, folder) = (shell()?, scratch(name));
        empty(&sh, &folder)?;
        let trainer = std::path::absolute(trainer)?;
        step("a deployed model to learn from");
        let (data, out) = (data(), folder.join("models"));
        Processes::new(&folder)?.run(
            "deployed",
            cmd!(
                sh,
                "{trainer} train-deployed --network lenet:4 --epochs 3 --name deployed --data {data}
                    --out {out}"
            ),
        )?;
        Ok(Self {
            trainer,
            folder,
            steps,
        })
    }

    /// Arguments that train the parity model `name`, on the cluster of a registry if one is given.
    pub(crate) fn arguments(&self, name: &str, registry: Option<&str>) -> Vec<String> {
        let Self { steps, folder, .. } = self;
        let line = format!(
            "--threads 1 train --k 2 --network lenet:8 --encoder concat --transform raw \
             --name {name} --steps {steps} --seed 1"
        );
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let models = folder.join("models");
        for (option, path) in [
            ("--model", models.join("deployed")),
            ("--data", data()),
            ("--out", models),
        ] {
            words.extend([option.to_owned(), path.display().to_string()]);
        }
        let cluster = registry.map(|registry| ["--cluster".to_owned(), registry.to_owned()]);
        words.extend(cluster.into_iter().flatten());
        words
    }

    pub(crate) fn model(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(format!("models/{name}/1/model.onnx"));
        Ok(shell()?.read_binary_file(path)?)
    }

    pub(crate) fn records(&self, name: &str) -> Vec<Value> {
        let path = self.folder.join(format!("models/.runs/{name}/log.jsonl"));
        let log = fs::read_to_string(path).unwrap_or_default();
        // The last one may be half written.
        log.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn steps_done(&self, name: &str) -> u64 {
        let records = self.records(name);
        let step = records.last().and_then(|record| record["step"].as_u64());
        step.unwrap_or_default()
    }

    pub(crate) fn reach(&self, training: &mut Processes, name: &str, steps: u64) -> Result<u64> {
        let mut done = 0;
        while done < steps {
            done = wait_for("next step", LIMIT, || {
                training.none_ended()?;
                Ok(Some(self.steps_done(name)).filter(|now| *now > done))
            })?;
        }
        Ok(done)
    }
}

/// Output of `top` for the cluster of a registry, asked by this command of the trainer; nothing if
/// the registry does not answer.
pub(crate) fn top(trainer: Cmd<'_>, registry: &str) -> String {
    let command = trainer.args(["top", "--once", "--registry", registry]);
    let command = command.quiet().ignore_stderr().ignore_status();
    command.read().unwrap_or_default()
}
