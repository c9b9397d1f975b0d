//! `cargo xtask dist`: the serving side as a Debian package, by cargo-deb and
//! `[package.metadata.deb]` in `frontend/Cargo.toml`, and as a tarball of the same tree. The
//! programs are not static, since ONNX Runtime is loaded.

use crate::prelude::*;
use std::os::unix::fs::symlink;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Features of the frontend, as kubernetes
    #[arg(long, default_value = "")]
    features: String,
    /// Where the packages go
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
}

const PROGRAMS: [&str; 4] = ["parapet", "parapet-frontend", "parapet-instance", "parapet-loadgen"];

pub(crate) fn run(args: &Args) -> Result<()> {
    require(&[("cargo-deb", "cargo && cargo install cargo-deb"), ("dpkg-deb", "dpkg")])?;
    setup::run(&setup::Args { serving_only: true })?;
    cargo("build --locked --release -p parapet-models -p parapet-loadgen")?;
    // An empty list of features is none.
    let frontend = "build --locked --release -p parapet-frontend";
    cargo_with(frontend, &[format!("--features={}", args.features)])?;

    let (sh, out) = (shell()?, root().join(&args.out));
    sh.create_dir(&out)?;
    // Programs lie beside ONNX Runtime, where they find it; these links come into /usr/bin.
    let links = scratch("deb-links");
    empty(&sh, &links)?;
    for program in PROGRAMS {
        symlink(format!("../lib/parapet/{program}"), links.join(program))?;
    }
    let deb = cmd!(sh, "cargo deb --no-build -p parapet-frontend --output {out}");
    let package = deb.quiet().read()?;

    let version = env!("CARGO_PKG_VERSION");
    let name = format!("parapet-{version}-{}-linux", std::env::consts::ARCH);
    let (tree, tarball) = (out.join(&name), out.join(format!("{name}.tar.gz")));
    empty(&sh, &tree)?;
    output(cmd!(sh, "dpkg-deb --extract {package} {tree}"))?;
    output(cmd!(sh, "tar -C {out} -czf {tarball} {name}"))?;
    for program in PROGRAMS {
        let program = tree.join("usr/bin").join(program);
        let ask = cmd!(sh, "{program} --version").env_remove("ORT_DYLIB_PATH");
        let said = output(ask)?;
        ensure!(said.contains(version), "--version says {said}");
    }
    println!("{}\n{package}", tarball.display());
    Ok(())
}
