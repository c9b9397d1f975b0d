//! `cargo xtask dist`: the serving side as a tarball and as a Debian package.
//!
//! Both hold the same tree: programs, ONNX Runtime, systemd units, examples, dashboards and
//! licences. The programs need glibc and libgcc and nothing else (ONNX Runtime libstdc++, too): a
//! wholly static program could not load ONNX Runtime. The same sources give the same bytes but for
//! what the compiler puts in.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, native, workspace};

/// Arguments of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Cargo's profile; `dev` for a quick look at the packages
    #[arg(long, default_value = "release")]
    profile: String,
    /// Features of the frontend, as kubernetes
    #[arg(long, default_value = "")]
    features: String,
    /// Where the packages go
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
}

const PROGRAMS: [&str; 3] = ["parapet-frontend", "parapet-instance", "parapet-loadgen"];
/// From the checkout into `/usr/share/doc/parapet`.
const DOCUMENTS: [(&str, &str); 9] = [
    ("README.md", "README.md"),
    ("docs/frontend.md", "frontend.md"),
    ("docs/instance.md", "instance.md"),
    ("docs/strategies.md", "strategies.md"),
    ("docs/codes.md", "codes.md"),
    ("deploy/systemd/instance.toml", "examples/instance.toml"),
    ("deploy/systemd/parapet.toml", "examples/parapet.toml"),
    ("deploy/prometheus/rules.yml", "prometheus/rules.yml"),
    ("deploy/grafana/parapet.json", "grafana/parapet.json"),
];
/// Libraries that a program may ask the system for.
const ALLOWED: [&str; 6] = [
    "libc.so",
    "libm.so",
    "libgcc_s.so",
    "ld-linux",
    "linux-vdso",
    "libdl.so",
];

/// Builds and packs.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args { serving_only: true })?;
    let profile = args.profile.as_str();
    let build = ["build", "--locked", "--profile", profile];
    cargo::run(
        &[
            &build[..],
            &[
                "-p",
                "parapet-frontend",
                "--features",
                args.features.as_str(),
            ],
        ]
        .concat(),
    )?;
    cargo::run(
        &[
            &build[..],
            &["-p", "parapet-models", "-p", "parapet-loadgen"],
        ]
        .concat(),
    )?;

    let out = workspace::root().join(&args.out);
    let name = format!(
        "parapet-{}-{}-linux",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let tree = out.join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    let folder = if profile == "dev" { "debug" } else { profile };
    fill(&tree, &workspace::target().join(folder))?;
    let glibc = needs(&tree)?;
    let tarball = out.join(format!("{name}.tar.gz"));
    pack(&out, &name, &tarball)?;
    let package = out.join(format!(
        "parapet_{}_{}.deb",
        env!("CARGO_PKG_VERSION"),
        debian_architecture()?
    ));
    debian(&tree, &glibc, &package)?;
    try_out(&tree)?;
    for file in [tarball, package] {
        let bytes = fs::metadata(&file)
            .with_context(|| format!("no {}", file.display()))?
            .len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    println!("they need glibc {glibc} or later");
    Ok(())
}

/// The tree as it lies under `/`.
fn fill(tree: &Path, built: &Path) -> Result<()> {
    let library = Path::new("usr/lib/parapet");
    for program in PROGRAMS {
        let to = place(tree, &library.join(program), 0o755, &built.join(program))?;
        run_quietly(Command::new("strip").arg("--strip-debug").arg(&to))?;
        let link = tree.join("usr/bin").join(program);
        fs::create_dir_all(tree.join("usr/bin")).context("cannot make usr/bin")?;
        symlink(Path::new("../lib/parapet").join(program), link)
            .context("cannot link a program")?;
    }
    let root = workspace::root();
    let runtime = workspace::native().join("onnxruntime");
    place(
        tree,
        &library.join("libonnxruntime.so"),
        0o644,
        &runtime.join("libonnxruntime.so"),
    )?;
    for unit in ["parapet-frontend.service", "parapet-instance@.service"] {
        place(
            tree,
            &Path::new("usr/lib/systemd/system").join(unit),
            0o644,
            &root.join("deploy/systemd").join(unit),
        )?;
    }
    let documents = Path::new("usr/share/doc/parapet");
    for (from, to) in DOCUMENTS {
        place(tree, &documents.join(to), 0o644, &root.join(from))?;
    }
    place(
        tree,
        &documents.join("copyright"),
        0o644,
        &root.join("LICENSE"),
    )?;
    let licences = fs::read_dir(runtime.join("licenses")).context("no licences of ONNX Runtime")?;
    for licence in licences {
        let licence = licence.context("the licences of ONNX Runtime")?;
        let to = documents.join("onnxruntime").join(licence.file_name());
        place(tree, &to, 0o644, &licence.path())?;
    }
    fs::create_dir_all(tree.join("etc/parapet/instances"))
        .context("cannot make etc/parapet/instances")?;
    fs::create_dir_all(tree.join("var/lib/parapet/models"))
        .context("cannot make var/lib/parapet/models")
}

fn place(tree: &Path, to: &Path, mode: u32, from: &Path) -> Result<PathBuf> {
    let to = tree.join(to);
    let parent = to.parent().unwrap_or(tree);
    workspace::make_folder(parent)?;
    fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(mode)).context("cannot set permissions")?;
    Ok(to)
}

