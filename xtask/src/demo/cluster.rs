//! The demo's processes: four replicas, two parity instances, one frontend.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::faults::{Fault, PARITY, REPLICAS};
use crate::processes::Servers;
use crate::resources::pinned;
use crate::workspace::{demo as folder, step};
use crate::{sample, workspace};

/// With or without redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Strategy `none`.
    Plain,
    /// Strategy `coded`.
    Coded,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Coded => "coded",
        }
    }
}

/// Where everything listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    offset: u16,
}

impl Ports {
    pub(crate) fn new(offset: u16) -> Self {
        Self { offset }
    }

    pub(crate) fn frontend(self) -> u16 {
        8080 + self.offset
    }

    fn instance(self, index: usize) -> u16 {
        let index = u16::try_from(index).unwrap_or_default();
        let replicas = REPLICAS as u16;
        let port = if index < replicas {
            9001 + index
        } else {
            9101 + index - replicas
        };
        port + self.offset
    }

    /// The configuration with its ports moved.
    fn apply(self, text: &str) -> String {
        if self.offset == 0 {
            return text.to_owned();
        }
        let ports = (0..REPLICAS + PARITY).map(|i| (Self::new(0).instance(i), self.instance(i)));
        ports
            .chain([(8080, self.frontend())])
            .fold(text.to_owned(), |text, (from, to)| {
                text.replace(&format!(":{from}\""), &format!(":{to}\""))
            })
    }
}

/// Processes that end with this value.
pub(crate) struct DemoCluster {
    mode: Mode,
    ports: Ports,
    /// Of the frontends, if they have one to themselves.
    core: Option<usize>,
    /// Folder of the programs.
    programs: PathBuf,
    /// Replicas, parity instances, the frontend.
    processes: Servers,
}

impl DemoCluster {
    pub(crate) fn start(mode: Mode, ports: Ports) -> Result<Self> {
        Self::start_programs(mode, ports, None, sample::binary(""))
    }

    /// As [`start`](Self::start), optimised, with the frontends on `core`.
    pub(crate) fn start_optimised(mode: Mode, ports: Ports, core: Option<usize>) -> Result<Self> {
        Self::start_programs(mode, ports, core, binary(""))
    }

