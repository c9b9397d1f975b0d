//! Where instances are, while it changes: a [`Discovery`] names the whole set of addresses again
//! and again, [`follow`] keeps the last one that was known, and [`difference`] says who joined and
//! who left.
//!
//! ```text
//!   DNS, etcd, Kubernetes --Discovery::next--> follow --View--> difference --> the engine's joins and leaves
//! ```
//!
//! A backend that is lost, or that suddenly knows no instance at all, changes nothing: the
//! instances that were known are kept, and whether they are well is for health checks to say. So no
//! outage of a registry takes serving down.

mod addresses;
mod any;
mod difference;
mod dns;
mod endpoint;
mod etcd;
mod follow;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod memory;
mod scheme;
mod settings;

pub use addresses::{Addresses, Place};
pub use any::AnyDiscovery;
pub use difference::{Difference, difference};
pub use dns::Dns;
pub use etcd::Etcd;
pub use follow::{View, follow};
pub use memory::Memory;
pub use scheme::Scheme;
pub use settings::{Backend, DnsSettings, EtcdSettings, KubernetesSettings, Mistake, Settings};

use thiserror::Error;

/// Most instances of one pool; the rest of a longer list is left out.
pub const MAX_INSTANCES: usize = 1024;

/// A place that knows where instances are.
pub trait Discovery: Send + 'static {
    /// The whole set, as soon as there is something new to say: the first time at once. It may say
    /// the same again.
    ///
    /// After an error the next call begins anew. Every wait but that for news has a bound.
    ///
    /// # Errors
    /// [`DiscoveryError`] when the place cannot be asked.
    fn next(&mut self) -> impl Future<Output = Result<Addresses, DiscoveryError>> + Send;
}

/// Reason why a backend did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{backend}: {reason}")]
pub struct DiscoveryError {
    /// Backend, and the name that it was asked for.
    pub backend: String,
    pub reason: String,
}

impl DiscoveryError {
    fn new(backend: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self {
            backend: backend.into(),
            reason: reason.to_string(),
        }
    }
}
