//! A server's side: who it is, and whose clients it lets in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::tls::trust::Trust;
use crate::tls::{
    Application, Configs, Expiry, Identity, TlsError, certificates, digest, expiry, file,
    private_key, provider, read, trust, unusable,
};

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Certificate and key of the server.
    pub identity: Identity,
    /// Authorities that sign the clients' certificates, PEM; clients need none without it.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists, PEM: one of each authority.
    pub client_crl: Option<PathBuf>,
}

/// TLS settings of a server.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    read: ArcSwap<Read>,
    reloading: Mutex<()>,
}

/// Contents of the files and the configuration made of them.
#[derive(Debug)]
struct Read {
    digest: [u8; 32],
    /// Of the revocation lists alone, and of the clients' authorities.
    list: Option<[u8; 32]>,
    client_ca: Option<[u8; 32]>,
    /// Cancelled when either is another one.
    outdated: CancellationToken,
    expiry: Expiry,
    configs: Configs<ServerConfig>,
}

impl Read {
    fn check_expiry(&self, list: Option<&Path>) -> Result<(), TlsError> {
        trust::check_expiry(list, self.expiry.revocation_lists, trust::now())
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let read = Contents::read(&files)?.take(&files)?;
        read.check_expiry(files.client_crl.as_deref())?;
        Ok(Self {
            files,
            read: ArcSwap::from_pointee(read),
            reloading: Mutex::default(),
        })
    }

    /// Returns the paths of its files.
    pub fn files(&self) -> &ServerFiles {
        &self.files
    }

    /// For the next connection.
    pub fn acceptor(&self, application: Application) -> TlsAcceptor {
        TlsAcceptor::from(self.read.load().configs.get(application))
    }

    /// Returns a token that is cancelled when the set of accepted clients changes. Take it before
    /// the acceptor: a client that was accepted under an older token may not be accepted now.
    pub fn outdated(&self) -> CancellationToken {
        self.read.load().outdated.clone()
    }

    /// When what it has now expires.
    pub fn expiry(&self) -> Expiry {
        self.read.load().expiry
    }

    /// Reads the files again; whether they had changed.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate of before stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let _one_at_a_time = self.reloading.lock();
        let contents = Contents::read(&self.files)?;
        let before = self.read.load();
        let crl = self.files.client_crl.as_deref();
        if contents.digest() == before.digest {
            before.check_expiry(crl)?;
            return Ok(false);
        }
        let mut after = contents.take(&self.files)?;
        // That the list in use is overdue, which is told when nothing else has changed, keeps no
        // other file from being renewed.
        if after.list != before.list {
            after.check_expiry(crl)?;
        }
        let same = (after.list, after.client_ca) == (before.list, before.client_ca);
        if same {
            after.outdated = before.outdated.clone();
        }
        self.read.store(Arc::new(after));
        if !same {
            before.outdated.cancel();
        }
        Ok(true)
    }
}

/// Contents of a server's files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

impl Contents {
    fn read(files: &ServerFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.identity.certificate)?,
            key: read(&files.identity.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
            client_crl: files.client_crl.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        digest(
            [&self.certificate, &self.key]
                .into_iter()
                .chain(&self.client_ca)
                .chain(&self.client_crl),
        )
    }

    fn take(&self, files: &ServerFiles) -> Result<Read, TlsError> {
        let path = &files.identity.certificate;
        let chain = certificates(path, &self.certificate)?;
        let mut expiry = Expiry {
            certificate: expiry::of_chain(&chain),
            revocation_lists: None,
        };
        let key = private_key(&files.identity.key, &self.key)?;
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(path, error))?;
        let crl = file(&files.client_crl, &self.client_crl);
        let builder = match file(&files.client_ca, &self.client_ca) {
            Some(ca) => {
                let trust = Trust::read(ca, crl)?;
                expiry.revocation_lists = trust.expires;
                builder.with_client_cert_verifier(trust.in_clients(provider)?)
            }
            None if crl.is_some() => return Err(TlsError::NoAuthority),
            None => builder.with_no_client_auth(),
        };
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| unusable(path, error))?;
        let configs = Configs::of(config, |config, protocols| {
            config.alpn_protocols = protocols
        });
        let [list, client_ca] = [&self.client_crl, &self.client_ca]
            .map(|file| file.as_ref().map(|contents| digest([contents])));
        let outdated = CancellationToken::new();
        Ok(Read {
            digest: self.digest(),
            list,
            client_ca,
            outdated,
            expiry,
            configs,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::test_certificates::{authority, identity, revocation_list};

    use super::*;

    #[test]
    fn certificates_are_renewed_beside_a_list_that_is_overdue() {
        let folder = tempfile::tempdir().unwrap();
        let (issuer, ca) = authority(folder.path(), "ca");
        let own = identity(folder.path(), "server", &issuer);
        let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2002);
        let files = ServerFiles {
            identity: Identity {
                certificate: own.certificate,
                key: own.key,
            },
            client_ca: Some(ca),
            client_crl: Some(crl),
        };
        // As if it had been in time when it was read.
        let read = Contents::read(&files).unwrap().take(&files).unwrap();
        let tls = ServerTls {
            read: ArcSwap::from_pointee(read),
            reloading: Mutex::default(),
            files,
        };
        let before = tls.read.load().digest;
        assert!(matches!(tls.reload(), Err(TlsError::Expired { .. })));
        identity(folder.path(), "server", &issuer);
        assert!(
            tls.reload().unwrap() && tls.read.load().digest != before,
            "renewed"
        );
        assert!(
            matches!(tls.reload(), Err(TlsError::Expired { .. })),
            "told again"
        );
        revocation_list(folder.path(), "ca", &issuer, &[], 2003);
        assert!(
            matches!(tls.reload(), Err(TlsError::Expired { .. })),
            "another one that is overdue"
        );
        revocation_list(folder.path(), "ca", &issuer, &[], 2040);
        assert!(tls.reload().unwrap() && !tls.reload().unwrap());
    }
}
