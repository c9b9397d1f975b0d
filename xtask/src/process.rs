//! Processes that end with their owner, each with a file for what it says; their use of resources.

use crate::prelude::*;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

/// Time limit of every wait but that for a training.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) enum Place {
    Anywhere,
    Core(usize),
    Namespace(String),
}

impl Place {
    pub(crate) fn command<'a>(&self, sh: &'a Shell, program: impl AsRef<Path>) -> Cmd<'a> {
        let program = program.as_ref();
        match self {
            Self::Anywhere => cmd!(sh, "{program}"),
            Self::Core(core) => cmd!(sh, "taskset -c").arg(core.to_string()).arg(program),
            Self::Namespace(name) => cmd!(sh, "ip netns exec {name} {program}"),
        }
    }
}

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
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that end with this value: by SIGTERM, and by SIGKILL five seconds later.
pub(crate) struct Processes {
    folder: PathBuf,
    running: Vec<(String, Child)>,
}

impl Processes {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), running: Vec::new() })
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    pub(crate) fn start(&mut self, name: &str, command: impl Into<Command>) -> Result<()> {
        let path = self.log(name);
        let log =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = command.into();
        command.stdin(Stdio::piped()).stdout(log.try_clone()?);
        let child = command.stderr(log).spawn();
        let program = command.get_program();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    /// Starts a process and waits until it says `marker`; returns the word after that.
    pub(crate) fn start_ready(
        &mut self,
        name: &str,
        command: impl Into<Command>,
        marker: &str,
    ) -> Result<String> {
        self.start(name, command)?;
        self.hear(name, LIMIT, |said| {
            let (_, rest) = said.split_once(marker)?;
            // A word that has no end yet is still being written.
            Some(rest.split_once([' ', ';', '\n'])?.0.to_owned())
        })
    }

    /// Waits until a process has said what `find` finds in all that it has said.
    pub(crate) fn hear<T>(
        &mut self,
        name: &str,
        limit: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let path = self.log(name);
        let child = self.child(name)?;
        let heard = wait_for(&format!("sign of life of {name}"), limit, || {
            let said = fs::read_to_string(&path)?;
            if let Some(found) = find(&said) {
                return Ok(Some(found));
            }
            if let Some(status) = child.try_wait()? {
                let last = said.lines().last().unwrap_or("it said nothing");
                bail!("{name} ended ({status}): {last}");
            }
            Ok(None)
        });
        heard.with_context(|| format!("see {}", path.display()))
    }

    pub(crate) fn tell(&mut self, name: &str, line: &str) -> Result<()> {
        let stdin = self.child(name)?.stdin.as_mut();
        let stdin = stdin.with_context(|| format!("{name} hears nothing"))?;
        writeln!(stdin, "{line}").with_context(|| format!("{name} is gone"))
    }

    fn child(&mut self, name: &str) -> Result<&mut Child> {
        let found = self.running.iter_mut().find(|(other, _)| other == name);
        Ok(&mut found.with_context(|| format!("no process {name}"))?.1)
    }

    pub(crate) fn pid(&mut self, name: &str) -> Result<u32> {
        Ok(self.child(name)?.id())
    }

    /// Sends a signal; a process that has ended is left alone.
    pub(crate) fn signal(&mut self, name: &str, signal: Signal) -> Result<()> {
        let child = self.child(name)?;
        if child.try_wait()?.is_none() {
            kill(pid(child), signal).with_context(|| format!("{signal} to {name}"))?;
        }
        Ok(())
    }

    /// Fails if one of the processes whose names begin with `prefix` has ended.
    pub(crate) fn none_ended(&mut self, prefix: &str) -> Result<()> {
        for (name, child) in self.running.iter_mut().filter(|(name, _)| name.starts_with(prefix)) {
            if let Some(status) = child.try_wait()? {
                let log = self.folder.join(format!("{name}.log"));
                bail!("{name} ended too soon ({status}); see {}", log.display());
            }
        }
        Ok(())
    }

    pub(crate) fn wait(&mut self, name: &str) -> Result<()> {
        let status = self.child(name)?.wait()?;
        self.running.retain(|(other, _)| other != name);
        ensure!(status.success(), "{name} failed ({status}); see {}", self.log(name).display());
        Ok(())
    }

    pub(crate) fn run(&mut self, name: &str, command: impl Into<Command>) -> Result<()> {
        self.start(name, command)?;
        self.wait(name)
    }

    pub(crate) fn detach(mut self) -> Vec<u32> {
        std::mem::take(&mut self.running).into_iter().map(|(_, child)| child.id()).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = kill(pid(child), Signal::SIGCONT);
                let _ = kill(pid(child), Signal::SIGTERM);
            }
        }
        let patience = Instant::now() + Duration::from_secs(5);
        for (_, child) in &mut self.running {
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

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) highest: f64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    let mib = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("no {name} in {path}"))? / 1024.0)
    };
    Ok(Memory { now: mib("VmRSS:")?, highest: mib("VmHWM:")? })
}
