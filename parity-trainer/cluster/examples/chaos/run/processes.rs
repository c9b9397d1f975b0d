//! The cluster's processes. They end with this.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_cluster::registry::Address;
use parapet_parameter_server::NodeId;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::etcd_process::{etcd, free_port};
use super::{LIMIT, RegistryChoice};

const LEADING: [&str; 6] = ["--replicas", "2", "--min-servers", "2", "--rebalance", "2"];

pub(super) struct Processes {
    program: PathBuf,
    servers: BTreeMap<NodeId, Child>,
    registry: Option<Child>,
    _folder: Option<TempDir>,
}

impl Processes {
    /// None yet; `program` has the commands `server` and `coordinator`.
    pub(super) const fn new(program: PathBuf) -> Self {
        Self { program, servers: BTreeMap::new(), registry: None, _folder: None }
    }

    pub(super) async fn start_registry(&mut self, choice: RegistryChoice) -> Result<Address> {
        if choice == RegistryChoice::Etcd {
            return self.start_etcd().await;
        }
        let args = ["coordinator", "--serve", "127.0.0.1:0"];
        let (child, address) = self.start(&args, "registry at ").await?;
        self.registry = Some(child);
        Ok(address.parse()?)
    }

    async fn start_etcd(&mut self) -> Result<Address> {
        let (folder, port) = (tempfile::tempdir()?, free_port()?);
        let mut command = Command::from(etcd(folder.path(), port));
        let child = command.kill_on_drop(true).spawn();
        self.registry = Some(child.context("etcd (Debian, Ubuntu: `apt install etcd-server`)")?);
        self._folder = Some(folder);
        let address: Address = format!("etcd://127.0.0.1:{port}/chaos").parse()?;
        let answers = async {
            while address.open().await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let answered = timeout(LIMIT, answers).await;
        answered.context("etcd does not answer")?;
        Ok(address)
    }

    pub(super) fn signal_registry(&self, signal: Signal) -> Result<()> {
        let id = self.registry.as_ref().and_then(Child::id);
        let id = id.context("the registry has ended")?;
        Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?)
    }

    /// The word after `before` in what the process says first.
    async fn start(&self, args: &[&str], before: &str) -> Result<(Child, String)> {
        let mut command = Command::new(&self.program);
        command.args(args).args(LEADING).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let name = args.join(" ");
        let mut child = command.spawn().context(name.clone())?;
        let mut lines = BufReader::new(child.stderr.take().context("no errors")?).lines();
        let said = async {
            let mut said = String::new();
            while let Some(line) = lines.next_line().await? {
                if let Some((_, rest)) = line.split_once(before) {
                    return Ok(rest.split(": ").next().unwrap_or_default().to_owned());
                }
                said = line;
            }
            bail!("{name} ended: {said}")
        };
        let word = timeout(LIMIT, said).await;
        let word = word.with_context(|| format!("{name} says nothing"))??;
        let name = format!("{} {word}", args.first().unwrap_or(&""));
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{name}: {line}");
            }
        });
        Ok((child, word))
    }

    /// One more server.
    pub(super) async fn start_server(&mut self, registry: &Address) -> Result<()> {
        let args = ["server", "--registry", &registry.to_string()];
        let (child, number) = self.start(&args, "server ").await?;
        self.servers.insert(NodeId(number.parse()?), child);
        Ok(())
    }

    /// Kill -9; it is dead afterwards.
    pub(super) async fn kill(&mut self, node: NodeId) -> Result<()> {
        let child = self.servers.remove(&node);
        let mut child = child.with_context(|| format!("{node} is none of ours"))?;
        Ok(child.kill().await?)
    }
}
