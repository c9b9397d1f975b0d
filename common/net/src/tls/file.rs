//! PEM files of certificates, keys and lists.

use std::fmt;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::tls::TlsError;

pub(crate) struct File<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: Vec<u8>,
}

impl<'a> File<'a> {
    pub(crate) fn read(path: &'a Path) -> Result<Self, TlsError> {
        let bytes = std::fs::read(path).map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { path, bytes })
    }

    /// Reads what a PEM file holds, which has to be something.
    pub(crate) fn pem<T: PemObject>(&self, what: &'static str) -> Result<Vec<T>, TlsError> {
        let items: Result<Vec<T>, _> = T::pem_slice_iter(&self.bytes).collect();
        let items = items.ok().filter(|items| !items.is_empty());
        items.ok_or_else(|| TlsError::Empty {
            path: self.path.to_owned(),
            what,
        })
    }

    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.pem("certificate")
    }

    /// An error of using the file.
    pub(crate) fn unusable(&self, reason: impl fmt::Display) -> TlsError {
        TlsError::Unusable {
            path: self.path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
