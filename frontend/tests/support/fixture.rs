//! A served model over instances in memory, and a client that says how long its answers took.

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend::error::ServeError;
use parapet_frontend::metrics::Metrics;
use parapet_frontend::model::{Provenance, ServedModel};
use parapet_frontend::tenants::MixingDomain;
use parapet_open_inference::{InferRequest, InferResponse, Parameters};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::memory::{Memory, State, id};
use super::{
    INPUTS, add_model, addresses, coded_toml, config, infer_request, linear, metric, plain_toml,
    repository, strategy_toml,
};

pub const MS: Duration = Duration::from_millis(1);
/// The fixed hold-back of coded fixtures.
pub const HOLD_BACK: Duration = Duration::from_millis(30);
pub const ONE_SLOT: &str = "slots_per_instance = 1";

pub struct Fixture {
    pub model: Arc<ServedModel<Memory>>,
    pub memory: Memory,
    pub metrics: Metrics,
    _repository: tempfile::TempDir,
}

pub async fn coded(deployed: u32, parity: u32) -> Fixture {
    coded_with(deployed, parity, ONE_SLOT).await
}

pub async fn coded_with(deployed: u32, parity: u32, extra: &str) -> Fixture {
    coded_in(repository(), Memory::new(deployed, parity), extra).await
}

/// The coded strategy in a repository of its own, over as many instances as `memory` has.
pub async fn coded_in(root: tempfile::TempDir, memory: Memory, extra: &str) -> Fixture {
    let pools = memory.pools();
    let (deployed, parity) = (pools[0].len() as u32, pools[1].len() as u32);
    let (deployed, parity) = (addresses(deployed, 7000), addresses(parity, 7100));
    let text = coded_toml(root.path(), &deployed, &parity, extra);
    fixture(root, &text, memory).await
}

/// No instance is there before it is discovered.
pub async fn discovered() -> Fixture {
    let repository = repository();
    let found = "instances = { dns = \"replicas.test\", port = 9001 }";
    let text = plain_toml(repository.path(), &[], ONE_SLOT).replace("instances = []", found);
    fixture(repository, &text, Memory::new(0, 0)).await
}

pub async fn plain(deployed: u32) -> Fixture {
    let repository = repository();
    let text = plain_toml(repository.path(), &addresses(deployed, 7000), ONE_SLOT);
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
    let config = config(text).unwrap().models.remove(0);
    let metrics = Metrics::new().unwrap();
    let model = ServedModel::start_with(config, &metrics, memory.clone(), &memory.pools());
    sleep(MS).await; // the first health checks
    Fixture { model: Arc::new(model), memory, metrics, _repository: repository }
}

pub type Answered = Result<(InferResponse, Provenance), ServeError>;
pub type Asked = JoinHandle<(Answered, Duration)>;

pub fn parameters(parameters: &[(&str, Value)]) -> Parameters {
    let pairs = parameters.iter();
    pairs.map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

impl Fixture {
    pub fn request(sample: f32, parameters: Parameters) -> InferRequest {
        InferRequest { parameters, ..infer_request(&sample_of(sample)) }
    }

    /// Asks in a task of its own; the answer comes with the time it took.
    pub fn ask(&self, sample: f32) -> Asked {
        self.ask_with(sample, &[])
    }

    pub fn ask_with(&self, sample: f32, with: &[(&str, Value)]) -> Asked {
        self.ask_as(MixingDomain::SHARED, sample, with)
    }

    pub fn ask_as(&self, domain: MixingDomain, sample: f32, with: &[(&str, Value)]) -> Asked {
        let model = Arc::clone(&self.model);
        let request = Self::request(sample, parameters(with));
        tokio::spawn(async move {
            let started = Instant::now();
            let answered = model.infer(domain, request).await;
            (answered, started.elapsed())
        })
    }

    /// The kind of the answer, and the time it took.
    pub async fn kind(&self, sample: f32) -> (&'static str, Duration) {
        let (answered, took) = self.ask(sample).await.unwrap();
        (answered.unwrap().1.kind, took)
    }

    /// Asks two at the same time, both of which must be answered exactly.
    pub async fn two_exact(&self, samples: [f32; 2]) {
        for asked in samples.map(|sample| self.ask(sample)) {
            assert_eq!(asked.await.unwrap().0.unwrap().1.kind, "exact");
        }
    }

    /// Freezes the instance that gets the first of two queries, and asks both; the first one's
    /// answer, which is an approximation, and the time it took.
    pub async fn first_of_two_late(&self) -> (InferResponse, Provenance, Duration) {
        self.memory.set(id(0, 0), State::Frozen);
        let (first, second) = (self.ask(1.0), self.ask(2.0));
        assert_eq!(second.await.unwrap().0.unwrap().1.kind, "exact");
        let (answered, took) = first.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_eq!(provenance.kind, "reconstructed");
        (response, provenance, took)
    }

    pub fn set_all(&self, instances: impl IntoIterator<Item = (u8, u32)>, state: State) {
        for (pool, index) in instances {
            self.memory.set(id(pool, index), state);
        }
    }

    pub fn metric(&self, line: &str) -> f64 {
        self.model.driver.publish();
        metric(&self.metrics.render(), line).unwrap_or(0.0)
    }

    /// Comparisons with the truth that were counted.
    pub fn compared(&self, code: &str, source: &str, agrees: bool) -> f64 {
        self.metric(&format!(
            "parapet_reconstruction_agreement_total{{model=\"linear\",code=\"{code}\",\
             source=\"{source}\",agrees=\"{agrees}\"}}"
        ))
    }
}

/// The sample that a number stands for.
pub fn sample_of(sample: f32) -> Vec<f32> {
    (0..INPUTS).map(|i| sample + i as f32).collect()
}

pub fn expected(sample: f32) -> Vec<f32> {
    linear(&sample_of(sample))
}
