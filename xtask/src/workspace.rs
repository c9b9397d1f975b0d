//! Places in the checkout, its shell, builds, and the tools of the machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::setup;

/// The root of the checkout: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().unwrap_or(&manifest).to_owned()
}

/// The git-ignored folder that holds native libraries and tools.
pub(crate) fn native() -> PathBuf {
    root().join(".native")
}

/// The git-ignored folder of what the step `name` leaves behind.
pub(crate) fn scratch(name: &str) -> PathBuf {
    root().join(".parapet").join(name)
}

pub(crate) fn data() -> PathBuf {
    root().join("deploy/local/data/fashion2k")
}

pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

pub(crate) fn debug(program: &str) -> PathBuf {
    target().join("debug").join(program)
}

pub(crate) fn release(program: &str) -> PathBuf {
    target().join("release").join(program)
}

pub(crate) fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    Ok(sh)
}

pub(crate) fn empty(sh: &Shell, folder: &Path) -> Result<()> {
    sh.remove_path(folder)?;
    sh.create_dir(folder)?;
    Ok(())
}

pub(crate) fn step(what: &str) {
    eprintln!("==> {what}");
}

/// HOST:PORT of this machine that is not in use now.
pub(crate) fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Fails unless each program is installed, of the Debian package beside it.
pub(crate) fn require(tools: &[(&str, &str)]) -> Result<()> {
    for (program, package) in tools {
        let hint = format!("(Debian, Ubuntu: `apt install {package}`)");
        ensure!(is_installed(program), "{program} is not installed {hint}");
    }
    Ok(())
}

/// Runs cargo with the words of `line`, then `more`; its output goes to the terminal.
///
/// `.cargo/config.toml` alone spells the path of our libtorch: each other spelling would compile
/// torch-sys again, so the value that the outer cargo handed us is taken out of the environment.
pub(crate) fn cargo_with(line: &str, more: &[String]) -> Result<()> {
    eprintln!("$ cargo {line} {}", more.join(" "));
    let sh = shell()?;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = line.split_whitespace();
    let mut command = cmd!(sh, "{program} {words...} {more...}").quiet();
    if setup::users_libtorch().is_none() {
        command = command.env_remove("LIBTORCH");
    }
    Ok(command.run()?)
}

pub(crate) fn cargo(line: &str) -> Result<()> {
    cargo_with(line, &[])
}

/// Builds the serving side in the development profile, all of it: a choice of packages would have
/// other features, and compile dependencies once more. With `PARAPET_BUILT` set the programs are
/// those that the tests have built.
pub(crate) fn build_for_checks() -> Result<()> {
    if std::env::var_os("PARAPET_BUILT").is_some() {
        return Ok(());
    }
    cargo("build --quiet")
}

pub(crate) fn build_trainer() -> Result<()> {
    if std::env::var_os("PARAPET_BUILT").is_some() {
        return Ok(());
    }
    setup::run(&setup::Args::default())?;
    cargo("build -p parity-trainer")
}

pub(crate) fn read_json(path: &Path) -> Result<serde_json::Value> {
    let text = shell()?.read_file(path)?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// Returns a command's standard output; an error has its whole output.
pub(crate) fn output(command: Cmd<'_>) -> Result<String> {
    let line = command.to_string();
    let output = command.quiet().ignore_status().output()?;
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(output.status.success(), "{line}: {stdout}{}", stderr.trim());
    Ok(stdout)
}
