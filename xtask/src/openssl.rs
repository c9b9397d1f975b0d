//! Certificates for checks, made by openssl.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Configuration for openssl that makes revocation lists as Parapet reads them: with their number,
/// and the signer's key.
const AUTHORITY: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncrlnumber = \
    crlnumber\ndefault_md = sha256\n\
    crl_extensions = list\n[list]\nauthorityKeyIdentifier = keyid\n";

/// A certificate that is its own authority, in `NAME.crt` and `NAME.key`.
pub(crate) fn self_signed(folder: &Path, name: &str) -> Result<()> {
    let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key");
    openssl(
        folder,
        &format!("req -x509 -days 30 -subj /CN={name} {key} -out {name}.crt"),
    )
}

/// A revocation list of that authority, in `NAME.crl`: nothing is revoked.
pub(crate) fn revocation_list(folder: &Path, name: &str) -> Result<()> {
    for (file, text) in [
        ("index.txt", ""),
        ("crlnumber", "01\n"),
        ("ca.cnf", AUTHORITY),
    ] {
        fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    let authority = format!("-config ca.cnf -keyfile {name}.key -cert {name}.crt");
    openssl(
        folder,
        &format!("ca -gencrl -crldays 30 {authority} -out {name}.crl"),
    )
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let made = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .output();
    let made = made.context("openssl is missing (Debian, Ubuntu: `apt install openssl`)")?;
    ensure!(
        made.status.success(),
        "openssl: {}",
        String::from_utf8_lossy(&made.stderr).trim()
    );
    Ok(())
}
