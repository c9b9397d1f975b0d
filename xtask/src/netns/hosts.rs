//! Hosts that are network namespaces, and the network between them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// What all names begin with.
const PREFIX: &str = "parapet-";

/// The namespace of the bridge.
const HUB: &str = "parapet-hub";

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: &'static str,
    pub(super) address: &'static str,
}

impl Host {
    fn namespace(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// `program` on this host.
    pub(super) fn run(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace()]).arg(program);
        command
    }
}

/// Three hosts and the bridge between them, until it is dropped.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) hosts: [Host; 3],
}

impl Network {
    pub(super) fn new() -> Result<Self> {
        let hosts = [("one", "10.77.0.1"), ("two", "10.77.0.2"), ("three", "10.77.0.3")];
        let network = Self { hosts: hosts.map(|(name, address)| Host { name, address }) };
        // A run that was killed may have left them behind.
        network.remove();
        ip(&["netns", "add", HUB])?;
        ip(&["-n", HUB, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", HUB, "link", "set", "bridge", "up"])?;
        for host in &network.hosts {
            let namespace = host.namespace();
            ip(&["netns", "add", &namespace])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            let pair =
                ["link", "add", host.name, "netns", HUB, "type", "veth", "peer", "eth0", "netns", &namespace];
            ip(&pair)?;
            ip(&["-n", HUB, "link", "set", host.name, "master", "bridge", "up"])?;
            ip(&["-n", &namespace, "address", "add", &format!("{}/24", host.address), "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(network)
    }

    /// Nothing goes to or from `host` any longer, and nobody is told.
    pub(super) fn cut(&self, host: &Host) -> Result<()> {
        ip(&["-n", HUB, "link", "set", host.name, "down"])
    }

    /// Undoes [`Network::cut`].
    pub(super) fn heal(&self, host: &Host) -> Result<()> {
        ip(&["-n", HUB, "link", "set", host.name, "up"])
    }

    fn remove(&self) {
        for namespace in self.hosts.iter().map(Host::namespace).chain([HUB.to_owned()]) {
            // What still runs there would keep the namespace alive without a name.
            let pids = Command::new("ip").args(["netns", "pids", &namespace]).stderr(Stdio::null()).output();
            let pids =
                pids.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            if pids.split_whitespace().next().is_some() {
                let _ = Command::new("kill").arg("-9").args(pids.split_whitespace()).status();
            }
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether this machine lets us make namespaces, and has what runs in them.
///
/// # Errors
/// If not, with the reason.
pub(super) fn is_possible() -> Result<()> {
    let etcd = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    ensure!(etcd.is_ok(), "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)");
    let probe = "parapet-probe";
    ip(&["netns", "add", probe]).context("network namespaces cannot be made; run it as root")?;
    ip(&["netns", "delete", probe])
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output();
    let output = output.context("cannot start ip (Debian, Ubuntu: `apt install iproute2`)")?;
    if !output.status.success() {
        bail!("`ip {}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
