//! The instances of one served model, each over the protocol that its address names.

use std::sync::Arc;

use parapet_frontend_core::{Failure, FailureKind, InstanceId, Outcome};
use parapet_repository::ModelEntry;

use super::outputs::Expected;
use super::{Scheme, Transport, grpc, http};
use crate::config::{ModelConfig, PoolSettings};
use crate::payload::{Input, Output};

/// All instances of one served model.
#[derive(Debug)]
pub struct Instances {
    pools: Vec<Vec<Instance>>,
}

#[derive(Debug)]
enum Instance {
    Http(http::Instance),
    Grpc(grpc::Instance),
}

impl Instances {
    /// Instances as configured: the deployed model's pool, then those of parity and backup models. None is connected to yet;
    /// to be called within a runtime.
    pub fn new(config: &ModelConfig) -> Self {
        let pool = |entry: &ModelEntry, version: u64, pool: &PoolSettings| {
            let expected = Arc::new(Expected::of(entry, config.max_rows));
            let instances = pool.instances.iter().map(|(name, address)| {
                let (expected, connect_timeout) = (Arc::clone(&expected), config.health.connect_timeout);
                match Scheme::split(name).0 {
                    Scheme::Http => {
                        let path = format!("/v2/models/{}/versions/{version}", entry.name);
                        let idle = pool.slots as usize + 1;
                        Instance::Http(http::Instance::new(
                            name,
                            *address,
                            &path,
                            idle,
                            connect_timeout,
                            expected,
                        ))
                    }
                    Scheme::Grpc => {
                        let model = (entry.name.clone(), version.to_string());
                        Instance::Grpc(grpc::Instance::new(name, *address, model, connect_timeout, expected))
                    }
                }
            });
            instances.collect::<Vec<_>>()
        };
        let mut pools = vec![pool(&config.entry, config.version, &config.pool)];
        pools.extend(config.redundant.iter().map(|other| pool(&other.entry, other.version, &other.pool)));
        Self { pools }
    }

    /// The names of a pool's instances, for metrics and logs.
    pub fn names(&self, pool: usize) -> Vec<String> {
        let instances = self.pools.get(pool).map(Vec::as_slice).unwrap_or_default();
        let name = |instance: &Instance| match instance {
            Instance::Http(instance) => instance.name().to_owned(),
            Instance::Grpc(instance) => instance.name().to_owned(),
        };
        instances.iter().map(name).collect()
    }

    fn instance(&self, id: InstanceId) -> Result<&Instance, Failure> {
        self.pools
            .get(usize::from(id.pool.0))
            .and_then(|pool| pool.get(id.index as usize))
            .ok_or_else(|| Failure::new(FailureKind::Unreachable, format!("{id:?} is not configured")))
    }
}

impl Transport for Instances {
    async fn infer(&self, id: InstanceId, input: Arc<Input>) -> Outcome<Output> {
        match self.instance(id)? {
            Instance::Http(instance) => instance.infer(&input).await,
            Instance::Grpc(instance) => instance.infer(&input).await,
        }
    }

    async fn ready(&self, id: InstanceId) -> bool {
        match self.instance(id) {
            Ok(Instance::Http(instance)) => instance.ready().await,
            Ok(Instance::Grpc(instance)) => instance.ready().await,
            Err(_) => false,
        }
    }
}
