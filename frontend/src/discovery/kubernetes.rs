//! Kubernetes: the endpoints of a service, from its EndpointSlices. They are listed once and
//! watched from there; when the watch ends, which it does every few minutes, they are listed anew.
//!
//! The frontend's service account needs `list` and `watch` on `endpointslices` of
//! `discovery.k8s.io`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};

use super::{Addresses, Discovery, DiscoveryError, KubernetesSettings};

const TIMEOUT: Duration = Duration::from_secs(10);
/// For which one watch goes on, in seconds.
const WATCH_SECONDS: u32 = 240;
/// After which a watch that has not ended by itself is given up.
const WATCH_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);

type Events = BoxStream<'static, Result<WatchEvent<EndpointSlice>, kube::Error>>;

pub struct Kubernetes {
    settings: KubernetesSettings,
    client: Option<Client>,
    known: BTreeMap<String, Addresses>,
    watch: Option<Events>,
}

impl Kubernetes {
    /// Asks the API server that the environment names: the pod's own, or that of the kubeconfig.
    pub fn new(settings: KubernetesSettings) -> Self {
        Self { settings, client: None, known: BTreeMap::new(), watch: None }
    }

    pub fn with_client(settings: KubernetesSettings, client: Client) -> Self {
        Self { client: Some(client), ..Self::new(settings) }
    }

    async fn ask(&mut self) -> Result<Addresses, String> {
        loop {
            let Some(watch) = &mut self.watch else {
                self.list().await?;
                return Ok(self.all());
            };
            match tokio::time::timeout(WATCH_LIMIT, watch.next()).await {
                Ok(Some(Ok(WatchEvent::Added(slice) | WatchEvent::Modified(slice)))) => {
                    let found = addresses(&slice, self.settings.port.as_deref());
                    self.known.insert(slice.name_any(), found);
                    return Ok(self.all());
                }
                Ok(Some(Ok(WatchEvent::Deleted(slice)))) => {
                    self.known.remove(&slice.name_any());
                    return Ok(self.all());
                }
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                Ok(Some(Ok(WatchEvent::Error(status)))) => return Err(status.message.clone()),
                Ok(Some(Err(error))) => return Err(error.to_string()),
                // Its time is over.
                Ok(None) | Err(_) => self.watch = None,
            }
        }
    }

    async fn list(&mut self) -> Result<(), String> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(in_time(Client::try_default()).await?).clone(),
        };
        let api: Api<EndpointSlice> = match &self.settings.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        let label = format!("kubernetes.io/service-name={}", self.settings.service);
        let slices = in_time(api.list(&ListParams::default().labels(&label))).await?;
        let version = slices.metadata.resource_version.clone().unwrap_or_default();
        let port = self.settings.port.as_deref();
        self.known =
            slices.iter().map(|slice| (slice.name_any(), addresses(slice, port))).collect();
        let watched = WatchParams::default().labels(&label).timeout(WATCH_SECONDS);
        self.watch = Some(in_time(api.watch(&watched, &version)).await?.boxed());
        Ok(())
    }

    fn all(&self) -> Addresses {
        self.known.values().flatten().cloned().collect()
    }
}

/// The endpoints of a slice that take requests, at its port of this name, or at its only one.
///
/// One that is shutting down is left out: what it has in hand it finishes. One that is not ready is
/// left out, too; Kubernetes' check and ours have to agree on who gets requests.
fn addresses(slice: &EndpointSlice, name: Option<&str>) -> Addresses {
    let mut ports = slice.ports.iter().flatten().filter(|port| {
        let is_tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        is_tcp && name.is_none_or(|name| port.name.as_deref() == Some(name))
    });
    let Some(port) = ports.next().and_then(|port| u16::try_from(port.port?).ok()) else {
        return Addresses::default();
    };
    let takes_requests = |endpoint: &&Endpoint| {
        // Unknown counts as ready, says the API.
        endpoint.conditions.as_ref().is_none_or(|conditions| {
            conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
        })
    };
    let endpoints = slice.endpoints.iter().filter(takes_requests);
    let ips = endpoints.flat_map(|endpoint| &endpoint.addresses);
    let ips = ips.filter_map(|ip| ip.parse::<IpAddr>().ok());
    ips.map(|ip| SocketAddr::new(ip, port).into()).collect()
}

async fn in_time<T, E: Display>(asking: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, asking).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

impl Discovery for Kubernetes {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        self.ask().await.map_err(|reason| {
            self.watch = None;
            let KubernetesSettings { service, namespace, .. } = &self.settings;
            let namespace = namespace.as_deref().unwrap_or("this namespace");
            let backend = format!("Kubernetes, service {service} in {namespace}");
            DiscoveryError { backend, reason }
        })
    }
}
