//! Programs as processes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const FRONTEND: &str = env!("CARGO_BIN_EXE_parapet-frontend");

/// A process that is killed with this value, and can be killed and started again.
pub struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    pub child: Child,
    /// Addresses that it said it listens on.
    pub addresses: Vec<SocketAddr>,
}

impl Process {
    /// Returns once it has said that it is ready.
    pub fn start(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        let program = program.into();
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let (child, addresses) = spawn(&program, &arguments);
        Self { program, arguments, child, addresses }
    }

    /// A frontend with the configuration in this file.
    pub fn frontend(config: &Path) -> Self {
        Self::start(FRONTEND, &["--config", config.to_str().unwrap()])
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        (self.child, self.addresses) = spawn(&self.program, &self.arguments);
    }
}

fn spawn(program: &Path, arguments: &[String]) -> (Child, Vec<SocketAddr>) {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("http://"), "{program:?} said {line:?}");
    let address = |rest: &str| rest.split_whitespace().next()?.parse().ok();
    let addresses = line.split("://").skip(1).filter_map(address);
    (child, addresses.collect())
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
