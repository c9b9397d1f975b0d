//! Instances within TLS, over either protocol: trust, and certificates that change. A real instance
//! stands behind something that ends TLS before it, as a proxy beside an instance does.

mod listeners;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parapet_frontend::config::ModelConfig;
use parapet_frontend::payload::Input;
use parapet_frontend::upstream::{Instances, Place, Transport as _, Unready};
use parapet_frontend_core::{AttemptResult, FailureKind};
use parapet_models::Instance;
use parapet_net::test_certificates::{
    Issuer, authority, expired_identity, identity, identity_for, revocation_list,
};
use parapet_net::tls::{Identity, TlsAcceptor, TlsFailure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::memory::id;
use super::super::support::{
    close, coded_toml, config, get, infer, linear, plain_toml, repository, wait_until,
};
use super::super::{Cluster, instance_with};
use super::samples;

/// An instance, and a way to it by TLS.
struct Site {
    scheme: &'static str,
    folder: tempfile::TempDir,
    /// Issuer of the servers' certificates, and its file, which the client trusts.
    issuer: Issuer,
    ca: PathBuf,
    instance: Instance,
}

impl Site {
    async fn start(scheme: &'static str) -> Self {
        let folder = repository();
        let (issuer, ca) = authority(folder.path(), "ca");
        let instance =
            instance_with(folder.path(), "linear", &["--grpc-listen", "127.0.0.1:0"]).await;
        Self {
            scheme,
            folder,
            issuer,
            ca,
            instance,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn served_at(&self) -> SocketAddr {
        match self.scheme {
            "grpcs" => self.instance.grpc_address().unwrap(),
            _ => self.instance.address(),
        }
    }

    fn server(&self, identity: &Identity, client_ca: Option<&Path>) -> ServerConfig {
        let alpn = if self.scheme == "grpcs" {
            "h2"
        } else {
            "http/1.1"
        };
        server(identity, client_ca, alpn)
    }

    /// Ends TLS by `identity` before the instance.
    async fn behind(&self, identity: &Identity) -> Relay {
        Relay::start(self.server(identity, None), self.served_at()).await
    }

    fn config(&self, address: SocketAddr, more: &str) -> ModelConfig {
        let tls = format!("tls = {{ ca = {:?}{more} }}", self.ca);
        let text = plain_toml(self.path(), &[address], &tls).replace(
            "instances = [\"",
            &format!("instances = [\"{}://", self.scheme),
        );
        config(&text).unwrap().models.remove(0)
    }

    /// The client of a server at `address`; `more` stands in its table.
    fn client(&self, address: SocketAddr, more: &str) -> Instances {
        Instances::new(&self.config(address, more))
    }

    /// There is no connection for this reason, and both a check and a request say so.
    async fn fails(&self, instances: &Instances, wanted: impl Fn(&TlsFailure) -> bool) {
        let scheme = self.scheme;
        let Err(Unready::Tls(failure)) = instances.ready(id(0, 0)).await else {
            panic!("{scheme}: {:?}", instances.ready(id(0, 0)).await);
        };
        assert!(wanted(&failure), "{scheme}: {failure:?}");
        let refused = ask(instances).await.unwrap_err();
        assert_eq!(
            refused.kind,
            FailureKind::Unreachable,
            "{scheme}: {refused}"
        );
        assert!(
            refused.to_string().contains(&failure.to_string()),
            "{scheme}: {refused}"
        );
    }
}

fn server(identity: &Identity, client_ca: Option<&Path>, alpn: &str) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_file(ca).unwrap())
                .unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_file(&identity.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![alpn.into()];
    config
}

/// Ends TLS, and passes on what is within. Its certificates can be changed.
struct Relay {
    address: SocketAddr,
    config: Arc<parking_lot::Mutex<Arc<ServerConfig>>>,
    /// Connections, with TLS or without.
    accepted: Arc<AtomicUsize>,
}

impl Relay {
    async fn start(config: ServerConfig, to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(parking_lot::Mutex::new(Arc::new(config)));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (now, count) = (Arc::clone(&config), Arc::clone(&accepted));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let acceptor = TlsAcceptor::from(Arc::clone(&now.lock()));
                tokio::spawn(async move {
                    let Ok(mut within) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut on = TcpStream::connect(to).await.unwrap();
                    let _ended = tokio::io::copy_bidirectional(&mut within, &mut on).await;
                });
            }
        });
        Self {
            address,
            config,
            accepted,
        }
    }

    fn change(&self, config: ServerConfig) {
        *self.config.lock() = Arc::new(config);
    }
}

