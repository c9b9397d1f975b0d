//! A small cluster that needs no training, for checks: a linear model, which is its own parity
//! model for the sum code, two replicas, a parity instance and a frontend, as processes of this
//! machine with ports of their own.

mod repository;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

pub(crate) use self::repository::{Kind, write as write_model};
use crate::processes::{LIMIT, Servers, wait_for};
use crate::{cargo, workspace};

/// The model, and its parity model.
pub(crate) const MODEL: &str = "fashion";
pub(crate) const PARITY: &str = "fashion-parity";

/// Processes that end with this value.
pub(crate) struct SampleCluster {
    folder: PathBuf,
    processes: Servers,
    /// `http://HOST:PORT` of the replicas, then of the parity instance.
    pub(crate) instances: Vec<String>,
    pub(crate) frontend: String,
}

pub(crate) struct Layout<'a> {
    /// Instances of the model.
    pub(crate) replicas: usize,
    /// Instances of its parity model.
    pub(crate) parity: usize,
    /// The fault profile of all instances.
    pub(crate) faults: Option<&'a str>,
    /// The frontend's configuration, given the `HOST:PORT` of the replicas and of
    /// the parity instances.
    pub(crate) config: &'a dyn Fn(&[String], &[String]) -> String,
}

impl<'a> Layout<'a> {
    /// Two replicas and a parity instance, all well.
    pub(crate) fn small(config: &'a dyn Fn(&[String], &[String]) -> String) -> Self {
        Self {
            replicas: 2,
            parity: 1,
            faults: None,
            config,
        }
    }
}

/// Coded, with a parity pool that is discovered, so that discovery's metrics are there, too.
pub(crate) fn coded(replicas: &[String], parity: &[String]) -> String {
    let port = parity
        .first()
        .and_then(|address| address.rsplit(':').next())
        .unwrap_or_default();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\n[repository]\npath = \"models\"\n\n\
         [[models]]\nname = \"{MODEL}\"\ninstances = {replicas:?}\nslots_per_instance = 1\n\
         [models.health]\ninterval_ms = 200\n\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\nhold_back = {{ fixed_ms = 5 }}\naudit_every = 1\n\
         defer_parity = false\n\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\ninstances = {{ dns = \"127.0.0.1\", port = {port} }}\n"
    )
}

fn addresses(urls: &[String]) -> Vec<String> {
    urls.iter()
        .map(|url| url.trim_start_matches("http://").to_owned())
        .collect()
}

/// Where a check keeps what it makes.
pub(crate) fn folder(check: &str) -> PathBuf {
    workspace::root().join(".parapet/check").join(check)
}

/// Builds the serving side, all of it: a choice of packages would have other features, and compile
/// dependencies once more. Nothing with `PARAPET_BUILT` set: then the programs are those that the
/// tests have built.
pub(crate) fn build() -> Result<()> {
    if std::env::var_os("PARAPET_BUILT").is_some() {
        return Ok(());
    }
    cargo::run(&["build", "--quiet"])
}

/// A program that [`build`] has made.
pub(crate) fn binary(name: &str) -> PathBuf {
    workspace::target().join("debug").join(name)
}

/// A request for one image, whose pixels are `value` and a little more.
pub(crate) fn query(value: f32) -> String {
    let pixels: Vec<f32> = (0_u16..)
        .take(repository::INPUTS)
        .map(|i| value + f32::from(i % 13) / 13.0)
        .collect();
    let shape: Vec<usize> = [1].into_iter().chain(repository::SHAPE).collect();
    let input =
        serde_json::json!({ "name": "input", "datatype": "FP32", "shape": shape, "data": pixels });
    serde_json::json!({ "inputs": [input] }).to_string()
}

impl SampleCluster {
    /// Starts two replicas, a parity instance and a frontend, and waits until that is ready.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        Self::start_as(folder, &Layout::small(&coded))
    }

    /// Starts everything as `layout` says, and waits until the frontend is ready.
    pub(crate) fn start_as(folder: &Path, layout: &Layout<'_>) -> Result<Self> {
        let models = folder.join("models");
        workspace::make_folder(&models)?;
        write_model(&models, MODEL, Kind::Deployed)?;
        write_model(
            &models,
            PARITY,
            Kind::Parity {
                deployed: MODEL,
                encoder: "sum",
            },
        )?;
        let mut cluster = Self {
            folder: folder.to_owned(),
            processes: Servers::default(),
            instances: Vec::new(),
            frontend: String::new(),
        };
        let served = std::iter::repeat_n(MODEL, layout.replicas)
            .chain(std::iter::repeat_n(PARITY, layout.parity));
        for (index, model) in served.enumerate() {
            let mut command = Command::new(binary("parapet-instance"));
            command.arg("--repository").arg(&models).args([
                "--model",
                model,
                "--listen",
                "127.0.0.1:0",
            ]);
            if let Some(faults) = &layout.faults {
                let profile = folder.join("faults.toml");
                workspace::write(&profile, faults)?;
                command
                    .arg("--fault-profile")
                    .arg(profile)
                    .args(["--fault-instance", &index.to_string()]);
            }
            let url = cluster.spawn(command, &format!("instance-{index}"))?;
            cluster.instances.push(url);
        }
        let config = folder.join("parapet.toml");
        let (replicas, parity) = cluster.instances.split_at(layout.replicas);
        workspace::write(
            &config,
            (layout.config)(&addresses(replicas), &addresses(parity)),
        )?;
        let mut command = Command::new(binary("parapet-frontend"));
        command.arg("--config").arg(&config);
        cluster.frontend = cluster.spawn(command, "frontend")?;
        let ready = format!("{}/v2/health/ready", cluster.frontend);
        wait_for("readiness of the frontend", LIMIT, || {
            Ok(crate::http::get(&ready).ok())
        })
        .with_context(|| format!("see {}", folder.join("frontend.log").display()))?;
        Ok(cluster)
    }

    /// Asks the model once.
    pub(crate) fn infer(&self, value: f32) -> Result<String> {
        let url = format!("{}/v2/models/{MODEL}/infer", self.frontend);
        crate::http::post(&url, &query(value))
    }

    /// Freezes the first replica for so long, while `meanwhile` runs.
    pub(crate) fn while_frozen<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        self.signal(0, Signal::SIGSTOP);
        let result = meanwhile();
        self.signal(0, Signal::SIGCONT);
        result
    }

    /// Sends a signal to an instance: the replicas come first.
    pub(crate) fn signal(&self, instance: usize, signal: Signal) {
        self.processes.signal(instance, signal);
    }

    /// Starts a process that ends with the cluster, and waits for the line that says it is ready;
    /// the URL in it.
    pub(crate) fn spawn(&mut self, mut command: Command, name: &str) -> Result<String> {
        command.current_dir(&self.folder);
        let log = self.folder.join(format!("{name}.log"));
        let line = self.processes.start(command, name, &log)?;
        Ok(line.rsplit(' ').next().unwrap_or_default().to_owned())
    }

    /// Keeps a process until the cluster ends.
    pub(crate) fn adopt(&mut self, process: Child) {
        self.processes.adopt(process);
    }
}
