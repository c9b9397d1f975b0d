//! The folder of models, and a model in it.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use parapet_decoder::{Agreement, OutputError};
use parapet_open_inference::ModelMetadata;

use crate::FileError;
use crate::repository::model_toml::check_name;
use crate::repository::{ModelToml, Platform, TensorSpec};

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
        Err(FileError::new(&root, "not a folder; give the folder that holds the models"))
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

    /// Reads and validates the model `name` and finds its versions; `None` without a `model.toml`.
    pub fn find(&self, name: &str) -> Result<Option<ModelEntry>, FileError> {
        check_name(name).map_err(|problem| FileError::new(&self.root, problem))?;
        let folder = self.root.join(name);
        let is_there = folder.join(ModelToml::FILE_NAME).is_file();
        is_there.then(|| ModelEntry::read(&folder, name)).transpose()
    }

    /// As [`find`](Self::find), for a model that must be there.
    pub fn load(&self, name: &str) -> Result<ModelEntry, FileError> {
        if let Some(entry) = self.find(name)? {
            return Ok(entry);
        }
        let available = listing(&self.list()?);
        let problem = format_args!(
            "no model {name:?}, there is {available}; add {name}/model.toml or name another"
        );
        Err(FileError::new(&self.root, problem))
    }
}

/// A model of the repository, validated; its versions' files were there when it was loaded. Or one
/// that [other servers describe](Self::described).
#[derive(Debug, Clone, PartialEq)]
pub struct ModelEntry {
    pub(super) toml: ModelToml,
    /// Version numbers, ascending; never empty in the repository.
    pub versions: Vec<u64>,
    pub(super) folder: Option<PathBuf>,
}

impl Deref for ModelEntry {
    type Target = ModelToml;

    fn deref(&self) -> &ModelToml {
        &self.toml
    }
}

impl ModelEntry {
    pub(crate) fn read(folder: &Path, name: &str) -> Result<Self, FileError> {
        let path = folder.join(ModelToml::FILE_NAME);
        let toml = ModelToml::read(&path)?;
        if toml.name != name {
            let problem = format!("{:?} is not the folder's name", toml.name);
            let fix = format!("write name = {name:?}");
            return Err(FileError::field(&path, "name", &problem, &fix));
        }
        let (versions, folder) = (versions(folder, &toml.platform)?, Some(folder.to_owned()));
        Ok(Self { toml, versions, folder })
    }

    /// Returns false for a model that other servers describe.
    pub fn is_in_repository(&self) -> bool {
        self.folder.is_some()
    }

    /// The comparison of the values of the output at `position`.
    ///
    /// # Errors
    /// [`OutputError`] where that output has no class scores and is of no other known kind.
    pub fn agreement(&self, position: usize) -> Result<Agreement, OutputError> {
        let kind = self.output.as_ref().filter(|_| position == 0);
        let shape = self.outputs.get(position).and_then(|output| output.shape.fixed());
        Agreement::of(kind, &shape.unwrap_or_default())
    }

    /// The version that is served when none is named: the highest.
    pub fn latest(&self) -> u64 {
        self.versions.last().copied().unwrap_or_default()
    }

    /// Path of its folder; of its name alone where it has none.
    fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new(&self.name))
    }

    /// The `model.toml` that describes the model.
    pub fn toml_file(&self) -> PathBuf {
        self.folder().join(ModelToml::FILE_NAME)
    }

    /// The file of `version`; of a learned code, its encoder's.
    pub fn model_file(&self, version: u64) -> Result<PathBuf, FileError> {
        Ok(self.version_folder(version)?.join(self.platform.file_name()))
    }

    /// The folder of `version`, with the files that its platform names ([`Platform::file_names`]).
    ///
    /// # Errors
    /// If there is no such version.
    pub fn version_folder(&self, version: u64) -> Result<PathBuf, FileError> {
        if self.versions.contains(&version) {
            return Ok(self.folder().join(version.to_string()));
        }
        let available = listing(&self.versions);
        let problem = format_args!("no version {version}, there is {available}");
        Err(FileError::new(self.folder(), problem))
    }

    /// Returns the protocol's metadata of the model.
    pub fn metadata(&self) -> ModelMetadata {
        ModelMetadata {
            name: self.name.clone(),
            versions: self.versions.iter().map(u64::to_string).collect(),
            platform: self.platform.to_string(),
            inputs: self.inputs.iter().map(TensorSpec::metadata).collect(),
            outputs: self.outputs.iter().map(TensorSpec::metadata).collect(),
        }
    }
}

/// Name for the model in `file`: its entry's for `NAME/VERSION/model.onnx`, else the file's without
/// its end. What cannot be in a name becomes `-`; `None` if nothing is left.
pub fn name_of(file: &Path) -> Option<String> {
    let stem = |path: &Path| Some(path.file_stem()?.to_string_lossy().into_owned());
    let named = entry_folder(file).map_or_else(
        || stem(file),
        |folder| Some(folder.file_name()?.to_string_lossy().into_owned()),
    );
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name = named?.replace(|letter| !is_allowed(letter), "-");
    let name = name.trim_start_matches(['-', '_', '.']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Folder of the entry that `file` belongs to, as `NAME/VERSION/model.onnx`; `None` for others.
pub fn entry_folder(file: &Path) -> Option<&Path> {
    let version = file.parent()?;
    let is_version = version.file_name()?.to_str()?.parse::<u64>().is_ok();
    (is_version && file.file_stem()? == "model").then(|| version.parent())?
}

fn versions(folder: &Path, platform: &Platform) -> Result<Vec<u64>, FileError> {
    let mut versions = Vec::new();
    let unreadable = || FileError::io("read", folder);
    for item in fs::read_dir(folder).map_err(unreadable())? {
        let item = item.map_err(unreadable())?;
        let name = item.file_name();
        // Only the plain spelling: "01" would name version 1 a second time.
        let plain = |name: &str| name.parse::<u64>().ok().filter(|n| n.to_string() == name);
        let version = name.to_str().and_then(plain);
        let Some(version) = version.filter(|_| item.path().is_dir()) else { continue };
        let mut files = platform.file_names().iter();
        if let Some(missing) = files.find(|name| !item.path().join(name).is_file()) {
            let fix = "put the model's file there or remove the folder";
            return Err(FileError::field(&item.path(), missing, "missing", fix));
        }
        versions.push(version);
    }
    versions.sort_unstable();
    if versions.is_empty() && matches!(platform, Platform::Foreign(_)) {
        versions.push(1);
    }
    if versions.is_empty() {
        let fix = format!("put the model's file at 1/{}", platform.file_name());
        return Err(FileError::field(folder, "versions", "none", &fix));
    }
    Ok(versions)
}

fn listing(items: &[impl ToString]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [] => "none".to_owned(),
        items => items.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_entry_or_its_file() {
        for (file, folder, name) in [
            ("/models/fashion/3/model.onnx", Some("/models/fashion"), Some("fashion")),
            ("/models/fashion/3/other.onnx", None, Some("other")),
            ("/tmp/digits.v2.onnx", None, Some("digits.v2")),
            ("model.onnx", None, Some("model")),
            ("a b.pt", None, Some("a-b")),
            ("..onnx", None, None),
        ] {
            let found = (entry_folder(Path::new(file)), name_of(Path::new(file)));
            assert_eq!(found, (folder.map(Path::new), name.map(str::to_owned)), "{file}");
        }
    }
}
