//! Certificates in files: who is let in, and what a change of the files does.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use parapet_net::test_certificates::{
    Identity, authority, identity, identity_until, replace_key, revocation_list,
};
use parapet_net::tls::{
    Application, ClientSettings, ClientTls, ServerFiles, ServerTls, TlsError, server_name,
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

/// A server of `identity` whose clients have certificates of `client_ca`, if there is one, and are
/// looked up in `client_crl`.
fn load_server(
    identity: &Identity,
    client_ca: Option<&Path>,
    client_crl: Option<&Path>,
) -> Result<ServerTls, TlsError> {
    ServerTls::load(ServerFiles {
        certificate: identity.certificate.clone(),
        key: identity.key.clone(),
        client_ca: client_ca.map(Into::into),
        client_crl: client_crl.map(Into::into),
    })
}

fn server(identity: &Identity, client_ca: Option<&Path>) -> ServerTls {
    load_server(identity, client_ca, None).unwrap()
}

/// A client that trusts `ca`, and looks servers up in `crl`.
fn client(ca: &Path, crl: Option<&Path>, identity: Option<&Identity>) -> ClientTls {
    let (certificate, key) = identity.cloned().map(|own| (own.certificate, own.key)).unzip();
    ClientTls::load(ClientSettings {
        ca: ca.into(),
        crl: crl.map(Into::into),
        certificate,
        key,
        server_name: None,
    })
    .unwrap()
}

#[tokio::test]
async fn a_server_lets_in_whom_its_authority_knows() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, our_ca) = authority(folder.path(), "ours");
    let (theirs, their_ca) = authority(folder.path(), "theirs");
    let own = identity(folder.path(), "server", &ours);
    let known = identity(folder.path(), "known", &ours);
    let unknown = identity(folder.path(), "unknown", &theirs);
    let asks = Some(&*our_ca);
    for (client_ca, ca, identity, meets, case) in [
        (None, &our_ca, None, true, "a known server"),
        (None, &their_ca, None, false, "an unknown server"),
        (asks, &our_ca, Some(&known), true, "a known client"),
        (asks, &our_ca, None, false, "a client without a certificate"),
        (asks, &our_ca, Some(&unknown), false, "another authority"),
    ] {
        let client = client(ca, None, identity);
        assert_eq!(meet(&server(&own, client_ca), &client).await, meets, "{case}");
    }
}

#[tokio::test]
async fn files_that_change_are_taken_if_they_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (old, old_ca) = authority(folder.path(), "old");
    let (new, new_ca) = authority(folder.path(), "new");
    let files = identity(folder.path(), "server", &old);
    let server = server(&files, None);
    let [knows_old, knows_new] = [old_ca, new_ca].map(|ca| client(&ca, None, None));
    assert!(!server.reload().unwrap(), "nothing has changed");

    replace_key(&files);
    let error = server.reload().unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }), "a key of another certificate: {error}");
    fs::write(&files.certificate, "").unwrap();
    assert_refused(server.reload(), "no certificate in PEM form");
    assert!(meet(&server, &knows_old).await, "the certificate of before stays");

    identity(folder.path(), "server", &new);
    assert!(server.reload().unwrap());
    assert!(meet(&server, &knows_new).await && !meet(&server, &knows_old).await);
}

#[tokio::test]
async fn a_clients_files_that_change_are_taken_if_they_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let (old, old_ca) = authority(folder.path(), "old");
    let (new, new_ca) = authority(folder.path(), "new");
    let [of_old, of_new] = [("one", &old), ("other", &new)].map(|(name, issuer)| {
        let own = identity(folder.path(), name, issuer);
        server(&own, Some(&new_ca))
    });
    let own = identity(folder.path(), "client", &old);
    let ca = folder.path().join("ca.pem");
    fs::copy(&old_ca, &ca).unwrap();
    let client = client(&ca, None, Some(&own));
    let clone = client.clone();
    assert!(!client.reload().unwrap() && client.generation() == 0, "nothing has changed");
    assert!(!meet(&of_old, &client).await, "the server does not know the client");

    replace_key(&own);
    let error = client.reload().unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }), "a key of another certificate: {error}");
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

fn assert_refused<T>(result: Result<T, TlsError>, said: &str) {
    let error = result.err().unwrap().to_string();
    assert!(error.contains(said), "{error}");
}

