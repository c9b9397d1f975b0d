//! The instances of one served model, each over the protocol that its address names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parapet_config::repository::ModelEntry;
use parapet_frontend_core::{AttemptResult, Failure, FailureKind, InstanceId, PoolId};
use parapet_net::client::Tls;
use parapet_net::tls::ClientTls;
use parapet_open_inference::ModelMetadata;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{Expected, Place, Transport, Unready, grpc, http};
use crate::config::{ModelConfig, PoolSettings};
use crate::discovery::Scheme;
use crate::payload::{Input, Output};

#[derive(Debug)]
pub struct Instances {
    pools: Vec<Pool>,
    instances: RwLock<FxHashMap<InstanceId, Arc<Instance>>>,
    /// The least of the instances' own.
    max_rows: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) entry: ModelEntry,
    /// The instance chooses if `None`.
    pub(super) version: Option<u64>,
    pub(super) expected: Arc<Expected>,
    pub(super) connect_timeout: Duration,
    pub(super) max_idle: usize,
    scheme: Scheme,
    tls: Option<ClientTls>,
}

#[derive(Debug)]
enum Instance {
    Http(http::Instance),
    Grpc(grpc::Instance),
    /// One without certificates to speak TLS with; the configuration has refused that.
    Unreachable,
}

impl Instances {
    /// Instances as listed: those of the deployed model's pool, then those of parity and backup
    /// models. Others join. None is connected to yet; to be called within a runtime.
    pub fn new(config: &ModelConfig) -> Self {
        let settings = &config.settings;
        let pool = |entry: &ModelEntry, version: Option<u64>, pool: &PoolSettings| Pool {
            entry: entry.clone(),
            version,
            expected: Arc::new(Expected::of(entry, settings.max_rows)),
            connect_timeout: settings.health.connect_timeout,
            max_idle: pool.slots as usize + 1,
            scheme: pool.discovery.as_ref().map(|discovery| discovery.scheme).unwrap_or_default(),
            tls: pool.tls.clone(),
        };
        let mut pools = vec![pool(&config.entry, config.requested_version, &config.pool)];
        let redundant = config.redundant.iter();
        pools.extend(redundant.map(|other| pool(&other.entry, other.version, &other.pool)));
        let instances =
            Self { pools, instances: RwLock::default(), max_rows: AtomicUsize::new(usize::MAX) };
        for (pool, settings) in (0u8..).map(PoolId).zip(config.pools()) {
            for (index, (name, address)) in (0u32..).zip(&settings.instances) {
                instances.add(InstanceId { pool, index }, name, &Place::from(*address));
            }
        }
        instances
    }

    fn add(&self, id: InstanceId, name: &str, place: &Place) {
        if let Some(pool) = self.pools.get(usize::from(id.pool.0)) {
            let instance = Arc::new(pool.instance(name, place));
            self.instances.write().insert(id, instance);
        }
    }

    fn instance(&self, id: InstanceId) -> Result<Arc<Instance>, Failure> {
        let instance = self.instances.read().get(&id).map(Arc::clone);
        instance.ok_or_else(|| Failure::new(FailureKind::Unreachable, "the instance has left"))
    }

    pub(crate) async fn metadata(&self, id: InstanceId) -> Result<ModelMetadata, Unready> {
        match &*self.instance(id).map_err(|_| Unready::Unaddressable)? {
            Instance::Http(instance) => instance.metadata().await,
            Instance::Grpc(instance) => instance.metadata().await,
            Instance::Unreachable => Err(Unready::Unaddressable),
        }
    }
}

impl Instance {
    fn max_rows(&self) -> usize {
        match self {
            Self::Http(instance) => instance.max_rows.load(Ordering::Relaxed),
            Self::Grpc(instance) => instance.max_rows.load(Ordering::Relaxed),
            Self::Unreachable => usize::MAX,
        }
    }
}

impl Pool {
    fn instance(&self, name: &str, place: &Place) -> Instance {
        let address = place.address;
        let (scheme, host) = Scheme::split(name);
        // Where TLS is asked for, nothing is sent without it.
        let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let named = place.host.as_deref().unwrap_or(without_port);
        let tls = self.tls_for(named).filter(|_| scheme.is_secure());
        if scheme.is_secure() && tls.is_none() {
            return Instance::Unreachable;
        }
        match scheme {
            Scheme::Http | Scheme::Https => {
                Instance::Http(http::Instance::new(self, name, address, tls))
            }
            Scheme::Grpc | Scheme::Grpcs => {
                Instance::Grpc(grpc::Instance::new(self, name, address, tls))
            }
        }
    }

    fn tls_for(&self, host: &str) -> Option<Tls> {
        let client = self.tls.clone()?;
        let name = client.name_of(host)?;
        Some(Tls { client, name })
    }
}

impl Instances {
    fn learn_max_rows(&self) {
        let instances = self.instances.read();
        let rows = instances.values().map(|instance| instance.max_rows());
        self.max_rows.store(rows.min().unwrap_or(usize::MAX), Ordering::Relaxed);
    }
}

impl Transport for Instances {
    async fn infer(&self, id: InstanceId, input: Arc<Input>) -> AttemptResult<Output> {
        match &*self.instance(id)? {
            Instance::Http(instance) => instance.infer(&input).await,
            Instance::Grpc(instance) => instance.infer(&input).await,
            Instance::Unreachable => {
                Err(Failure::new(FailureKind::Unreachable, "the instance is reached by TLS only"))
            }
        }
    }

    async fn ready(&self, id: InstanceId) -> Result<(), Unready> {
        let instance = self.instance(id).map_err(|_| Unready::Unaddressable)?;
        let before = instance.max_rows();
        match &*instance {
            Instance::Http(instance) => instance.ready().await?,
            Instance::Grpc(instance) => instance.ready().await?,
            Instance::Unreachable => return Err(Unready::Unaddressable),
        }
        if instance.max_rows() != before {
            self.learn_max_rows();
        }
        match (self.metadata(id).await, self.pools.get(usize::from(id.pool.0))) {
            (Ok(metadata), Some(pool)) => {
                pool.entry.check_metadata(&metadata).map_err(Unready::Differs)
            }
            // A server that gives no metadata is taken to have the model.
            (Ok(_) | Err(Unready::Says(_)), _) => Ok(()),
            (Err(unready), _) => Err(unready),
        }
    }

    fn join(&self, id: InstanceId, place: &Place) -> String {
        let pool = self.pools.get(usize::from(id.pool.0));
        let scheme = pool.map(|pool| pool.scheme).unwrap_or_default();
        let name = scheme.name(place.address);
        self.add(id, &name, place);
        name
    }

    fn left(&self, id: InstanceId) {
        self.instances.write().remove(&id);
        self.learn_max_rows();
    }

    fn max_rows(&self) -> usize {
        self.max_rows.load(Ordering::Relaxed)
    }
}
