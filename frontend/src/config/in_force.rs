//! The configuration in force as TOML: every setting, with the line that it is from.

use std::fmt::Write as _;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{ConfigError, read};

const COMMENT_COLUMN: usize = 56;

/// All settings of the configuration `text`, each with its line in the file at `path`, or
/// `default`. Settings that are off by default and left out are not among them.
pub(super) fn in_force(path: &Path, text: &str) -> Result<String, ConfigError> {
    let wrong = |error: &dyn std::fmt::Display| ConfigError(format!("{}: {error}", path.display()));
    let all = Table::try_from(read(path, text)?).map_err(|error| wrong(&error))?;
    let written = DeTable::parse(text).map_err(|error| wrong(&error))?;
    let mut printed = Printed { text, out: String::new() };
    printed.table("", &all, Some(written.get_ref()));
    Ok(printed.out)
}

struct Printed<'a> {
    text: &'a str,
    out: String,
}

impl Printed<'_> {
    /// Prints a table's own values, then the tables within; `path` is the name of its header.
    fn table(&mut self, path: &str, table: &Table, written: Option<&DeTable<'_>>) {
        let is_inner = |value: &Value| match value {
            Value::Table(_) => true,
            Value::Array(items) => matches!(items.first(), Some(Value::Table(_))),
            _ => false,
        };
        let found = |name: &String| written.and_then(|written| written.get(name.as_str()));
        for (name, value) in table.iter().filter(|(_, value)| !is_inner(value)) {
            let origin = match found(name) {
                Some(value) => {
                    let before = self.text.get(..value.span().start).unwrap_or_default();
                    format!("line {}", before.split('\n').count())
                }
                None => "default".to_owned(),
            };
            let line = format!("{name} = {value}");
            let _ = writeln!(self.out, "{line:COMMENT_COLUMN$}  # {origin}");
        }
        for (name, value) in table.iter().filter(|(_, value)| is_inner(value)) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let written = found(name).map(|value| value.get_ref());
            match (value, written) {
                (Value::Table(table), written) => {
                    let _ = writeln!(self.out, "\n[{path}]");
                    self.table(&path, table, written.and_then(DeValue::as_table));
                }
                (Value::Array(items), written) => {
                    let written = written.and_then(DeValue::as_array);
                    for (index, table) in items.iter().filter_map(Value::as_table).enumerate() {
                        let _ = writeln!(self.out, "\n[[{path}]]");
                        let written = written.and_then(|items| items.get(index));
                        let written = written.and_then(|item| item.get_ref().as_table());
                        self.table(&path, table, written);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[server]\nlisten = \"localhost:9000\"\nbody_read_timeout_ms = 2.5\n\
        [[models]]\nname = \"m\"\ninstances = [\"a:1\", \"b:1\"]\n\
        health = { interval_ms = 250 }\n\
        [models.strategy]\nkind = \"coded\"\nencoder = \"stack\"\nk = 2\n\
        [[models.strategy.parity]]\nmodel = \"p\"\ninstances = [\"c:1\"]\n";

    #[test]
    fn every_setting_is_there_with_its_line_and_the_whole_means_the_same() {
        let printed = in_force(Path::new("p.toml"), TEXT).unwrap();
        let lines: Vec<String> = printed
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "listen = \"127.0.0.1:9000\" # line 2",
            "body_read_timeout_ms = 2.5 # line 3",
            "max_body_bytes = 16777216 # default",
            "instances = [\"a:1\", \"b:1\"] # line 6",
            "interval_ms = 250 # line 7",
            "failures = 2 # default",
            "[models.strategy.hold_back]",
            "percentile = 0.97 # default",
            "k = 2 # line 11",
            "decoding = \"slots\" # default",
            "flush_after_ms = 10 # default",
            "[[models.strategy.parity]]",
            "model = \"p\" # line 13",
        ] {
            assert!(lines.iter().any(|printed| printed == line), "{line} is not in\n{printed}");
        }
        let bare = |text: &str| Table::try_from(read(Path::new("p.toml"), text).unwrap()).unwrap();
        assert_eq!(bare(&printed), bare(TEXT));
    }
}
