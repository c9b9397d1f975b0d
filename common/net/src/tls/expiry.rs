//! When certificates expire, for those who have to renew them in time.

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// When what was read expires, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expiry {
    /// The own certificate, or one of its chain that expires before it; `None` without one.
    pub certificate: Option<i64>,
    /// The first of the revocation lists: when the next one is due; `None` without any.
    pub revocation_lists: Option<i64>,
}

/// When the first of a chain expires. One that cannot be read is left out: whether it can be used
/// is for rustls to say.
pub(crate) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let expires = |certificate: &CertificateDer<'_>| {
        let (_, certificate) = parse_x509_certificate(certificate).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(expires).min()
}
