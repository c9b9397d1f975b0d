//! Authorities that one side trusts, and the certificates that they have revoked.
//!
//! A revocation list has an end, by which its authority means to have made the next one. When that
//! comes late, a side may accept nothing any more, or go on with the old list. This one goes on: a
//! late authority must not take serving down, and revoked certificates stay revoked. Other files
//! are renewed beside it. Reading an expired list is an error all the same ([`check_expiry`]): it
//! is never started with, and is reported until it is replaced.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use x509_parser::{parse_x509_certificate, parse_x509_crl};

use crate::tls::TlsError;

pub(crate) struct Trust<'a> {
    roots: Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of the lists does.
    pub(crate) expires: Option<i64>,
    /// The file to name where rustls cannot use them.
    file: &'a File<'a>,
}

impl<'a> Trust<'a> {
    pub(crate) fn of(ca: &'a File<'a>, crl: Option<&'a File<'a>>) -> Result<Self, TlsError> {
        let authorities = ca.certificates()?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|error| ca.unusable(error))?;
        }
        let (mut lists, mut expires) = (Vec::new(), None);
        if let Some(crl) = crl {
            lists = crl.pem("revocation list")?;
            expires = Some(check(crl, &lists, &authorities)?);
        }
        Ok(Self { roots: Arc::new(roots), lists, expires, file: crl.unwrap_or(ca) })
    }

    pub(crate) fn in_clients(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots, provider);
        verifier.with_crls(self.lists).build().map_err(|error| self.file.unusable(error))
    }

    pub(crate) fn in_servers(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots, provider);
        verifier.with_crls(self.lists).build().map_err(|error| self.file.unusable(error))
    }
}

pub(crate) fn check_expiry(
    path: Option<&PathBuf>,
    expires: Option<i64>,
    now: i64,
) -> Result<(), TlsError> {
    match (path, expires) {
        (Some(path), Some(expires)) if expires <= now => {
            let since = ASN1Time::from_timestamp(expires)
                .map_or_else(|_| expires.to_string(), |at| at.to_string());
            Err(TlsError::Expired { path: path.clone(), since })
        }
        _ => Ok(()),
    }
}

/// Returns the time at which the first of the lists expires. Rustls would find the following at the
/// first connection, and refuse all connections for them: an authority without a list, and a list
/// that another authority has signed.
fn check(
    file: &File<'_>,
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Result<i64, TlsError> {
    let parsed: Result<Vec<_>, _> = lists.iter().map(|list| parse_x509_crl(list)).collect();
    let parsed =
        parsed.map_err(|error| file.unusable(format_args!("no revocation list: {error}")))?;
    for authority in authorities {
        // One that cannot be read here has no list that could be held against it.
        let Ok((_, authority)) = parse_x509_certificate(authority) else { continue };
        let name = authority.subject();
        let own = parsed.iter().map(|(_, list)| list);
        let own: Vec<_> = own.filter(|list| list.issuer().as_raw() == name.as_raw()).collect();
        if own.is_empty() {
            return Err(file.unusable(format_args!("no revocation list of {name}")));
        }
        if own.iter().filter(|list| !is_partial(list)).count() > 1 {
            let problem = format_args!("two revocation lists of {name}: keep only the newer one");
            return Err(file.unusable(problem));
        }
        own.into_iter()
            .try_for_each(|list| check_signer(list, &authority))
            .map_err(|problem| file.unusable(problem))?;
    }
    // A list that does not say when it ends comes before all others.
    let ends = parsed.iter().map(|(_, list)| list.next_update());
    let problem = "a revocation list that does not say when the next one is due";
    ends.min().flatten().map(|end| end.timestamp()).ok_or_else(|| file.unusable(problem))
}

/// Returns true if a list covers only some certificates (RFC 5280, section 5.2.5). Of several lists
/// that cover all of them, only the first would count.
fn is_partial(list: &CertificateRevocationList<'_>) -> bool {
    list.extensions()
        .iter()
        .any(|extension| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT)
}

fn check_signer(
    list: &CertificateRevocationList<'_>,
    authority: &X509Certificate<'_>,
) -> Result<(), String> {
    let name = authority.subject();
    let usage = authority.key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.crl_sign()) {
        let problem = "may not sign revocation lists, says its key usage";
        return Err(format!("{name} {problem}"));
    }
    match list.verify_signature(authority.public_key()) {
        // What this cannot check rustls may.
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => Ok(()),
        Err(_) => Err(format!("the revocation list of {name} is not signed by it")),
    }
}

pub(crate) struct File<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: Vec<u8>,
}

impl<'a> File<'a> {
    pub(crate) fn read(path: &'a Path) -> Result<Self, TlsError> {
        let bytes = std::fs::read(path)
            .map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
        Ok(Self { path, bytes })
    }

    /// Reads what a PEM file holds, which has to be something.
    pub(crate) fn pem<T: PemObject>(&self, what: &'static str) -> Result<Vec<T>, TlsError> {
        let items: Result<Vec<T>, _> = T::pem_slice_iter(&self.bytes).collect();
        let items = items.ok().filter(|items| !items.is_empty());
        items.ok_or_else(|| TlsError::Empty { path: self.path.to_owned(), what })
    }

    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.pem("certificate")
    }

    pub(crate) fn unusable(&self, reason: impl fmt::Display) -> TlsError {
        TlsError::Unusable { path: self.path.to_owned(), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_time_until_the_next_one_is_due() {
        let path = PathBuf::from("clients.crl");
        let path = Some(&path);
        assert!(check_expiry(path, Some(1_000_000_000), 999_999_999).is_ok());
        let error = check_expiry(path, Some(1_000_000_000), 1_000_000_000).unwrap_err().to_string();
        assert!(error.starts_with("clients.crl: ") && error.contains("2001"), "{error}");
        assert!(check_expiry(None, None, i64::MAX).is_ok());
    }
}
