//! Authorities, and certificates signed by them, in files: for tests alone.

#![allow(clippy::unwrap_used, reason = "for tests alone")]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use x509_parser::pem::parse_x509_pem;

/// A certificate authority that signs.
pub type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Certificate chain, the own certificate first, and its key, PEM.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Default names of a certificate.
pub const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority of this name, with its certificate in `NAME.pem`.
///
/// # Panics
/// If the file cannot be written, as everything here.
pub fn authority(folder: &Path, name: &str) -> (Issuer, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let path = folder.join(format!("{name}.pem"));
    fs::write(&path, issuer.pem()).unwrap();
    (issuer, path)
}

/// In `NAME.crt` and `NAME.key`, for [`NAMES`].
pub fn identity(folder: &Path, name: &str, issuer: &Issuer) -> Identity {
    write(folder, name, issuer, params(&NAMES))
}

/// For other names.
pub fn identity_for(folder: &Path, name: &str, issuer: &Issuer, names: &[&str]) -> Identity {
    write(folder, name, issuer, params(names))
}

/// One that expires when this year begins.
pub fn identity_until(folder: &Path, name: &str, issuer: &Issuer, year: i32) -> Identity {
    let mut params = params(&NAMES);
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    write(folder, name, issuer, params)
}

/// One that has expired long ago.
pub fn expired_identity(folder: &Path, name: &str, issuer: &Issuer) -> Identity {
    identity_until(folder, name, issuer, 2002)
}

/// A new key over the one in this file, so that it is no longer that of its certificate.
pub fn replace_key(identity: &Identity) {
    fs::write(&identity.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
}

/// A revocation list in `NAME.crl` that takes these back; good until this year begins.
pub fn revocation_list(
    folder: &Path,
    name: &str,
    issuer: &Issuer,
    revoked: &[&Identity],
    year: i32,
) -> PathBuf {
    let revoked = revoked.iter().map(|identity| RevokedCertParams {
        serial_number: serial_number(identity),
        revocation_time: date_time_ymd(2001, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2001, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let path = folder.join(format!("{name}.crl"));
    fs::write(&path, list.signed_by(issuer).unwrap().pem().unwrap()).unwrap();
    path
}

fn serial_number(identity: &Identity) -> SerialNumber {
    let (_, pem) = parse_x509_pem(&fs::read(&identity.certificate).unwrap()).unwrap();
    SerialNumber::from_slice(pem.parse_x509().unwrap().raw_serial())
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

fn write(folder: &Path, name: &str, issuer: &Issuer, params: CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    let identity = Identity { certificate: file("crt"), key: file("key") };
    fs::write(&identity.certificate, certificate.pem()).unwrap();
    fs::write(&identity.key, key.serialize_pem()).unwrap();
    identity
}
