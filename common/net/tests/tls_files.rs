//! Certificates in files: who is let in, and what a change of the files does.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use parapet_net::test_certificates::{
    Issuer, authority, identity, identity_until, replace_key, revocation_list,
};
use parapet_net::tls::{
    Application, ClientFiles, ClientSettings, ClientTls, Identity, ServerFiles, ServerTls,
    TlsError, server_name,
};

/// Returns true if both sides agree and a byte gets through.
async fn meet(server: &ServerTls, client: &ClientTls) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (near, far) = tokio::io::duplex(16 * 1024);
    let name = server_name("localhost").unwrap();
    let (accepted, connected) = tokio::join!(
        server.acceptor(Application::Http1).accept(near),
        client.connector(Application::Http1).connect(name, far)
    );
    let (Ok(mut accepted), Ok(mut connected)) = (accepted, connected) else {
        return false;
    };
    // Whether the server takes the client's certificate, a client hears only with the first read.
    accepted.write_u8(7).await.unwrap();
    accepted.flush().await.unwrap();
    connected.read_u8().await.is_ok()
}

#[tokio::test]
async fn a_server_lets_in_whom_its_authority_knows() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, our_ca) = authority(folder.path(), "ours");
    let (theirs, their_ca) = authority(folder.path(), "theirs");
    let server_identity = identity(folder.path(), "server", &ours);
    let server = |client_ca: Option<&PathBuf>| {
        let files = ServerFiles {
            identity: server_identity.clone(),
            client_ca: client_ca.cloned(),
            client_crl: None,
        };
        ServerTls::load(files).unwrap()
    };
    let client = |ca: &PathBuf, identity: Option<&Identity>| {
        ClientTls::load(ClientFiles {
            ca: ca.clone(),
            crl: None,
            identity: identity.cloned(),
        })
        .unwrap()
    };
    let (known, unknown) = (
        identity(folder.path(), "known", &ours),
        identity(folder.path(), "unknown", &theirs),
    );
    assert!(meet(&server(None), &client(&our_ca, None)).await);
    assert!(
        !meet(&server(None), &client(&their_ca, None)).await,
        "a server that the client does not know"
    );
    assert!(meet(&server(Some(&our_ca)), &client(&our_ca, Some(&known))).await);
    assert!(
        !meet(&server(Some(&our_ca)), &client(&our_ca, None)).await,
        "a client without a certificate"
    );
    assert!(
        !meet(&server(Some(&our_ca)), &client(&our_ca, Some(&unknown))).await,
        "one of another authority"
    );
}

#[tokio::test]
async fn files_that_change_are_taken_if_they_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (old, old_ca) = authority(folder.path(), "old");
    let (new, new_ca) = authority(folder.path(), "new");
    let files = identity(folder.path(), "server", &old);
    let server = ServerTls::load(ServerFiles {
        identity: files.clone(),
        client_ca: None,
        client_crl: None,
    })
    .unwrap();
    let client = |ca: PathBuf| {
        ClientTls::load(ClientFiles {
            ca,
            crl: None,
            identity: None,
        })
        .unwrap()
    };
    let (knows_old, knows_new) = (client(old_ca), client(new_ca));
    assert!(!server.reload().unwrap(), "nothing has changed");

    replace_key(&files);
    let error = server.reload().unwrap_err();
    assert!(
        matches!(error, TlsError::Unusable { .. }),
        "a key of another certificate: {error}"
    );
    fs::write(&files.certificate, "").unwrap();
    assert!(
        server
            .reload()
            .unwrap_err()
            .to_string()
            .ends_with("no certificate in PEM form")
    );
    assert!(
        meet(&server, &knows_old).await,
        "the certificate of before stays"
    );

    identity(folder.path(), "server", &new);
    assert!(server.reload().unwrap());
    assert!(meet(&server, &knows_new).await && !meet(&server, &knows_old).await);
}

#[tokio::test]
async fn a_clients_files_that_change_are_taken_if_they_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (old, old_ca) = authority(folder.path(), "old");
    let (new, new_ca) = authority(folder.path(), "new");
    let server = |name: &str, issuer: &Issuer, client_ca: &Path| {
        let files = ServerFiles {
            identity: identity(folder.path(), name, issuer),
            client_ca: Some(client_ca.to_owned()),
            client_crl: None,
        };
        ServerTls::load(files).unwrap()
    };
    let (of_old, of_new) = (server("one", &old, &new_ca), server("other", &new, &new_ca));
    let own = identity(folder.path(), "client", &old);
    let ca = folder.path().join("ca.pem");
    fs::copy(&old_ca, &ca).unwrap();
    let client = ClientTls::load(ClientFiles {
        ca: ca.clone(),
        crl: None,
        identity: Some(own.clone()),
    })
    .unwrap();
    let clone = client.clone();
    assert!(
        !client.reload().unwrap() && client.generation() == 0,
        "nothing has changed"
    );
    assert!(
        !meet(&of_old, &client).await,
        "the server does not know the client"
    );

    replace_key(&own);
    let error = client.reload().unwrap_err();
    assert!(
        matches!(error, TlsError::Unusable { .. }),
        "a key of another certificate: {error}"
    );
    assert_eq!(client.generation(), 0);
    identity(folder.path(), "client", &new);
    assert!(client.reload().unwrap() && !client.reload().unwrap());
    assert!(
        meet(&of_old, &client).await && !meet(&of_new, &client).await,
        "the client's own certificate"
    );

    fs::copy(&new_ca, &ca).unwrap();
    assert!(client.reload().unwrap());
    assert!(
        meet(&of_new, &clone).await && !meet(&of_old, &clone).await,
        "the authority, for clones too"
    );
    assert_eq!((client.generation(), clone.generation()), (2, 2));
}

