//! Emulated instances and a frontend in front of them.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::demo::binary;
use crate::models;

/// How long a process may take to say that it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Processes that end with this value.
pub(super) struct Processes {
    children: Vec<Child>,
    folder: PathBuf,
    /// The frontend's.
    pub(super) url: String,
}

impl Processes {
    /// `deployed` and `parity` instances that take `service_ms` for each query, and a frontend that codes with k = 2.
    pub(super) fn start(folder: &Path, deployed: usize, parity: usize, service_ms: f64) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let profile = folder.join("faults.toml");
        let text =
            format!("seed = 1\nservice_time = {{ distribution = \"constant\", ms = {service_ms:?} }}\n");
        fs::write(&profile, text).with_context(|| format!("cannot write {}", profile.display()))?;
        let mut processes = Self { children: Vec::new(), folder: folder.to_owned(), url: String::new() };
        let mut start = |model: &str, index: usize| {
            let mut command = Command::new(binary("parapet-instance"));
            command.arg("--repository").arg(models::repository()).args([
                "--model",
                model,
                "--listen",
                "127.0.0.1:0",
            ]);
            command.args(["--max-batch-size", "1", "--fault-profile"]).arg(&profile);
            processes.spawn(command, &format!("{model}-{index}"))
        };
        let addresses = |model: &str, count: usize, start: &mut dyn FnMut(&str, usize) -> Result<String>| {
            (0..count)
                .map(|index| Ok(format!("\"{}\"", start(model, index)?.trim_start_matches("http://"))))
                .collect::<Result<Vec<_>>>()
        };
        let deployed = addresses("fashion", deployed, &mut start)?.join(", ");
        let parity = addresses("fashion-parity", parity, &mut start)?.join(", ");
        let config = folder.join("parapet.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[repository]\npath = {:?}\n\
             [[models]]\nname = \"fashion\"\ninstances = [{deployed}]\nslots_per_instance = 2\n\
             [models.strategy]\nkind = \"coded\"\nencoder = \"concat\"\nk = 2\n\
             [[models.strategy.parity]]\nmodel = \"fashion-parity\"\ninstances = [{parity}]\n",
            models::repository()
        );
        fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(binary("parapet-frontend"));
        command.arg("--config").arg(config);
        processes.url = processes.spawn(command, "frontend")?;
        Ok(processes)
    }

    /// Resident memory of the frontend in MB: now, and the most so far.
    pub(super) fn memory_mb(&self) -> Result<(f64, f64)> {
        let pid = self.children.last().map_or(0, Child::id);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the frontend is gone")?;
        let field = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
            Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// The URL in the line that says it is ready.
    fn spawn(&mut self, mut command: Command, name: &str) -> Result<String> {
        let log = self.folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take();
        self.children.push(child);
        let (ready, said) = mpsc::channel();
        std::thread::spawn(move || {
            let first = output.and_then(|output| BufReader::new(output).lines().next()?.ok());
            let _ = ready.send(first);
        });
        let line = said.recv_timeout(START_LIMIT).ok().flatten().unwrap_or_default();
        match line.rsplit(' ').next().filter(|word| word.starts_with("http://")) {
            Some(url) => Ok(url.to_owned()),
            None => bail!("{name} did not start; see {}", log.display()),
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
