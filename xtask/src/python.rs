//! Packages from the Python package index, pinned by version and hash, each lock in a folder of its
//! own under `.native`. `xtask/requirements/lock.py` makes the locks.

use crate::prelude::*;
use std::fs::File;

const NEEDS: &str = "this needs CPython 3.11 or 3.12 with pip and venv (Debian: `apt install \
    python3-venv`), and a package index";

/// Path of a program of the virtual environment with the packages of `requirements/NAME.txt`, which
/// is made first if it is not there as locked.
pub(crate) fn program(name: &str, program: &str) -> Result<PathBuf> {
    let folder = native().join("python").join(name);
    // The text tells this layout from an earlier one.
    install(name, &folder, "--no-deps\n", |sh, lock| {
        cmd!(sh, "python3 -m venv {folder}").quiet().run().context(NEEDS)?;
        let pip = folder.join("bin/pip");
        // Only wheels that the lock names, all of them: no package runs a build script.
        let installed = cmd!(
            sh,
            "{pip} install --no-deps --require-hashes --only-binary=:all: --quiet
                --disable-pip-version-check --requirement {lock}"
        );
        installed.quiet().run().context(NEEDS)
    })?;
    Ok(folder.join("bin").join(program))
}

/// Has `fill` fill `folder` anew, given the lock `requirements/NAME.txt`, unless its stamp says
/// that it was filled from this lock in this `layout`.
pub(crate) fn install(
    name: &str,
    folder: &Path,
    layout: &str,
    fill: impl FnOnce(&Shell, &Path) -> Result<()>,
) -> Result<()> {
    let sh = shell()?;
    let lock = root().join(format!("xtask/requirements/{name}.txt"));
    let (wanted, stamp) = (sh.read_file(&lock)? + layout, folder.join(".stamp"));
    let is_current = || sh.read_file(&stamp).is_ok_and(|found| found == wanted);
    if is_current() {
        return Ok(());
    }
    // One at a time: a second one waits, then finds the work done.
    let path = sh.create_dir(native())?.join(".lock");
    let one = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    one.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    if !is_current() {
        eprintln!("{name}: installing into {}", folder.display());
        empty(&sh, folder)?;
        fill(&sh, &lock)?;
        sh.write_file(&stamp, &wanted)?;
    }
    Ok(())
}
