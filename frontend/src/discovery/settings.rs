//! Backends as they are configured.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use parapet_config::address;
use parapet_frontend_core::SettingError;
use parapet_net::tls::{ClientSettings, ClientTls};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::etcd::host_and_port;
use super::{Dns, Etcd, View, follow};

/// Where to look for the instances of a pool, in place of a list of them: one of `dns`, `srv`,
/// `etcd` and `kubernetes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub dns: Option<String>,
    pub port: Option<u16>,
    pub srv: Option<String>,
    /// The name server to ask; the system's if `None`.
    #[serde(default, deserialize_with = "address::deserialize")]
    pub resolver: Option<SocketAddr>,
    pub interval_ms: Option<u64>,
    #[serde(default)]
    pub scheme: Scheme,
    pub etcd: Option<EtcdSettings>,
    pub kubernetes: Option<KubernetesSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// `HOST:PORT` of its members, each or none of them with `https://` before it.
    pub endpoints: Vec<String>,
    /// Prefix of the keys of instances; their values are `IP:PORT`.
    pub prefix: String,
    pub tls: Option<ClientSettings>,
    #[serde(skip)]
    pub loaded: Option<ClientTls>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesSettings {
    pub service: String,
    /// Its namespace; the frontend's own if `None`.
    pub namespace: Option<String>,
    /// The name of its port; only needed where it has several.
    pub port: Option<String>,
}

fn mistake(field: &str, problem: impl ToString, fix: &str) -> Result<(), SettingError> {
    Err(SettingError::new(field, problem, fix))
}

impl Settings {
    pub fn check(&self) -> Result<(), SettingError> {
        let asks_dns = self.dns.is_some() || self.srv.is_some();
        let of_dns = self.port.is_some() || self.resolver.is_some() || self.interval_ms.is_some();
        match (asks_dns, &self.etcd, &self.kubernetes) {
            (true, None, None) => self.check_dns(),
            (false, ..) if of_dns => {
                let problem = "missing: port, resolver and interval_ms go with dns or srv";
                mistake("dns", problem, "give it, or leave them out")
            }
            (false, Some(etcd), None) => etcd.check(),
            (false, None, Some(kubernetes)) => kubernetes.check(),
            _ => {
                let fix = "give a list of addresses, or a table with one of dns, srv, etcd and \
                           kubernetes";
                mistake("dns", "none or several backends", fix)
            }
        }
    }

    fn check_dns(&self) -> Result<(), SettingError> {
        match (&self.dns, &self.srv, self.port) {
            (Some(_), Some(_), _) => {
                mistake("srv", "dns stands beside it", "give dns with a port, or srv")
            }
            (Some(_), None, None | Some(0)) => {
                let fix = "give the instances' port, or use srv";
                mistake("port", "address records name no port", fix)
            }
            (None, Some(_), Some(_)) => {
                let problem = "SRV records name each instance's port";
                mistake("port", problem, "leave port out, or use dns")
            }
            _ if self.interval() < Duration::from_millis(100) => {
                mistake("interval_ms", "shorter than 100", "give milliseconds from 100, as 5000")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.unwrap_or(5000))
    }

    /// Reads the certificates that it takes to ask, if any; relative paths count from `folder`.
    pub fn load(&mut self, folder: &Path) -> Result<(), SettingError> {
        let Some(etcd) = &mut self.etcd else { return Ok(()) };
        let loaded = etcd.tls.as_ref().map(|tls| tls.load(folder)).transpose();
        etcd.loaded = loaded.map_err(|error| SettingError::new("etcd.tls", &error, error.fix()))?;
        Ok(())
    }

    pub fn tls(&self) -> Option<&ClientTls> {
        self.etcd.as_ref()?.loaded.as_ref()
    }

    /// Follows the backend once [checked](Self::check) and [loaded](Self::load); see [`follow`].
    pub fn follow(&self, name: String) -> watch::Receiver<View> {
        #[cfg(feature = "kubernetes")]
        if let Some(kubernetes) = &self.kubernetes {
            return follow(super::kubernetes::Kubernetes::new(kubernetes.clone()), name);
        }
        match &self.etcd {
            Some(etcd) => follow(Etcd::new(etcd.clone(), self.scheme), name),
            None => follow(Dns::new(self.clone()), name),
        }
    }
}

impl EtcdSettings {
    fn check(&self) -> Result<(), SettingError> {
        let fix = "list addresses like \"10.0.0.5:2379\"";
        if self.endpoints.is_empty() {
            return mistake("etcd.endpoints", "none", fix);
        }
        let mut endpoints = self.endpoints.iter();
        if let Some(wrong) = endpoints.find(|endpoint| host_and_port(endpoint).is_none()) {
            let fix = "give HOST:PORT or https://HOST:PORT";
            return mistake("etcd.endpoints", format!("{wrong:?}"), fix);
        }
        if self.prefix.is_empty() {
            let problem = "empty: every key would be an instance";
            return mistake("etcd.prefix", problem, "give a prefix");
        }
        let is_secure = |endpoint: &&String| endpoint.starts_with("https://");
        let secure = self.endpoints.iter().filter(is_secure).count();
        match &self.tls {
            None if secure > 0 => {
                let fix = "name the authority of their certificates: tls = { ca = \"ca.pem\" }";
                mistake("etcd.tls", "there are https:// endpoints", fix)
            }
            Some(_) if secure < self.endpoints.len() => {
                let problem = "there is tls, and not all of them are https:// ones";
                mistake("etcd.endpoints", problem, "write https:// before all of them")
            }
            _ => Ok(()),
        }
    }
}

impl KubernetesSettings {
    fn check(&self) -> Result<(), SettingError> {
        if !cfg!(feature = "kubernetes") {
            let fix = "build with --features kubernetes, or use dns with a headless service";
            return mistake("kubernetes", "this program was built without it", fix);
        }
        match self.service.is_empty() {
            true => mistake("kubernetes.service", "empty", "name a service"),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Scheme {
    /// REST over HTTP/1.1: `host:port` or `http://host:port`.
    #[default]
    Http,
    Https,
    Grpc,
    Grpcs,
}

impl Scheme {
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    pub fn split_off(address: &str) -> (Option<Self>, &str) {
        let split = address.split_once("://");
        let known = split.and_then(|(scheme, host)| Some((scheme.parse().ok()?, host)));
        let (scheme, host) = known.unzip();
        (scheme, host.unwrap_or(address).trim_end_matches('/'))
    }

    /// The same; REST if there is none.
    pub fn split(address: &str) -> (Self, &str) {
        let (scheme, host) = Self::split_off(address);
        (scheme.unwrap_or_default(), host)
    }

    /// The instance's name in logs and metrics, out of which [`Scheme::split`] reads the same.
    pub fn name(self, host: impl fmt::Display) -> String {
        match self {
            Self::Http => host.to_string(),
            scheme => format!("{scheme}://{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_scheme() {
        for (address, scheme, name) in [
            ("a:1", Scheme::Http, "a:1"),
            ("http://a:1/", Scheme::Http, "a:1"),
            ("https://a:1", Scheme::Https, "https://a:1"),
            ("grpc://a:1/", Scheme::Grpc, "grpc://a:1"),
            ("grpcs://a:1", Scheme::Grpcs, "grpcs://a:1"),
        ] {
            let (found, host) = Scheme::split(address);
            assert_eq!((found, host), (scheme, "a:1"));
            assert_eq!(found.name(host), name);
            assert_eq!(Scheme::split(name), (scheme, "a:1"));
        }
        assert_eq!(Scheme::split_off("a:1"), (None, "a:1"));
    }
}
