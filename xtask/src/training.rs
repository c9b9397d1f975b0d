//! Trainings of a small parity model on a cluster of processes.

use crate::prelude::*;
use std::fs;

/// A folder of trainings, and the settings that all of them have.
pub(crate) struct Trainings {
    trainer: PathBuf,
    pub(crate) folder: PathBuf,
    steps: u64,
}

impl Trainings {
    /// Makes the folder of the step `name` empty, and trains the deployed model to learn from.
    pub(crate) fn new(name: &str, trainer: &Path, steps: u64) -> Result<Self> {
        let (sh, folder) = (shell()?, scratch(name));
        empty(&sh, &folder)?;
        let trainer = std::path::absolute(trainer)?;
        step("a deployed model to learn from");
        let (data, out) = (data(), folder.join("models"));
        let deployed = cmd!(
            sh,
            "{trainer} train-deployed --network lenet:4 --epochs 3 --name deployed --data {data}
                --out {out}"
        );
        Processes::new(&folder)?.run("deployed", deployed)?;
        Ok(Self { trainer, folder, steps })
    }

    pub(crate) fn model(&self, name: &str) -> Result<Vec<u8>> {
        Ok(shell()?.read_binary_file(self.folder.join(format!("models/{name}/1/model.onnx")))?)
    }

    fn records(&self, name: &str) -> Vec<Value> {
        let path = self.folder.join(format!("models/.runs/{name}/log.jsonl"));
        let log = fs::read_to_string(path).unwrap_or_default();
        // The last one may be half written.
        log.lines().map(serde_json::from_str).filter_map(Result::ok).collect()
    }

    /// Output of `top` for a registry's cluster, asked from one place; nothing if it is silent.
    pub(crate) fn top(&self, place: &Place, registry: &str) -> Result<String> {
        let sh = shell()?;
        let command = place.command(&sh, &self.trainer);
        let command = command.args(["top", "--once", "--registry", registry]);
        Ok(command.quiet().ignore_stderr().ignore_status().read().unwrap_or_default())
    }
}

/// Processes that take part in trainings, and find each other by a registry.
pub(crate) struct TrainingCluster<'a> {
    sh: Shell,
    pub(crate) trainings: &'a Trainings,
    registry: String,
    pub(crate) processes: Processes,
}

impl<'a> TrainingCluster<'a> {
    pub(crate) fn new(trainings: &'a Trainings, registry: String) -> Result<Self> {
        Ok(Self {
            sh: shell()?,
            trainings,
            registry,
            processes: Processes::new(&trainings.folder)?,
        })
    }

    pub(crate) fn start(
        &mut self,
        place: &Place,
        (role, name): (&str, &str),
        more: &[&str],
    ) -> Result<()> {
        let member = place.command(&self.sh, &self.trainings.trainer);
        let member = member.args(["--threads", "1", role, "--registry", &self.registry]).args(more);
        self.processes.start(&format!("{role}-{name}"), member)
    }

    pub(crate) fn start_training(&mut self, place: &Place, name: &str) -> Result<()> {
        let Trainings { folder, steps, .. } = self.trainings;
        let line = format!(
            "--threads 1 train --k 2 --network lenet:8 --encoder concat --transform raw \
             --name {name} --steps {steps} --seed 1"
        );
        let models = folder.join("models");
        let training = place.command(&self.sh, &self.trainings.trainer);
        let training = training.args(line.split(' ')).arg("--data").arg(data());
        let training = training.arg("--model").arg(models.join("deployed"));
        let training = training.arg("--out").arg(models).args(["--cluster", &self.registry]);
        self.processes.start(name, training)
    }

    /// Waits until a training has made so many steps; returns how many it has made.
    pub(crate) fn reach(&mut self, name: &str, steps: u64) -> Result<u64> {
        let mut done = 0;
        while done < steps {
            done = wait_for("next step", LIMIT, || {
                self.processes.none_ended(name)?;
                let records = self.trainings.records(name);
                let step = records.last().and_then(|record| record["step"].as_u64());
                Ok(step.filter(|now| *now > done))
            })?;
        }
        Ok(done)
    }
}
