//! A frontend in this process, with its configuration in a file, and instances in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;
use http::StatusCode;
use parapet_frontend::Frontend;
use parapet_frontend::config::FrontendConfig;
use parapet_models::{Config, Instance, config::Settings};
use parapet_open_inference::grpc::InferenceClient;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use super::{Answer, get, infer, plain_toml, wait_until};

pub const LIMIT: Duration = Duration::from_secs(10);

pub struct Served {
    pub address: SocketAddr,
    /// The admin listener's; the data listener's where there is none.
    pub admin: SocketAddr,
    pub grpc: Option<SocketAddr>,
    pub config: PathBuf,
    shutdown: oneshot::Sender<()>,
    stopped: JoinHandle<()>,
    pub repository: tempfile::TempDir,
}

/// Starts a frontend and waits until it is ready.
pub async fn serve(repository: tempfile::TempDir, text: &str) -> Served {
    let config = repository.path().join("parapet.toml");
    std::fs::write(&config, text).unwrap();
    let loaded = FrontendConfig::load(&config).unwrap();
    let frontend = Frontend::bind(loaded).await.unwrap();
    let address = frontend.address().unwrap();
    let admin = frontend.admin_address().unwrap_or(address);
    let grpc = frontend.grpc_address().unwrap();
    let (shutdown, asked) = oneshot::channel::<()>();
    let running = frontend.run(async move { drop(asked.await) });
    let stopped = tokio::spawn(async move { _ = running.await });
    let ready = async || get(admin, "/v2/health/ready").await.status == StatusCode::OK;
    wait_until("ready", LIMIT, ready).await;
    Served { address, admin, grpc, config, shutdown, stopped, repository }
}

/// A frontend with an admin listener and no strategy.
pub async fn serve_plain(repository: tempfile::TempDir, instances: &[SocketAddr]) -> Served {
    let text = with_admin(&plain_toml(repository.path(), instances, ""));
    serve(repository, &text).await
}

pub fn with_admin(text: &str) -> String {
    format!("[admin]\nlisten = \"127.0.0.1:0\"\n{text}")
}

impl Served {
    pub async fn metrics(&self) -> String {
        get(self.admin, "/metrics").await.text()
    }

    pub async fn stop(self) {
        self.shutdown.send(()).unwrap();
        self.stopped.await.unwrap();
    }

    pub async fn wait_until_all_are_up(&self, instances: usize) {
        let all_up = async || self.instances_up().await == instances;
        wait_until("all up", LIMIT, all_up).await;
    }

    pub async fn instances_up(&self) -> usize {
        let text = self.metrics().await;
        let is_up = |line: &str| line.starts_with("parapet_instance_up{") && line.ends_with(" 1");
        text.lines().filter(|line| is_up(line)).count()
    }

    pub async fn grpc_client(&self) -> InferenceClient<Channel> {
        InferenceClient::new(self.grpc_channel().await)
    }

    pub async fn grpc_channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc.unwrap())).unwrap();
        endpoint.connect().await.unwrap()
    }

    /// Asks for all samples at once; every answer must be right.
    pub async fn ask_all<const N: usize>(&self, samples: [[f32; 4]; N]) -> Vec<Answer> {
        let address = self.address;
        let asked =
            samples.map(|sample| tokio::spawn(async move { infer(address, &sample, "").await }));
        let mut answers = Vec::new();
        for (asked, sample) in asked.into_iter().zip(samples) {
            let answer = asked.await.unwrap();
            answer.is_right(&sample);
            answers.push(answer);
        }
        answers
    }
}

/// A real instance of a model, with `more` flags.
pub async fn instance_of(repository: &Path, model: &str, more: &[&str]) -> Instance {
    let repository = repository.to_str().unwrap();
    let listen = ["parapet-instance", "--listen", "127.0.0.1:0"];
    let serve = ["--repository", repository, "--model", model];
    let flags = [&listen[..], &serve, more].concat();
    let config = Config::from_flags(Settings::try_parse_from(flags).unwrap()).unwrap();
    Instance::start(config).await.unwrap()
}

/// Two replicas and a parity instance.
pub async fn coded_instances(repository: &Path, more: &[&str]) -> Vec<Instance> {
    let mut instances = Vec::new();
    for model in ["linear", "linear", "linear-parity"] {
        instances.push(instance_of(repository, model, more).await);
    }
    instances
}
