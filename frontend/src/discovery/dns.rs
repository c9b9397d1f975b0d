//! DNS: the A and AAAA records of a name with one port, or SRV records, which name ports, too.
//!
//! A name is asked again after each interval, whatever its records' time to live. A server that
//! answers with a part of a long list each time (round robin) is of no use here: every answer
//! counts as the whole set.
//!
//! Within TLS an instance's certificate has to be for the name whose address it has: the one that
//! is configured, or the target of the SRV record. Aliases (CNAME) on the way to the address count
//! for nothing, since they are the name server's word alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use rand::Rng;

use crate::discovery::settings::DnsSettings;
use crate::discovery::{Addresses, Discovery, DiscoveryError, MAX_INSTANCES, Place};

/// For one query to one name server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Instances by name.
#[derive(Debug)]
pub struct Dns {
    settings: DnsSettings,
    /// Made when it is first needed, so that a machine whose resolver is not configured yet is no
    /// reason not to start.
    resolver: Option<TokioResolver>,
    /// The last answer stands for an interval.
    answered: bool,
}

impl Dns {
    /// Nothing is asked yet.
    pub fn new(settings: DnsSettings) -> Self {
        Self {
            settings,
            resolver: None,
            answered: false,
        }
    }

    fn error(&self, reason: impl std::fmt::Display) -> DiscoveryError {
        DiscoveryError::new(format!("DNS, {}", self.settings.asked()), reason)
    }

    fn resolver(&mut self) -> Result<&TokioResolver, DiscoveryError> {
        if self.resolver.is_none() {
            let made = build(self.settings.resolver).map_err(|error| self.error(error))?;
            self.resolver = Some(made);
        }
        self.resolver
            .as_ref()
            .ok_or_else(|| self.error("no resolver"))
    }

    async fn ask(&mut self) -> Result<Addresses, DiscoveryError> {
        let asked = self.settings.clone();
        let resolver = self.resolver()?;
        let answer = match (&asked.dns, &asked.srv) {
            (Some(name), _) => addresses(resolver, name, asked.port.unwrap_or_default()).await,
            (None, Some(service)) => services(resolver, service).await,
            (None, None) => Ok(Addresses::new()),
        };
        answer.map_err(|error| self.error(error))
    }
}

type Answer = Result<Addresses, hickory_resolver::net::NetError>;

async fn addresses(resolver: &TokioResolver, name: &str, port: u16) -> Answer {
    let answer = resolver.lookup_ip(name).await?;
    let host = host_name(name);
    let place = |ip| Place {
        address: SocketAddr::new(ip, port),
        host: host.clone(),
    };
    Ok(answer.iter().map(place).collect())
}

/// The name as certificates have it; `None` for an address, which is its own name.
fn host_name(name: &str) -> Option<Arc<str>> {
    if name.parse::<IpAddr>().is_ok() {
        return None;
    }
    let ascii = Name::from_utf8(name).map_or_else(|_| name.to_owned(), |name| name.to_ascii());
    Some(ascii.trim_end_matches('.').into())
}

/// Priority and weight are of no interest: who is slow is found out by being asked.
async fn services(resolver: &TokioResolver, service: &str) -> Answer {
    let answer = resolver.srv_lookup(service).await?;
    let mut found = Addresses::new();
    for record in answer.answers().iter().take(MAX_INSTANCES) {
        if let RData::SRV(service) = &record.data {
            let target = addresses(resolver, &service.target.to_utf8(), service.port).await?;
            target.iter().for_each(|place| found.insert(place));
        }
    }
    Ok(found)
}

fn build(server: Option<SocketAddr>) -> Result<TokioResolver, hickory_resolver::net::NetError> {
    let mut builder = match server {
        Some(server) => {
            let connections =
                [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                    connection.port = server.port();
                    connection
                });
            let server = NameServerConfig::new(server.ip(), true, connections.into());
            let config = ResolverConfig::from_name_servers(vec![server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
        None => TokioResolver::builder_tokio()?,
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 2;
    builder.build()
}

impl Discovery for Dns {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        if std::mem::take(&mut self.answered) {
            // Up to a tenth more or less, so that many frontends do not ask in step.
            let jitter = rand::rng().random_range(0.9..1.1);
            tokio::time::sleep(self.settings.interval.mul_f64(jitter)).await;
        }
        let found = self.ask().await?;
        self.answered = true;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_as_certificates_have_them() {
        for (name, host) in [
            ("replicas.example", Some("replicas.example")),
            ("replicas.example.", Some("replicas.example")),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("10.0.0.1", None),
            ("::1", None),
        ] {
            assert_eq!(host_name(name).as_deref(), host, "{name}");
        }
    }
}
