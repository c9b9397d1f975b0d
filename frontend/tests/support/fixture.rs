//! A served model over instances in memory, and a client that says how long its answers took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend::error::ServeError;
use parapet_frontend::metrics::Metrics;
use parapet_frontend::model::{Provenance, ServedModel};
use parapet_frontend::tenants::MixingDomain;
use parapet_open_inference::{InferRequest, InferResponse, Parameters, Tensor};
use tokio::time::{Instant, sleep};

use super::memory::Memory;
use super::{INPUTS, add_model, coded_toml, config, linear, plain_toml, repository, strategy_toml};

pub const MS: Duration = Duration::from_millis(1);

pub struct Fixture {
    pub model: Arc<ServedModel<Memory>>,
    pub memory: Memory,
    pub metrics: Metrics,
    _repository: tempfile::TempDir,
}

/// Addresses are never connected to: the transport is in memory.
pub fn addresses(count: u32, first_port: u16) -> Vec<SocketAddr> {
    (0..count)
        .map(|i| SocketAddr::from(([127, 0, 0, 1], first_port + i as u16)))
        .collect()
}

pub async fn coded(deployed: u32, parity: u32) -> Fixture {
    coded_with(deployed, parity, "slots_per_instance = 1").await
}

pub async fn coded_with(deployed: u32, parity: u32, extra: &str) -> Fixture {
    let repository = repository();
    let text = coded_toml(
        repository.path(),
        &addresses(deployed, 7000),
        &addresses(parity, 7100),
        extra,
    );
    fixture(repository, &text, Memory::new(deployed, parity)).await
}

/// Returns the error of a configuration with these lines in it.
pub fn config_error(lines: &str) -> String {
    let repository = repository();
    let text = plain_toml(repository.path(), &addresses(1, 7000), "");
    config(&format!("{lines}{text}")).unwrap_err().to_string()
}

/// No instance is there before it is discovered.
pub async fn discovered() -> Fixture {
    let repository = repository();
    let text = plain_toml(repository.path(), &[], "slots_per_instance = 1").replace(
        "instances = []",
        "instances = { dns = \"replicas.test\", port = 9001 }",
    );
    fixture(repository, &text, Memory::new(0, 0)).await
}

pub async fn plain(deployed: u32) -> Fixture {
    let repository = repository();
    let text = plain_toml(
        repository.path(),
        &addresses(deployed, 7000),
        "slots_per_instance = 1",
    );
    fixture(repository, &text, Memory::new(deployed, 0)).await
}

/// Beside `coded` and `plain`: a strategy as written in the file. `redundant` instances are in pool
/// 1.
pub async fn with_strategy(deployed: u32, redundant: u32, strategy: &str) -> Fixture {
    let repository = repository();
    add_model(repository.path(), "cheap", None);
    let text = strategy_toml(repository.path(), &addresses(deployed, 7000), strategy);
    fixture(repository, &text, Memory::new(deployed, redundant)).await
}

pub async fn fixture(repository: tempfile::TempDir, text: &str, memory: Memory) -> Fixture {
    let model = config(text).unwrap().models.remove(0);
    let metrics = Metrics::new().unwrap();
    let model = Arc::new(ServedModel::start_with(
        model,
        &metrics,
        memory.clone(),
        memory.pools(),
    ));
    sleep(MS).await; // the first health checks
    Fixture {
        model,
        memory,
        metrics,
        _repository: repository,
    }
}

pub type Answered = Result<(InferResponse, Provenance), ServeError>;

impl Fixture {
    pub fn request(sample: f32, parameters: Parameters) -> InferRequest {
        let values: Vec<f32> = (0..INPUTS).map(|i| sample + i as f32).collect();
        let input = Tensor::from_f32("input", vec![1, INPUTS], &values).unwrap();
        InferRequest {
            inputs: vec![input],
            parameters,
            ..InferRequest::default()
        }
    }

    /// Asks in a task of its own; the answer comes with the time it took.
    pub fn ask(&self, sample: f32) -> tokio::task::JoinHandle<(Answered, Duration)> {
        self.ask_with(sample, Parameters::new())
    }

    pub fn ask_with(
        &self,
        sample: f32,
        parameters: Parameters,
    ) -> tokio::task::JoinHandle<(Answered, Duration)> {
        let model = Arc::clone(&self.model);
        tokio::spawn(async move {
            let started = Instant::now();
            let answered = model
                .infer(MixingDomain::SHARED, Self::request(sample, parameters))
                .await;
            (answered, started.elapsed())
        })
    }

    pub fn metric(&self, line: &str) -> f64 {
        self.model.driver().publish();
        let text = self.metrics.render();
        let found = text.lines().find(|candidate| candidate.starts_with(line));
        found
            .and_then(|line| line.rsplit(' ').next())
            .map_or(0.0, |value| value.parse().unwrap())
    }
}

pub fn expected(sample: f32) -> Vec<f32> {
    linear(&(0..INPUTS).map(|i| sample + i as f32).collect::<Vec<f32>>())
}
