//! An instance, from its configuration to its end.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_config::FileError;
use parapet_config::faults::FaultProfile;
use parapet_config::repository::{ModelEntry, ModelRepository, Platform};
use parapet_net::server::{DrainReport, Limits, Server, listen};
use parapet_net::tls::{ServerTls, TlsError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::batching::{Batcher, FullBatches};
use crate::config::Config;
use crate::engine::{
    EngineError, InferenceEngine, OnnxEngine, OnnxRuntime, Provider, RuntimeError, load_torch,
    zeros,
};
use crate::faults::{Faults, FaultyEngine, Injection};
use crate::metrics::Metrics;
use crate::server::{App, Models, ServedModel, grpc, health as health_router, router};

/// An instance that cannot start, in one line. A retry is of no use before its configuration
/// or files have changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Repository(#[from] FileError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(
        "model {model}, version {version}: the warm-up failed: {source}; export the model again, or \
            leave the warm-up out with --warm-up false"
    )]
    WarmUp { model: String, version: u64, source: EngineError },
    #[error("cannot listen on {address}: {source}; give a free one with --{flag}")]
    Listen { flag: &'static str, address: SocketAddr, source: io::Error },
    #[error("the certificates are of no use; {fix}", fix = .0.fix())]
    Tls(#[from] TlsError),
    #[error("cannot record metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// A thread could not be started, or broke while loading.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Interval between two foldings of the histograms, which would grow between scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

const HEALTH_CONNECTIONS: usize = 64;

/// A running instance. Dropping it shuts it down in the background.
pub struct Instance {
    /// Addresses of the listeners, with their real ports.
    pub address: SocketAddr,
    pub grpc_address: Option<SocketAddr>,
    pub health_address: Option<SocketAddr>,
    app: Arc<App>,
    shutdown: DropGuard,
    serving: JoinHandle<DrainReport>,
    serving_grpc: Option<JoinHandle<DrainReport>>,
}

impl Instance {
    /// Listens, loads the models and warms them up. Health can be asked for meanwhile; the instance
    /// is ready when this returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let tls = config.tls.clone().map(ServerTls::load).transpose()?.map(Arc::new);
        let (listener, address) = bind("listen", config.listen)?;
        let bind_if = |flag, address: Option<SocketAddr>| {
            Ok::<_, StartError>(address.map(|address| bind(flag, address)).transpose()?.unzip())
        };
        let (grpc, grpc_address) = bind_if("grpc-listen", config.grpc_listen)?;
        let (health, health_address) = bind_if("health-listen", config.health_listen)?;
        let (limits, grace) = (config.limits, config.drain_grace);
        let app = Arc::new(App::new(config, Metrics::new()?, tls.clone()));
        let shutdown = CancellationToken::new();
        let asked = shutdown.clone().cancelled_owned();
        let server = Server::new(router(app.clone()), limits).with_tls(tls.clone());
        let serving = tokio::spawn(server.run(listener, asked, grace));
        let asked = shutdown.clone().cancelled_owned();
        let serving_grpc = grpc.map(|listener| {
            let server = Server::over_http2(grpc::service(app.clone()), limits, grpc::MAX_STREAMS);
            tokio::spawn(server.with_tls(tls.clone()).run(listener, asked, grace))
        });
        if let Some(listener) = health {
            let limits = Limits::of_connections(HEALTH_CONNECTIONS);
            let asked = shutdown.clone().cancelled_owned();
            let server = Server::new(health_router(app.clone()), limits);
            tokio::spawn(server.run(listener, asked, grace));
        }
        tokio::spawn(upkeep(app.clone(), shutdown.clone()));
        if let Some(tls) = tls {
            tokio::spawn(watch_certificates(tls, shutdown.clone()));
        }
        let instance = Self {
            address,
            grpc_address,
            health_address,
            app,
            shutdown: shutdown.drop_guard(),
            serving,
            serving_grpc,
        };
        let app = instance.app.clone();
        let loaded = tokio::task::spawn_blocking(move || load(&app.config, &app.metrics)).await;
        let models = loaded.map_err(|error| StartError::Thread(error.into()))??;
        let _ = instance.app.models.set(models);
        Ok(instance)
    }

    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.app.tls.as_ref()
    }

    /// Becomes unready, stops accepting, answers what is in flight within the
    /// configured grace period.
    pub async fn shut_down(self) -> DrainReport {
        self.app.drain();
        drop(self.shutdown);
        let mut report = self.serving.await.unwrap_or_default();
        if let Some(serving) = self.serving_grpc {
            let DrainReport { drained, aborted } = serving.await.unwrap_or_default();
            report.drained += drained;
            report.aborted += aborted;
        }
        report
    }
}

