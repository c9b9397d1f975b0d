//! Why two sides do not speak TLS with each other.

use std::error::Error;
use std::io;

use rustls::AlertDescription;

/// Reason why there is no TLS connection to a server, by what has to be put right.
#[allow(missing_docs, reason = "the messages say what the variants are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    #[error("the server's certificate is signed by none of the configured authorities")]
    UnknownAuthority,
    #[error("the server's certificate has another name: {0}")]
    AnotherName(String),
    #[error("the server's certificate has expired")]
    Expired,
    #[error("the server's certificate is not valid yet")]
    NotYetValid,
    #[error("the server's certificate has been revoked")]
    Revoked,
    #[error(
        "no revocation list says whether the server's certificate, or one of its chain, is revoked"
    )]
    RevocationUnknown,
    #[error("the server refused this client's certificate, or the lack of one (alert {0})")]
    ClientRefused(String),
    #[error("the server does not speak TLS")]
    NotTls,
    #[error(
        "the server does not offer the protocol asked for (HTTP/1.1, or HTTP/2 for gRPC) over TLS"
    )]
    AnotherProtocol,
    #[error("{0}")]
    Other(String),
}

impl TlsFailure {
    /// Returns the TLS failure among an error's sources: errors are wrapped on their way.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::from(error));
            }
            if let Some(failure) = error.downcast_ref::<Self>() {
                return Some(failure.clone());
            }
            // An IO error's source is that of what it wraps.
            let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
            if let Some(failure) = wrapped.and_then(|wrapped| Self::of(wrapped)) {
                return Some(failure);
            }
            next = error.source();
        }
        None
    }
}

impl From<&rustls::Error> for TlsFailure {
    fn from(error: &rustls::Error) -> Self {
        use rustls::CertificateError as Certificate;
        use rustls::Error::{
            AlertReceived, InvalidCertificate, InvalidMessage, NoApplicationProtocol,
        };
        match error {
            InvalidCertificate(reason) => match reason {
                // A signature that does not fit is one by an authority of the same name.
                Certificate::UnknownIssuer | Certificate::BadSignature => Self::UnknownAuthority,
                Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                    Self::AnotherName(reason.to_string())
                }
                Certificate::Expired | Certificate::ExpiredContext { .. } => Self::Expired,
                Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                    Self::NotYetValid
                }
                Certificate::Revoked => Self::Revoked,
                Certificate::UnknownRevocationStatus => Self::RevocationUnknown,
                _ => Self::Other(error.to_string()),
            },
            AlertReceived(alert) if is_about_a_certificate(*alert) => {
                Self::ClientRefused(format!("{alert:?}"))
            }
            InvalidMessage(_) => Self::NotTls,
            NoApplicationProtocol | AlertReceived(AlertDescription::NoApplicationProtocol) => {
                Self::AnotherProtocol
            }
            _ => Self::Other(error.to_string()),
        }
    }
}

fn is_about_a_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateUnobtainable
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
    )
}
