//! Hosts that are network namespaces, and the network between them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};

/// Address of processes at the bridge.
pub(crate) const HUB_ADDRESS: &str = "10.77.0.254";

#[derive(Debug)]
pub(crate) struct Host {
    namespace: String,
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
}

impl Host {
    pub(crate) fn run(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace])
            .arg(program);
        command
    }

    /// Makes this thread, and those that it starts, live on this host.
    pub(crate) fn enter(&self) -> Result<()> {
        enter(&self.namespace)
    }
}

/// Three hosts and the bridge between them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    /// The namespace of the bridge.
    hub: String,
    pub(crate) hosts: [Host; 3],
}

impl Network {
    /// `run` tells the namespaces of different runs apart.
    pub(crate) fn new(run: &str) -> Result<Self> {
        let hosts = [
            ("one", "10.77.0.1"),
            ("two", "10.77.0.2"),
            ("three", "10.77.0.3"),
        ];
        let host = |(name, address)| Host {
            namespace: format!("parapet-{run}-{name}"),
            name,
            address,
        };
        let network = Self {
            hub: format!("parapet-{run}-hub"),
            hosts: hosts.map(host),
        };
        let hub = network.hub.as_str();
        // A run that was killed may have left them behind.
        network.remove();
        ip(&["netns", "add", hub])?;
        ip(&["-n", hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", hub, "link", "set", "bridge", "up"])?;
        ip(&[
            "-n",
            hub,
            "address",
            "add",
            &format!("{HUB_ADDRESS}/24"),
            "dev",
            "bridge",
        ])?;
        for host in &network.hosts {
            let namespace = host.namespace.as_str();
            ip(&["netns", "add", namespace])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            let pair = [
                "link", "add", host.name, "netns", hub, "type", "veth", "peer", "eth0", "netns",
                namespace,
            ];
            ip(&pair)?;
            ip(&[
                "-n", hub, "link", "set", host.name, "master", "bridge", "up",
            ])?;
            ip(&[
                "-n",
                namespace,
                "address",
                "add",
                &format!("{}/24", host.address),
                "dev",
                "eth0",
            ])?;
            ip(&["-n", namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(network)
    }

    /// Cuts `host` off, without notice to any process.
    pub(crate) fn cut(&self, host: &Host) -> Result<()> {
        ip(&["-n", &self.hub, "link", "set", host.name, "down"])
    }

    /// Undoes [`Network::cut`].
    pub(crate) fn heal(&self, host: &Host) -> Result<()> {
        ip(&["-n", &self.hub, "link", "set", host.name, "up"])
    }

    /// Puts this thread, and those that it starts, at the bridge, as clients from outside.
    pub(crate) fn enter(&self) -> Result<()> {
        enter(&self.hub)
    }

    fn remove(&self) {
        for namespace in self
            .hosts
            .iter()
            .map(|host| &host.namespace)
            .chain([&self.hub])
        {
            // A process left in a deleted namespace keeps it alive without a name.
            let pids = Command::new("ip")
                .args(["netns", "pids", namespace])
                .stderr(Stdio::null())
                .output();
            let pids = pids
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default();
            if pids.split_whitespace().next().is_some() {
                let _ = Command::new("kill")
                    .arg("-9")
                    .args(pids.split_whitespace())
                    .status();
            }
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Fails with the reason where namespaces are not allowed or etcd is missing.
pub(crate) fn is_possible() -> Result<()> {
    let etcd = Command::new("etcd")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    ensure!(
        etcd.is_ok(),
        "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)"
    );
    let probe = "parapet-probe";
    ip(&["netns", "add", probe]).context("network namespaces cannot be made; run it as root")?;
    ip(&["netns", "delete", probe])
}

/// Processes started by this thread are in it, too. The process counts as where its
/// first thread is.
fn enter(namespace: &str) -> Result<()> {
    let path = Path::new("/run/netns").join(namespace);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter {namespace}"))
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output();
    let output = output.context("cannot start ip (Debian, Ubuntu: `apt install iproute2`)")?;
    if !output.status.success() {
        bail!(
            "`ip {}`: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