/// Holds the programs' libraries against those that are allowed; the version of glibc
/// that is needed.
fn needs(tree: &Path) -> Result<String> {
    let mut newest = (0, 0);
    for program in PROGRAMS.iter().chain(&["libonnxruntime.so"]) {
        let file = tree.join("usr/lib/parapet").join(program);
        let symbols = said(Command::new("objdump").arg("-T").arg(&file))?;
        let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
            let (major, rest) = rest.split_once('.')?;
            let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
            Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
        });
        newest = versions.fold(newest, std::cmp::max);
        let headers = said(Command::new("objdump").arg("-p").arg(&file))?;
        let needed = headers
            .lines()
            .filter_map(|line| line.trim().strip_prefix("NEEDED"))
            .map(str::trim);
        let foreign =
            needed.filter(|library| !ALLOWED.iter().any(|allowed| library.starts_with(allowed)));
        let foreign: Vec<&str> = foreign
            .filter(|library| !is_runtimes(program, library))
            .collect();
        ensure!(
            foreign.is_empty(),
            "{program} needs {foreign:?}, which not every machine has"
        );
    }
    Ok(format!("{}.{}", newest.0, newest.1))
}

/// Returns true for libraries that ONNX Runtime may need: C++ and threads.
fn is_runtimes(program: &str, library: &str) -> bool {
    let more = ["libstdc++.so", "libpthread.so", "librt.so"];
    program == "libonnxruntime.so" && more.iter().any(|allowed| library.starts_with(allowed))
}

fn pack(out: &Path, name: &str, tarball: &Path) -> Result<()> {
    let time = format!("--mtime=@{}", changed_at());
    let owner = [
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--use-compress-program=gzip -n -9",
    ];
    run_quietly(
        Command::new("tar")
            .current_dir(out)
            .args(owner)
            .arg(time)
            .arg("-cf")
            .arg(tarball)
            .arg(name),
    )
}

/// Seconds since 1970 of the last commit, which every file gets.
fn changed_at() -> u64 {
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || {
        said(
            Command::new("git")
                .current_dir(workspace::root())
                .args(["log", "-1", "--format=%ct"]),
        )
        .ok()
    };
    epoch
        .or_else(commit)
        .and_then(|seconds| seconds.trim().parse().ok())
        .unwrap_or(0)
}

fn debian(tree: &Path, glibc: &str, package: &Path) -> Result<()> {
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control).context("cannot make DEBIAN")?;
    let text = format!(
        "Package: parapet\nVersion: {}\nArchitecture: {}\nMaintainer: Parapet \
            <parapet@localhost>\nSection: net\nPriority: optional\n\
            Depends: libc6 (>= {glibc}), libgcc-s1, libstdc++6\n\
            Description: prediction serving with coded redundancy\n A frontend that answers \
            inference requests from many model instances, a few of which are always slow or\n \
            dead, and model instances. Units: parapet-frontend, parapet-instance@NAME.\n",
        env!("CARGO_PKG_VERSION"),
        debian_architecture()?,
    );
    fs::write(control.join("control"), text).context("cannot write the package's control file")?;
    let time = changed_at().to_string();
    let build = ["--root-owner-group", "--build"];
    let built = run_quietly(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", time)
            .args(build)
            .arg(tree)
            .arg(package),
    );
    fs::remove_dir_all(&control).context("cannot remove DEBIAN")?;
    built
}

fn debian_architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no Debian architecture is known for {other}"),
    }
}

/// The programs of the tree run, and the instance finds ONNX Runtime beside itself.
fn try_out(tree: &Path) -> Result<()> {
    for program in PROGRAMS {
        let mut command = Command::new(tree.join("usr/bin").join(program));
        let version = said(command.env_remove("ORT_DYLIB_PATH").arg("--version"))?;
        ensure!(
            version.contains(env!("CARGO_PKG_VERSION")),
            "{program} --version says {version}"
        );
    }
    Ok(())
}

fn run_quietly(command: &mut Command) -> Result<()> {
    said(command).map(drop)
}

fn said(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("{program} is missing (Debian: `apt install binutils dpkg tar`)")
    })?;
    ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
