//! Command lines of this program, with folders by name: `DATA/mnist` when told, the user's own
//! folder when run.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder that a path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Data,
    Models,
    Out,
}

impl Root {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Models => "MODELS",
            Self::Out => "OUT",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) data: PathBuf,
    pub(super) models: PathBuf,
    pub(super) out: PathBuf,
}

impl Roots {
    pub(super) fn of(&self, root: Root) -> &Path {
        match root {
            Root::Data => &self.data,
            Root::Models => &self.models,
            Root::Out => &self.out,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Text(String),
    /// One or more, which a comma parts.
    Paths(Root, Vec<String>),
}

/// A command line without the program's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine(Vec<Word>);

impl CommandLine {
    pub(super) fn new(command: &str) -> Self {
        Self(vec![Word::Text(command.to_owned())])
    }

    /// Adds `--name`.
    pub(super) fn flag(&mut self, name: &str) {
        self.0.push(Word::Text(format!("--{name}")));
    }

    /// Adds `--name path`.
    pub(super) fn path(&mut self, name: &str, root: Root, path: impl Into<String>) {
        self.paths(name, root, &[path.into()]);
    }

    /// Adds `--name path,path`.
    pub(super) fn paths(&mut self, name: &str, root: Root, paths: &[String]) {
        self.flag(name);
        self.0.push(Word::Paths(root, paths.to_vec()));
    }

    /// Adds `--name value`; the value as a TOML file has it.
    pub(super) fn setting(&mut self, name: &str, value: &toml::Value) {
        self.flag(name);
        self.0.push(Word::Text(plain(value)));
    }

    pub(super) fn arguments(&self, roots: &Roots) -> Vec<OsString> {
        let argument = |word: &Word| match word {
            Word::Text(text) => text.into(),
            Word::Paths(root, paths) => {
                let paths: Vec<OsString> = paths
                    .iter()
                    .map(|path| roots.of(*root).join(path).into_os_string())
                    .collect();
                paths.join(",".as_ref())
            }
        };
        self.0.iter().map(argument).collect()
    }

    pub(super) fn digest(&self, others: &[&dyn fmt::Display]) -> String {
        let mut hash = Sha256::new();
        hash.update(self.to_string());
        for other in others {
            hash.update(format!("\n{other}"));
        }
        format!("{:x}", hash.finalize())
    }
}

/// A value as a flag has it: text without quotes, lists with commas.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("parity-trainer")?;
        for word in &self.0 {
            match word {
                Word::Text(text) => write!(f, " {text}")?,
                Word::Paths(root, paths) => {
                    let paths: Vec<String> = paths
                        .iter()
                        .map(|path| format!("{}/{path}", root.name()))
                        .collect();
                    write!(f, " {}", paths.join(","))?;
                }
            }
        }
        Ok(())
    }
}
