//! A server's side: who it is, and whose clients it lets in.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use crate::tls::credentials::{Contents, Credentials, Side};
use crate::tls::trust::Trust;
use crate::tls::{Application, Expiry, Identity, TlsError, provider};

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
pub type ServerTls = Credentials<ServerFiles>;

impl ServerTls {
    /// For the next connection.
    pub fn acceptor(&self, application: Application) -> TlsAcceptor {
        TlsAcceptor::from(self.config(application))
    }
}

impl Side for ServerFiles {
    type Config = ServerConfig;

    fn paths(&self) -> (Option<&Identity>, Option<&PathBuf>, Option<&PathBuf>) {
        let (ca, crl) = (self.client_ca.as_ref(), self.client_crl.as_ref());
        (Some(&self.identity), ca, crl)
    }

    fn configure(&self, contents: Contents<'_>) -> Result<(ServerConfig, Expiry), TlsError> {
        let chain = contents.chain()?.ok_or(TlsError::Half)?;
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| chain.file.unusable(error))?;
        let mut expiry = Expiry {
            certificate: chain.expires,
            revocation_lists: None,
        };
        let builder = match (&contents.ca, &contents.crl) {
            (Some(ca), crl) => {
                let trust = Trust::of(ca, crl.as_ref())?;
                expiry.revocation_lists = trust.expires;
                builder.with_client_cert_verifier(trust.in_clients(provider)?)
            }
            (None, Some(_)) => return Err(TlsError::NoAuthority),
            (None, None) => builder.with_no_client_auth(),
        };
        let config = builder
            .with_single_cert(chain.certificates, chain.key)
            .map_err(|error| chain.file.unusable(error))?;
        Ok((config, expiry))
    }

    fn speak(config: &mut ServerConfig, application: Application) {
        config.alpn_protocols = application.protocols();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::test_certificates::{authority, identity, revocation_list};

    #[test]
    fn certificates_are_renewed_beside_a_list_that_is_overdue() {
        let folder = tempfile::tempdir().unwrap();
        let (issuer, ca) = authority(folder.path(), "ca");
        let own = identity(folder.path(), "server", &issuer);
        let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2002);
        let files = ServerFiles {
            identity: own,
            client_ca: Some(ca),
            client_crl: Some(crl),
        };
        // As if it had been in time when it was read.
        let tls = ServerTls::read(files).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Expired { .. })));
        identity(folder.path(), "server", &issuer);
        assert!(tls.reload().unwrap() && tls.generation() == 1, "renewed");
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
