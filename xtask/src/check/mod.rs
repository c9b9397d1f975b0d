//! `cargo xtask check`: documents, deployment files and pages against running programs.

pub(crate) mod dashboards;
mod deploy;
mod docs;
mod live_page;

use crate::prelude::*;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Check {
    /// Queries of the dashboard and the rules, by a real Prometheus that scrapes a real cluster
    Dashboards,
    /// Contents of deploy/: units, compose file, chart, configurations
    Deploy(deploy::Args),
    /// The live page in headless Chromium while instances freeze, and its switches
    LivePage,
    /// Commands of the documentation, against a small cluster
    Docs,
}

pub(crate) fn run(check: &Check) -> Result<()> {
    match check {
        Check::Dashboards => dashboards::run(),
        Check::Deploy(args) => deploy::run(args),
        Check::LivePage => live_page::run(),
        Check::Docs => docs::run(),
    }
}

/// Makes a certificate that is its own authority, `NAME.crt` and `NAME.key`, and its revocation
/// list, `NAME.crl`, in which nothing is revoked.
fn write_certificate(sh: &Shell, folder: &Path, name: &str) -> Result<()> {
    require(&[("openssl", "openssl")])?;
    sh.create_dir(folder)?;
    let _back = sh.push_dir(folder);
    sh.write_file("index.txt", "")?;
    sh.write_file("crlnumber", "01\n")?;
    // Parapet reads lists that have their number and the signer's key.
    sh.write_file(
        "ca.cnf",
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncrlnumber = crlnumber\n\
         default_md = sha256\ncrl_extensions = list\n[list]\nauthorityKeyIdentifier = keyid\n",
    )?;
    output(cmd!(
        sh,
        "openssl req -x509 -days 30 -subj /CN={name} -newkey ec -pkeyopt ec_paramgen_curve:P-256
            -nodes -keyout {name}.key -out {name}.crt"
    ))?;
    output(cmd!(
        sh,
        "openssl ca -gencrl -crldays 30 -config ca.cnf -keyfile {name}.key -cert {name}.crt
            -out {name}.crl"
    ))?;
    Ok(())
}
