//! DNS: the A and AAAA records of a name with one port, or SRV records, which name ports, too.
//!
//! A name is asked again after each interval, whatever its records' time to live. A server that answers with a part of a long list
//! each time (round robin) is of no use here: every answer counts as the whole set.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use rand::Rng;

use crate::settings::DnsSettings;
use crate::{Addresses, Discovery, DiscoveryError, MAX_INSTANCES};

/// For one query to one name server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Instances by name.
#[derive(Debug)]
pub struct Dns {
    settings: DnsSettings,
    /// Made when it is first needed, so that a machine whose resolver is not configured yet is no reason not to start.
    resolver: Option<TokioResolver>,
    /// The last answer stands for an interval.
    answered: bool,
}

impl Dns {
    /// Nothing is asked yet.
    pub fn new(settings: DnsSettings) -> Self {
        Self { settings, resolver: None, answered: false }
    }

    fn error(&self, reason: impl std::fmt::Display) -> DiscoveryError {
        DiscoveryError::new(format!("DNS, {}", self.settings.asked()), reason)
    }

    fn resolver(&mut self) -> Result<&TokioResolver, DiscoveryError> {
        if self.resolver.is_none() {
            let made = build(self.settings.resolver).map_err(|error| self.error(error))?;
            self.resolver = Some(made);
        }
        self.resolver.as_ref().ok_or_else(|| self.error("no resolver"))
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
    Ok(answer.iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// Priority and weight are of no interest: who is slow is found out by being asked.
async fn services(resolver: &TokioResolver, service: &str) -> Answer {
    let answer = resolver.srv_lookup(service).await?;
    let mut found = Addresses::new();
    for record in answer.answers().iter().take(MAX_INSTANCES) {
        if let RData::SRV(service) = &record.data {
            found.extend(addresses(resolver, &service.target.to_utf8(), service.port).await?);
        }
    }
    Ok(found)
}

fn build(server: Option<SocketAddr>) -> Result<TokioResolver, hickory_resolver::net::NetError> {
    let mut builder = match server {
        Some(server) => {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
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
