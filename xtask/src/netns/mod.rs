//! `cargo xtask netns`: hosts that are network namespaces, joined by a bridge in one more; nothing
//! of the machine's own network is touched. One of them is cut off meanwhile.

mod serve;
mod train;

use crate::prelude::*;
use clap::Subcommand;
use nix::sched::{CloneFlags, setns};
use std::fs::File;

#[derive(Debug, Subcommand)]
pub(crate) enum Netns {
    /// Train on three hosts while the leader's is cut off
    Train(train::Args),
    /// Serve on three hosts while one is cut off
    Serve(serve::Args),
}

pub(crate) fn run(netns: &Netns) -> Result<()> {
    require(&[("etcd", "etcd-server"), ("ip", "iproute2")])?;
    let probe = "parapet-probe";
    ip(&format!("netns add {probe}"))
        .context("network namespaces cannot be made; run it as root")?;
    ip(&format!("netns delete {probe}"))?;
    match netns {
        Netns::Train(args) => train::run(args),
        Netns::Serve(args) => serve::run(args),
    }
}

struct Host {
    place: Place,
    namespace: String,
    name: &'static str,
    address: String,
}

impl Host {
    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.address)
    }

    fn member(&self) -> String {
        self.at(2379)
    }
}

/// Three hosts and the bridge between them, until it is dropped.
struct Network {
    hub: String,
    hosts: [Host; 3],
}

impl Network {
    /// `run` tells the namespaces of different runs apart.
    fn new(run: &str) -> Result<Self> {
        let host = |(name, number)| {
            let namespace = format!("parapet-{run}-{name}");
            Host {
                place: Place::Namespace(namespace.clone()),
                namespace,
                name,
                address: format!("10.77.0.{number}"),
            }
        };
        let hub = format!("parapet-{run}-hub");
        let network = Self { hub, hosts: [("one", 1), ("two", 2), ("three", 3)].map(host) };
        let hub = &network.hub;
        // A run that was killed may have left them behind.
        network.remove()?;
        let mut lines = format!(
            "netns add {hub}\n-n {hub} link add bridge type bridge\n\
             -n {hub} link set bridge up\n-n {hub} address add 10.77.0.254/24 dev bridge\n"
        );
        for host in &network.hosts {
            let (space, name, address) = (&host.namespace, host.name, &host.address);
            lines += &format!(
                "netns add {space}\n-n {space} link set lo up\n\
                 link add {name} netns {hub} type veth peer eth0 netns {space}\n\
                 -n {hub} link set {name} master bridge up\n\
                 -n {space} address add {address}/24 dev eth0\n-n {space} link set eth0 up\n"
            );
        }
        lines.lines().try_for_each(ip)?;
        Ok(network)
    }

    /// Starts a member of etcd on each host, whose data are in `folder`.
    fn start_etcd(&self, processes: &mut Processes, folder: &Path) -> Result<()> {
        let url = |host: &Host| format!("http://{}:2380", host.address);
        let peer = |host: &Host| format!("{}={}", host.name, url(host));
        let (sh, peers) = (shell()?, self.hosts.each_ref().map(peer).join(","));
        for host in &self.hosts {
            let (client, peer) = (format!("http://{}", host.member()), url(host));
            let name = format!("etcd-{}", host.name);
            let etcd = host.place.command(&sh, "etcd").args(["--name", host.name]);
            let etcd = etcd.arg("--data-dir").arg(folder.join(&name));
            let etcd = etcd.args(["--log-level", "error", "--initial-cluster", &peers]);
            let etcd = etcd.args(["--listen-client-urls", &client, "--listen-peer-urls", &peer]);
            let etcd = etcd.args(["--advertise-client-urls", &client]);
            processes.start(&name, etcd.args(["--initial-advertise-peer-urls", &peer]))?;
        }
        Ok(())
    }

    /// Cuts `host` off (`down`), without notice to any process, or undoes that (`up`).
    fn set(&self, host: &Host, state: &str) -> Result<()> {
        ip(&format!("-n {} link set {} {state}", self.hub, host.name))
    }

    fn remove(&self) -> Result<()> {
        let sh = shell()?;
        for namespace in self.hosts.iter().map(|host| &host.namespace).chain([&self.hub]) {
            // A process left in a deleted namespace keeps it alive without a name.
            let pids = cmd!(sh, "ip netns pids {namespace}").quiet().ignore_stderr().read();
            for pid in pids.unwrap_or_default().split_whitespace() {
                let _ = cmd!(sh, "kill -9 {pid}").quiet().ignore_stderr().run();
            }
            let _ = cmd!(sh, "ip netns delete {namespace}").quiet().ignore_stderr().run();
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

pub(crate) fn ip(line: &str) -> Result<()> {
    let (sh, words) = (shell()?, line.split(' '));
    Ok(cmd!(sh, "ip {words...}").quiet().run()?)
}

/// Calls `act` on a thread in a namespace: it and all that it starts are there.
pub(crate) fn within<T: Send>(
    namespace: &str,
    act: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let path = Path::new("/run/netns").join(namespace);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(file, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("cannot enter {namespace}"))?;
            act()
        });
        thread.join().map_err(|_| anyhow!("a thread ended"))?
    })
}
