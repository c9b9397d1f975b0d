//! Tools of the machine that set-up and torch-sys need.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// Checks that there is a C++ compiler: torch-sys compiles a shim with it.
pub(super) fn require_cxx() -> Result<()> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let found = Command::new(&compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    ensure!(
        found,
        "the C++ compiler `{}` is missing: install one (Debian, Ubuntu: `apt install g++`), or \
            serve without training after `cargo xtask setup --serving-only`",
        compiler.to_string_lossy()
    );
    Ok(())
}
