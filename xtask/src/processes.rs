//! Starts, watches and ends the processes of a step.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{models, workspace};

/// Time limit of every step but a training.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Repeats `ask` until it finds something, for at most `limit`.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = ask()? {
            return Ok(found);
        }
        ensure!(since.elapsed() < limit, "no {what} after {limit:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs `command` to its end; returns its standard output, and fails with its standard error.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` with `input` on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin
        .write_all(input.as_bytes())
        .context("cannot write to standard input")?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// Servers that end with this value: SIGTERM, and SIGKILL for those that run five seconds later.
#[derive(Default)]
pub(crate) struct Servers(Vec<Child>);

impl Servers {
    /// Starts a server with its standard error in `log`, and waits for the line on its standard
    /// output that says it is ready; returns that line.
    pub(crate) fn start(&mut self, mut command: Command, name: &str, log: &Path) -> Result<String> {
        let file =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take();
        self.0.push(child);
        let (ready, line) = mpsc::channel();
        std::thread::spawn(move || {
            let first = output.and_then(|output| BufReader::new(output).lines().next()?.ok());
            let _ = ready.send(first);
        });
        if let Ok(Some(line)) = line.recv_timeout(LIMIT) {
            return Ok(line);
        }
        let text = fs::read_to_string(log).unwrap_or_default();
        let last = text.lines().last().unwrap_or("it logged nothing");
        bail!("{name} did not start: {last}; see {}", log.display())
    }

    /// Ends `child`, too, with this value.
    pub(crate) fn adopt(&mut self, child: Child) {
        self.0.push(child);
    }

    /// Process id of the server started last.
    pub(crate) fn last_pid(&self) -> u32 {
        self.0.last().map_or(0, Child::id)
    }

    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        if let Some(child) = self.0.get(server) {
            let _ = kill(pid(child), signal);
        }
    }

    pub(crate) fn kill(&mut self, server: usize) {
        if let Some(child) = self.0.get_mut(server) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Leaves the servers running; returns their process ids.
    pub(crate) fn detach(&mut self) -> Vec<u32> {
        self.0.drain(..).map(|child| child.id()).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let mut running = std::mem::take(&mut self.0);
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        for child in &running {
            let _ = kill(pid(child), Signal::SIGCONT);
            let _ = kill(pid(child), Signal::SIGTERM);
        }
        let patience = Instant::now() + Duration::from_secs(5);
        for child in &mut running {
            while Instant::now() < patience && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// The program, and the folder in which everything of a run lies.
pub(crate) struct Place {
    pub(crate) trainer: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Place {
    /// An empty folder of this name, in the checkout.
    pub(crate) fn new(folder: &str) -> Result<Self> {
        let folder = workspace::root().join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        workspace::make_folder(&folder)?;
        Ok(Self {
            trainer: workspace::target().join("debug/parity-trainer"),
            folder,
        })
    }

    /// Runs `command` to its end; what it says goes to a file.
    pub(crate) fn finish(&self, command: Command, name: &str) -> Result<()> {
        let mut processes = Processes::default();
        processes.start(self, command, name)?;
        processes.wait()
    }

    /// Trains the small deployed model from which [`Place::add_training`] learns.
    pub(crate) fn train_deployed(&self) -> Result<()> {
        let mut command = Command::new(&self.trainer);
        command
            .args(["train-deployed", "--network", "lenet:4", "--epochs", "3"])
            .args(["--name", "deployed", "--data"])
            .arg(models::data())
            .arg("--out")
            .arg(self.folder.join("models"));
        self.finish(command, "deployed")
    }

    /// Adds the arguments that train the parity model `name` to a command of the trainer.
    pub(crate) fn add_training(&self, command: &mut Command, name: &str, steps: u64, seed: u64) {
        command
            .args(["--threads", "1", "train", "--k", "2"])
            .args(["--network", "lenet:8", "--encoder", "concat"])
            .args(["--transform", "raw", "--name", name])
            .args(["--steps", &steps.to_string()])
            .args(["--seed", &seed.to_string(), "--model"])
            .arg(self.folder.join("models/deployed"))
            .arg("--data")
            .arg(models::data())
            .arg("--out")
            .arg(self.folder.join("models"));
    }

    /// Reads the file of a trained model.
    pub(crate) fn model(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.folder.join("models").join(name).join("1/model.onnx");
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Repeats `ask` until it finds something.
    pub(crate) fn wait<T>(&self, what: &str, ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        wait_for(what, LIMIT, ask).with_context(|| format!("see {}", self.folder.display()))
    }

    /// Path of a training's log.
    pub(crate) fn training_log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("models/.runs/{name}/log.jsonl"))
    }

    /// Returns the number of steps that the training `name` reports.
    pub(crate) fn steps(&self, name: &str) -> Option<u64> {
        let log = fs::read_to_string(self.training_log(name)).ok()?;
        let line: serde_json::Value = log
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())?;
        line["step"].as_u64()
    }
}

/// Processes that end with this one, with files for what they say.
#[derive(Default)]
pub(crate) struct Processes(Vec<(PathBuf, Child)>);

impl Processes {
    pub(crate) fn start(&mut self, place: &Place, mut command: Command, name: &str) -> Result<()> {
        let path = place.folder.join(format!("{name}.log"));
        let log =
            fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let errors = log.try_clone().context("cannot share a file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        self.0.push((
            path,
            child.with_context(|| format!("cannot start {:?}", command.get_program()))?,
        ));
        Ok(())
    }

    pub(crate) fn none_ended(&mut self) -> Result<()> {
        for (log, child) in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                bail!("ended too soon ({status}); see {}", log.display());
            }
        }
        Ok(())
    }

    /// Asks the process of this name to end, and waits until it has.
    pub(crate) fn end(&mut self, place: &Place, name: &str) -> Result<()> {
        let log = place.folder.join(format!("{name}.log"));
        let found = self.0.iter().position(|(path, _)| *path == log);
        let (_, child) = &mut self.0[found.with_context(|| format!("no process {name}"))?];
        kill(pid(child), Signal::SIGTERM).context("cannot end a process")?;
        let status = place.wait("end of a process", || Ok(child.try_wait()?))?;
        ensure!(status.success(), "failed ({status}); see {}", log.display());
        Ok(())
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        for (log, child) in &mut self.0 {
            let status = child.wait()?;
            ensure!(status.success(), "failed ({status}); see {}", log.display());
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
