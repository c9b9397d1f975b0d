//! A server's side: who it is, and whose clients it lets in.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::{
    Application, Configs, Expiry, Identity, TlsError, certificates, digest, expiry, private_key, provider,
    read, roots, unusable,
};

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Who it is.
    pub identity: Identity,
    /// Who signs its clients' certificates, PEM; clients need none without it.
    pub client_ca: Option<PathBuf>,
}

/// A server's side.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    read: ArcSwap<Read>,
    reloading: Mutex<()>,
}

/// What was in the files.
#[derive(Debug)]
struct Read {
    digest: [u8; 32],
    expiry: Expiry,
    configs: Configs<ServerConfig>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let read = Contents::read(&files)?.take(&files)?;
        Ok(Self { files, read: ArcSwap::from_pointee(read), reloading: Mutex::default() })
    }

    /// Its files.
    pub fn files(&self) -> &ServerFiles {
        &self.files
    }

    /// For the next connection.
    pub fn acceptor(&self, application: Application) -> TlsAcceptor {
        TlsAcceptor::from(self.read.load().configs.get(application))
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
        if contents.digest() == self.read.load().digest {
            return Ok(false);
        }
        self.read.store(Arc::new(contents.take(&self.files)?));
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
        digest([&self.certificate, &self.key].into_iter().chain(&self.client_ca))
    }

    fn take(&self, files: &ServerFiles) -> Result<Read, TlsError> {
        let path = &files.identity.certificate;
        let chain = certificates(path, &self.certificate)?;
        let expiry = Expiry { certificate: expiry::of_chain(&chain) };
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
        let configs = Configs::of(config, |config, protocols| config.alpn_protocols = protocols);
        Ok(Read { digest: self.digest(), expiry, configs })
    }
}