    fn start_programs(
        mode: Mode,
        ports: Ports,
        core: Option<usize>,
        programs: PathBuf,
    ) -> Result<Self> {
        step(&format!(
            "starting {REPLICAS} replicas, {PARITY} parity instances and the frontend ({})",
            mode.name()
        ));
        for port in (0..REPLICAS + PARITY)
            .map(|i| ports.instance(i))
            .chain([ports.frontend()])
        {
            if let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
                bail!(
                    "port {port}: {error}; `cargo xtask demo --stop` ends an earlier demo, \
                        --port-offset moves this one"
                );
            }
        }
        let mut cluster = Self {
            mode,
            ports,
            core,
            programs,
            processes: Servers::default(),
        };
        let models = folder().join("models");
        for index in 0..REPLICAS + PARITY {
            let mut command = Command::new(cluster.programs.join("parapet-instance"));
            let model = if index < REPLICAS {
                "fashion"
            } else {
                "fashion-parity"
            };
            command
                .arg("--repository")
                .arg(&models)
                .args(["--model", model]);
            command.args(["--listen", &format!("127.0.0.1:{}", ports.instance(index))]);
            cluster.spawn(command, &format!("instance-{}", ports.instance(index)))?;
        }
        let text = cluster.config(mode)?;
        cluster.start_frontend("frontend", mode.name(), &text)?;
        Ok(cluster)
    }

    /// Starts one more frontend of these instances, at the `index`th port after the first one's,
    /// with `change` made to its configuration; its URL.
    pub(crate) fn add_frontend(
        &mut self,
        mode: Mode,
        index: u16,
        change: impl FnOnce(String) -> String,
    ) -> Result<String> {
        let port = self.ports.frontend() + index;
        let own = |port: u16| format!("\"127.0.0.1:{port}\"");
        let text = change(self.config(mode)?).replace(&own(self.ports.frontend()), &own(port));
        self.start_frontend(
            &format!("frontend-{port}"),
            &format!("{}-{port}", mode.name()),
            &text,
        )?;
        Ok(format!("http://127.0.0.1:{port}"))
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.frontend())
    }

    /// The deployed instances' own addresses, past the frontend.
    pub(crate) fn instance_urls(&self) -> Vec<String> {
        (0..REPLICAS)
            .map(|instance| self.instance_url(instance))
            .collect()
    }

    fn instance_url(&self, instance: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports.instance(instance))
    }

    /// The first parity instance's own address.
    pub(crate) fn parity_url(&self) -> String {
        self.instance_url(REPLICAS)
    }

    /// The parity instances' addresses as they stand in a configuration.
    pub(crate) fn parity_addresses(&self) -> Vec<String> {
        let ports = (REPLICAS..REPLICAS + PARITY).map(|instance| self.ports.instance(instance));
        ports.map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// The frontend's process id.
    pub(crate) fn frontend_pid(&self) -> u32 {
        self.processes.last_pid()
    }

    /// Does to an instance what the plan says. A fault that cannot be done has come too
    /// late to matter.
    pub(crate) fn inflict(&mut self, instance: usize, fault: Fault) {
        match fault {
            Fault::Freeze => self.processes.signal(instance, Signal::SIGSTOP),
            Fault::Thaw => self.processes.signal(instance, Signal::SIGCONT),
            Fault::Kill => self.processes.kill(instance),
        }
    }

    pub(crate) fn stop(self) {
        drop(self);
    }

    /// Leaves the processes running and writes down which they are.
    pub(crate) fn keep(mut self) -> Result<()> {
        let pids: Vec<String> = self.processes.detach().iter().map(u32::to_string).collect();
        fs::write(pid_file(), pids.join("\n")).context("cannot write .parapet/demo/pids")
    }

    /// The demo's configuration with a mode's strategy; the coded one
    /// is deploy/local/parapet.toml itself.
    fn config(&self, mode: Mode) -> Result<String> {
        let local = workspace::root().join("deploy/local");
        let text = fs::read_to_string(local.join("parapet.toml"))
            .context("cannot read deploy/local/parapet.toml")?;
        let text = match mode {
            Mode::Coded => text,
            Mode::Plain => {
                let strategy = text
                    .find("[models.strategy]")
                    .context("no [models.strategy] in parapet.toml")?;
                text.get(..strategy).unwrap_or_default().to_owned()
            }
        };
        Ok(self
            .ports
            .apply(&text)
            .replace("../../.parapet/demo/models", "models"))
    }

    fn start_frontend(&mut self, name: &str, file: &str, text: &str) -> Result<()> {
        let path = folder().join(format!("{file}.toml"));
        workspace::write(&path, text)?;
        let mut command = pinned(self.programs.join("parapet-frontend"), self.core);
        command.arg("--config").arg(path);
        self.spawn(command, name)
    }

    fn spawn(&mut self, command: Command, name: &str) -> Result<()> {
        let log = folder().join(format!("logs/{}-{name}.log", self.mode.name()));
        self.processes.start(command, name, &log)?;
        Ok(())
    }
}

/// Ends the processes of an earlier `--keep`.
pub(crate) fn stop_kept() -> Result<()> {
    let path = pid_file();
    let Ok(pids) = fs::read_to_string(&path) else {
        println!("nothing was left running");
        return Ok(());
    };
    for pid in pids.lines().filter_map(|line| line.parse::<u32>().ok()) {
        // Only if it is still one of ours: pids are used again.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("parapet-") {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
        }
    }
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    println!("stopped");
    Ok(())
}

fn pid_file() -> PathBuf {
    folder().join("pids")
}

/// An optimised program of the serving side.
pub(crate) fn binary(name: &str) -> PathBuf {
    workspace::target().join("release").join(name)
}
