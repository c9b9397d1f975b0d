//! DNS: the A and AAAA records of a name with one port, or SRV records, which name ports, too.
//!
//! A name is asked again after each interval, whatever its records' time to live. A server that
//! answers with a part of a long list each time (round robin) is of no use here: every answer
//! counts as the whole set. Within TLS an instance's certificate has to be for the name whose
//! address it has: the one that is configured, or the target of the SRV record. Aliases (CNAME) on
//! the way to the address count for nothing, since they are the name server's word alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};

use super::{Addresses, Discovery, DiscoveryError, MAX_INSTANCES, Place, Settings, sleep_about};

const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Dns {
    settings: Settings,
    /// Made when it is first needed, so that a machine whose resolver is not configured yet is no
    /// reason not to start.
    resolver: Option<TokioResolver>,
    /// True if the last answer stands for an interval.
    answered: bool,
}

impl Dns {
    pub fn new(settings: Settings) -> Self {
        Self { settings, resolver: None, answered: false }
    }

    async fn ask(&mut self) -> Result<Vec<Place>, NetError> {
        let resolver = match self.resolver.take() {
            Some(resolver) => resolver,
            None => build(self.settings.resolver)?,
        };
        let resolver = self.resolver.insert(resolver);
        let Settings { dns, srv, port, .. } = &self.settings;
        match (dns, srv) {
            (Some(name), _) => addresses(resolver, name, port.unwrap_or_default()).await,
            (None, service) => services(resolver, service.as_deref().unwrap_or_default()).await,
        }
    }
}

async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    port: u16,
) -> Result<Vec<Place>, NetError> {
    let answer = resolver.lookup_ip(name).await?;
    let host = host_name(name);
    let place = |ip| Place { address: SocketAddr::new(ip, port), host: host.clone() };
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
async fn services(resolver: &TokioResolver, service: &str) -> Result<Vec<Place>, NetError> {
    let answer = resolver.srv_lookup(service).await?;
    let mut found = Vec::new();
    for record in answer.answers().iter().take(MAX_INSTANCES) {
        if let RData::SRV(service) = &record.data {
            found.extend(addresses(resolver, &service.target.to_utf8(), service.port).await?);
        }
    }
    Ok(found)
}

fn build(server: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let mut builder = match server {
        Some(server) => {
            let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for connection in &mut connections {
                connection.port = server.port();
            }
            let server = NameServerConfig::new(server.ip(), true, connections);
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
            sleep_about(self.settings.interval()).await;
        }
        let found = self.ask().await.map_err(|error| {
            let Settings { dns, srv, .. } = &self.settings;
            let asked = dns.as_deref().or(srv.as_deref()).unwrap_or_default();
            DiscoveryError { backend: format!("DNS, {asked}"), reason: error.to_string() }
        })?;
        self.answered = true;
        let mut found: Addresses = found.into_iter().collect();
        // Of several names of an address the first in the alphabet counts.
        let mut last = None;
        found.retain(|place| last.replace(place.address) != Some(place.address));
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
