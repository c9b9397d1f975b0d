//! Which registry.

use std::fmt;
use std::str::FromStr;
#[cfg(any(feature = "etcd", feature = "served"))]
use std::sync::Arc;

use crate::{Registry, RegistryError};

/// Names a registry: `parapet://HOST:PORT`, one that a coordinator serves;
/// `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`, one in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Served by a process at `HOST:PORT`.
    #[cfg(feature = "served")]
    Served(String),
    /// In etcd.
    #[cfg(feature = "etcd")]
    Etcd(crate::EtcdConfig),
}

impl FromStr for Address {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        #[cfg(feature = "served")]
        if let Some(endpoint) = text.strip_prefix("parapet://") {
            let parts = endpoint.rsplit_once(':');
            let names_a_port =
                |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
            return match parts.is_some_and(names_a_port) {
                true => Ok(Self::Served(endpoint.to_owned())),
                false => Err(RegistryError::Address {
                    given: text.to_owned(),
                }),
            };
        }
        #[cfg(feature = "etcd")]
        if text.starts_with("etcd://") {
            return crate::EtcdConfig::parse(text).map(Self::Etcd);
        }
        Err(RegistryError::Address {
            given: text.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "served")]
            Self::Served(endpoint) => write!(f, "parapet://{endpoint}"),
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => write!(
                f,
                "etcd://{}/{}",
                config.endpoints.join(","),
                config.cluster
            ),
            #[cfg(not(any(feature = "etcd", feature = "served")))]
            _ => f.write_str("nowhere"),
        }
    }
}

impl Address {
    /// The cluster's name, which nodes also shake hands with.
    pub fn cluster(&self) -> &str {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => &config.cluster,
            #[allow(unreachable_patterns, reason = "there may be no other")]
            _ => "default",
        }
    }

    /// Connects, and reads all of it.
    ///
    /// # Errors
    /// If nobody answers there.
    pub async fn open(&self) -> Result<Registry, RegistryError> {
        match self {
            #[cfg(feature = "served")]
            Self::Served(endpoint) => {
                let config = crate::ServedConfig::new(endpoint.clone());
                Registry::open(Arc::new(crate::ServedStore::connect(config).await?)).await
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => {
                Registry::open(Arc::new(crate::EtcdStore::connect(config.clone()).await?)).await
            }
            #[cfg(not(any(feature = "etcd", feature = "served")))]
            _ => Err(RegistryError::Closed),
        }
    }
}

#[cfg(test)]
#[cfg(all(feature = "etcd", feature = "served"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_read_back_and_others_are_told_what_to_write() {
        for text in [
            "parapet://10.0.0.5:7070",
            "etcd://a:2379,b:2379/mnist",
            "etcd://a:1/default",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "memory",
            "parapet://",
            "parapet://host",
            "parapet://:1",
            "etcd://a",
            "http://a:1",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(
                error.contains("parapet://HOST:PORT") && error.contains("etcd://"),
                "{error}"
            );
        }
    }
}