fn bind(flag: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { flag, address, source };
    let listener = listen(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Waits for `interval`; false if the shutdown came first.
async fn passes(interval: Duration, shutdown: &CancellationToken) -> bool {
    shutdown.run_until_cancelled(tokio::time::sleep(interval)).await.is_some()
}

async fn upkeep(app: Arc<App>, shutdown: CancellationToken) {
    while passes(UPKEEP_INTERVAL, &shutdown).await {
        app.metrics.run_upkeep();
    }
}

/// Certificates are renewed by others, who need not know of this process.
async fn watch_certificates(tls: Arc<ServerTls>, shutdown: CancellationToken) {
    while passes(parapet_net::tls::LOOK_AGAIN, &shutdown).await {
        tls.reload_and_log();
    }
}

fn load(config: &Config, metrics: &Metrics) -> Result<Models, StartError> {
    let repository = ModelRepository::open(&config.repository)?;
    let faults = config.fault_profile.as_deref().map(FaultProfile::read).transpose()?;
    let faults = faults.map(|profile| Injection {
        profile,
        instance: config.fault_instance,
        epoch_unix_ms: config.fault_epoch_unix_ms,
    });
    let mut entries = BTreeMap::new();
    for choice in &config.models {
        let entry = repository.load(&choice.name)?;
        let versions = choice.versions.of(&entry)?.into_iter();
        entries.extend(versions.map(|version| ((choice.name.clone(), version), entry.clone())));
    }
    let mut runtime = None;
    let mut models = Models::new();
    for ((name, version), entry) in entries {
        let mut engines = Vec::with_capacity(config.count.get());
        for _ in 0..config.count.get() {
            let engine = load_engine(config, &mut runtime, &entry, version)?;
            if config.warm_up {
                let warm = warm_up(engine.as_ref(), &entry, config.batch.max_rows);
                warm.map_err(|source| StartError::WarmUp { model: name.clone(), version, source })?;
            }
            engines.push(engine);
        }
        if let Some(injection) = &faults {
            tracing::warn!(model = name, ?injection, "injecting faults");
            let faults = Arc::new(Faults::new(injection, &name));
            let faulty = |inner| -> Box<dyn InferenceEngine> {
                Box::new(FaultyEngine { inner, faults: faults.clone() })
            };
            engines = engines.into_iter().map(faulty).collect();
        }
        let metrics = metrics.model(&name);
        let capacity = config.queue_capacity.get();
        let batcher = Batcher::start(&name, engines, config.batch, capacity, &metrics.batch);
        let batcher = batcher.map_err(StartError::Thread)?;
        tracing::info!(model = name, version, "model ready");
        let served = ServedModel { entry, version, batcher, metrics };
        models.entry(name).or_default().insert(version, Arc::new(served));
    }
    Ok(models)
}

fn load_engine(
    config: &Config,
    runtime: &mut Option<OnnxRuntime>,
    entry: &ModelEntry,
    version: u64,
) -> Result<Box<dyn InferenceEngine>, StartError> {
    let threads = config.threads;
    match &entry.platform {
        Platform::OnnxRuntime => {
            let runtime = match runtime {
                Some(runtime) => runtime,
                None => runtime.insert(OnnxRuntime::load(config.onnxruntime.as_deref())?),
            };
            let (provider, max_rows) = (config.provider, config.batch.max_rows);
            let engine = OnnxEngine::load(runtime, entry, version, provider, threads, max_rows)?;
            Ok(match provider {
                Provider::Cpu => Box::new(engine),
                // cuDNN, TensorRT and OpenVINO plan anew for each other size.
                _ => Box::new(FullBatches { engine, rows: max_rows }),
            })
        }
        Platform::TorchScript if config.provider != Provider::Cpu => {
            let problem = format!("TorchScript has no provider {}", config.provider);
            let fix = "give --provider cpu, or export the model as ONNX";
            Err(FileError::field(&entry.toml_file(), "platform", &problem, fix).into())
        }
        Platform::TorchScript => Ok(load_torch(entry, version, threads)?),
        Platform::LearnedCode => {
            let problem =
                "a learned code, which the frontend runs; serve the deployed model instead";
            Err(FileError::new(&entry.toml_file(), problem).into())
        }
        Platform::Foreign(platform) => {
            let problem = format!("{platform:?} is not served here");
            let fix = "give onnxruntime_onnx or pytorch_libtorch, or serve it by another server";
            Err(FileError::field(&entry.toml_file(), "platform", &problem, fix).into())
        }
    }
}

/// Runs the smallest and the largest batch: engines set up on first use; wrong outputs show.
fn warm_up(
    engine: &dyn InferenceEngine,
    entry: &ModelEntry,
    max_rows: usize,
) -> Result<(), EngineError> {
    for rows in [1, max_rows] {
        let inputs: Vec<_> = entry.inputs.iter().map(|spec| zeros(spec, rows)).collect();
        match engine.infer(&inputs) {
            // Some models want more than the least of an axis of any length.
            Err(error @ EngineError::Run { .. }) if entry.free_tensor().is_some() => {
                tracing::warn!(model = entry.name, %error, "the warm-up failed with the shortest \
                    inputs: the first queries will be slower");
            }
            result => drop(result?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parapet_open_inference::{Datatype, ModelMetadata, Tensor, TensorMetadata};

    use super::*;

    /// Takes samples of three values and more.
    struct AtLeastThree;

    impl InferenceEngine for AtLeastThree {
        fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
            match inputs[0].shape[1] {
                3.. => Ok(inputs.to_vec()),
                short => Err(EngineError::Run { reason: format!("{short} are too few") }),
            }
        }
    }

    #[test]
    fn a_warm_up_that_the_shortest_inputs_fail_ends_the_start_of_fixed_models_alone() {
        for (length, is_warm) in [(-1, true), (3, true), (2, false)] {
            let tensors = vec![TensorMetadata::batched("x", Datatype::Fp32, &[length])];
            let metadata = ModelMetadata {
                name: "m".to_owned(),
                versions: Vec::new(),
                platform: String::new(),
                inputs: tensors.clone(),
                outputs: tensors,
            };
            let entry = ModelEntry::unknown("m", None).described(&metadata, "m").unwrap();
            assert_eq!(warm_up(&AtLeastThree, &entry, 4).is_ok(), is_warm, "{length}");
        }
    }
}