/// A server whose clients have certificates of `ca`, and are looked up in `crl`.
fn server_with(identity: &Identity, ca: &Path, crl: &Path) -> Result<ServerTls, TlsError> {
    let (client_ca, client_crl) = (Some(ca.to_owned()), Some(crl.to_owned()));
    ServerTls::load(ServerFiles {
        identity: identity.clone(),
        client_ca,
        client_crl,
    })
}

#[tokio::test]
async fn a_client_that_is_revoked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, ca) = authority(folder.path(), "ca");
    let own = identity(folder.path(), "server", &issuer);
    let names = ["kept", "revoked"].map(|name| identity(folder.path(), name, &issuer));
    let client = |identity: &Identity| {
        ClientTls::load(ClientFiles {
            ca: ca.clone(),
            crl: None,
            identity: Some(identity.clone()),
        })
        .unwrap()
    };
    let [kept, revoked] = names.each_ref().map(client);
    let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2040);
    let server = server_with(&own, &ca, &crl).unwrap();
    assert!(meet(&server, &kept).await && meet(&server, &revoked).await);
    assert_eq!(server.expiry().revocation_lists, Some(YEAR_2040));

    revocation_list(folder.path(), "ca", &issuer, &[&names[1]], 2041);
    assert!(server.reload().unwrap() && !server.reload().unwrap());
    assert!(
        meet(&server, &kept).await && !meet(&server, &revoked).await,
        "taken back while it runs"
    );
    let anew = server_with(&own, &ca, &crl).unwrap();
    assert!(
        meet(&anew, &kept).await && !meet(&anew, &revoked).await,
        "taken back before it starts"
    );
    assert_eq!(anew.expiry().revocation_lists, Some(YEAR_2041));

    revocation_list(folder.path(), "ca", &issuer, &[], 2002);
    assert!(matches!(server.reload(), Err(TlsError::Expired { .. })));
    fs::write(&crl, "broken").unwrap();
    assert!(
        server
            .reload()
            .unwrap_err()
            .to_string()
            .ends_with("no revocation list in PEM form")
    );
    fs::remove_file(&crl).unwrap();
    assert!(matches!(server.reload(), Err(TlsError::Read { .. })));
    assert!(
        meet(&server, &kept).await && !meet(&server, &revoked).await,
        "the list of before stays"
    );
}

#[tokio::test]
async fn a_server_that_is_revoked_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, ca) = authority(folder.path(), "ca");
    let names = ["kept", "revoked"].map(|name| identity(folder.path(), name, &issuer));
    let server = |identity: &Identity| {
        let files = ServerFiles {
            identity: identity.clone(),
            client_ca: None,
            client_crl: None,
        };
        ServerTls::load(files).unwrap()
    };
    let [kept, revoked] = names.each_ref().map(server);
    let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2040);
    let client = ClientTls::load(ClientFiles {
        ca,
        crl: Some(crl.clone()),
        identity: None,
    })
    .unwrap();
    assert!(meet(&kept, &client).await && meet(&revoked, &client).await);
    assert_eq!(client.expiry().revocation_lists, Some(YEAR_2040));

    revocation_list(folder.path(), "ca", &issuer, &[&names[1]], 2040);
    assert!(client.reload().unwrap() && client.generation() == 1);
    assert!(meet(&kept, &client).await && !meet(&revoked, &client).await);

    revocation_list(folder.path(), "ca", &issuer, &[], 2002);
    assert!(matches!(client.reload(), Err(TlsError::Expired { .. })));
    fs::write(&crl, "broken").unwrap();
    assert!(client.reload().is_err() && client.generation() == 1);
    assert!(
        meet(&kept, &client).await && !meet(&revoked, &client).await,
        "the list of before stays"
    );
}

