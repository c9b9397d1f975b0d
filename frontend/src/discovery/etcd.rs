//! etcd: every key under a prefix is an instance, its value the address. Instances' operators write
//! the keys, each with a lease that ends with its instance.
//!
//! Spoken is etcd's JSON gateway (`/v3/kv/range`, `/v3/watch`; etcd 3.4 and later) over HTTP/1.1,
//! within TLS for `https://` members: the gRPC client would need protoc at build time. A watch says
//! that something has changed; what there is then is read anew, whole. It is read anew after
//! [`RESYNC`] without news, too, which finds out a server that is gone without a word.

mod gateway;

use std::net::SocketAddr;
use std::time::Duration;

use parapet_net::tls::ClientTls;

use self::gateway::{Gateway, Watch};
use crate::discovery::endpoint::host_and_port;
use crate::discovery::settings::EtcdSettings;
use crate::discovery::{Addresses, Discovery, DiscoveryError, MAX_INSTANCES, Place, Scheme};

/// Between two readings with nothing new.
const RESYNC: Duration = Duration::from_secs(15);

/// Instances by key.
#[derive(Debug)]
pub struct Etcd {
    settings: EtcdSettings,
    scheme: Scheme,
    /// The member that is asked.
    member: usize,
    watch: Option<Watch>,
}

impl Etcd {
    /// Nothing is asked yet. Instances whose values say that they speak something else than
    /// `scheme` are left out.
    pub fn new(settings: EtcdSettings, scheme: Scheme) -> Self {
        Self {
            settings,
            scheme,
            member: 0,
            watch: None,
        }
    }

    fn endpoint(&self) -> &str {
        let endpoints = &self.settings.endpoints;
        endpoints
            .get(self.member % endpoints.len().max(1))
            .map_or("", |endpoint| {
                // Checked with the settings.
                host_and_port(endpoint).unwrap_or(endpoint)
            })
    }

    async fn ask(&mut self) -> Result<Addresses, String> {
        if let Some(watch) = &mut self.watch {
            // News, or long without; an end of the watch is an error.
            tokio::time::timeout(RESYNC, watch.changed())
                .await
                .unwrap_or(Ok(()))?;
        }
        let tls = self.settings.loaded.as_ref();
        if let Some(tls) = tls {
            renew(tls);
        }
        let mut gateway = Gateway::connect(self.endpoint(), tls).await?;
        let found = gateway
            .range(&self.settings.prefix, MAX_INSTANCES + 1)
            .await?;
        if self.watch.is_none() {
            self.watch = Some(
                gateway
                    .watch(&self.settings.prefix, found.revision + 1)
                    .await?,
            );
        }
        Ok(addresses(&found.entries, self.scheme))
    }
}

/// Certificates are read again before each connection, of which there is one now and then.
fn renew(tls: &ClientTls) {
    let file = tls.files().ca.display();
    match tls.reload() {
        Ok(false) => {}
        Ok(true) => tracing::info!(%file, "new certificates for etcd"),
        Err(error) => tracing::error!(%file, %error, "the certificates for etcd of before stay"),
    }
}

/// The addresses that entries name; others are left out, and said.
fn addresses(entries: &[(String, String)], scheme: Scheme) -> Addresses {
    let mut found = Addresses::new();
    for (key, value) in entries {
        let (written, host) = Scheme::split_off(value.trim());
        if written.is_some_and(|written| written != scheme) {
            tracing::warn!(
                key,
                value,
                scheme = scheme.as_str(),
                "left out: the value in etcd has another scheme"
            );
            continue;
        }
        match host.parse::<SocketAddr>() {
            Ok(address) => found.insert(Place {
                address,
                host: None,
            }),
            Err(_) => tracing::warn!(key, value, "left out: the value in etcd is not IP:PORT"),
        }
    }
    found
}

impl Discovery for Etcd {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        let backend = format!(
            "etcd at {}, prefix {}",
            self.endpoint(),
            self.settings.prefix
        );
        self.ask().await.map_err(|reason| {
            self.watch = None;
            self.member = self.member.wrapping_add(1);
            DiscoveryError::new(backend, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_host_and_port() {
        assert_eq!(host_and_port("10.0.0.5:2379"), Some("10.0.0.5:2379"));
        assert_eq!(
            host_and_port("http://etcd-0.etcd:2379/"),
            Some("etcd-0.etcd:2379")
        );
        assert_eq!(host_and_port("[::1]:2379"), Some("[::1]:2379"));
        assert_eq!(host_and_port("https://etcd:2379"), Some("etcd:2379"));
        for wrong in [
            "",
            "etcd",
            "etcd:0",
            "etcd:99999",
            ":2379",
            "grpc://etcd:2379",
            "etcd:2379/v3",
        ] {
            assert_eq!(host_and_port(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_address_is_left_out() {
        let entry = |value: &str| ("/i/1".to_owned(), value.to_owned());
        let entries = [
            entry("10.0.0.1:9001"),
            entry(" http://10.0.0.2:9001/\n"),
            entry("https://10.0.0.4:9001"),
            entry("host:9001"),
            entry("10.0.0.3"),
            entry(""),
        ];
        for (scheme, expected) in [
            (Scheme::Http, ["10.0.0.1:9001", "10.0.0.2:9001"]),
            (Scheme::Https, ["10.0.0.1:9001", "10.0.0.4:9001"]),
        ] {
            let found: Vec<String> = addresses(&entries, scheme)
                .iter()
                .map(|place| place.address.to_string())
                .collect();
            assert_eq!(found, expected, "{scheme:?}");
        }
    }
}
