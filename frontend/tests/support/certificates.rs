//! Authorities, and certificates signed by them, in files.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_tls::Identity;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

pub type Issuer = CertifiedIssuer<'static, KeyPair>;

/// What certificates are for, unless it is said.
pub const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Its certificate is in `NAME.pem`.
pub fn authority(folder: &Path, name: &str) -> (Issuer, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let path = folder.join(format!("{name}.pem"));
    fs::write(&path, issuer.pem()).unwrap();
    (issuer, path)
}

/// In `NAME.crt` and `NAME.key`.
pub fn identity(folder: &Path, name: &str, issuer: &Issuer) -> Identity {
    write(folder, name, issuer, params(&NAMES))
}

/// For other names.
pub fn identity_for(folder: &Path, name: &str, issuer: &Issuer, names: &[&str]) -> Identity {
    write(folder, name, issuer, params(names))
}

/// One that has expired long ago.
pub fn expired_identity(folder: &Path, name: &str, issuer: &Issuer) -> Identity {
    let mut params = params(&NAMES);
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    write(folder, name, issuer, params)
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

fn write(folder: &Path, name: &str, issuer: &Issuer, params: CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let (path, key_path) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    fs::write(&path, certificate.pem()).unwrap();
    fs::write(&key_path, key.serialize_pem()).unwrap();
    Identity { certificate: path, key: key_path }
}
