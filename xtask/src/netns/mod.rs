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
    /// Serve on three hosts while one is cut off; needs Prometheus, too
    Serve(serve::Args),
}

pub(crate) fn run(netns: &Netns) -> Result<()> {
    require(&[("etcd", "etcd-server"), ("ip", "iproute2")])?;
    let (sh, probe) = (shell()?, "parapet-probe");
    ip(&sh, &format!("netns add {probe}"))
        .context("network namespaces cannot be made; run it as root")?;
    ip(&sh, &format!("netns delete {probe}"))?;
    match netns {
        Netns::Train(args) => train::run(args),
        Netns::Serve(args) => serve::run(args),
    }
}

struct Host {
    namespace: String,
    name: &'static str,
    address: String,
}

impl Host {
    fn run<'a>(&self, sh: &'a Shell, program: impl AsRef<Path>) -> Cmd<'a> {
        let (namespace, program) = (&self.namespace, program.as_ref());
        cmd!(sh, "ip netns exec {namespace} {program}")
    }

    /// The member of etcd on this host, one of those on all `hosts`.
    fn etcd<'a>(&self, sh: &'a Shell, hosts: &[Self], folder: &Path) -> Cmd<'a> {
        let peers: Vec<String> = hosts
            .iter()
            .map(|host| format!("{}=http://{}:2380", host.name, host.address))
            .collect();
        let (name, peers) = (self.name, peers.join(","));
        let (client, peer) = (self.member(), format!("http://{}:2380", self.address));
        let data = folder.join(format!("etcd-{name}"));
        let namespace = &self.namespace;
        cmd!(
            sh,
            "ip netns exec {namespace} etcd --name {name} --data-dir {data} --log-level error
                --listen-client-urls http://{client} --advertise-client-urls http://{client}
                --listen-peer-urls {peer} --initial-advertise-peer-urls {peer}
                --initial-cluster {peers}"
        )
    }

    fn member(&self) -> String {
        format!("{}:2379", self.address)
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
        let host = |(name, number)| Host {
            namespace: format!("parapet-{run}-{name}"),
            name,
            address: format!("10.77.0.{number}"),
        };
        let hosts = [("one", 1), ("two", 2), ("three", 3)].map(host);
        let hub = format!("parapet-{run}-hub");
        let network = Self { hub, hosts };
        let (sh, hub) = (&shell()?, &network.hub);
        // A run that was killed may have left them behind.
        network.remove()?;
        ip(sh, &format!("netns add {hub}"))?;
        ip(sh, &format!("-n {hub} link add bridge type bridge"))?;
        ip(sh, &format!("-n {hub} link set bridge up"))?;
        ip(
            sh,
            &format!("-n {hub} address add 10.77.0.254/24 dev bridge"),
        )?;
        for Host {
            namespace,
            name,
            address,
        } in &network.hosts
        {
            ip(sh, &format!("netns add {namespace}"))?;
            ip(sh, &format!("-n {namespace} link set lo up"))?;
            let pair = format!("netns {hub} type veth peer eth0 netns {namespace}");
            ip(sh, &format!("link add {name} {pair}"))?;
            ip(sh, &format!("-n {hub} link set {name} master bridge up"))?;
            ip(
                sh,
                &format!("-n {namespace} address add {address}/24 dev eth0"),
            )?;
            ip(sh, &format!("-n {namespace} link set eth0 up"))?;
        }
        Ok(network)
    }

    fn cut(&self, host: &Host) -> Result<()> {
        ip(
            &shell()?,
            &format!("-n {} link set {} down", self.hub, host.name),
        )
    }

    fn heal(&self, host: &Host) -> Result<()> {
        ip(
            &shell()?,
            &format!("-n {} link set {} up", self.hub, host.name),
        )
    }

    fn remove(&self) -> Result<()> {
        let sh = shell()?;
        for namespace in self
            .hosts
            .iter()
            .map(|host| &host.namespace)
            .chain([&self.hub])
        {
            // A process left in a deleted namespace keeps it alive without a name.
            let pids = cmd!(sh, "ip netns pids {namespace}")
                .quiet()
                .ignore_stderr()
                .read();
            for pid in pids.unwrap_or_default().split_whitespace() {
                let _ = cmd!(sh, "kill -9 {pid}").quiet().ignore_stderr().run();
            }
            let _ = cmd!(sh, "ip netns delete {namespace}")
                .quiet()
                .ignore_stderr()
                .run();
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn ip(sh: &Shell, line: &str) -> Result<()> {
    let words = line.split(' ');
    Ok(cmd!(sh, "ip {words...}").quiet().run()?)
}

/// Calls `act` on a thread in a namespace: it and all that it starts are there.
fn within<T: Send>(namespace: &str, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
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
