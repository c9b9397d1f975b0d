//! Address of a registry.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::registry::{EtcdConfig, EtcdStore, Registry, RegistryError, ServedConfig, ServedStore};

/// Names a registry: `parapet://HOST:PORT`, one that a coordinator serves;
/// `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`, one in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Served by a process at `HOST:PORT`.
    Served(String),
    Etcd(EtcdConfig),
}

impl FromStr for Address {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
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
        if text.starts_with("etcd://") {
            return EtcdConfig::parse(text).map(Self::Etcd);
        }
        Err(RegistryError::Address {
            given: text.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served(endpoint) => write!(f, "parapet://{endpoint}"),
            Self::Etcd(config) => write!(
                f,
                "etcd://{}/{}",
                config.endpoints.join(","),
                config.cluster
            ),
        }
    }
}

impl Address {
    /// The cluster's name, which nodes also shake hands with.
    pub fn cluster(&self) -> &str {
        match self {
            Self::Etcd(config) => &config.cluster,
            Self::Served(_) => "default",
        }
    }

    /// Connects, and reads all of it.
    ///
    /// # Errors
    /// If no registry answers there.
    pub async fn open(&self) -> Result<Registry, RegistryError> {
        match self {
            Self::Served(endpoint) => {
                let config = ServedConfig::new(endpoint.clone());
                Registry::open(Arc::new(ServedStore::connect(config).await?)).await
            }
            Self::Etcd(config) => {
                Registry::open(Arc::new(EtcdStore::connect(config.clone()).await?)).await
            }
        }
    }
}

#[cfg(test)]
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
