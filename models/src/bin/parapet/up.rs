//! `parapet up`: a model's replicas, its frontend and its parity model's training, on this machine.
//!
//! Until the parity model is there, requests are hedged; then its instances are started, and the
//! frontend reads its configuration again. All that is made lies in one folder, so the same command
//! goes on after an interruption.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use parapet_config::address;
use parapet_config::repository::{ModelEntry, ModelRepository, ModelToml, TensorSpec};
use parapet_models::describe::{GivenShape, describe, import};
use parapet_models::engine::OnnxRuntime;
use parapet_open_inference::Datatype;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::process::{self, Server};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model: an ONNX file, or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Samples like those of the requests, for the training of the parity model, in a form that
    /// `parity-trainer train` takes [default: no coding]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Instances of the model
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Queries of a coding group
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=16))]
    k: u16,
    /// Address of the frontend
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address::parse)]
    listen: SocketAddr,
    /// Lengths of an input's axes that the graph leaves free, without the batch; coding needs them
    #[arg(long, value_name = "INPUT=3,224,224")]
    shape: Vec<GivenShape>,
    /// Share of reconstructions that must agree with the model's own answers, as the training
    /// measures it, for coding to be turned on
    #[arg(long, default_value_t = 0.8, value_name = "SHARE")]
    min_agreement: f64,
    /// Folder of all that is made: models, configuration, logs
    #[arg(long, default_value = "parapet-up")]
    dir: PathBuf,
    /// Further flags of `parity-trainer train`, behind `--`
    #[arg(last = true, value_name = "FLAGS")]
    train: Vec<OsString>,
}

/// Time from one look at the processes to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time from a failed start of an instance to the next.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut up = Up::prepare(args)?;
        let served = tokio::select! {
            served = up.serve() => served,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        };
        up.end().await;
        served
    })
}

struct Up<'a> {
    args: &'a Args,
    repository: ModelRepository,
    model: ModelEntry,
    parity: String,
    /// True if instances take one row at a time.
    is_single: bool,
    servers: Vec<Server>,
    trainer: Option<Child>,
}

impl<'a> Up<'a> {
    fn prepare(args: &'a Args) -> anyhow::Result<Self> {
        let make = |folder: &Path| {
            let made = std::fs::create_dir_all(folder);
            made.with_context(|| format!("cannot make the folder {}", folder.display()))
        };
        make(&args.dir.join("logs"))?;
        let runtime = OnnxRuntime::load(None)?;
        let (root, name, is_single) = match args.model.is_dir() {
            true => {
                let folder = std::fs::canonicalize(&args.model)?;
                let (root, name) = (folder.parent(), folder.file_name());
                let root = root.context("--model /: give REPOSITORY/NAME")?.to_owned();
                let name = name.unwrap_or_default().to_string_lossy().into_owned();
                let entry = ModelRepository::open(&root)?.load(&name)?;
                let file = entry.model_file(entry.latest())?;
                // One that cannot be described is for the instances to judge.
                let found = describe(&runtime, &file, &name, &args.shape);
                (root, name, found.is_ok_and(|found| found.is_single))
            }
            false => {
                let (root, name) = (args.dir.join("models"), crate::place_of(&args.model).0);
                let found = describe(&runtime, &args.model, &name, &args.shape)?;
                if import(&root, &args.model, &found.model)? {
                    // Trained for another one: it would reconstruct that one's predictions.
                    let old = [root.join(format!("{name}-parity")), args.dir.join("runs")];
                    for folder in old.iter().filter(|folder| folder.exists()) {
                        std::fs::remove_dir_all(folder)?;
                        println!("the model has changed: removed {}", folder.display());
                    }
                }
                (root, name, found.is_single)
            }
        };
        let repository = ModelRepository::open(std::path::absolute(root)?)?;
        let model = repository.load(&name)?;
        println!("model      {name}: {}", signature(&model));
        let (parity, servers) = (format!("{name}-parity"), Vec::new());
        Ok(Self { args, repository, model, parity, is_single, servers, trainer: None })
    }

