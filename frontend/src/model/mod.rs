//! A served model: what the protocol says of it, what it takes, and the driver behind it.

pub mod coding;
pub mod coding_queue;
pub mod judged;
mod request;
mod setup;

pub use request::{CLASS, MAX_REQUEST_ID, Options};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::discovery::Discovery;
use parapet_frontend_core::{ClassId, Engine, PoolId};
use parapet_net::tls::ClientTls;
use parapet_open_inference::ModelMetadata;

pub(crate) use self::setup::pool_settings;
use self::setup::{DEPLOYED, class_labels, core_config, pool_labels, strategy};
use crate::config::{ModelConfig, PoolSettings};
use crate::driver::{Driver, Parts};
use crate::metrics::{ClassLabels, Metrics, ShownCertificate};
pub use crate::provenance::Provenance;
use crate::upstream::{Instances, Transport};

/// One served model.
#[derive(Debug)]
pub struct ServedModel<T = Instances> {
    config: ModelConfig,
    driver: Arc<Driver<T>>,
}

impl ServedModel {
    /// Starts serving `config` with the instances that it names.
    pub fn start(config: ModelConfig, metrics: &Metrics) -> Self {
        let transport = Instances::new(&config);
        let names = |pool: &PoolSettings| {
            pool.instances
                .iter()
                .map(|(name, _)| name.clone())
                .collect()
        };
        let pools: Vec<Vec<String>> = pool_settings(&config).map(names).collect();
        let model = Self::start_with(config, metrics, transport, pools);
        for (pool, settings) in (0u8..).map(PoolId).zip(pool_settings(&model.config)) {
            if let Some(discovery) = &settings.discovery {
                model.follow(pool, discovery.build());
            }
        }
        model
    }
}

impl<T: Transport> ServedModel<T> {
    /// Starts serving `config` over any transport.
    pub fn start_with(
        config: ModelConfig,
        metrics: &Metrics,
        transport: T,
        pools: Vec<Vec<String>>,
    ) -> Self {
        let (strategy, coders) = strategy(&config);
        let code = |class: ClassId| {
            coders
                .get(usize::from(class.0))?
                .as_ref()
                .map(|coder| coder.label().to_owned())
        };
        let labels = class_labels(&config, code);
        let meters = metrics.model(&config.entry.name, &labels, &pool_labels(&config));
        let outputs = config.entry.outputs.clone();
        let engine = Engine::new(&core_config(&config), strategy);
        let health = config.health.clone();
        let driver = Driver::start(Parts {
            engine,
            transport,
            coders,
            outputs,
            meters,
            pools,
            health,
        });
        Self { config, driver }
    }

    /// Returns true if it serves just what `config` says.
    pub(crate) fn serves(&self, config: &ModelConfig) -> bool {
        self.config == *config
    }

    /// Returns the TLS settings of its pools that have them; some may share theirs.
    pub(crate) fn tls(&self) -> impl Iterator<Item = &ClientTls> {
        pool_settings(&self.config).filter_map(|pool| pool.tls.as_ref())
    }

    /// Returns the certificates that it presents to instances and to backends.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = ShownCertificate> {
        let pools = pool_labels(&self.config)
            .into_iter()
            .zip(pool_settings(&self.config));
        pools.flat_map(move |(label, pool)| {
            let etcd = pool
                .discovery
                .as_ref()
                .and_then(|discovery| discovery.tls());
            let roles = [("instances", pool.tls.as_ref()), ("etcd", etcd)];
            roles.into_iter().filter_map(move |(role, tls)| {
                let pool = Some((self.name().to_owned(), label.clone()));
                Some(ShownCertificate {
                    role,
                    pool,
                    expiry: tls?.expiry(),
                })
            })
        })
    }

    /// Checks its instances no more, and takes those out of the metrics that `successor`, if there
    /// is one, does not have.
    pub(crate) fn retire(&self, successor: Option<&Self>) {
        let kept = successor.map(Self::instances).unwrap_or_default();
        let labels = pool_labels(&self.config);
        let label = |pool: PoolId| labels.get(usize::from(pool.0)).cloned().unwrap_or_default();
        let discovered: BTreeSet<String> =
            successor.into_iter().flat_map(Self::discovered).collect();
        self.driver.retire(
            |pool, name| kept.contains(&(label(pool), name.to_owned())),
            |pool| discovered.contains(&label(pool)),
        );
    }

    /// The label of its pool and the name of each instance.
    fn instances(&self) -> BTreeSet<(String, String)> {
        let labels = pool_labels(&self.config);
        let label = |pool: PoolId| labels.get(usize::from(pool.0)).cloned().unwrap_or_default();
        self.driver
            .instances()
            .into_iter()
            .map(|(pool, name)| (label(pool), name))
            .collect()
    }

    /// The labels of its pools whose instances are discovered.
    fn discovered(&self) -> impl Iterator<Item = String> {
        let pools = pool_labels(&self.config)
            .into_iter()
            .zip(pool_settings(&self.config));
        pools
            .filter(|(_, settings)| settings.discovery.is_some())
            .map(|(label, _)| label)
    }

    /// Has the instances of `pool` join and leave as `discovery` finds them.
    pub fn follow(&self, pool: PoolId, discovery: impl Discovery) {
        let label = pool_labels(&self.config)
            .into_iter()
            .nth(usize::from(pool.0))
            .unwrap_or_default();
        let view = crate::discovery::follow(discovery, format!("{}/{label}", self.name()));
        tokio::spawn(Arc::clone(&self.driver).keep_up(pool, view));
    }

    pub fn name(&self) -> &str {
        &self.config.entry.name
    }

    pub fn version(&self) -> u64 {
        self.config.version
    }

    /// Returns true if any of its classes has redundancy.
    pub(crate) fn has_redundancy(&self) -> bool {
        self.config
            .classes
            .iter()
            .any(|class| class.strategy.is_redundant())
    }

    /// Returns true if any of its classes waits for queries to be late.
    pub(crate) fn has_hold_back(&self) -> bool {
        self.config
            .classes
            .iter()
            .any(|class| class.strategy.has_hold_back())
    }

    pub(crate) fn class_labels(&self) -> Vec<ClassLabels> {
        class_labels(&self.config, |class| {
            self.driver.code_label(class).map(str::to_owned)
        })
    }

    pub(crate) fn pool_label(&self, pool: PoolId) -> &str {
        match pool {
            PoolId::DEPLOYED => DEPLOYED,
            PoolId(redundant) => {
                let pool = self.config.redundant.get(usize::from(redundant) - 1);
                pool.map_or("", |pool| &pool.label)
            }
        }
    }

    /// Bytes of contents that a request may have, beyond small ones.
    pub(crate) fn max_contents(&self) -> usize {
        request::max_contents(&self.config.entry.inputs, self.config.max_rows)
    }

    /// The longest deadline that a request may ask for.
    pub fn max_timeout(&self) -> Duration {
        self.config.max_timeout
    }

    /// Returns the metadata of the model.
    pub fn metadata(&self) -> ModelMetadata {
        ModelMetadata {
            versions: vec![self.config.version.to_string()],
            ..self.config.entry.metadata()
        }
    }

    pub fn driver(&self) -> &Arc<Driver<T>> {
        &self.driver
    }
}

/// Its requests in flight hold on to it: when it is dropped there are none.
impl<T> Drop for ServedModel<T> {
    fn drop(&mut self) {
        self.driver.stop();
    }
}
