//! Certificates for checks, made by openssl.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A certificate that is its own authority, in `NAME.crt` and `NAME.key`.
///
/// # Errors
/// If openssl is missing, or does not succeed.
pub(crate) fn self_signed(folder: &Path, name: &str) -> Result<()> {
    let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key");
    openssl(folder, &format!("req -x509 -days 30 -subj /CN={name} {key} -out {name}.crt"))
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let made = made.context("openssl is missing (Debian, Ubuntu: `apt install openssl`)")?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr).trim());
    Ok(())
}