#[tokio::test]
async fn a_client_that_is_revoked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, ca) = authority(folder.path(), "ca");
    let own = identity(folder.path(), "server", &issuer);
    let names = ["kept", "revoked"].map(|name| identity(folder.path(), name, &issuer));
    let [kept, revoked] = names.each_ref().map(|own| client(&ca, None, Some(own)));
    let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2040);
    let load = || load_server(&own, Some(&ca), Some(&crl)).unwrap();
    let server = load();
    assert!(meet(&server, &kept).await && meet(&server, &revoked).await);
    assert_eq!(server.expiry().revocation_lists, Some(YEAR_2040));

    revocation_list(folder.path(), "ca", &issuer, &[&names[1]], 2041);
    assert!(server.reload().unwrap() && !server.reload().unwrap());
    assert!(
        meet(&server, &kept).await && !meet(&server, &revoked).await,
        "taken back while it runs"
    );
    let anew = load();
    assert!(
        meet(&anew, &kept).await && !meet(&anew, &revoked).await,
        "taken back before it starts"
    );
    assert_eq!(anew.expiry().revocation_lists, Some(YEAR_2041));

    revocation_list(folder.path(), "ca", &issuer, &[], 2002);
    assert!(matches!(server.reload(), Err(TlsError::Expired { .. })));
    fs::write(&crl, "broken").unwrap();
    assert_refused(server.reload(), "no revocation list in PEM form");
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
    let [kept, revoked] = names.each_ref().map(|own| server(own, None));
    let crl = revocation_list(folder.path(), "ca", &issuer, &[], 2040);
    let client = client(&ca, Some(&crl), None);
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
    let joined = |into: &Path, files: [&Path; 2]| {
        let contents = files.map(|file| fs::read_to_string(file).unwrap());
        fs::write(into, contents.concat()).unwrap();
    };
    let both = folder.path().join("both.pem");
    joined(&both, [&our_ca, &their_ca]);
    let crl = revocation_list(folder.path(), "one", &ours, &[], 2040);
    let load = |ca: &Path, crl: &Path| load_server(&own, Some(ca), Some(crl));
    let refused = |ca: &Path, crl: &Path, said: &str| assert_refused(load(ca, crl), said);
    assert!(load(&our_ca, &crl).is_ok());
    refused(&both, &crl, "no revocation list of CN=theirs");
    let other = revocation_list(folder.path(), "other", &theirs, &[], 2040);
    refused(&our_ca, &other, "no revocation list of CN=ours");
    joined(&other, [&crl, &other]);
    assert!(load(&both, &other).is_ok(), "one after the other in a file");
    let later = revocation_list(folder.path(), "later", &ours, &[], 2041);
    joined(&later, [&crl, &later]);
    refused(&our_ca, &later, "two revocation lists of CN=ours");
    let forged = revocation_list(folder.path(), "forged", &namesake, &[], 2040);
    refused(&our_ca, &forged, "is not signed by it");
    let late = revocation_list(folder.path(), "late", &ours, &[], 2002);
    refused(&our_ca, &late, "has been due since");
    let without_authority = load_server(&own, None, Some(&crl));
    assert!(matches!(without_authority, Err(TlsError::NoAuthority)));
}

/// 1 January 2040, and a year later.
const YEAR_2040: i64 = 2_208_988_800;
const YEAR_2041: i64 = YEAR_2040 + 366 * 24 * 3600;

#[test]
fn certificates_say_when_they_expire() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, ca) = authority(folder.path(), "ca");
    let own = identity_until(folder.path(), "own", &issuer, 2040);
    let server = server(&own, None);
    let (known, unknown) = (client(&ca, None, Some(&own)), client(&ca, None, None));
    assert_eq!(server.expiry().certificate, Some(YEAR_2040));
    assert_eq!((known.expiry().certificate, unknown.expiry().certificate), (Some(YEAR_2040), None));

    identity_until(folder.path(), "own", &issuer, 2041);
    assert!(server.reload().unwrap() && known.reload().unwrap());
    assert_eq!(server.expiry().certificate, Some(YEAR_2041));
    assert_eq!(known.expiry().certificate, Some(YEAR_2041));

    // Of a chain, the first that expires.
    let chain = fs::read_to_string(&own.certificate).unwrap();
    let sooner = identity_until(folder.path(), "sooner", &issuer, 2040);
    let chain = chain + &fs::read_to_string(sooner.certificate).unwrap();
    fs::write(&own.certificate, chain).unwrap();
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
    let error = |certificate, key, name| settings(certificate, key, name).unwrap_err();
    let (certificate, key) = (Some("client.crt"), Some("client.key"));
    assert!(matches!(error(certificate, None, None), TlsError::Half));
    assert!(matches!(error(None, key, None), TlsError::Half));
    assert!(matches!(error(None, None, Some("a b")), TlsError::Name(_)));
    let unread = error(Some("nowhere"), key, None);
    assert!(matches!(unread, TlsError::Read { .. }));
}

#[test]
fn names_and_addresses_are_names_of_servers() {
    for host in ["localhost", "127.0.0.1", "[::1]", "a.example"] {
        assert!(server_name(host).is_some(), "{host}");
    }
    assert!(server_name("no name").is_none());
}
