//! Authorities that one side trusts, and the certificates that they have revoked.
//!
//! A revocation list has an end, by which its authority means to have made the next one. When that
//! comes late, a side may accept nothing any more, or go on with the old list. This one goes on: a
//! late authority must not take serving down, and revoked certificates stay revoked. Other files
//! are renewed beside it. Reading an expired list is an error all the same ([`check_expiry`]): it
//! is never started with, and is reported until it is replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use x509_parser::{parse_x509_certificate, parse_x509_crl};

use crate::tls::{TlsError, certificates, unusable};

/// Path and contents of a file.
pub(crate) type File<'a> = (&'a Path, &'a [u8]);

/// Authorities, and their revocation lists if there are any.
pub(crate) struct Trust {
    roots: Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of the lists does.
    pub(crate) expires: Option<i64>,
    /// The file to name where rustls cannot use them.
    file: PathBuf,
}

impl Trust {
    pub(crate) fn read(ca: File<'_>, crl: Option<File<'_>>) -> Result<Self, TlsError> {
        let (path, contents) = ca;
        let authorities = certificates(path, contents)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots
                .add(authority.clone())
                .map_err(|error| unusable(path, error))?;
        }
        let roots = Arc::new(roots);
        let Some((path, contents)) = crl else {
            return Ok(Self {
                roots,
                lists: Vec::new(),
                expires: None,
                file: path.to_owned(),
            });
        };
        let lists = lists(path, contents)?;
        let expires = check(path, &lists, &authorities)?;
        Ok(Self {
            roots,
            lists,
            expires: Some(expires),
            file: path.to_owned(),
        })
    }

    /// Asks clients for certificates.
    pub(crate) fn in_clients(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots, provider);
        verifier
            .with_crls(self.lists)
            .build()
            .map_err(|error| unusable(&self.file, error))
    }

    /// Looks at the certificates of servers.
    pub(crate) fn in_servers(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots, provider);
        verifier
            .with_crls(self.lists)
            .build()
            .map_err(|error| unusable(&self.file, error))
    }
}

/// Checks that the revocation lists are still in time.
pub(crate) fn check_expiry(
    path: Option<&Path>,
    expires: Option<i64>,
    now: i64,
) -> Result<(), TlsError> {
    match (path, expires) {
        (Some(path), Some(expires)) if expires <= now => {
            let since = ASN1Time::from_timestamp(expires)
                .map_or_else(|_| expires.to_string(), |at| at.to_string());
            Err(TlsError::Expired {
                path: path.to_owned(),
                since,
            })
        }
        _ => Ok(()),
    }
}

/// In seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn lists(
    path: &Path,
    contents: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(contents).collect();
    lists
        .ok()
        .filter(|lists| !lists.is_empty())
        .ok_or_else(|| TlsError::Empty {
            path: path.to_owned(),
            what: "revocation list",
        })
}

/// Returns the time at which the first of the lists expires. Rustls would find the following at the
/// first connection, and refuse all connections for them: an authority without a list, and a list
/// that another authority has signed.
fn check(
    path: &Path,
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Result<i64, TlsError> {
    let parsed: Result<Vec<_>, _> = lists.iter().map(|list| parse_x509_crl(list)).collect();
    let parsed = parsed.map_err(|error| unusable(path, format!("no revocation list: {error}")))?;
    for authority in authorities {
        // One that cannot be read here has no list that could be held against it.
        let Ok((_, authority)) = parse_x509_certificate(authority) else {
            continue;
        };
        let own = parsed.iter().map(|(_, list)| list);
        let own: Vec<_> = own
            .filter(|list| list.issuer().as_raw() == authority.subject().as_raw())
            .collect();
        if own.is_empty() {
            return Err(unusable(
                path,
                format!("no revocation list of {}", authority.subject()),
            ));
        }
        if own.iter().filter(|list| !is_partial(list)).count() > 1 {
            let name = authority.subject();
            return Err(unusable(
                path,
                format!("two revocation lists of {name}: keep only the newer one"),
            ));
        }
        own.into_iter()
            .try_for_each(|list| check_signer(path, list, &authority))?;
    }
    let ends: Option<Vec<i64>> = parsed
        .iter()
        .map(|(_, list)| list.next_update().map(|end| end.timestamp()))
        .collect();
    ends.and_then(|ends| ends.into_iter().min()).ok_or_else(|| {
        unusable(
            path,
            "a revocation list that does not say when the next one is due",
        )
    })
}

/// Returns true if a list covers only some certificates (RFC 5280, section 5.2.5). Of several lists
/// that cover all of them, only the first would count.
fn is_partial(list: &CertificateRevocationList<'_>) -> bool {
    list.extensions()
        .iter()
        .any(|extension| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT)
}

fn check_signer(
    path: &Path,
    list: &CertificateRevocationList<'_>,
    authority: &X509Certificate<'_>,
) -> Result<(), TlsError> {
    let name = authority.subject();
    if authority
        .key_usage()
        .ok()
        .flatten()
        .is_some_and(|usage| !usage.value.crl_sign())
    {
        return Err(unusable(
            path,
            format!("{name} may not sign revocation lists, says its key usage"),
        ));
    }
    match list.verify_signature(authority.public_key()) {
        // What this cannot check rustls may.
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => Ok(()),
        Err(_) => Err(unusable(
            path,
            format!("the revocation list of {name} is not signed by it"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_time_until_the_next_one_is_due() {
        let path = Some(Path::new("clients.crl"));
        assert!(check_expiry(path, Some(1_000_000_000), 999_999_999).is_ok());
        let error = check_expiry(path, Some(1_000_000_000), 1_000_000_000)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("clients.crl: ") && error.contains("2001"),
            "{error}"
        );
        assert!(check_expiry(None, None, i64::MAX).is_ok());
    }
}
