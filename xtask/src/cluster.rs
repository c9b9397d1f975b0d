//! Instances and frontends as processes of this machine, and a model that needs no training.

use crate::prelude::*;
use crate::process::pinned;
use parapet_onnx::linear_model;

/// Address of servers that choose a port of their own.
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";
/// Words of programs before their address, when they are ready.
const READY: &str = " on http://";

/// Servers that end with this value. Addresses are HOST:PORT.
pub(crate) struct Cluster {
    sh: Shell,
    programs: PathBuf,
    folder: PathBuf,
    repository: PathBuf,
    pub(crate) processes: Processes,
}

impl Cluster {
    /// No server yet: `programs` are in the folder of this function, logs and configurations will
    /// be in `folder`, and the models are in `repository`.
    pub(crate) fn new(
        programs: fn(&str) -> PathBuf,
        folder: &Path,
        repository: &Path,
    ) -> Result<Self> {
        Ok(Self {
            sh: shell()?,
            programs: programs(""),
            folder: folder.to_owned(),
            repository: repository.to_owned(),
            processes: Processes::new(folder)?,
        })
    }

    pub(crate) fn for_bench(folder: &Path) -> Result<Self> {
        Self::new(release, folder, &crate::models::repository())
    }

    pub(crate) fn instance(
        &mut self,
        name: &str,
        model: &str,
        listen: &str,
        more: &[&str],
    ) -> Result<String> {
        let program = self.programs.join("parapet-instance");
        let repository = &self.repository;
        let line = cmd!(
            self.sh,
            "{program} --repository {repository} --model {model} --listen {listen} {more...}"
        );
        let library = native().join("onnxruntime/libonnxruntime.so");
        let line = line.env("ORT_DYLIB_PATH", library);
        self.processes.start_ready(name, line, READY)
    }

    /// Starts a frontend with this configuration, on `core` alone if one is given; returns its
    /// address once it is ready.
    pub(crate) fn frontend(
        &mut self,
        name: &str,
        config: &str,
        core: Option<usize>,
    ) -> Result<String> {
        let file = self.folder.join(format!("{name}.toml"));
        self.sh.write_file(&file, config)?;
        let program = self.programs.join("parapet-frontend");
        let line = pinned(&self.sh, core, &program).arg("--config").arg(file);
        let address = self.processes.start_ready(name, line, READY)?;
        wait_for("readiness of the frontend", LIMIT, || {
            Ok(http::get(&format!("http://{address}/v2/health/ready")).ok())
        })
        .with_context(|| format!("see {}", self.processes.log(name).display()))?;
        Ok(address)
    }
}

/// The sample model and its parity model.
pub(crate) const MODEL: &str = "fashion";
pub(crate) const PARITY: &str = "fashion-parity";
/// Requests/s of a load, and seconds after which it ends by itself.
const LOAD_RATE: f64 = 60.0;
const LOAD_SECONDS: u32 = 600;
const SHAPE: [usize; 3] = [1, 28, 28];
const INPUTS: usize = 28 * 28;
const OUTPUTS: usize = 10;

/// Writes a linear model of images' shape and its parity model for k = 2: a linear model is its own
/// parity model for the encoder `sum`.
pub(crate) fn write_models(sh: &Shell, repository: &Path, encoder: &str) -> Result<()> {
    let tensors = format!(
        "[[inputs]]\nname = \"input\"\ndatatype = \"FP32\"\nshape = {SHAPE:?}\n\
         [[outputs]]\nname = \"output\"\ndatatype = \"FP32\"\nshape = [{OUTPUTS}]\n"
    );
    let code = format!("[code]\nencoder = \"{encoder}\"\nk = 2\ndeployed = \"{MODEL}\"\n");
    // Any numbers will do, as long as classes differ.
    let weights = (0..INPUTS * OUTPUTS).map(|i| (i * 7919 % 101) as f32 / 1010.0 - 0.05);
    let onnx = linear_model(&SHAPE, &weights.collect::<Vec<_>>(), &[0.0; OUTPUTS])?;
    models::write(sh, repository, MODEL, &tensors, &onnx)?;
    models::write(sh, repository, PARITY, &(tensors + &code), &onnx)
}

