//! A served model: what the protocol says of it, what it takes, and the driver behind it.

mod request;

pub use request::{CLASS, Options};

pub use crate::payload::Provenance;

use std::collections::BTreeSet;
use std::sync::Arc;

use parapet_frontend_core::PoolId;
use parapet_net::tls::{ClientTls, Expiry};
use parapet_open_inference::ModelMetadata;
use tokio::sync::watch;

use crate::config::{ModelConfig, PoolSettings};
use crate::discovery::View;
use crate::driver::Driver;
use crate::metrics::Metrics;
use crate::upstream::{Instances, Transport};

#[derive(Debug)]
pub struct ServedModel<T = Instances> {
    pub config: ModelConfig,
    pub driver: Arc<Driver<T>>,
}

impl ServedModel {
    pub fn start(config: ModelConfig, metrics: &Metrics) -> Self {
        let names = |pool: &PoolSettings| {
            pool.instances.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let pools: Vec<_> = config.pools().map(names).collect();
        let transport = Instances::new(&config);
        let model = Self::start_with(config, metrics, transport, &pools);
        let labels = model.config.pool_labels();
        for ((pool, settings), label) in (0u8..).map(PoolId).zip(model.config.pools()).zip(labels) {
            if let Some(discovery) = &settings.discovery {
                model.keep_up(pool, discovery.follow(format!("{}/{label}", model.name())));
            }
        }
        model
    }
}

impl<T: Transport> ServedModel<T> {
    /// Starts serving `config` over any transport, with the instances that `pools` names.
    pub fn start_with(
        config: ModelConfig,
        metrics: &Metrics,
        transport: T,
        pools: &[Vec<String>],
    ) -> Self {
        let coders = config.classes.iter().filter_map(|class| class.code.as_ref());
        for coder in coders.filter(|coder| coder.judged.is_none()) {
            tracing::warn!(
                model = config.entry.name,
                code = coder.label,
                "the kind of the first coded output is not known: reconstructions are sent \
                 without a confidence, and their agreement is not measured; give [output] kind in \
                 model.toml"
            );
        }
        let driver = Driver::start(&config, metrics, transport, pools);
        Self { config, driver }
    }

    /// The TLS settings of its pools that have them; some may share theirs.
    pub(crate) fn tls(&self) -> impl Iterator<Item = &ClientTls> {
        self.config.pools().filter_map(|pool| pool.tls.as_ref())
    }

    /// Expiry of the certificates that it presents to instances and to backends, by role and pool.
    pub(crate) fn certificates(&self) -> Vec<(&'static str, Option<[&str; 2]>, Expiry)> {
        let mut certificates = Vec::new();
        for (label, pool) in self.config.pool_labels().zip(self.config.pools()) {
            let etcd = pool.discovery.as_ref().and_then(|discovery| discovery.tls());
            for (role, tls) in [("instances", pool.tls.as_ref()), ("etcd", etcd)] {
                let pool = Some([self.name(), label]);
                certificates.extend(tls.map(|tls| (role, pool, tls.expiry())));
            }
        }
        certificates
    }

    /// Checks its instances no more, and takes those out of the metrics that `successor`, if there
    /// is one, does not have.
    pub(crate) fn retire(&self, successor: Option<&Self>) {
        let mut kept = BTreeSet::new();
        let mut discovered = BTreeSet::new();
        if let Some(model) = successor {
            let instances = model.driver.instances().into_iter();
            kept.extend(instances.map(|(pool, name)| (model.pool_label(pool), name)));
            let pools = model.config.pool_labels().zip(model.config.pools());
            let pools = pools.filter(|(_, pool)| pool.discovery.is_some());
            discovered.extend(pools.map(|(label, _)| label));
        }
        self.driver.retire(
            |pool, name| kept.contains(&(self.pool_label(pool), name.to_owned())),
            |pool| discovered.contains(self.pool_label(pool)),
        );
    }

    pub fn keep_up(&self, pool: PoolId, view: watch::Receiver<View>) {
        tokio::spawn(Arc::clone(&self.driver).keep_up(pool, view));
    }

    pub fn name(&self) -> &str {
        &self.config.entry.name
    }

    pub(crate) fn has_redundancy(&self) -> bool {
        self.config.classes.iter().any(|class| class.strategy.is_redundant())
    }

    pub(crate) fn has_hold_back(&self) -> bool {
        self.config.classes.iter().any(|class| class.strategy.has_hold_back())
    }

    pub(crate) fn pool_label(&self, pool: PoolId) -> &str {
        self.config.pool_labels().nth(usize::from(pool.0)).unwrap_or_default()
    }

    /// Rows that a request may have: as many as are configured, or as the instances take.
    pub(crate) fn max_rows(&self) -> usize {
        self.config.settings.max_rows.min(self.driver.max_rows())
    }

    /// Bytes of contents that a request may have, beyond small ones.
    pub(crate) fn max_contents(&self) -> usize {
        request::max_contents(&self.config.entry.inputs, self.config.settings.max_rows)
    }

    pub fn metadata(&self) -> ModelMetadata {
        ModelMetadata {
            versions: vec![self.config.version.to_string()],
            ..self.config.entry.metadata()
        }
    }
}

/// Its requests in flight hold on to it: when it is dropped there are none.
impl<T> Drop for ServedModel<T> {
    fn drop(&mut self) {
        self.driver.stop();
    }
}
