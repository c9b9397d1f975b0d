//! The folder of models.

use std::fs;
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::repository::model_toml::check_name;
use crate::repository::{ModelEntry, ModelToml};

/// A folder of models.
#[derive(Debug, Clone)]
pub struct ModelRepository {
    root: PathBuf,
}

impl ModelRepository {
    /// Opens the repository at `path`; its models are read when they are loaded.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let root = path.into();
        if root.is_dir() {
            return Ok(Self { root });
        }
        let problem = "not a folder; give the folder that holds the models";
        Err(FileError::new(&root, problem))
    }

    /// Returns the path of the repository.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Names of the models, sorted: of every folder that holds a `model.toml`.
    pub fn list(&self) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        for item in fs::read_dir(&self.root).map_err(FileError::io("read", &self.root))? {
            let item = item.map_err(FileError::io("read", &self.root))?;
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
    pub fn load(&self, name: &str) -> Result<ModelEntry, FileError> {
        check_name(name).map_err(|problem| FileError::new(&self.root, problem))?;
        let folder = self.root.join(name);
        if folder.join(ModelToml::FILE_NAME).is_file() {
            return ModelEntry::read(&folder, name);
        }
        let available = listing(&self.list()?);
        let problem = format_args!(
            "no model {name:?}, there is {available}; add {name}/model.toml or name another"
        );
        Err(FileError::new(&self.root, problem))
    }
}

pub(super) fn listing(items: &[impl ToString]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [] => "none".to_owned(),
        items => items.join(", "),
    }
}
