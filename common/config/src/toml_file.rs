//! TOML whose mistakes are named in one line, the same in every file that Parapet reads.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::FileError;

/// Reads the file at `path`.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let text = fs::read_to_string(path).map_err(FileError::io("read", path))?;
    parse(&text).map_err(|mistake| FileError::new(path, mistake))
}

/// Text that is no TOML, or in which a field is unknown, missing or of the wrong type; one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Mistake {
    /// Line of the mistake, from 1.
    pub line: usize,
    /// Description of the mistake, in one line.
    pub message: String,
}

/// Reads `text`.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.bytes().take(start);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        let words: Vec<&str> = error.message().split_whitespace().collect();
        let message = words.join(" ");
        Mistake { line, message }
    })
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
                mistake.line == line && mistake.message.contains(named),
                "{mistake}"
            );
            assert!(!mistake.to_string().contains('\n'), "{mistake}");
        }
    }
}
