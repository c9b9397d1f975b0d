//! Instances within TLS, over either protocol: trust, and certificates that change. A real instance
//! stands behind something that ends TLS before it, as a proxy beside an instance does.

mod listeners;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

use parapet_frontend::config::ModelConfig;
use parapet_frontend::upstream::Place;
use parapet_net::test_certificates::{
    Identity, Issuer, authority, expired_identity, identity, identity_for, revocation_list,
};
use parapet_net::tls::{TlsAcceptor, TlsFailure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;

use super::*;

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
        let flags = ["--grpc-listen", "127.0.0.1:0"];
        let instance = instance_of(folder.path(), "linear", &flags).await;
        Self { scheme, folder, issuer, ca, instance }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn served_at(&self) -> SocketAddr {
        address(&self.instance, self.scheme)
    }

    fn identity(&self, name: &str) -> Identity {
        identity(self.path(), name, &self.issuer)
    }

    fn server(&self, identity: &Identity, client_ca: Option<&Path>) -> ServerConfig {
        let grpc = self.scheme == "grpcs";
        server(identity, client_ca, if grpc { "h2" } else { "http/1.1" })
    }

    /// Ends TLS by `identity` before the instance.
    async fn behind(&self, identity: &Identity) -> Relay {
        Relay::start(self.server(identity, None), self.served_at()).await
    }

    fn config(&self, address: SocketAddr, more: &str) -> ModelConfig {
        let tls = format!("tls = {{ ca = {:?}{more} }}", self.ca);
        let text = plain_toml(self.path(), &[address], &tls);
        let config = config(&with_scheme(&text, self.scheme));
        config.unwrap().models.remove(0)
    }

    /// The client of a server at `address`; `more` stands in its table.
    fn client(&self, address: SocketAddr, more: &str) -> Instances {
        Instances::new(&self.config(address, more))
    }

    /// There is no connection for this reason, and both a check and a request say so.
    async fn fails(&self, instances: &Instances, wanted: impl Fn(&TlsFailure) -> bool) {
        let scheme = self.scheme;
        let ready = instances.ready(id(0, 0)).await;
        let Err(Unready::Tls(failure)) = ready else {
            panic!("{scheme}: {ready:?}");
        };
        assert!(wanted(&failure), "{scheme}: {failure:?}");
        let refused = ask(instances, samples(1)).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unreachable, "{refused}");
        let said = refused.to_string();
        assert!(said.contains(&failure.to_string()), "{scheme}: {said}");
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
            let ca = CertificateDer::from_pem_file(ca).unwrap();
            roots.add(ca).unwrap();
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
        Self { address, config, accepted }
    }

    fn change(&self, config: ServerConfig) {
        *self.config.lock() = Arc::new(config);
    }
}

async fn answers(instances: &Instances) {
    assert_eq!(instances.ready(id(0, 0)).await, Ok(()));
    let input = samples(1);
    let expected = linear(&input.tensors[0].f32s().unwrap());
    let output = ask(instances, input).await.unwrap();
    assert_close(&output.tensors[0].f32s().unwrap(), &expected);
}

fn of_another_name(failure: &TlsFailure) -> bool {
    matches!(failure, TlsFailure::AnotherName(_))
}

fn unknown_authority(failure: &TlsFailure) -> bool {
    *failure == TlsFailure::UnknownAuthority
}

fn refused(failure: &TlsFailure) -> bool {
    matches!(failure, TlsFailure::ClientRefused(_))
}

/// Errors in a server's certificate are reported, and nothing is sent to it.
async fn servers_that_are_not_trusted(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let sound = site.behind(&site.identity("sound")).await;
    answers(&site.client(sound.address, "")).await;

    // An authority that has our authority's name, and not its key.
    let elsewhere = tempfile::tempdir().unwrap();
    let (stranger, _) = authority(elsewhere.path(), "ca");
    let unknown = identity(site.path(), "unknown", &stranger);
    let unknown = site.behind(&unknown).await;
    let expired = expired_identity(site.path(), "expired", &site.issuer);
    let expired = site.behind(&expired).await;
    for (address, expected) in [
        (unknown.address, TlsFailure::UnknownAuthority),
        (expired.address, TlsFailure::Expired),
        (site.served_at(), TlsFailure::NotTls),
    ] {
        let client = site.client(address, "");
        site.fails(&client, |failure| *failure == expected).await;
    }
}

/// A certificate is for the instance's host, or for the name that is configured.
async fn servers_of_another_name(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let named = identity_for(site.path(), "named", &site.issuer, &["replicas.example"]);
    let relay = site.behind(&named).await;
    let other = ", server_name = \"other.example\"";
    for more in ["", other] {
        let client = site.client(relay.address, more);
        site.fails(&client, of_another_name).await;
    }
    answers(&site.client(relay.address, ", server_name = \"replicas.example\"")).await;
}

