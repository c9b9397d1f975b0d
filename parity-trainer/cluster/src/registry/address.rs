//! Address of a registry.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::registry::{EtcdStore, Registry, RegistryError, Result, ServedStore, Store};

/// `parapet://HOST:PORT`, or `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Served by a process at `HOST:PORT`.
    Served(String),
    Etcd {
        /// `HOST:PORT` of members; the first is asked as long as it answers.
        endpoints: Vec<String>,
        /// Keeps clusters that share an etcd apart.
        cluster: String,
    },
}

impl FromStr for Address {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || RegistryError::Address(text.to_owned());
        let has_port = |endpoint: &str| {
            let parts = endpoint.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if let Some(endpoint) = text.strip_prefix("parapet://") {
            let endpoint = Some(endpoint).filter(|endpoint| has_port(endpoint));
            return Ok(Self::Served(endpoint.ok_or_else(wrong)?.to_owned()));
        }
        let rest = text.strip_prefix("etcd://").ok_or_else(wrong)?;
        let (hosts, cluster) = rest.split_once('/').unwrap_or((rest, "default"));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !hosts.split(',').all(has_port) || cluster.is_empty() || !cluster.chars().all(is_plain) {
            return Err(wrong());
        }
        Ok(Self::Etcd {
            endpoints: hosts.split(',').map(str::to_owned).collect(),
            cluster: cluster.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served(endpoint) => write!(f, "parapet://{endpoint}"),
            Self::Etcd { endpoints, cluster } => {
                write!(f, "etcd://{}/{cluster}", endpoints.join(","))
            }
        }
    }
}

impl Address {
    /// The cluster's name, which nodes also shake hands with.
    pub fn cluster(&self) -> &str {
        match self {
            Self::Etcd { cluster, .. } => cluster,
            Self::Served(_) => "default",
        }
    }

    pub async fn open(&self) -> Result<Registry> {
        let store: Arc<dyn Store> = match self {
            Self::Served(endpoint) => Arc::new(ServedStore::connect(endpoint).await?),
            Self::Etcd { endpoints, cluster } => {
                Arc::new(EtcdStore::connect(endpoints, cluster).await?)
            }
        };
        Registry::open(store).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn address_reads_back_and_a_wrong_one_is_told_the_form() {
        for text in
            ["parapet://10.0.0.5:7070", "etcd://a:2379,b:2379/mnist", "etcd://[::1]:1/default"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let default: Address = "etcd://[::1]:2379".parse().unwrap();
        assert_eq!(default.cluster(), "default");
        let wrong = "|memory|parapet://|parapet://host|parapet://:1|etcd://|etcd:///x|etcd://a|\
            etcd://host:99999|http://a:1|etcd://host:1/a b|etcd://host:1/";
        for text in wrong.split('|') {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(
                error.contains("parapet://HOST:PORT") && error.contains("etcd://10.0.0.5:2379/m"),
                "{error}"
            );
        }
    }
}
