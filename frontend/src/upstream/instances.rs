//! The instances of one served model, each over the protocol that its address names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{Failure, FailureKind, InstanceId, Outcome, PoolId};
use parapet_http_connection::Tls;
use parapet_repository::ModelEntry;
use parapet_tls::{Application, ClientTls};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::outputs::Expected;
use super::{Scheme, Transport, grpc, http};
use crate::config::{ModelConfig, PoolSettings};
use crate::model::pool_settings;
use crate::payload::{Input, Output};

/// All instances of one served model.
#[derive(Debug)]
pub struct Instances {
    /// How the instances of each pool are reached.
    pools: Vec<Pool>,
    instances: RwLock<FxHashMap<InstanceId, Arc<Instance>>>,
}

/// What the instances of a pool have in common.
#[derive(Debug)]
struct Pool {
    model: String,
    version: u64,
    expected: Arc<Expected>,
    connect_timeout: Duration,
    max_idle: usize,
    /// Where its instances are spoken to by TLS.
    tls: Option<ClientTls>,
}

#[derive(Debug)]
enum Instance {
    Http(http::Instance),
    Grpc(grpc::Instance),
}

impl Instances {
    /// Instances as listed: those of the deployed model's pool, then those of parity and backup models. Others join. None is
    /// connected to yet; to be called within a runtime.
    pub fn new(config: &ModelConfig) -> Self {
        let pool = |entry: &ModelEntry, version: u64, pool: &PoolSettings| Pool {
            model: entry.name.clone(),
            version,
            expected: Arc::new(Expected::of(entry, config.max_rows)),
            connect_timeout: config.health.connect_timeout,
            max_idle: pool.slots as usize + 1,
            tls: config.tls.clone().filter(|_| pool.secure),
        };
        let mut pools = vec![pool(&config.entry, config.version, &config.pool)];
        pools.extend(config.redundant.iter().map(|other| pool(&other.entry, other.version, &other.pool)));
        let instances = Self { pools, instances: RwLock::default() };
        for (pool, settings) in (0u8..).map(PoolId).zip(pool_settings(config)) {
            for (index, (name, address)) in (0u32..).zip(&settings.instances) {
                instances.add(InstanceId { pool, index }, name, *address);
            }
        }
        instances
    }

    fn add(&self, id: InstanceId, name: &str, address: SocketAddr) {
        if let Some(pool) = self.pools.get(usize::from(id.pool.0)) {
            self.instances.write().insert(id, Arc::new(pool.instance(name, address)));
        }
    }

    fn instance(&self, id: InstanceId) -> Result<Arc<Instance>, Failure> {
        let instance = self.instances.read().get(&id).map(Arc::clone);
        instance.ok_or_else(|| Failure::new(FailureKind::Unreachable, format!("{id:?} is not there")))
    }
}

impl Pool {
    fn instance(&self, name: &str, address: SocketAddr) -> Instance {
        let (expected, connect_timeout) = (Arc::clone(&self.expected), self.connect_timeout);
        match Scheme::split(name).0 {
            Scheme::Http => {
                let path = format!("/v2/models/{}/versions/{}", self.model, self.version);
                let tls = self.tls.as_ref().and_then(|tls| named(tls, name));
                let instance =
                    http::Instance::new(name, address, &path, self.max_idle, connect_timeout, expected, tls);
                Instance::Http(instance)
            }
            Scheme::Grpc => {
                let model = (self.model.clone(), self.version.to_string());
                Instance::Grpc(grpc::Instance::new(name, address, model, connect_timeout, expected))
            }
        }
    }
}

/// How to speak TLS with an instance of this name, `HOST:PORT`.
fn named(tls: &ClientTls, name: &str) -> Option<Tls> {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    Some(Tls { connector: tls.connector(Application::Http1), name: parapet_tls::server_name(host)? })
}

impl Transport for Instances {
    async fn infer(&self, id: InstanceId, input: Arc<Input>) -> Outcome<Output> {
        match &*self.instance(id)? {
            Instance::Http(instance) => instance.infer(&input).await,
            Instance::Grpc(instance) => instance.infer(&input).await,
        }
    }

    async fn ready(&self, id: InstanceId) -> bool {
        match self.instance(id).as_deref() {
            Ok(Instance::Http(instance)) => instance.ready().await,
            Ok(Instance::Grpc(instance)) => instance.ready().await,
            Err(_) => false,
        }
    }

    fn join(&self, id: InstanceId, address: SocketAddr) {
        self.add(id, &address.to_string(), address);
    }

    fn left(&self, id: InstanceId) {
        self.instances.write().remove(&id);
    }
}