    /// Starts everything, and keeps it up until the frontend ends.
    async fn serve(&mut self) -> anyhow::Result<()> {
        let replicas = self.start_instances("replica", self.args.replicas).await?;
        println!("replicas   {}", replicas.join(" "));
        let is_coded = self.may_code();
        let parity = if is_coded { self.start_parity().await? } else { Vec::new() };
        self.write(&replicas, &parity)?;
        let config = self.args.dir.join("parapet.toml");
        let flags = vec!["--config".into(), config.clone().into()];
        let logs = self.args.dir.join("logs");
        let frontend = Server::start("frontend", "parapet-frontend", flags, None, &logs).await?;
        let address = frontend.address.clone();
        self.servers.insert(0, frontend);
        let strategy = match (is_coded, replicas.len()) {
            (true, _) => "coded",
            (false, 1) => "one replica, no redundancy",
            (false, _) => "hedged",
        };
        println!("frontend   http://{address} ({strategy}; {})", config.display());
        let query = self.args.dir.join("query.json");
        let (url, query) = (format!("http://{address}/v2/models"), query.display().to_string());
        println!("try        curl -i {url}/{}/infer -d @{query}", self.model.name);
        match &self.args.data {
            _ if is_coded => {}
            Some(data) => match self.train(data) {
                Ok(trainer) => self.trainer = Some(trainer),
                Err(error) => println!("training   {error:#}; serving without coding"),
            },
            None => println!("coding     needs samples like those of the requests: --data DATA"),
        }
        loop {
            sleep(LOOK_EVERY).await;
            for (index, server) in self.servers.iter_mut().enumerate() {
                let Some(status) = server.ended() else { continue };
                ensure!(index > 0, "the frontend ended ({status}); see {}", logs.display());
                println!("{} ended ({status}); starting it again", server.name);
                if let Err(error) = server.restart().await {
                    println!("{error:#}; trying again");
                    sleep(RESTART_PAUSE).await;
                }
            }
            let Some(trainer) = &mut self.trainer else { continue };
            let Some(status) = trainer.try_wait()? else { continue };
            self.trainer = None;
            if !status.success() {
                println!("training   failed ({status}), see above; serving without coding");
            }
            if !status.success() || !self.may_code() {
                continue;
            }
            let parity = self.start_parity().await?;
            self.write(&replicas, &parity)?;
            process::signal(&self.servers[0].child, Signal::SIGHUP);
            println!("coded      by {} on {}", self.parity, parity.join(" "));
        }
    }

    /// Returns true if a parity model is there that is good enough.
    fn may_code(&self) -> bool {
        let Ok(parity) = self.repository.load(&self.parity) else { return false };
        let agreement = parity.training.get("agreement").and_then(toml::Value::as_float);
        let (agreement, least) = (agreement.unwrap_or_default(), self.args.min_agreement);
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let measured = format!("{} of the reconstructions agree", percent(agreement));
        let is_enough = agreement >= least;
        if is_enough {
            println!("parity     {}: {measured}", self.parity);
        } else {
            let least = percent(least);
            println!(
                "parity     {}: {measured}, below --min-agreement {least}: serving without \
                 coding; train longer with `-- --minutes 30`, or give more --data",
                self.parity
            );
        }
        is_enough
    }

    /// Starts the parity model's instances, one for every k replicas.
    async fn start_parity(&mut self) -> anyhow::Result<Vec<String>> {
        self.start_instances("parity", self.args.replicas.div_ceil(self.args.k)).await
    }

    async fn start_instances(&mut self, kind: &str, count: u16) -> anyhow::Result<Vec<String>> {
        let mut addresses = Vec::new();
        for number in 0..count {
            let model = if kind == "parity" { &self.parity } else { &self.model.name };
            let mut flags: Vec<OsString> =
                vec!["--repository".into(), self.repository.path().into(), "--model".into()];
            flags.push(model.into());
            if self.is_single && kind == "replica" {
                flags.extend(["--max-batch-size".into(), "1".into()]);
            }
            let (name, logs) = (format!("{kind}-{number}"), self.args.dir.join("logs"));
            let listen = Some("127.0.0.1:0");
            let server = Server::start(&name, "parapet-instance", flags, listen, &logs).await?;
            addresses.push(server.address.clone());
            self.servers.push(server);
        }
        Ok(addresses)
    }

