//! TLS for servers and clients by rustls with ring, from PEM files that may be replaced meanwhile.
//!
//! Servers read their files again every [`LOOK_AGAIN`], by [`Credentials::reload`]. Unsound files
//! leave the certificates of before in place, and open connections keep theirs. TLS 1.2 and 1.3,
//! with rustls's choice of ciphers. A client trusts the authorities that it is given and no others:
//! neither the system's nor those of the web.

mod credentials;
mod failure;
mod sides;
mod trust;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
pub use rustls::pki_types::ServerName;
pub use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use credentials::Credentials;
pub use failure::TlsFailure;
pub use sides::{ClientSettings, ClientTls, ServerFiles, ServerTls};

/// Interval between two reads of the files while a process serves by them. They are renewed by
/// other programs, which need not know of this process.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Reason why certificate files are of no use. Says nothing of what a key file holds.
#[allow(missing_docs, reason = "the messages say what variants and fields are")]
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: no {what} in PEM form", path.display())]
    Empty { path: PathBuf, what: &'static str },
    /// Certificate and key don't belong together, or one of the files cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("{}: the next revocation list has been due since {since}", path.display())]
    Expired { path: PathBuf, since: String },
    #[error("revocation lists without an authority")]
    NoAuthority,
    #[error("a certificate without a key, or the reverse")]
    Half,
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

/// When what was read expires, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expiry {
    /// The own certificate, or one of its chain that expires before it; `None` without one.
    pub certificate: Option<i64>,
    /// The first of the revocation lists: when the next one is due; `None` without any.
    pub revocation_lists: Option<i64>,
}

/// The name that a server's certificate must have: a DNS name or an IP address, without a port.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
