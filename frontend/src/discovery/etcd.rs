//! etcd: every key under a prefix is an instance, its value the address. Instances' operators write
//! the keys, each with a lease that ends with its instance.
//!
//! The keys are read anew every second, by etcd's JSON gateway (`/v3/kv/range`, etcd 3.4 and later)
//! over HTTP/1.1 on a kept connection, within TLS for `https://` members: the gRPC client would
//! need protoc at build time.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use parapet_net::client::{Connections, Limits, Tls};
use parapet_net::tls::ClientTls;
use serde::Deserialize;
use serde_json::json;

use super::{
    Addresses, Discovery, DiscoveryError, EtcdSettings, MAX_INSTANCES, Place, Scheme, sleep_about,
};

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct Etcd {
    settings: EtcdSettings,
    scheme: Scheme,
    member: usize,
    /// To that member, once it has answered.
    connections: Option<Connections>,
}

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    /// Left out when it is empty.
    #[serde(default)]
    value: String,
}

impl Etcd {
    /// Instances whose values say that they speak something else than `scheme` are left out.
    pub fn new(settings: EtcdSettings, scheme: Scheme) -> Self {
        Self { settings, scheme, member: 0, connections: None }
    }

    fn endpoint(&self) -> &str {
        let endpoints = &self.settings.endpoints;
        let endpoint = endpoints.get(self.member % endpoints.len().max(1));
        endpoint.and_then(|endpoint| host_and_port(endpoint)).unwrap_or_default()
    }

    async fn ask(&mut self) -> Result<Addresses, String> {
        let host = self.endpoint().to_owned();
        if let Some(tls) = &self.settings.loaded {
            // Connections of before a change carry no further request.
            tls.reload_and_log();
        }
        let connections = match self.connections.take() {
            Some(connections) => connections,
            None => connect(&host, self.settings.loaded.as_ref()).await?,
        };
        let prefix = self.settings.prefix.as_str();
        let (key, range_end) = (STANDARD.encode(prefix), STANDARD.encode(end_of(prefix)));
        let limit = MAX_INSTANCES + 1;
        let body = json!({ "key": key, "range_end": range_end, "limit": limit }).to_string();
        let request = || {
            let mut request = Request::new(Full::new(Bytes::from(body.clone())));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = http::Uri::from_static("/v3/kv/range");
            let headers = request.headers_mut();
            headers.extend(host.parse().map(|host| (HOST, host)));
            headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            request
        };
        let response = connections.send(request).await.map_err(|error| error.to_string())?;
        let status = response.status;
        ensure!(status == StatusCode::OK, format!("/v3/kv/range: {status}"));
        let found: RangeResponse = serde_json::from_slice(&response.body)
            .map_err(|error| format!("no answer of etcd's: {error}"))?;
        self.connections = Some(connections);
        let entries = found.kvs.iter().map(|entry| (decode(&entry.key), decode(&entry.value)));
        Ok(addresses(entries, self.scheme))
    }
}

async fn connect(host: &str, tls: Option<&ClientTls>) -> Result<Connections, String> {
    let mut found = tokio::net::lookup_host(host).await.map_err(|error| error.to_string())?;
    let address = found.next().ok_or_else(|| format!("{host:?} has no address"))?;
    let limits = Limits {
        connect_timeout: Some(TIMEOUT),
        max_response_bytes: MAX_RESPONSE_BYTES,
        max_idle: 1,
    };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let tls = tls.map(|client| {
        let server = client.name_of(name);
        let name = server.ok_or_else(|| format!("{name:?} is no name of a server"))?;
        Ok::<Tls, String>(Tls { client: client.clone(), name })
    });
    Ok(Connections::new(address, limits).with_tls(tls.transpose()?))
}

/// The addresses that entries name; others are left out, and logged.
fn addresses(entries: impl Iterator<Item = (String, String)>, scheme: Scheme) -> Addresses {
    let address = |(key, value): (String, String)| {
        let (written, host) = Scheme::split_off(value.trim());
        if written.is_some_and(|written| written != scheme) {
            tracing::warn!(key, value, ?scheme, "left out: the value in etcd has another scheme");
            return None;
        }
        host.parse::<SocketAddr>()
            .map_err(|_| tracing::warn!(key, value, "left out: the value in etcd is not IP:PORT"))
            .ok()
    };
    entries.filter_map(address).map(Place::from).collect()
}

impl Discovery for Etcd {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        if self.connections.is_some() {
            sleep_about(INTERVAL).await;
        }
        let backend = format!("etcd at {}, prefix {}", self.endpoint(), self.settings.prefix);
        let late = |_| Err(format!("no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, self.ask()).await.unwrap_or_else(late).map_err(|reason| {
            self.member = self.member.wrapping_add(1);
            DiscoveryError { backend, reason }
        })
    }
}

/// An endpoint without its scheme, if it is `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
pub(super) fn host_and_port(endpoint: &str) -> Option<&str> {
    let bare = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let bare = bare.unwrap_or(endpoint).trim_end_matches('/');
    let (host, port) = bare.rsplit_once(':')?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    (is_port && !host.is_empty() && !host.contains('/')).then_some(bare)
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&STANDARD.decode(text).unwrap_or_default()).into_owned()
}

/// The first key after all that begin with `prefix`; a zero byte, for the end, if there is none.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn endpoints_are_host_and_port() {
        for (endpoint, host) in [
            ("10.0.0.5:2379", Some("10.0.0.5:2379")),
            ("http://etcd-0.etcd:2379/", Some("etcd-0.etcd:2379")),
            ("[::1]:2379", Some("[::1]:2379")),
            ("https://etcd:2379", Some("etcd:2379")),
            ("", None),
            ("etcd", None),
            ("etcd:0", None),
            ("etcd:99999", None),
            (":2379", None),
            ("grpc://etcd:2379", None),
            ("etcd:2379/v3", None),
        ] {
            assert_eq!(host_and_port(endpoint), host, "{endpoint}");
        }
    }

    #[test]
    fn values_that_are_no_address_are_left_out() {
        let values = [
            "10.0.0.1:9001",
            " http://10.0.0.2:9001/\n",
            "https://10.0.0.4:9001",
            "host:9001",
            "10.0.0.3",
            "",
        ];
        for (scheme, expected) in [
            (Scheme::Http, ["10.0.0.1:9001", "10.0.0.2:9001"]),
            (Scheme::Https, ["10.0.0.1:9001", "10.0.0.4:9001"]),
        ] {
            let entries = values.map(|value| ("/i/1".to_owned(), value.to_owned()));
            let found = addresses(entries.into_iter(), scheme);
            let found: Vec<String> = found.iter().map(|place| place.address.to_string()).collect();
            assert_eq!(found, expected, "{scheme:?}");
        }
    }

    proptest! {
        #[test]
        fn a_range_holds_exactly_the_keys_with_the_prefix(
            prefix in "[a-z/]{1,6}",
            key in "[a-z/]{0,8}",
        ) {
            let end = end_of(&prefix);
            let within = key.as_bytes() >= prefix.as_bytes() && key.as_bytes() < end.as_slice();
            prop_assert_eq!(within, key.starts_with(&prefix));
            let longer = format!("{prefix}{key}");
            prop_assert!(longer.as_bytes() < end.as_slice());
        }
    }
}
