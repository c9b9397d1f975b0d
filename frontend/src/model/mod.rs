//! A served model: what the protocol says of it, what it takes, and the driver behind it.

pub mod coding;
mod request;

pub use request::{MAX_REQUEST_ID, Options};

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{
    Answer, Coded, CodedConfig, CoreConfig, Engine, GroupKey, NoRedundancy, PoolConfig, PoolId, Strategy,
};
use parapet_open_inference::{InferRequest, InferResponse, ModelMetadata, Parameters};

use self::coding::Coder;
use crate::config::{CodedSettings, ModelConfig, PoolSettings, StrategySettings};
use crate::driver::{Driver, Parts};
use crate::error::ServeError;
use crate::metrics::Metrics;
use crate::payload::{Input, Output};
use crate::upstream::{HttpTransport, Transport};

/// How an answer came about; in the response's parameters and headers.
#[derive(Debug, Clone, PartialEq)]
pub struct Provenance {
    /// `exact` or `reconstructed`.
    pub kind: &'static str,
    /// 1 for an exact prediction; for a reconstruction see [`parapet_decoder::confidence`].
    pub confidence: f32,
    /// For a reconstruction, the code's short name.
    pub code: Option<String>,
}

/// One served model.
#[derive(Debug)]
pub struct ServedModel<T = HttpTransport> {
    config: ModelConfig,
    driver: Arc<Driver<T>>,
}

impl ServedModel {
    /// Starts serving `config` over HTTP.
    pub fn start(config: ModelConfig, metrics: &Metrics) -> Self {
        let transport = HttpTransport::new(&config);
        let pools: Vec<Vec<String>> =
            (0..pool_settings(&config).len()).map(|pool| transport.names(pool)).collect();
        Self::start_with(config, metrics, transport, pools)
    }
}

impl<T: Transport> ServedModel<T> {
    /// Starts serving `config` over any transport.
    pub fn start_with(config: ModelConfig, metrics: &Metrics, transport: T, pools: Vec<Vec<String>>) -> Self {
        let (strategy, coder) = strategy(&config);
        let label = coder.as_ref().map_or("none", Coder::label);
        let meters = metrics.model(&config.entry.name, label, &pools);
        let engine = Engine::new(&core_config(&config), strategy);
        let health = config.health.clone();
        let driver = Driver::start(Parts { engine, transport, coder, meters, pools, health });
        Self { config, driver }
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.config.entry.name
    }

    /// The version served.
    pub fn version(&self) -> u64 {
        self.config.version
    }

    /// What the protocol says of it.
    pub fn metadata(&self) -> ModelMetadata {
        ModelMetadata { versions: vec![self.config.version.to_string()], ..self.config.entry.metadata() }
    }

    /// Its driver.
    pub fn driver(&self) -> &Arc<Driver<T>> {
        &self.driver
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`ServeError`]: the client's mistake, a bound reached, or no prediction by the deadline.
    pub async fn infer(&self, request: InferRequest) -> Result<(InferResponse, Provenance), ServeError> {
        let options = Options::parse(&request.parameters, self.config.timeout, self.config.max_timeout)?;
        for requested in &request.outputs {
            if !self.config.entry.outputs.iter().any(|output| output.name == requested.name) {
                return Err(ServeError::Input(format!("the model has no output {:?}", requested.name)));
            }
        }
        let wanted: Vec<bool> =
            self.config.entry.outputs.iter().map(|output| request.wants_output(&output.name)).collect();
        let (tensors, rows) =
            request::check_inputs(request.inputs, &self.config.entry.inputs, self.config.max_rows)?;
        let input = Input::new(tensors, rows)?;
        // Shape and dtype are fixed by the model but for the number of samples (CG-6).
        let key = GroupKey(rows as u64);
        let timeout = options.timeout.saturating_sub(answer_margin(options.timeout));
        let answer = self.driver.infer(input, key, timeout, options.allow_approximate).await?;
        let (output, provenance) = self.provenance(answer)?;
        let mut wanted = wanted.into_iter();
        let outputs = output.tensors.iter().filter(|_| wanted.next().unwrap_or(true)).cloned().collect();
        let response = InferResponse {
            model_name: self.config.entry.name.clone(),
            model_version: Some(self.config.version.to_string()),
            id: request.id,
            parameters: provenance.parameters(),
            outputs,
        };
        Ok((response, provenance))
    }

