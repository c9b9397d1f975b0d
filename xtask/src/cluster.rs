//! Instances and frontends as processes of this machine, and a model that needs no training.

use crate::prelude::*;
use parapet_onnx::{GraphBuilder, linear_model};

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
    /// No server yet: the programs are in a folder, logs and configurations will be in `folder`,
    /// and the models are in `repository`.
    pub(crate) fn new(programs: PathBuf, folder: &Path, repository: &Path) -> Result<Self> {
        Ok(Self {
            sh: shell()?,
            programs,
            folder: folder.to_owned(),
            repository: repository.to_owned(),
            processes: Processes::new(folder)?,
        })
    }

    pub(crate) fn for_bench(folder: &Path) -> Result<Self> {
        Self::new(release(""), folder, &crate::models::repository())
    }

    pub(crate) fn instance(
        &mut self,
        place: &Place,
        (name, model, listen): (&str, &str, &str),
        more: &[&str],
    ) -> Result<String> {
        let line = place.command(&self.sh, self.programs.join("parapet-instance"));
        let line = line.arg("--repository").arg(&self.repository);
        let line = line.args(["--model", model, "--listen", listen]).args(more);
        let line = line.env("ORT_DYLIB_PATH", native().join("onnxruntime/libonnxruntime.so"));
        self.processes.start_ready(name, line, READY)
    }

    /// Starts so many instances of a model, all with the arguments `more`; returns their addresses.
    pub(crate) fn instances(
        &mut self,
        model: &str,
        count: usize,
        more: &[&str],
    ) -> Result<Vec<String>> {
        let mut start =
            |i| self.instance(&Place::Anywhere, (&format!("{model}-{i}"), model, ANY_PORT), more);
        (0..count).map(&mut start).collect()
    }

    /// Starts a frontend with this configuration; returns its address once it is ready.
    pub(crate) fn frontend(&mut self, place: &Place, name: &str, config: &str) -> Result<String> {
        let file = self.folder.join(format!("{name}.toml"));
        self.sh.write_file(&file, config)?;
        let line = place.command(&self.sh, self.programs.join("parapet-frontend"));
        let address = self.processes.start_ready(name, line.arg("--config").arg(file), READY)?;
        let ready = format!("http://{address}/v2/health/ready");
        wait_for("readiness of the frontend", LIMIT, || Ok(http::get(&ready).ok()))
            .with_context(|| format!("see {}", self.processes.log(name).display()))?;
        Ok(address)
    }

    /// Starts a Prometheus with this configuration at an address; returns its URL.
    pub(crate) fn prometheus(
        &mut self,
        place: &Place,
        address: &str,
        config: &str,
    ) -> Result<String> {
        let [file, data] = ["prometheus.yml", "prometheus"].map(|name| self.folder.join(name));
        self.sh.write_file(&file, config)?;
        self.sh.remove_path(&data)?;
        let line = place.command(&self.sh, "prometheus").arg("--config.file").arg(file);
        let line = line.arg("--storage.tsdb.path").arg(data);
        self.processes.start("prometheus", line.args(["--web.listen-address", address]))?;
        Ok(format!("http://{address}"))
    }

    /// Sends requests to the sample model at a URL until [`Self::end_load`].
    pub(crate) fn start_load(&mut self, url: &str) -> Result<()> {
        let address = bare(url);
        let (report, pace) = (self.report(address), (LOAD_RATE, LOAD_SECONDS));
        self.sh.remove_path(&report)?;
        let generator = Place::Anywhere.command(&self.sh, self.programs.join("parapet-loadgen"));
        let load = models::load_command(generator, (address, MODEL), pace, &report);
        self.processes.start(address, load)
    }

    pub(crate) fn end_load(&mut self, url: &str) -> Result<Value> {
        let address = bare(url);
        self.processes.signal(address, Signal::SIGTERM)?;
        let report = self.report(address);
        wait_for("report of the load", LIMIT, || Ok(read_json(&report).ok()))
    }

    fn report(&self, address: &str) -> PathBuf {
        self.processes.log(address).with_extension("json")
    }
}

