//! TLS for servers and clients, by rustls with ring: certificates from PEM files that may be replaced while it runs.
//!
//! Files are read again by [`ServerTls::reload`] and [`ClientTls::reload`], every [`LOOK_AGAIN`] by whoever serves; what is not
//! sound leaves the certificates of before in place, and connections that are open keep theirs. TLS 1.2 and 1.3, with rustls's own
//! choice of ciphers. A client trusts the authorities that it is given and no others: neither the system's nor those of the web.

mod client_tls;
mod failure;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
pub use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
pub use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use client_tls::{ClientFiles, ClientSettings, ClientTls};
pub use failure::TlsFailure;

/// How often files are looked at while something serves by them. They are renewed by others, who need not know of this process.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Why certificate files are of no use. Says nothing of what a key file holds.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file without what it should hold.
    #[error("{}: no {what} in PEM form", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Certificate and key don't belong together, or cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A certificate without its key, or the reverse.
    #[error("a certificate without a key, or the reverse")]
    Half,
    /// What is no name of a server.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
}

impl TlsError {
    /// What to do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Half => "give both or neither",
            Self::Name(_) => "give the name in the certificate, without a port",
            Self::Read { .. } | Self::Empty { .. } | Self::Unusable { .. } => {
                "give PEM files that belong together"
            }
        }
    }
}

/// Who one is: a chain of certificates, the own one first, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificates, PEM.
    pub certificate: PathBuf,
    /// The key of the first, PEM.
    pub key: PathBuf,
}

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Who it is.
    pub identity: Identity,
    /// Who signs its clients' certificates, PEM; clients need none without it.
    pub client_ca: Option<PathBuf>,
}

/// What is spoken within TLS; each side offers one alone (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, as gRPC wants it.
    Http2,
}

impl Application {
    fn protocols(self) -> Vec<Vec<u8>> {
        let name: &[u8] = match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        };
        vec![name.to_vec()]
    }
}

/// One configuration for each application: listeners that speak different ones share their certificate.
#[derive(Debug)]
struct Configs<C> {
    http1: Arc<C>,
    http2: Arc<C>,
}

impl<C: Clone> Configs<C> {
    fn of(config: C, set: impl Fn(&mut C, Vec<Vec<u8>>)) -> Self {
        let speaking = |application: Application| {
            let mut config = config.clone();
            set(&mut config, application.protocols());
            Arc::new(config)
        };
        Self { http1: speaking(Application::Http1), http2: speaking(Application::Http2) }
    }

    fn get(&self, application: Application) -> Arc<C> {
        Arc::clone(match application {
            Application::Http1 => &self.http1,
            Application::Http2 => &self.http2,
        })
    }
}

/// A server's side.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    configs: ArcSwap<Configs<ServerConfig>>,
    /// Of the files' contents as they were read.
    digest: Mutex<[u8; 32]>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let contents = Contents::read(&files)?;
        let configs = contents.configs(&files)?;
        let digest = Mutex::new(contents.digest());
        Ok(Self { files, configs: ArcSwap::from_pointee(configs), digest })
    }

    /// Its files.
    pub fn files(&self) -> &ServerFiles {
        &self.files
    }

    /// For the next connection.
    pub fn acceptor(&self, application: Application) -> TlsAcceptor {
        TlsAcceptor::from(self.configs.load().get(application))
    }

    /// Reads the files again; whether they had changed.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate of before stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let contents = Contents::read(&self.files)?;
        let mut digest = self.digest.lock();
        if contents.digest() == *digest {
            return Ok(false);
        }
        self.configs.store(Arc::new(contents.configs(&self.files)?));
        *digest = contents.digest();
        Ok(true)
    }
}

/// What is in a server's files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Contents {
    fn read(files: &ServerFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.identity.certificate)?,
            key: read(&files.identity.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten()
        {
            digest.update(Sha256::digest(part));
        }
        digest.finalize().into()
    }

    fn configs(&self, files: &ServerFiles) -> Result<Configs<ServerConfig>, TlsError> {
        let path = &files.identity.certificate;
        let chain = certificates(path, &self.certificate)?;
        let key = private_key(&files.identity.key, &self.key)?;
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(path, error))?;
        let builder = match (&files.client_ca, &self.client_ca) {
            (Some(path), Some(contents)) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path, contents)?), provider)
                        .build()
                        .map_err(|error| unusable(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| unusable(path, error))?;
        Ok(Configs::of(config, |config, protocols| config.alpn_protocols = protocols))
    }
}

/// The name that a server's certificate must have: a DNS name or an IP address, without a port.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| TlsError::Empty { path: path.to_owned(), what: "certificate" })
}

fn private_key(path: &Path, contents: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(contents)
        .map_err(|_| TlsError::Empty { path: path.to_owned(), what: "private key" })
}

fn roots(path: &Path, contents: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, contents)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

fn unusable(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), reason: reason.to_string() }
}
