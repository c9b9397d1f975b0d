//! The two sides. A client's: whose certificates it trusts, and who it is. A server's: who it is,
//! and whose clients it lets in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tls::credentials::{Contents, Credentials, Side};
use crate::tls::trust::Trust;
use crate::tls::{Application, Expiry, TlsError, provider, server_name};

/// A client's side as it is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        ClientTls::load(Self {
            ca: path(&self.ca),
            crl: self.crl.as_ref().map(path),
            certificate: self.certificate.as_ref().map(path),
            key: self.key.as_ref().map(path),
            server_name: self.server_name.clone(),
        })
    }
}

/// A client's side. Clones share what was read, and what is read again.
#[derive(Debug, Clone)]
pub struct ClientTls {
    credentials: Arc<Credentials<ClientSettings>>,
    name: Option<ServerName<'static>>,
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.files() == other.files()
    }
}

impl Eq for ClientTls {}

impl std::ops::Deref for ClientTls {
    type Target = Credentials<ClientSettings>;

    fn deref(&self) -> &Credentials<ClientSettings> {
        &self.credentials
    }
}

impl ClientTls {
    /// Reads the files.
    pub fn load(files: ClientSettings) -> Result<Self, TlsError> {
        if files.certificate.is_some() != files.key.is_some() {
            return Err(TlsError::Half);
        }
        let name = |name: &String| server_name(name).ok_or_else(|| TlsError::Name(name.clone()));
        let name = files.server_name.as_ref().map(name).transpose()?;
        Ok(Self { credentials: Arc::new(Credentials::load(files)?), name })
    }

    /// The name that a certificate of a server at `host` must have; `None` if it is no host.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.name.clone().or_else(|| server_name(host))
    }

    /// For the next connection.
    pub fn connector(&self, application: Application) -> TlsConnector {
        TlsConnector::from(self.config(application))
    }
}

impl Side for ClientSettings {
    type Config = ClientConfig;

    fn paths(&self) -> [Option<&PathBuf>; 4] {
        [self.certificate.as_ref(), self.key.as_ref(), Some(&self.ca), self.crl.as_ref()]
    }

    fn configure(&self, contents: Contents<'_>) -> Result<(ClientConfig, Expiry), TlsError> {
        let ca = contents.ca.as_ref().ok_or(TlsError::NoAuthority)?;
        let trust = Trust::of(ca, contents.crl.as_ref())?;
        let mut expiry = Expiry { certificate: None, revocation_lists: trust.expires };
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

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFiles {
    /// Certificate chain, the own certificate first, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities that sign the clients' certificates, PEM; clients need none without it.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists, PEM: one of each authority.
    pub client_crl: Option<PathBuf>,
}

impl ServerFiles {
    /// Reads the files, whose relative paths count from `folder`.
    pub fn load(&self, folder: &Path) -> Result<ServerTls, TlsError> {
        let path = |file: &PathBuf| folder.join(file);
        ServerTls::load(Self {
            certificate: path(&self.certificate),
            key: path(&self.key),
            client_ca: self.client_ca.as_ref().map(path),
            client_crl: self.client_crl.as_ref().map(path),
        })
    }
}

/// TLS settings of a server.
pub type ServerTls = Credentials<ServerFiles>;

impl ServerTls {
    /// For the next connection.
    pub fn acceptor(&self, application: Application) -> TlsAcceptor {
        TlsAcceptor::from(self.config(application))
    }
}

impl Side for ServerFiles {
    type Config = ServerConfig;

    fn paths(&self) -> [Option<&PathBuf>; 4] {
        let Self { certificate, key, client_ca, client_crl } = self;
        [Some(certificate), Some(key), client_ca.as_ref(), client_crl.as_ref()]
    }

    fn configure(&self, contents: Contents<'_>) -> Result<(ServerConfig, Expiry), TlsError> {
        let chain = contents.chain()?.ok_or(TlsError::Half)?;
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| chain.file.unusable(error))?;
        let mut expiry = Expiry { certificate: chain.expires, revocation_lists: None };
        let builder = match (&contents.ca, &contents.crl) {
            (Some(ca), crl) => {
                let trust = Trust::of(ca, crl.as_ref())?;
                expiry.revocation_lists = trust.expires;
                builder.with_client_cert_verifier(trust.in_clients(provider)?)
            }
            (None, Some(_)) => return Err(TlsError::NoAuthority),
            (None, None) => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain.certificates, chain.key);
        Ok((config.map_err(|error| chain.file.unusable(error))?, expiry))
    }

    fn speak(config: &mut ServerConfig, application: Application) {
        config.alpn_protocols = application.protocols();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    use crate::test_certificates::{Identity, authority, identity, revocation_list};

    #[test]
    fn certificates_are_renewed_beside_a_list_that_is_overdue() {
        let folder = tempfile::tempdir().unwrap();
        let (issuer, ca) = authority(folder.path(), "ca");
        let own = identity(folder.path(), "server", &issuer);
        let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2002);
        let Identity { certificate, key } = own;
        let files = ServerFiles { certificate, key, client_ca: Some(ca), client_crl: Some(crl) };
        // As if it had been in time when it was read.
        let tls = ServerTls::read(files).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Expired { .. })));
        identity(folder.path(), "server", &issuer);
        assert!(tls.reload().unwrap() && tls.generation() == 1, "renewed");
        assert!(matches!(tls.reload(), Err(TlsError::Expired { .. })), "told again");
        revocation_list(folder.path(), "ca", &issuer, &[], 2003);
        assert!(
            matches!(tls.reload(), Err(TlsError::Expired { .. })),
            "another one that is overdue"
        );
        revocation_list(folder.path(), "ca", &issuer, &[], 2040);
        assert!(tls.reload().unwrap() && !tls.reload().unwrap());
    }
}