pub(crate) const MODEL: &str = "fashion";
pub(crate) const PARITY: &str = "fashion-parity";
/// Requests/s of a load, and seconds after which it ends by itself.
const LOAD_RATE: f64 = 60.0;
const LOAD_SECONDS: u32 = 600;
const SHAPE: [usize; 3] = [1, 28, 28];
const INPUTS: usize = 28 * 28;
const OUTPUTS: usize = 10;

/// Writes a linear model of images' shape and its parity model for k = 2: a linear model is its own
/// parity model for the encoder `sum`, and for `stack` twice.
pub(crate) fn write_models(sh: &Shell, repository: &Path, encoder: &str) -> Result<()> {
    let tensors = |input: &[usize], output: &[usize]| {
        format!(
            "[[inputs]]\nname = \"input\"\ndatatype = \"FP32\"\nshape = {input:?}\n\
             [[outputs]]\nname = \"output\"\ndatatype = \"FP32\"\nshape = {output:?}\n"
        )
    };
    let code = format!("[code]\nencoder = \"{encoder}\"\nk = 2\ndeployed = \"{MODEL}\"\n");
    // Any numbers will do, as long as classes differ.
    let weights = (0..INPUTS * OUTPUTS).map(|i| (i * 7919 % 101) as f32 / 1010.0 - 0.05);
    let (weights, bias) = (weights.collect::<Vec<_>>(), [0.0; OUTPUTS]);
    let onnx = linear_model(&SHAPE, &weights, &bias)?;
    let own = tensors(&SHAPE, &[OUTPUTS]);
    models::write(sh, repository, MODEL, &own, &onnx)?;
    let (own, onnx) = match encoder {
        "stack" => {
            let [channels, height, width] = SHAPE;
            let stack = [2, channels, height, width];
            let graph = GraphBuilder::new("input", &stack).unstack().flatten();
            let graph = graph.gemm(&weights, &bias).reshape(&[2, OUTPUTS]);
            (tensors(&stack, &[2, OUTPUTS]), graph.finish("output")?)
        }
        _ => (own, onnx),
    };
    models::write(sh, repository, PARITY, &(own + &code), &onnx)
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
        let mut cluster = Cluster::new(debug(""), folder, &models)?;
        write_models(&cluster.sh, &models, "sum")?;
        let profile = folder.join("faults.toml").display().to_string();
        cluster.sh.write_file(&profile, faults.unwrap_or_default())?;
        let mut addresses = Vec::new();
        for index in 0..replicas + parity {
            let model = if index < replicas { MODEL } else { PARITY };
            let faulty = ["--fault-profile", &profile, "--fault-instance", &index.to_string()];
            let more = if faults.is_some() { &faulty[..] } else { &[] };
            let name = format!("instance-{index}");
            addresses.push(cluster.instance(&Place::Anywhere, (&name, model, ANY_PORT), more)?);
        }
        let (deployed, coded) = addresses.split_at(replicas);
        let frontend = cluster.frontend(&Place::Anywhere, "parapet", &config(deployed, coded))?;
        let url = |address: &String| format!("http://{address}");
        Ok(Self {
            instances: addresses.iter().map(url).collect(),
            frontend: url(&frontend),
            cluster,
        })
    }

    /// The process of an instance: the replicas come first.
    pub(crate) fn pid(&mut self, instance: usize) -> Result<u32> {
        self.cluster.processes.pid(&format!("instance-{instance}"))
    }

    /// Sends a signal to an instance: the replicas come first.
    pub(crate) fn signal(&mut self, instance: usize, signal: Signal) -> Result<()> {
        self.cluster.processes.signal(&format!("instance-{instance}"), signal)
    }
}

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
         hold_back = {{ fixed_ms = 5 }}\naudit_every = 1\nsend_parity = \"at_once\"\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\n\
         instances = {{ dns = \"127.0.0.1\", port = {port} }}\n"
    )
}