async fn ask(instances: &Instances) -> AttemptResult<parapet_frontend::payload::Output> {
    instances
        .infer(id(0, 0), Arc::new(Input::new(vec![samples(1)], 1)))
        .await
}

async fn answers(instances: &Instances) {
    assert_eq!(instances.ready(id(0, 0)).await, Ok(()));
    let output = ask(instances).await.unwrap();
    let expected = linear(&samples(1).f32s().unwrap());
    assert!(close(&output.tensors[0].f32s().unwrap(), &expected));
}

/// Errors in a server's certificate are reported, and nothing is sent to it.
async fn servers_that_are_not_trusted(scheme: &'static str) {
    let site = Site::start(scheme).await;
    // One that has our authority's name, and not its key.
    let elsewhere = tempfile::tempdir().unwrap();
    let (stranger, _) = authority(elsewhere.path(), "ca");
    let sound = site
        .behind(&identity(site.path(), "sound", &site.issuer))
        .await;
    answers(&site.client(sound.address, "")).await;

    let unknown = site
        .behind(&identity(site.path(), "unknown", &stranger))
        .await;
    let unknown = site.client(unknown.address, "");
    site.fails(&unknown, |failure| *failure == TlsFailure::UnknownAuthority)
        .await;

    let expired = site
        .behind(&expired_identity(site.path(), "expired", &site.issuer))
        .await;
    site.fails(&site.client(expired.address, ""), |failure| {
        *failure == TlsFailure::Expired
    })
    .await;

    let plain = site.client(site.served_at(), "");
    site.fails(&plain, |failure| *failure == TlsFailure::NotTls)
        .await;
}

/// A certificate is for the instance's host, or for the name that is configured.
async fn servers_of_another_name(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let names = ["replicas.example"];
    let relay = site
        .behind(&identity_for(site.path(), "named", &site.issuer, &names))
        .await;
    let another = |failure: &TlsFailure| matches!(failure, TlsFailure::AnotherName(_));
    site.fails(&site.client(relay.address, ""), another).await;
    site.fails(
        &site.client(relay.address, ", server_name = \"other.example\""),
        another,
    )
    .await;
    answers(&site.client(relay.address, ", server_name = \"replicas.example\"")).await;
}

/// Of an instance that is found by a name the certificate is for that name, whatever its address;
/// of one that is found without, for its address. A name that is configured goes before either.
async fn servers_that_are_discovered(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let names = ["one.example", "all.example"];
    let named = site
        .behind(&identity_for(site.path(), "named", &site.issuer, &names))
        .await;
    let addressed = site
        .behind(&identity_for(
            site.path(),
            "addressed",
            &site.issuer,
            &["127.0.0.1"],
        ))
        .await;
    let client = |more: &str, relay: &Relay, host: Option<&str>| {
        let listed = format!("instances = [\"{}\"]", relay.address);
        let found = format!("instances = {{ srv = \"_oip._tcp.example\", scheme = \"{scheme}\" }}");
        let text = plain_toml(
            site.path(),
            &[relay.address],
            &format!("tls = {{ ca = {:?}{more} }}", site.ca),
        );
        let instances = Instances::new(
            &config(&text.replace(&listed, &found))
                .unwrap()
                .models
                .remove(0),
        );
        let name = instances.join(
            id(0, 0),
            &Place {
                address: relay.address,
                host: host.map(Into::into),
            },
        );
        assert_eq!(
            name,
            format!("{scheme}://{}", relay.address),
            "in logs and metrics it goes by its address"
        );
        instances
    };
    let another = |failure: &TlsFailure| matches!(failure, TlsFailure::AnotherName(_));
    answers(&client("", &named, Some("one.example"))).await;
    site.fails(&client("", &named, Some("two.example")), another)
        .await;
    site.fails(&client("", &named, None), another).await;
    answers(&client("", &addressed, None)).await;
    site.fails(&client("", &addressed, Some("one.example")), another)
        .await;
    let configured = ", server_name = \"all.example\"";
    answers(&client(configured, &named, Some("two.example"))).await;
    answers(&client(configured, &named, None)).await;
    site.fails(&client(configured, &addressed, None), another)
        .await;
}

#[tokio::test]
async fn servers_that_are_discovered_over_http() {
    servers_that_are_discovered("https").await;
}

