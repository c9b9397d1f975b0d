//! TOML whose mistakes are named in one line, the same in every file that Parapet reads.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::DeserializeOwned;

/// Reads the file at `path`.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let text = fs::read_to_string(path).map_err(FileError::io("read", path))?;
    parse(&text).map_err(|mistake| FileError::new(path, mistake))
}

/// Reads `text`.
///
/// # Errors
/// One line, for text that is no TOML, or where a field is unknown, missing or of the wrong type.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let at = |field: &str, error: &toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.get(..start).unwrap_or_default().split('\n').count();
        format!("line {line}: {}", mistake(field, error))
    };
    let file = toml::Deserializer::parse(text).map_err(|error| at("", &error))?;
    let read = serde_path_to_error::deserialize(file);
    read.map_err(|error| at(&error.path().to_string(), error.inner()))
}

/// Reads a part of a file, as [`parse`] does; the mistake names no line.
pub fn convert<T: DeserializeOwned>(table: toml::Table) -> Result<T, String> {
    let read = serde_path_to_error::deserialize(toml::Value::Table(table));
    read.map_err(|error| mistake(&error.path().to_string(), error.inner()))
}

/// `field` is the path to it, such as `models[0].timeout_ms`.
fn mistake(field: &str, error: &toml::de::Error) -> String {
    let words: Vec<&str> = error.message().split_whitespace().collect();
    let mut message = words.join(" ").replace("expected f64", "expected a number");
    for kind in ["u16", "u32", "u64", "usize"] {
        message = message.replace(&format!("expected {kind}"), "expected a whole number from 0");
    }
    let (table, last) = field.rsplit_once('.').unwrap_or(("", field));
    match message.starts_with(&format!("unknown field `{last}`")) {
        true if table.is_empty() => message,
        true => format!("{table}: {message}"),
        false if last.is_empty() => message,
        false => format!("{field}: {message}"),
    }
}

/// A file or folder that cannot be used: one line that names it, the field and the fix. A retry is
/// of no use before it has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// File or folder.
    pub path: PathBuf,
    /// Field, problem and fix, in one line.
    pub problem: String,
}

impl FileError {
    /// An error of the file at `path`.
    pub fn new(path: &Path, problem: impl ToString) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }

    /// An error of `field` in the file at `path`.
    pub fn field(path: &Path, field: &str, problem: &str, fix: &str) -> Self {
        Self::new(path, format_args!("{field}: {problem}; {fix}"))
    }

    /// The system's refusal of `action`, as "read".
    pub fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(path, format_args!("cannot {action}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        rate: u32,
        #[serde(default)]
        targets: Vec<Target>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Target {
        share: f64,
    }

    #[test]
    fn mistakes_name_line_and_field_in_one_line() {
        assert_eq!(parse::<File>("rate = 3").unwrap().rate, 3);
        for (text, line, named) in [
            ("rate = 3\n# ä\nspeed = 1\n", 3, "unknown field `speed`"),
            ("rate = \n", 1, ""),
            (
                "\nrate = \"3\"",
                2,
                "rate: invalid type: string \"3\", expected a whole number from 0",
            ),
            (
                "rate = 3\n[[targets]]\nshare = 1\n[[targets]]\nshare = \"half\"",
                5,
                "targets[1].share: invalid type: string \"half\", expected a number",
            ),
            ("rate = 3\n[[targets]]\nshar = 1", 3, "targets[0]: unknown field `shar`"),
            ("rate = 3\n[[targets]]\n", 2, "targets[0]: missing field `share`"),
            ("", 1, "missing field `rate`"),
        ] {
            let mistake = parse::<File>(text).unwrap_err();
            assert!(
                mistake.starts_with(&format!("line {line}: ")) && mistake.contains(named),
                "{mistake}"
            );
            assert!(!mistake.contains('\n'), "{mistake}");
        }
    }
}
