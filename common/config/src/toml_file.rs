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
/// One line, for text that is no TOML, or in which a field is unknown, missing or of the wrong
/// type.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.bytes().take(start);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        let words: Vec<&str> = error.message().split_whitespace().collect();
        format!("line {line}: {}", words.join(" "))
    })
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
        let (path, problem) = (path.to_owned(), problem.to_string());
        Self { path, problem }
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
    }

    #[test]
    fn mistakes_name_their_line_in_one_line() {
        assert_eq!(parse("rate = 3"), Ok(File { rate: 3 }));
        for (text, line, named) in [
            ("rate = 3\n# ä\nspeed = 1\n", 3, "unknown field `speed`"),
            ("rate = \n", 1, ""),
            (
                "\nrate = \"3\"",
                2,
                "invalid type: string \"3\", expected u32",
            ),
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
