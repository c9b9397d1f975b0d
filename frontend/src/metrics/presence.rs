//! Gauges of what comes and goes: instances join and leave, and a series must not outlive its
//! instance, or it would be reported as down for ever. So these are kept in a table, and made anew
//! for each scrape.

use std::collections::BTreeMap;

use metrics::{gauge, with_local_recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use parapet_net::tls::Expiry;
use parking_lot::Mutex;

use super::names::{CERTIFICATE_EXPIRY, DISCOVERY_UP, INSTANCE_UP, REVOCATION_LIST_EXPIRY};

/// Certificate that this frontend presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCertificate {
    /// Owner of the certificate, or the peers that it is presented to.
    pub role: &'static str,
    /// The model and the pool whose instances it is for.
    pub pool: Option<(String, String)>,
    /// When it expires.
    pub expiry: Expiry,
}

/// Instances of a pool, and the place where they are looked for.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// By model, pool and address: whether it is up.
    instances: Mutex<BTreeMap<[String; 3], bool>>,
    /// By model and pool: whether its backend answers.
    discoveries: Mutex<BTreeMap<[String; 2], bool>>,
    certificates: Mutex<Vec<ShownCertificate>>,
}

impl Presence {
    pub(super) fn instance(&self, model: &str, pool: &str, instance: &str, up: bool) {
        self.instances
            .lock()
            .insert([model, pool, instance].map(str::to_owned), up);
    }

    pub(super) fn gone(&self, model: &str, pool: &str, instance: &str) {
        self.instances
            .lock()
            .remove(&[model, pool, instance].map(str::to_owned));
    }

    pub(super) fn discovery(&self, model: &str, pool: &str, up: bool) {
        self.discoveries
            .lock()
            .insert([model, pool].map(str::to_owned), up);
    }

    pub(super) fn not_discovered(&self, model: &str, pool: &str) {
        self.discoveries
            .lock()
            .remove(&[model, pool].map(str::to_owned));
    }

    pub(super) fn certificates(&self, shown: Vec<ShownCertificate>) {
        *self.certificates.lock() = shown;
    }

    /// As Prometheus scrapes it.
    pub(super) fn render(&self) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            super::names::describe_presence();
            for ([model, pool, address], up) in &*self.instances.lock() {
                let labels = [
                    ("model", model.clone()),
                    ("pool", pool.clone()),
                    ("address", address.clone()),
                ];
                gauge!(INSTANCE_UP, &labels).set(f64::from(*up));
            }
            for ([model, pool], up) in &*self.discoveries.lock() {
                gauge!(DISCOVERY_UP, "model" => model.clone(), "pool" => pool.clone())
                    .set(f64::from(*up));
            }
            for ShownCertificate { role, pool, expiry } in &*self.certificates.lock() {
                let mut labels = vec![("role", (*role).to_owned())];
                if let Some((model, pool)) = pool {
                    labels.extend([("model", model.clone()), ("pool", pool.clone())]);
                }
                if let Some(expires) = expiry.certificate {
                    gauge!(CERTIFICATE_EXPIRY, &labels).set(expires as f64);
                }
                if let Some(due) = expiry.revocation_lists {
                    gauge!(REVOCATION_LIST_EXPIRY, &labels).set(due as f64);
                }
            }
        });
        recorder.handle().render()
    }
}
