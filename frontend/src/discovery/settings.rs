//! Backends as they are configured.

use crate::discovery::endpoint;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use parapet_net::tls::{ClientSettings, ClientTls};
use serde::{Deserialize, Deserializer};

use crate::discovery::Scheme;

/// Where to look for the instances of a pool, in place of a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub backend: Backend,
    /// Protocol of all of the instances.
    pub scheme: Scheme,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    Dns(DnsSettings),
    /// Keys in etcd.
    Etcd(EtcdSettings),
    Kubernetes(KubernetesSettings),
}

/// `{ dns = "replicas.example", port = 9001 }` or `{ srv = "_oip._tcp.replicas.example" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// A name with an address record for each instance.
    pub dns: Option<String>,
    pub port: Option<u16>,
    /// A name with an SRV record for each instance.
    pub srv: Option<String>,
    /// The name server to ask; the system's if `None`.
    pub resolver: Option<SocketAddr>,
    /// Between two questions.
    pub interval: Duration,
}

/// `{ etcd = { endpoints = ["10.0.0.5:2379"], prefix = "/parapet/replicas/" } }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// `HOST:PORT` of its members, each or none of them with `https://` before it.
    pub endpoints: Vec<String>,
    /// Prefix of the keys of instances; their values are `IP:PORT`.
    pub prefix: String,
    /// Authorities that members' certificates need, and the client's own certificate.
    pub tls: Option<ClientSettings>,
    #[serde(skip)]
    pub loaded: Option<ClientTls>,
}

/// `{ kubernetes = { service = "replicas", namespace = "serving", port = "http" } }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesSettings {
    pub service: String,
    /// Its namespace; the frontend's own if `None`.
    pub namespace: Option<String>,
    /// The name of its port; only needed where it has several.
    pub port: Option<String>,
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub field: &'static str,
    pub problem: String,
    pub fix: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    dns: Option<String>,
    port: Option<u16>,
    srv: Option<String>,
    resolver: Option<SocketAddr>,
    interval_ms: Option<u64>,
    #[serde(default)]
    scheme: Scheme,
    etcd: Option<EtcdSettings>,
    kubernetes: Option<KubernetesSettings>,
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let asks_dns = written.dns.is_some() || written.srv.is_some();
        let of_dns =
            written.port.is_some() || written.resolver.is_some() || written.interval_ms.is_some();
        let custom = |message: &str| Err(serde::de::Error::custom(message));
        let backend = match (asks_dns, written.etcd, written.kubernetes) {
            (true, None, None) => Ok(Backend::Dns(DnsSettings {
                dns: written.dns,
                port: written.port,
                srv: written.srv,
                resolver: written.resolver,
                interval: Duration::from_millis(written.interval_ms.unwrap_or(5000)),
            })),
            (false, ..) if of_dns => custom("port, resolver and interval_ms go with dns or srv"),
            (false, Some(etcd), None) => Ok(Backend::Etcd(etcd)),
            (false, None, Some(kubernetes)) => Ok(Backend::Kubernetes(kubernetes)),
            _ => custom(
                "expected a list of addresses, or a table with one of dns, srv, etcd and \
                    kubernetes",
            ),
        }?;
        Ok(Self {
            backend,
            scheme: written.scheme,
        })
    }
}

fn mistake(
    field: &'static str,
    problem: impl Into<String>,
    fix: &'static str,
) -> Result<(), Mistake> {
    let problem = problem.into();
    Err(Mistake {
        field,
        problem,
        fix,
    })
}

impl DnsSettings {
    fn check(&self) -> Result<(), Mistake> {
        match (&self.dns, &self.srv, self.port) {
            (Some(_), Some(_), _) => mistake(
                "srv",
                "dns stands beside it",
                "give dns with a port, or srv",
            ),
            (Some(_), None, None | Some(0)) => mistake(
                "port",
                "address records name no port",
                "give the instances' port, or use srv",
            ),
            (None, Some(_), Some(_)) => mistake(
                "port",
                "SRV records name each instance's port",
                "leave port out, or use dns",
            ),
            _ if self.interval < Duration::from_millis(100) => mistake(
                "interval_ms",
                "shorter than 100",
                "give milliseconds from 100, as 5000",
            ),
            _ => Ok(()),
        }
    }
}

impl EtcdSettings {
    fn check(&self) -> Result<(), Mistake> {
        if self.endpoints.is_empty() {
            let fix = "list addresses like \"10.0.0.5:2379\"";
            return mistake("etcd.endpoints", "none", fix);
        }
        let is_wrong = |endpoint: &&String| endpoint::host_and_port(endpoint).is_none();
        if let Some(wrong) = self.endpoints.iter().find(is_wrong) {
            let fix = "give HOST:PORT or https://HOST:PORT";
            return mistake("etcd.endpoints", format!("{wrong:?}"), fix);
        }
        if self.prefix.is_empty() {
            let problem = "empty: every key would be an instance";
            return mistake("etcd.prefix", problem, "give a prefix");
        }
        let endpoints = self.endpoints.iter();
        let secure = endpoints.filter(|endpoint| endpoint::is_secure(endpoint));
        let secure = secure.count();
        match &self.tls {
            None if secure > 0 => mistake(
                "etcd.tls",
                "there are https:// endpoints",
                "name the authority of their certificates: tls = { ca = \"ca.pem\" }",
            ),
            Some(_) if secure < self.endpoints.len() => mistake(
                "etcd.endpoints",
                "there is tls, and not all of them are https:// ones",
                "write https:// before all of them",
            ),
            _ => Ok(()),
        }
    }
}

impl Settings {
    /// Finds what cannot be.
    ///
    /// # Errors
    /// The first [`Mistake`].
    pub fn check(&self) -> Result<(), Mistake> {
        match &self.backend {
            Backend::Dns(dns) => dns.check(),
            Backend::Etcd(etcd) => etcd.check(),
            Backend::Kubernetes(_) if !cfg!(feature = "kubernetes") => mistake(
                "kubernetes",
                "this program was built without it",
                "build with --features kubernetes, or use dns with a headless service",
            ),
            Backend::Kubernetes(kubernetes) if kubernetes.service.is_empty() => {
                mistake("kubernetes.service", "empty", "name a service")
            }
            Backend::Kubernetes(_) => Ok(()),
        }
    }

    /// Reads the certificates that it takes to ask, if any; relative paths count from `folder`.
    ///
    /// # Errors
    /// The [`Mistake`].
    pub fn load(&mut self, folder: &Path) -> Result<(), Mistake> {
        if let Backend::Etcd(etcd) = &mut self.backend
            && let Some(tls) = &etcd.tls
        {
            let loaded = tls.load(folder).map_err(|error| Mistake {
                field: "etcd.tls",
                problem: error.to_string(),
                fix: error.fix(),
            })?;
            etcd.loaded = Some(loaded);
        }
        Ok(())
    }

    /// Returns the settings for TLS with the backend, if it uses TLS.
    pub fn tls(&self) -> Option<&ClientTls> {
        match &self.backend {
            Backend::Etcd(etcd) => etcd.loaded.as_ref(),
            Backend::Dns(_) | Backend::Kubernetes(_) => None,
        }
    }
}

impl DnsSettings {
    pub(crate) fn asked(&self) -> &str {
        self.dns
            .as_deref()
            .or(self.srv.as_deref())
            .unwrap_or_default()
    }
}