    /// Trains the parity model beside serving, which comes first.
    fn train(&self, data: &Path) -> anyhow::Result<Child> {
        let mut command = process::command(Path::new("nice"));
        command.arg("-n10").arg(process::find("parity-trainer")?).arg("train");
        command.arg("--model").arg(self.repository.path().join(&self.model.name));
        command.arg("--data").arg(data).arg("--out").arg(self.repository.path());
        command.args(["--k", &self.args.k.to_string(), "--name", &self.parity]);
        // Other flags are another run.
        let mut run = DefaultHasher::new();
        (data, self.args.k, &self.args.train).hash(&mut run);
        let run = self.args.dir.join(format!("runs/{}-{:016x}", self.parity, run.finish()));
        command.arg("--run").arg(run).arg("--resume-if-begun").args(&self.args.train);
        let child = command.spawn().context("cannot start nice and parity-trainer")?;
        println!("training   {} on {}", self.parity, data.display());
        Ok(child)
    }

    /// Writes the frontend's configuration, and a query that is coded where coding is on.
    fn write(&self, replicas: &[String], parity: &[String]) -> anyhow::Result<()> {
        let strategy = match (parity, replicas) {
            ([], [_]) => json!({ "kind": "none" }),
            ([], _) => json!({ "kind": "hedge" }),
            _ => json!({
                "kind": "coded",
                "encoder": self.repository.load(&self.parity)?.code.as_ref().map(|code| code.spec.encoder),
                "k": self.args.k,
                "parity": [{ "model": self.parity, "instances": parity }],
            }),
        };
        let mut config = json!({
            "server": { "listen": self.args.listen },
            "repository": { "path": self.repository.path() },
            "models": [{
                "name": self.model.name,
                "instances": replicas,
                "strategy": strategy,
            }],
        });
        if self.is_single {
            config["models"][0]["max_rows"] = json!(1);
        }
        let write = |name: &str, text: String| {
            let path = self.args.dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("parapet.toml", toml::to_string(&config)?)?;
        write("query.json", self.query().to_string())
    }

    /// A query of zeros, for the outputs that the parity model covers.
    fn query(&self) -> Value {
        let input = |spec: &TensorSpec| {
            let zero = match spec.datatype {
                Datatype::Bool => json!(false),
                Datatype::Bytes => json!(""),
                _ => json!(0),
            };
            let shape = [&[1], spec.shape.smallest().as_slice()].concat();
            let data = vec![zero; shape.iter().product()];
            json!({ "name": spec.name, "datatype": spec.datatype, "shape": shape, "data": data })
        };
        let inputs: Vec<Value> = self.model.inputs.iter().map(input).collect();
        let parity = self.repository.load(&self.parity).ok();
        let covered = parity.as_ref().and_then(|parity| Some(&parity.code.as_ref()?.outputs));
        match covered.filter(|outputs| !outputs.is_empty()) {
            Some(outputs) => {
                let outputs: Vec<Value> =
                    outputs.iter().map(|name| json!({ "name": name })).collect();
                json!({ "inputs": inputs, "outputs": outputs })
            }
            None => json!({ "inputs": inputs }),
        }
    }

    /// Ends all processes: the trainer writes a checkpoint, the frontend answers what it has.
    async fn end(&mut self) {
        if let Some(trainer) = &mut self.trainer {
            println!("training   interrupted; the same command goes on with it");
            process::end(trainer).await;
        }
        for server in &mut self.servers {
            process::end(&mut server.child).await;
        }
    }
}

/// Inputs and outputs with their types and shapes, in one line.
pub(crate) fn signature(model: &ModelToml) -> String {
    let side = |specs: &[TensorSpec]| {
        let specs = specs.iter();
        let named = specs.map(|spec| format!("{} {} {}", spec.name, spec.datatype, spec.shape));
        named.collect::<Vec<_>>().join(", ")
    };
    format!("{} -> {}", side(&model.inputs), side(&model.outputs))
}
