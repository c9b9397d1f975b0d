//! The folder of models.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repository::model_toml::check_name;
use crate::repository::{ModelEntry, ModelToml, RepositoryError};

/// A folder of models.
#[derive(Debug, Clone)]
pub struct ModelRepository {
    root: PathBuf,
}

impl ModelRepository {
    /// Opens the repository at `path`; its models are read when they are loaded.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RepositoryError> {
        let root = path.into();
        if root.is_dir() {
            Ok(Self { root })
        } else {
            Err(RepositoryError::NoRepository { path: root })
        }
    }

    /// Returns the path of the repository.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Names of the models, sorted: of every folder that holds a `model.toml`.
    pub fn list(&self) -> Result<Vec<String>, RepositoryError> {
        let mut names = Vec::new();
        for item in fs::read_dir(&self.root).map_err(RepositoryError::io("read", &self.root))? {
            let item = item.map_err(RepositoryError::io("read", &self.root))?;
            if let Ok(name) = item.file_name().into_string()
                && item.path().join(ModelToml::FILE_NAME).is_file()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads and validates the model `name` and finds its versions.
    pub fn load(&self, name: &str) -> Result<ModelEntry, RepositoryError> {
        check_name(name)?;
        let folder = self.root.join(name);
        if folder.join(ModelToml::FILE_NAME).is_file() {
            return ModelEntry::read(&folder, name);
        }
        let (repository, available) = (self.root.clone(), self.list()?);
        Err(RepositoryError::NoModel {
            repository,
            name: name.to_owned(),
            available,
        })
    }
}
