//! The instances of one served model, each over the protocol that its address names.

use std::sync::Arc;
use std::time::Duration;

use parapet_config::repository::ModelEntry;
use parapet_frontend_core::{AttemptResult, Failure, FailureKind, InstanceId, PoolId};
use parapet_net::client::Tls;
use parapet_net::tls::ClientTls;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::outputs::Expected;
use super::{Place, Scheme, Transport, Unready, grpc, http};
use crate::config::{ModelConfig, PoolSettings};
use crate::model::pool_settings;
use crate::payload::{Input, Output};

/// All instances of one served model.
#[derive(Debug)]
pub struct Instances {
    /// Connections to the instances of each pool.
    pools: Vec<Pool>,
    instances: RwLock<FxHashMap<InstanceId, Arc<Instance>>>,
}

/// Settings of the instances of a pool.
#[derive(Debug)]
struct Pool {
    model: String,
    version: u64,
    expected: Arc<Expected>,
    connect_timeout: Duration,
    max_idle: usize,
    /// Protocol of instances that join it.
    scheme: Scheme,
    /// For those that are spoken to within TLS.
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
        let pool = |entry: &ModelEntry, version: u64, pool: &PoolSettings| Pool {
            model: entry.name.clone(),
            version,
            expected: Arc::new(Expected::of(entry, config.max_rows)),
            connect_timeout: config.health.connect_timeout,
            max_idle: pool.slots as usize + 1,
            scheme: pool
                .discovery
                .as_ref()
                .map_or(Scheme::Http, |discovery| discovery.scheme),
            tls: pool.tls.clone(),
        };
        let mut pools = vec![pool(&config.entry, config.version, &config.pool)];
        pools.extend(
            config
                .redundant
                .iter()
                .map(|other| pool(&other.entry, other.version, &other.pool)),
        );
        let instances = Self {
            pools,
            instances: RwLock::default(),
        };
        for (pool, settings) in (0u8..).map(PoolId).zip(pool_settings(config)) {
            for (index, (name, address)) in (0u32..).zip(&settings.instances) {
                let place = Place {
                    address: *address,
                    host: None,
                };
                instances.add(InstanceId { pool, index }, name, &place);
            }
        }
        instances
    }

    fn add(&self, id: InstanceId, name: &str, place: &Place) {
        if let Some(pool) = self.pools.get(usize::from(id.pool.0)) {
            self.instances
                .write()
                .insert(id, Arc::new(pool.instance(name, place)));
        }
    }

    fn instance(&self, id: InstanceId) -> Result<Arc<Instance>, Failure> {
        let instance = self.instances.read().get(&id).map(Arc::clone);
        instance.ok_or_else(|| Failure::new(FailureKind::Unreachable, "the instance has left"))
    }
}

impl Pool {
    fn instance(&self, name: &str, place: &Place) -> Instance {
        let address = place.address;
        let (expected, connect_timeout) = (Arc::clone(&self.expected), self.connect_timeout);
        let (scheme, host) = Scheme::split(name);
        // Where TLS is asked for, nothing is sent without it.
        let named = place.host.as_deref().unwrap_or_else(|| without_port(host));
        let tls = match scheme.is_secure().then(|| self.tls_for(named)) {
            None => None,
            Some(Some(tls)) => Some(tls),
            Some(None) => return Instance::Unreachable,
        };
        match scheme {
            Scheme::Http | Scheme::Https => {
                let path = format!("/v2/models/{}/versions/{}", self.model, self.version);
                let instance = http::Instance::new(
                    name,
                    address,
                    &path,
                    self.max_idle,
                    connect_timeout,
                    expected,
                    tls,
                );
                Instance::Http(instance)
            }
            Scheme::Grpc | Scheme::Grpcs => {
                let model = (self.model.clone(), self.version.to_string());
                Instance::Grpc(grpc::Instance::new(
                    name,
                    address,
                    model,
                    connect_timeout,
                    expected,
                    tls,
                ))
            }
        }
    }

    /// Returns the TLS settings for an instance that is found by the name `host`.
    fn tls_for(&self, host: &str) -> Option<Tls> {
        let client = self.tls.as_ref()?;
        Some(Tls {
            client: client.clone(),
            name: client.name_of(host)?,
        })
    }
}

fn without_port(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

impl Transport for Instances {
    async fn infer(&self, id: InstanceId, input: Arc<Input>) -> AttemptResult<Output> {
        match &*self.instance(id)? {
            Instance::Http(instance) => instance.infer(&input).await,
            Instance::Grpc(instance) => instance.infer(&input).await,
            Instance::Unreachable => Err(Failure::new(
                FailureKind::Unreachable,
                "the instance is reached by TLS only",
            )),
        }
    }

    async fn ready(&self, id: InstanceId) -> Result<(), Unready> {
        match self.instance(id).as_deref() {
            Ok(Instance::Http(instance)) => instance.ready().await,
            Ok(Instance::Grpc(instance)) => instance.ready().await,
            Ok(Instance::Unreachable) | Err(_) => Err(Unready::Unaddressable),
        }
    }

    fn join(&self, id: InstanceId, place: &Place) -> String {
        let scheme = self
            .pools
            .get(usize::from(id.pool.0))
            .map_or(Scheme::Http, |pool| pool.scheme);
        let name = scheme.name(place.address);
        self.add(id, &name, place);
        name
    }

    fn left(&self, id: InstanceId) {
        self.instances.write().remove(&id);
    }
}