/// Sends requests to the sample model at an address until [`end_load`].
pub(crate) fn start_load(processes: &mut Processes, program: &Path, address: &str) -> Result<()> {
    let (sh, report) = (shell()?, processes.log(address).with_extension("json"));
    sh.remove_path(&report)?;
    let pace = (LOAD_RATE, LOAD_SECONDS);
    let load = models::load_command(cmd!(sh, "{program}"), (address, MODEL), pace, &report);
    processes.start(address, load)
}

/// Ends the load on an address; returns its report.
pub(crate) fn end_load(processes: &mut Processes, address: &str) -> Result<Value> {
    processes.signal(address, Signal::SIGTERM)?;
    let report = processes.log(address).with_extension("json");
    wait_for("report of the load", LIMIT, || Ok(read_json(&report).ok()))
}

/// Replicas and parity instances of the sample model behind a frontend, for checks.
pub(crate) struct SampleCluster {
    pub(crate) cluster: Cluster,
    /// URLs of the replicas, then of the parity instances.
    pub(crate) instances: Vec<String>,
    pub(crate) frontend: String,
}

/// The frontend's configuration, given the addresses of replicas and of parity instances.
type Configure<'a> = &'a dyn Fn(&[String], &[String]) -> String;

impl SampleCluster {
    /// Starts so many replicas and parity instances, all with this fault profile, and a frontend.
    pub(crate) fn start(
        folder: &Path,
        replicas: usize,
        parity: usize,
        faults: Option<&str>,
        config: Configure<'_>,
    ) -> Result<Self> {
        let models = folder.join("models");
        let mut cluster = Cluster::new(debug, folder, &models)?;
        write_models(&cluster.sh, &models, "sum")?;
        let profile = folder.join("faults.toml").display().to_string();
        let text = faults.unwrap_or_default();
        cluster.sh.write_file(&profile, text)?;
        let mut addresses = Vec::new();
        for index in 0..replicas + parity {
            let model = if index < replicas { MODEL } else { PARITY };
            let number = index.to_string();
            let faulty = ["--fault-profile", &profile, "--fault-instance", &number];
            let more = if faults.is_some() { &faulty[..] } else { &[] };
            let name = format!("instance-{index}");
            addresses.push(cluster.instance(&name, model, ANY_PORT, more)?);
        }
        let (deployed, coded) = addresses.split_at(replicas);
        let frontend = cluster.frontend("parapet", &config(deployed, coded), None)?;
        let url = |address: &String| format!("http://{address}");
        Ok(Self {
            instances: addresses.iter().map(url).collect(),
            frontend: url(&frontend),
            cluster,
        })
    }

    pub(crate) fn start_load(&mut self) -> Result<()> {
        let program = self.cluster.programs.join("parapet-loadgen");
        start_load(&mut self.cluster.processes, &program, bare(&self.frontend))
    }

    pub(crate) fn end_load(&mut self) -> Result<Value> {
        end_load(&mut self.cluster.processes, bare(&self.frontend))
    }

    /// Sends a signal to an instance: the replicas come first.
    pub(crate) fn signal(&mut self, instance: usize, signal: Signal) -> Result<()> {
        let name = format!("instance-{instance}");
        self.cluster.processes.signal(&name, signal)
    }
}

/// HOST:PORT of a URL.
pub(crate) fn bare(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// Two replicas and a parity pool that is discovered, so that discovery's metrics are there, too.
pub(crate) fn coded(replicas: &[String], parity: &[String]) -> String {
    let port = parity[0].rsplit(':').next().unwrap_or_default();
    format!(
        "[server]\nlisten = \"{ANY_PORT}\"\n[repository]\npath = \"models\"\n\
         [[models]]\nname = \"{MODEL}\"\ninstances = {replicas:?}\nslots_per_instance = 1\n\
         [models.health]\ninterval_ms = 200\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\n\
         hold_back = {{ fixed_ms = 5 }}\naudit_every = 1\ndefer_parity = false\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\n\
         instances = {{ dns = \"127.0.0.1\", port = {port} }}\n"
    )
}