    fn provenance(&self, answer: Answer<Output>) -> Result<(Arc<Output>, Provenance), ServeError> {
        match answer {
            Answer::Exact(output) => {
                let confidence = output.confidence;
                Ok((output, Provenance { kind: "exact", confidence, code: None }))
            }
            Answer::Hedged(output) => {
                let confidence = output.confidence;
                Ok((output, Provenance { kind: "hedged", confidence, code: None }))
            }
            Answer::Backup(output) => {
                let confidence = output.confidence;
                Ok((output, Provenance { kind: "backup", confidence, code: None }))
            }
            Answer::Reconstructed(output) => {
                let (confidence, code) = (output.confidence, self.driver.code_label().map(str::to_owned));
                Ok((output, Provenance { kind: "reconstructed", confidence, code }))
            }
            Answer::Failed(failure) => Err(failure.into()),
        }
    }
}

impl Provenance {
    fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::new();
        parameters.insert("provenance".to_owned(), self.kind.into());
        parameters.insert("confidence".to_owned(), f64::from(self.confidence).into());
        if let Some(code) = &self.code {
            parameters.insert("code".to_owned(), code.as_str().into());
        }
        parameters
    }
}

/// Time kept back of a deadline, so that the answer still travels in time.
fn answer_margin(timeout: Duration) -> Duration {
    (timeout / 10).min(Duration::from_millis(3))
}

fn pool_settings(config: &ModelConfig) -> Vec<&PoolSettings> {
    let mut pools = vec![&config.pool];
    if let StrategySettings::Coded(coded) = &config.strategy {
        pools.extend(coded.parity.iter().map(|parity| &parity.pool));
    }
    pools
}

fn core_config(config: &ModelConfig) -> CoreConfig {
    let pool = |pool: &PoolSettings| PoolConfig {
        instances: pool.instances.len(),
        slots: pool.slots,
        queue: pool.queue,
    };
    CoreConfig {
        pools: pool_settings(config).into_iter().map(pool).collect(),
        max_queries: config.max_in_flight,
        max_attempts: config.max_attempts,
        retry_share: config.retry_share,
        retry_burst: 10.0,
        suspect_after: config.health.suspect_after,
    }
}

/// Kinds of query (numbers of samples) that have groups of their own.
const MAX_KEYS: usize = 64;

fn strategy(config: &ModelConfig) -> (Box<dyn Strategy<Input, Output>>, Option<Coder>) {
    let StrategySettings::Coded(coded) = &config.strategy else {
        return (Box::new(NoRedundancy), None);
    };
    let (Some(input), Some(output)) = (config.entry.inputs.first(), config.entry.outputs.first()) else {
        return (Box::new(NoRedundancy), None);
    };
    // The configuration was resolved by building this very coder.
    match Coder::new(coded, input, output) {
        Ok(coder) => (Box::new(Coded::new(coded_config(coded))), Some(coder)),
        Err(error) => {
            tracing::error!(model = %config.entry.name, %error, "serving without redundancy");
            (Box::new(NoRedundancy), None)
        }
    }
}

fn coded_config(settings: &CodedSettings) -> CodedConfig {
    CodedConfig {
        k: settings.spec.k,
        r: settings.spec.r,
        first_parity: PoolId::FIRST_REDUNDANT,
        hold_back: settings.hold_back.clone(),
        flush_after: settings.flush_after,
        late_truth_wait: settings.late_truth_wait,
        parity_timeout: settings.parity_timeout,
        redundant_share: settings.redundant_share,
        redundant_burst: settings.redundant_burst,
        shed_above: settings.shed_above,
        audit_every: settings.audit_every,
        max_keys: MAX_KEYS,
    }
}
