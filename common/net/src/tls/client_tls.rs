//! A client's side: whose certificates it trusts, and who it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio_rustls::TlsConnector;

use crate::tls::credentials::{Contents, Credentials, Side};
use crate::tls::trust::Trust;
use crate::tls::{Application, Expiry, Identity, TlsError, provider, server_name};

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
#[derive(Debug, Clone)]
pub struct ClientTls {
    credentials: Arc<Credentials<ClientFiles>>,
    name: Option<ServerName<'static>>,
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.files() == other.files() && self.name == other.name
    }
}

impl Eq for ClientTls {}

impl std::ops::Deref for ClientTls {
    type Target = Credentials<ClientFiles>;

    fn deref(&self) -> &Credentials<ClientFiles> {
        &self.credentials
    }
}

impl ClientTls {
    /// Reads the files.
    pub fn load(files: ClientFiles) -> Result<Self, TlsError> {
        let credentials = Arc::new(Credentials::load(files)?);
        let name = None;
        Ok(Self { credentials, name })
    }

    /// The name that the certificate of a server at `host` must have; `None` if a host of this
    /// name cannot be.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| server_name(host))
    }

    /// For the next connection.
    pub fn connector(&self, application: Application) -> TlsConnector {
        TlsConnector::from(self.config(application))
    }
}

impl Side for ClientFiles {
    type Config = ClientConfig;

    fn paths(&self) -> (Option<&Identity>, Option<&PathBuf>, Option<&PathBuf>) {
        (self.identity.as_ref(), Some(&self.ca), self.crl.as_ref())
    }

    fn configure(&self, contents: Contents<'_>) -> Result<(ClientConfig, Expiry), TlsError> {
        let ca = contents.ca.as_ref().ok_or(TlsError::NoAuthority)?;
        let trust = Trust::of(ca, contents.crl.as_ref())?;
        let mut expiry = Expiry {
            certificate: None,
            revocation_lists: trust.expires,
        };
        let provider = provider();
        let verifier = trust.in_servers(Arc::clone(&provider))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ca.unusable(error))?
            .with_webpki_verifier(verifier);
        let config = match contents.chain()? {
            Some(chain) => {
                expiry.certificate = chain.expires;
                builder
                    .with_client_auth_cert(chain.certificates, chain.key)
                    .map_err(|error| chain.file.unusable(error))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok((config, expiry))
    }

    fn speak(config: &mut ClientConfig, application: Application) {
        // A clone shares the sessions that can be resumed, which belong to one protocol.
        config.resumption = Resumption::default();
        config.alpn_protocols = application.protocols();
    }
}