/// Of an instance that is found by a name the certificate is for that name, whatever its address;
/// of one that is found without, for its address. A name that is configured goes before either.
async fn servers_that_are_discovered(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let behind = async |name: &str, names: &[&str]| {
        let identity = identity_for(site.path(), name, &site.issuer, names);
        site.behind(&identity).await
    };
    let named = behind("named", &["one.example", "all.example"]).await;
    let addressed = behind("addressed", &["127.0.0.1"]).await;
    let client = |more: &str, relay: &Relay, host: Option<&str>| {
        let address = relay.address;
        let listed = format!("instances = [\"{address}\"]");
        let found = format!("instances = {{ srv = \"_oip._tcp.example\", scheme = \"{scheme}\" }}");
        let tls = format!("tls = {{ ca = {:?}{more} }}", site.ca);
        let text = plain_toml(site.path(), &[address], &tls).replace(&listed, &found);
        let instances = Instances::new(&config(&text).unwrap().models[0]);
        let host = host.map(Into::into);
        let name = instances.join(id(0, 0), &Place { address, host });
        // In logs and metrics it goes by its address.
        assert_eq!(name, format!("{scheme}://{address}"));
        instances
    };
    let configured = ", server_name = \"all.example\"";
    for (more, relay, host, is_trusted) in [
        ("", &named, Some("one.example"), true),
        ("", &named, Some("two.example"), false),
        ("", &named, None, false),
        ("", &addressed, None, true),
        ("", &addressed, Some("one.example"), false),
        (configured, &named, Some("two.example"), true),
        (configured, &named, None, true),
        (configured, &addressed, None, false),
    ] {
        let instances = client(more, relay, host);
        match is_trusted {
            true => answers(&instances).await,
            false => site.fails(&instances, of_another_name).await,
        }
    }
}

/// A server may want to know its clients. In TLS 1.3 it says so after the handshake, when requests
/// are on their way.
async fn servers_that_ask_for_certificates(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let own = site.identity("server");
    let relay = Relay::start(site.server(&own, Some(&site.ca)), site.served_at()).await;
    site.fails(&site.client(relay.address, ""), refused).await;

    let (stranger, _) = authority(site.path(), "stranger");
    let with =
        |own: &Identity| format!(", certificate = {:?}, key = {:?}", own.certificate, own.key);
    let unknown = with(&identity(site.path(), "unknown", &stranger));
    let client = site.client(relay.address, &unknown);
    site.fails(&client, refused).await;
    answers(&site.client(relay.address, &with(&site.identity("known")))).await;
}

/// New certificates are for new connections, and those of before carry nothing more.
async fn certificates_that_change(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let (new, new_ca) = authority(site.path(), "new");
    let relay = site.behind(&site.identity("server")).await;
    let config = site.config(relay.address, "");
    let (instances, tls) = (Instances::new(&config), config.pool.tls.as_ref().unwrap());
    answers(&instances).await;
    let connections = relay.accepted.load(Ordering::SeqCst);
    assert!(!tls.reload().unwrap(), "nothing has changed");
    answers(&instances).await;
    // The connection is kept.
    assert_eq!(relay.accepted.load(Ordering::SeqCst), connections);

    fs::write(&site.ca, "broken").unwrap();
    assert!(tls.reload().is_err());
    answers(&instances).await;

    fs::copy(new_ca, &site.ca).unwrap();
    assert!(tls.reload().unwrap());
    site.fails(&instances, unknown_authority).await;
    relay.change(site.server(&identity(site.path(), "server", &new), None));
    answers(&instances).await;
}

/// A server whose certificate was taken back is not asked any more, on connections
/// of before neither.
async fn servers_that_are_revoked(scheme: &'static str) {
    let site = Site::start(scheme).await;
    let own = site.identity("server");
    let relay = site.behind(&own).await;
    let crl = revocation_list(site.path(), "ca", &site.issuer, &[], 2040);
    let config = site.config(relay.address, &format!(", crl = {crl:?}"));
    let (instances, tls) = (Instances::new(&config), config.pool.tls.as_ref().unwrap());
    answers(&instances).await;

    revocation_list(site.path(), "ca", &site.issuer, &[&own], 2040);
    let revoked = |failure: &TlsFailure| *failure == TlsFailure::Revoked;
    assert!(tls.reload().unwrap());
    site.fails(&instances, revoked).await;
    fs::write(&crl, "broken").unwrap();
    assert!(tls.reload().is_err());
    site.fails(&instances, revoked).await;
    relay.change(site.server(&site.identity("another"), None));
    answers(&instances).await;
}

over_both!(
    "https", "grpcs":
    servers_that_are_discovered, servers_that_are_revoked, servers_that_are_not_trusted,
    servers_of_another_name, servers_that_ask_for_certificates, certificates_that_change
);