/// A list that would have every certificate refused is not taken.
#[tokio::test]
async fn revocation_lists_are_those_of_the_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (ours, our_ca) = authority(folder.path(), "ours");
    let (theirs, their_ca) = authority(folder.path(), "theirs");
    let (namesake, _) = authority(elsewhere.path(), "ours");
    let own = identity(folder.path(), "server", &ours);
    let both = folder.path().join("both.pem");
    fs::write(
        &both,
        [our_ca.clone(), their_ca]
            .map(|ca| fs::read_to_string(ca).unwrap())
            .concat(),
    )
    .unwrap();
    let crl = revocation_list(folder.path(), "one", &ours, &[], 2040);
    let refused = |ca: &Path, crl: &Path, said: &str| {
        let error = server_with(&own, ca, crl).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    assert!(server_with(&own, &our_ca, &crl).is_ok());
    refused(&both, &crl, "no revocation list of CN=theirs");
    let other = revocation_list(folder.path(), "other", &theirs, &[], 2040);
    refused(&our_ca, &other, "no revocation list of CN=ours");
    let lists = [&crl, &other]
        .map(|list| fs::read_to_string(list).unwrap())
        .concat();
    fs::write(&other, lists).unwrap();
    assert!(
        server_with(&own, &both, &other).is_ok(),
        "one after the other in a file"
    );
    let later = revocation_list(folder.path(), "later", &ours, &[], 2041);
    let lists = [&crl, &later]
        .map(|list| fs::read_to_string(list).unwrap())
        .concat();
    fs::write(&later, lists).unwrap();
    refused(&our_ca, &later, "two revocation lists of CN=ours");
    let forged = revocation_list(folder.path(), "forged", &namesake, &[], 2040);
    refused(&our_ca, &forged, "is not signed by it");
    refused(
        &our_ca,
        &revocation_list(folder.path(), "late", &ours, &[], 2002),
        "has been due since",
    );

    let files = ServerFiles {
        identity: own.clone(),
        client_ca: None,
        client_crl: Some(crl),
    };
    assert!(matches!(ServerTls::load(files), Err(TlsError::NoAuthority)));
}

/// 1 January 2040, and a year later.
const YEAR_2040: i64 = 2_208_988_800;
const YEAR_2041: i64 = YEAR_2040 + 366 * 24 * 3600;

#[test]
fn certificates_say_when_they_expire() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, ca) = authority(folder.path(), "ca");
    let own = identity_until(folder.path(), "own", &issuer, 2040);
    let server = ServerTls::load(ServerFiles {
        identity: own.clone(),
        client_ca: None,
        client_crl: None,
    })
    .unwrap();
    let client = |identity| {
        ClientTls::load(ClientFiles {
            ca: ca.clone(),
            crl: None,
            identity,
        })
        .unwrap()
    };
    let (known, unknown) = (client(Some(own.clone())), client(None));
    assert_eq!(server.expiry().certificate, Some(YEAR_2040));
    assert_eq!(
        (known.expiry().certificate, unknown.expiry().certificate),
        (Some(YEAR_2040), None)
    );

    identity_until(folder.path(), "own", &issuer, 2041);
    assert!(server.reload().unwrap() && known.reload().unwrap());
    assert_eq!(server.expiry().certificate, Some(YEAR_2041));
    assert_eq!(known.expiry().certificate, Some(YEAR_2041));

    // Of a chain, the first that expires.
    let chain = fs::read_to_string(&own.certificate).unwrap();
    let sooner = identity_until(folder.path(), "sooner", &issuer, 2040);
    fs::write(
        &own.certificate,
        chain + &fs::read_to_string(sooner.certificate).unwrap(),
    )
    .unwrap();
    assert!(server.reload().unwrap());
    assert_eq!(server.expiry().certificate, Some(YEAR_2040));
}

#[test]
fn a_clients_settings_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, _) = authority(folder.path(), "ca");
    identity(folder.path(), "client", &issuer);
    let settings = |certificate: Option<&str>, key: Option<&str>, server_name: Option<&str>| {
        let settings = ClientSettings {
            ca: "ca.pem".into(),
            crl: None,
            certificate: certificate.map(Into::into),
            key: key.map(Into::into),
            server_name: server_name.map(Into::into),
        };
        settings.load(folder.path())
    };
    let tls = settings(Some("client.crt"), Some("client.key"), None).unwrap();
    assert_eq!(tls.name_of("10.0.0.1"), server_name("10.0.0.1"));
    assert_eq!(tls.name_of("no name"), None);
    let named = settings(None, None, Some("replicas.example")).unwrap();
    assert_eq!(named.name_of("10.0.0.1"), server_name("replicas.example"));
    assert!(matches!(
        settings(Some("client.crt"), None, None),
        Err(TlsError::Half)
    ));
    assert!(matches!(
        settings(None, Some("client.key"), None),
        Err(TlsError::Half)
    ));
    assert!(matches!(
        settings(None, None, Some("a b")),
        Err(TlsError::Name(_))
    ));
    assert!(matches!(
        settings(Some("nowhere"), Some("client.key"), None),
        Err(TlsError::Read { .. })
    ));
}

#[test]
fn names_and_addresses_are_names_of_servers() {
    for host in ["localhost", "127.0.0.1", "[::1]", "a.example"] {
        assert!(server_name(host).is_some(), "{host}");
    }
    assert!(server_name("no name").is_none());
}
