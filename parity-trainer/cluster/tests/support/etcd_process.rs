//! An etcd as a process.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The command of an etcd that keeps its data in `folder` and answers at `port` of this machine.
pub fn etcd(folder: &Path, port: u16) -> Command {
    let url = format!("http://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    command
        .args(["--log-level", "error", "--listen-peer-urls", "http://127.0.0.1:0"])
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .arg("--data-dir")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A port of this machine that was free a moment ago.
pub fn free_port() -> io::Result<u16> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(free.local_addr()?.port())
}

/// Returns true if there is an etcd to start. Where `PARAPET_TEST_ETCD` is set, there has to be.
#[allow(dead_code, reason = "chaos asks for one by name")]
pub fn is_installed() -> bool {
    let version = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        let hint = "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)";
        assert!(std::env::var_os("PARAPET_TEST_ETCD").is_none(), "{hint}");
        eprintln!("skipped: {hint}");
    }
    version.is_ok()
}