#[tokio::test]
async fn servers_that_are_discovered_over_grpc() {
    servers_that_are_discovered("grpcs").await;
}

/// A server may want to know who asks. In TLS 1.3 it says so after the handshake, when requests are
/// on their way.
async fn servers_that_ask_for_certificates(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let own = identity(site.path(), "server", &site.issuer);
    let relay = Relay::start(site.server(&own, Some(&site.ca)), site.served_at()).await;
    let refused = |failure: &TlsFailure| matches!(failure, TlsFailure::ClientRefused(_));
    site.fails(&site.client(relay.address, ""), refused).await;

    let (stranger, _) = authority(site.path(), "stranger");
    let with = |name: &str| {
        let file = |end: &str| site.path().join(format!("{name}.{end}"));
        format!(", certificate = {:?}, key = {:?}", file("crt"), file("key"))
    };
    identity(site.path(), "unknown", &stranger);
    site.fails(&site.client(relay.address, &with("unknown")), refused)
        .await;
    identity(site.path(), "known", &site.issuer);
    answers(&site.client(relay.address, &with("known"))).await;
}

/// New certificates are for new connections, and those of before carry nothing more.
async fn certificates_that_change(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let (new, new_ca) = authority(site.path(), "new");
    let relay = site
        .behind(&identity(site.path(), "server", &site.issuer))
        .await;
    let config = site.config(relay.address, "");
    let (instances, tls) = (Instances::new(&config), config.pool.tls.as_ref().unwrap());
    answers(&instances).await;
    let connections = relay.accepted.load(Ordering::SeqCst);
    assert!(!tls.reload().unwrap(), "nothing has changed");
    answers(&instances).await;
    assert_eq!(
        relay.accepted.load(Ordering::SeqCst),
        connections,
        "the connection is kept"
    );

    fs::write(&site.ca, "broken").unwrap();
    assert!(tls.reload().is_err());
    answers(&instances).await;

    fs::copy(new_ca, &site.ca).unwrap();
    assert!(tls.reload().unwrap());
    site.fails(&instances, |failure| {
        *failure == TlsFailure::UnknownAuthority
    })
    .await;
    relay.change(site.server(&identity(site.path(), "server", &new), None));
    answers(&instances).await;
}

/// A server whose certificate was taken back is not asked any more, on connections
/// of before neither.
async fn servers_that_are_revoked(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let own = identity(site.path(), "server", &site.issuer);
    let relay = site.behind(&own).await;
    let crl = revocation_list(site.path(), "ca", &site.issuer, &[], 2040);
    let config = site.config(relay.address, &format!(", crl = {crl:?}"));
    let (instances, tls) = (Instances::new(&config), config.pool.tls.as_ref().unwrap());
    answers(&instances).await;

    revocation_list(site.path(), "ca", &site.issuer, &[&own], 2040);
    assert!(tls.reload().unwrap());
    site.fails(&instances, |failure| *failure == TlsFailure::Revoked)
        .await;
    fs::write(&crl, "broken").unwrap();
    assert!(tls.reload().is_err());
    site.fails(&instances, |failure| *failure == TlsFailure::Revoked)
        .await;
    relay.change(site.server(&identity(site.path(), "another", &site.issuer), None));
    answers(&instances).await;
}

#[tokio::test]
async fn servers_that_are_revoked_over_http() {
    servers_that_are_revoked("https").await;
}

#[tokio::test]
async fn servers_that_are_revoked_over_grpc() {
    servers_that_are_revoked("grpcs").await;
}

#[tokio::test]
async fn servers_that_are_not_trusted_over_http() {
    servers_that_are_not_trusted("https").await;
}

#[tokio::test]
async fn servers_that_are_not_trusted_over_grpc() {
    servers_that_are_not_trusted("grpcs").await;
}

#[tokio::test]
async fn servers_of_another_name_over_http() {
    servers_of_another_name("https").await;
}

#[tokio::test]
async fn servers_of_another_name_over_grpc() {
    servers_of_another_name("grpcs").await;
}

#[tokio::test]
async fn servers_that_ask_for_certificates_over_http() {
    servers_that_ask_for_certificates("https").await;
}

#[tokio::test]
async fn servers_that_ask_for_certificates_over_grpc() {
    servers_that_ask_for_certificates("grpcs").await;
}

#[tokio::test]
async fn certificates_that_change_over_http() {
    certificates_that_change("https").await;
}

#[tokio::test]
async fn certificates_that_change_over_grpc() {
    certificates_that_change("grpcs").await;
}
