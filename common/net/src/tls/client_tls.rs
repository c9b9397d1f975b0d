//! A client's side: whose certificates it trusts, and who it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio_rustls::TlsConnector;

use crate::tls::trust::Trust;
use crate::tls::{
    Application, Configs, Expiry, Identity, TlsError, certificates, digest, expiry, file,
    private_key, provider, read, server_name, trust, unusable,
};

/// The files of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities that sign the servers' certificates, PEM.
    pub ca: PathBuf,
    /// Revocation lists, PEM: one of each authority.
    pub crl: Option<PathBuf>,
    /// Certificate and key of the client, for servers that ask for one.
    pub identity: Option<Identity>,
}

/// A client's side as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// Authorities that sign the servers' certificates, PEM.
    pub ca: PathBuf,
    /// Revocation lists, PEM: one of each authority.
    pub crl: Option<PathBuf>,
    /// The client's certificate, for servers that want one, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
    /// The name that the servers' certificates must have; of each its host if `None`.
    pub server_name: Option<String>,
}

impl ClientSettings {
    /// Reads the files, whose relative paths count from `folder`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(&self, folder: &Path) -> Result<ClientTls, TlsError> {
        let path = |file: &PathBuf| folder.join(file);
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Identity {
                certificate: path(certificate),
                key: path(key),
            }),
            (None, None) => None,
            _ => return Err(TlsError::Half),
        };
        let name = |name: &String| server_name(name).ok_or_else(|| TlsError::Name(name.clone()));
        let name = self.server_name.as_ref().map(name).transpose()?;
        let tls = ClientTls::load(ClientFiles {
            ca: path(&self.ca),
            crl: self.crl.as_ref().map(path),
            identity,
        })?;
        Ok(ClientTls { name, ..tls })
    }
}

/// A client's side. Clones share what was read, and what is read again.
#[derive(Clone)]
pub struct ClientTls {
    files: Arc<Files>,
    name: Option<ServerName<'static>>,
}

struct Files {
    paths: ClientFiles,
    read: ArcSwap<Read>,
    reloading: Mutex<()>,
}

/// Contents of the files and the configuration made of them.
struct Read {
    digest: [u8; 32],
    /// Of the revocation lists alone.
    list: Option<[u8; 32]>,
    /// Number of times that other contents were read before.
    generation: u64,
    expiry: Expiry,
    configs: Configs<ClientConfig>,
}

impl Read {
    fn check_expiry(&self, list: Option<&Path>) -> Result<(), TlsError> {
        trust::check_expiry(list, self.expiry.revocation_lists, trust::now())
    }
}

/// Two that show themselves alike read the same files.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, name } = self;
        f.debug_struct("ClientTls")
            .field("files", &files.paths)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.files.paths == other.files.paths && self.name == other.name
    }
}

impl Eq for ClientTls {}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(paths: ClientFiles) -> Result<Self, TlsError> {
        let contents = Contents::read(&paths)?;
        let read = contents.take(&paths, 0)?;
        read.check_expiry(paths.crl.as_deref())?;
        let read = ArcSwap::from_pointee(read);
        Ok(Self {
            files: Arc::new(Files {
                paths,
                read,
                reloading: Mutex::default(),
            }),
            name: None,
        })
    }

    /// Returns the paths of its files.
    pub fn files(&self) -> &ClientFiles {
        &self.files.paths
    }

    /// The name that the certificate of a server at `host` must have; `None` if a host of this
    /// name cannot be.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| server_name(host))
    }

    /// For the next connection.
    pub fn connector(&self, application: Application) -> TlsConnector {
        TlsConnector::from(self.files.read.load().configs.get(application))
    }

    /// Grows with every change: connections of an earlier one were made with other certificates.
    pub fn generation(&self) -> u64 {
        self.files.read.load().generation
    }

    /// When what it has now expires.
    pub fn expiry(&self) -> Expiry {
        self.files.read.load().expiry
    }

    /// Reads the files again; whether they had changed.
    ///
    /// # Errors
    /// [`TlsError`]; what was read before stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let _one_at_a_time = self.files.reloading.lock();
        let contents = Contents::read(&self.files.paths)?;
        let before = self.files.read.load();
        let crl = self.files.paths.crl.as_deref();
        if contents.digest() == before.digest {
            before.check_expiry(crl)?;
            return Ok(false);
        }
        let after = contents.take(&self.files.paths, before.generation + 1)?;
        // That the list in use is overdue, which is told when nothing else has changed, keeps no
        // other file from being renewed.
        if after.list != before.list {
            after.check_expiry(crl)?;
        }
        self.files.read.store(Arc::new(after));
        Ok(true)
    }
}

/// Contents of a client's files.
struct Contents {
    ca: Vec<u8>,
    crl: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Contents {
    fn read(paths: &ClientFiles) -> Result<Self, TlsError> {
        let identity = paths.identity.as_ref();
        Ok(Self {
            ca: read(&paths.ca)?,
            crl: paths.crl.as_deref().map(read).transpose()?,
            certificate: identity
                .map(|identity| read(&identity.certificate))
                .transpose()?,
            key: identity.map(|identity| read(&identity.key)).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        digest(
            [&self.ca]
                .into_iter()
                .chain(&self.crl)
                .chain(&self.certificate)
                .chain(&self.key),
        )
    }

    fn take(&self, paths: &ClientFiles, generation: u64) -> Result<Read, TlsError> {
        let trust = Trust::read((&paths.ca, &self.ca), file(&paths.crl, &self.crl))?;
        let mut expiry = Expiry {
            certificate: None,
            revocation_lists: trust.expires,
        };
        let provider = provider();
        let verifier = trust.in_servers(Arc::clone(&provider))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&paths.ca, error))?
            .with_webpki_verifier(verifier);
        let config = match (&paths.identity, &self.certificate, &self.key) {
            (Some(paths), Some(certificate), Some(key)) => {
                let chain = certificates(&paths.certificate, certificate)?;
                expiry.certificate = expiry::of_chain(&chain);
                let key = private_key(&paths.key, key)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(&paths.certificate, error))?
            }
            _ => builder.with_no_client_auth(),
        };
        let configs = Configs::of(config, |config, protocols| {
            // A clone shares the sessions that can be resumed, which belong to one protocol.
            config.resumption = Resumption::default();
            config.alpn_protocols = protocols;
        });
        let list = self.crl.as_ref().map(|list| digest([list]));
        Ok(Read {
            digest: self.digest(),
            list,
            generation,
            expiry,
            configs,
        })
    }
}
