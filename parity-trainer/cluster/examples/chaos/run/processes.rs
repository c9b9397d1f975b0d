//! The cluster's processes. They end with this.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_cluster::registry::Address;
use parapet_parameter_server::NodeId;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{ChaosError, LIMIT, RegistryChoice};

pub(super) struct Processes {
    program: PathBuf,
    servers: BTreeMap<NodeId, Child>,
    registry: Option<Child>,
    _folder: Option<TempDir>,
}

impl Processes {
    /// None yet; `program` has the commands `server` and `coordinator`.
    pub(super) const fn new(program: PathBuf) -> Self {
        Self {
            program,
            servers: BTreeMap::new(),
            registry: None,
            _folder: None,
        }
    }

    /// Starts the registry, if it is not there yet.
    pub(super) async fn registry(
        &mut self,
        choice: &RegistryChoice,
    ) -> Result<Address, ChaosError> {
        match choice {
            RegistryChoice::Coordinator => {
                let args = [
                    "coordinator",
                    "--serve",
                    "127.0.0.1:0",
                    "--replicas",
                    "2",
                    "--min-servers",
                    "2",
                ];
                let (child, address) = self.start(&args, "registry at ").await?;
                self.registry = Some(child);
                Ok(address.parse()?)
            }
            RegistryChoice::Etcd => self.etcd().await,
            RegistryChoice::At(address) => Ok(address.clone()),
        }
    }

    async fn etcd(&mut self) -> Result<Address, ChaosError> {
        let failed = |source| ChaosError::Process {
            what: "etcd (Debian, Ubuntu: `apt install etcd-server`)".into(),
            source,
        };
        let folder = tempfile::tempdir().map_err(failed)?;
        let port = || {
            TcpListener::bind("127.0.0.1:0")
                .and_then(|free| free.local_addr())
                .map(|at| at.port())
        };
        let (client, peer) = (port().map_err(failed)?, port().map_err(failed)?);
        let [client_url, peer_url] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command
            .args(["--name", "chaos", "--data-dir"])
            .arg(folder.path())
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args([
                "--initial-cluster",
                &format!("chaos={peer_url}"),
                "--log-level",
                "error",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        self.registry = Some(command.spawn().map_err(failed)?);
        self._folder = Some(folder);
        let address: Address = format!("etcd://127.0.0.1:{client}/chaos").parse()?;
        let answers = async {
            while address.open().await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(LIMIT, answers)
            .await
            .map_err(|_| ChaosError::Hangs("an answer from etcd".into()))?;
        Ok(address)
    }

    fn signal_registry(&self, signal: Signal) -> Result<(), ChaosError> {
        let id = self
            .registry
            .as_ref()
            .and_then(Child::id)
            .and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or(ChaosError::NotOurs)?;
        let failed = |error: nix::Error| ChaosError::Process {
            what: "the registry".into(),
            source: error.into(),
        };
        kill(Pid::from_raw(id), signal).map_err(failed)
    }

    pub(super) fn stop_registry(&self) -> Result<(), ChaosError> {
        self.signal_registry(Signal::SIGSTOP)
    }

    pub(super) fn resume_registry(&self) -> Result<(), ChaosError> {
        self.signal_registry(Signal::SIGCONT)
    }

    /// The word after `before` in what the process says first.
    async fn start(&self, args: &[&str], before: &str) -> Result<(Child, String), ChaosError> {
        let failed = |source| ChaosError::Process {
            what: args.join(" "),
            source,
        };
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let mut lines = child
            .stderr
            .take()
            .map(|errors| BufReader::new(errors).lines());
        let said = timeout(LIMIT, async {
            let mut said = Vec::new();
            while let Some(lines) = &mut lines
                && let Ok(Some(line)) = lines.next_line().await
            {
                if let Some((_, rest)) = line.split_once(before) {
                    let word = rest.split([' ', ':']).next().unwrap_or_default();
                    let word = if before.ends_with("at ") { rest } else { word };
                    return Ok(word.to_owned());
                }
                said.push(line);
            }
            Err(ChaosError::Hangs(format!(
                "{}: {}",
                args.join(" "),
                said.join("; ")
            )))
        });
        let word = said
            .await
            .map_err(|_| ChaosError::Hangs(args.join(" ")))??;
        if let Some(mut lines) = lines {
            let who = format!("{} {word}", args.first().unwrap_or(&""));
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    eprintln!("{who}: {line}");
                }
            });
        }
        Ok((child, word))
    }

    /// One more server.
    pub(super) async fn server(&mut self, registry: &Address) -> Result<(), ChaosError> {
        let registry = registry.to_string();
        let args = [
            "server",
            "--registry",
            &registry,
            "--replicas",
            "2",
            "--min-servers",
            "2",
        ];
        let (child, number) = self.start(&args, "server ").await?;
        let number = number
            .parse()
            .map_err(|_| ChaosError::Hangs(format!("a server named {number}")))?;
        self.servers.insert(NodeId(number), child);
        Ok(())
    }

    /// Kill -9; it is dead afterwards.
    pub(super) async fn kill(&mut self, node: NodeId) -> Result<(), ChaosError> {
        let Some(mut child) = self.servers.remove(&node) else {
            return Err(ChaosError::Hangs(format!("{node} is none of ours")));
        };
        child.kill().await.map_err(|source| ChaosError::Process {
            what: node.to_string(),
            source,
        })
    }
}
