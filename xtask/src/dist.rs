//! `cargo xtask dist`: the serving side as a Python wheel, as a Debian package, by cargo-deb and
//! `[package.metadata.deb]` in `frontend/Cargo.toml`, and as a tarball of the same tree. The
//! programs are not static, since ONNX Runtime is loaded. The trainer links libtorch and stays out.

use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Features of the frontend, as kubernetes
    #[arg(long, default_value = "")]
    features: String,
    /// Pack the programs of this folder, instead of building optimised ones
    #[arg(long, value_name = "DIR", conflicts_with = "features")]
    programs: Option<PathBuf>,
    /// Where the packages go
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    /// Install each package from its file and serve a model with it
    #[arg(long = "try")]
    is_tried: bool,
}

const PROGRAMS: [&str; 4] = ["parapet", "parapet-frontend", "parapet-instance", "parapet-loadgen"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = [
        ("cargo-deb", "cargo && cargo install cargo-deb"),
        ("dpkg-shlibdeps", "dpkg-dev"),
        ("strip", "binutils"),
        ("python3", "python3"),
    ];
    require(&tools)?;
    setup::run(&setup::Args { serving_only: true })?;
    let programs = match &args.programs {
        Some(folder) => folder.clone(),
        None => {
            cargo("build --locked --release -p parapet-models -p parapet-loadgen")?;
            // An empty list of features is none.
            let frontend = "build --locked --release -p parapet-frontend";
            cargo_with(frontend, &[format!("--features={}", args.features)])?;
            release("")
        }
    };

    let (sh, out) = (shell()?, root().join(&args.out));
    sh.create_dir(&out)?;
    let staged = scratch("dist");
    empty(&sh, &staged)?;
    for name in PROGRAMS {
        let (program, staged) = (programs.join(name), staged.join(name));
        output(cmd!(sh, "strip -o {staged} {program}"))?;
    }
    sh.copy_file(native().join("onnxruntime/libonnxruntime.so"), &staged)?;

    let (version, script) =
        (env!("CARGO_PKG_VERSION"), root().join("deploy/python/build_wheel.py"));
    let wheel = output(cmd!(sh, "python3 {script} {version} {staged} {out}"))?;
    // More would take minutes, for a tenth of the size.
    let deb = output(cmd!(sh, "cargo deb --no-build -p parapet-frontend --fast --output {out}"))?;
    let (wheel, deb) = (wheel.trim(), deb.trim());

    let name = format!("parapet-{version}-{}-linux", std::env::consts::ARCH);
    let (tree, tarball) = (out.join(&name), out.join(format!("{name}.tar.gz")));
    empty(&sh, &tree)?;
    output(cmd!(sh, "dpkg-deb --extract {deb} {tree}"))?;
    output(cmd!(sh, "tar -C {out} -czf {tarball} {name}"))?;
    sh.remove_path(&tree)?;
    println!("{wheel}\n{deb}\n{}", tarball.display());

    if args.is_tried {
        let models = scratch("dist-models");
        empty(&sh, &models)?;
        cluster::write_models(&sh, &models, "stack")?;
        let script = root().join("xtask/interop/packages.py");
        let python = python::program("interop", "python")?;
        cmd!(sh, "{python} -B {script} {wheel} {deb} {tarball} {models}").quiet().run()?;
    }
    Ok(())
}
