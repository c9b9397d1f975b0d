//! TLS for servers and clients by rustls with ring, from PEM files that may be
//! replaced while it runs.
//!
//! Servers read their files again every [`LOOK_AGAIN`], by [`ServerTls::reload`] and
//! [`ClientTls::reload`]. Unsound files leave the certificates of before in place, and open
//! connections keep theirs. TLS 1.2 and 1.3, with rustls's choice of ciphers. A client trusts the
//! authorities that it is given and no others: neither the system's nor those of the web.

mod client_tls;
mod expiry;
mod failure;
mod server_tls;
mod trust;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
pub use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
pub use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use client_tls::{ClientFiles, ClientSettings, ClientTls};
pub use expiry::Expiry;
pub use failure::TlsFailure;
pub use server_tls::{ServerFiles, ServerTls};

/// Interval between two reads of the files while a process serves by them. They are renewed by
/// other programs, which need not know of this process.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Reason why certificate files are of no use. Says nothing of what a key file holds.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file without what it should hold.
    #[error("{}: no {what} in PEM form", path.display())]
    Empty { path: PathBuf, what: &'static str },
    /// Certificate and key don't belong together, or cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        reason: String,
    },
    /// Revocation lists that end before now.
    #[error("{}: the next revocation list has been due since {since}", path.display())]
    Expired {
        path: PathBuf,
        /// When the first of them ended.
        since: String,
    },
    /// Revocation lists for clients without an authority for clients.
    #[error("revocation lists without an authority")]
    NoAuthority,
    /// A certificate without its key, or the reverse.
    #[error("a certificate without a key, or the reverse")]
    Half,
    /// Text that is no name of a server.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
}

impl TlsError {
    /// Returns the fix that the message suggests.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Half => "give both or neither",
            Self::Name(_) => "give the name in the certificate, without a port",
            Self::Expired { .. } => "have the authority sign a new list",
            Self::NoAuthority => "name the authority of the clients' certificates, too",
            Self::Read { .. } | Self::Empty { .. } | Self::Unusable { .. } => {
                "give PEM files that belong together"
            }
        }
    }
}

/// Certificate chain, the own certificate first, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificates, PEM.
    pub certificate: PathBuf,
    /// The key of the first, PEM.
    pub key: PathBuf,
}

/// Protocol within TLS; each side offers one alone (ALPN).
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

/// One configuration for each application: listeners that speak different ones
/// share their certificate.
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
        Self {
            http1: speaking(Application::Http1),
            http2: speaking(Application::Http2),
        }
    }

    fn get(&self, application: Application) -> Arc<C> {
        Arc::clone(match application {
            Application::Http1 => &self.http1,
            Application::Http2 => &self.http2,
        })
    }
}

/// The name that a server's certificate must have: a DNS name or an IP address, without a port.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// A file that may not be there, and what is in it.
fn file<'a>(path: &'a Option<PathBuf>, contents: &'a Option<Vec<u8>>) -> Option<trust::File<'a>> {
    path.as_deref().zip(contents.as_deref())
}

/// Of the contents of all files, none of which comes and goes.
fn digest<'a>(contents: impl IntoIterator<Item = &'a Vec<u8>>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in contents {
        digest.update(Sha256::digest(part));
    }
    digest.finalize().into()
}

fn certificates(path: &Path, contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| TlsError::Empty {
            path: path.to_owned(),
            what: "certificate",
        })
}

fn private_key(path: &Path, contents: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(contents).map_err(|_| TlsError::Empty {
        path: path.to_owned(),
        what: "private key",
    })
}

fn unusable(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
