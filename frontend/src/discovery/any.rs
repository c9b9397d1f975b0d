//! The backend that settings name.

use super::settings::{Backend, Settings};
use super::{Addresses, Discovery, DiscoveryError, Dns, Etcd};

impl Settings {
    /// The backend, of settings that were [checked](Self::check) and [loaded](Self::load).
    pub fn build(&self) -> AnyDiscovery {
        match self.backend.clone() {
            Backend::Dns(dns) => AnyDiscovery::Dns(Box::new(Dns::new(dns))),
            Backend::Etcd(etcd) => AnyDiscovery::Etcd(Box::new(Etcd::new(etcd, self.scheme))),
            #[cfg(feature = "kubernetes")]
            Backend::Kubernetes(settings) => AnyDiscovery::Kubernetes(Box::new(
                crate::discovery::kubernetes::Kubernetes::new(settings),
            )),
            #[cfg(not(feature = "kubernetes"))]
            Backend::Kubernetes(_) => AnyDiscovery::Missing,
        }
    }
}

/// Any of the backends.
#[derive(Debug)]
pub enum AnyDiscovery {
    Dns(Box<Dns>),
    /// Keys in etcd.
    Etcd(Box<Etcd>),
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<crate::discovery::kubernetes::Kubernetes>),
    /// Kubernetes, in a program that was built without it; [`Settings::check`] refuses that.
    #[cfg(not(feature = "kubernetes"))]
    Missing,
}

impl Discovery for AnyDiscovery {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        match self {
            Self::Dns(dns) => dns.next().await,
            Self::Etcd(etcd) => etcd.next().await,
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(kubernetes) => kubernetes.next().await,
            #[cfg(not(feature = "kubernetes"))]
            Self::Missing => Err(DiscoveryError::new(
                "Kubernetes",
                "this program was built without it",
            )),
        }
    }
}
