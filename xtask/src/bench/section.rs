//! Parts of a Markdown file that benchmarks write, between marks, beside what people write.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Puts `body` in the place of the file's section of this name, or at its end if it has none. A
/// file that is not there begins with `title`.
pub(crate) fn write(path: &Path, title: &str, name: &str, body: &str) -> Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("# {title}\n"),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    workspace::write(path, replaced(&text, name, body))
}

/// Prints a section of `frontend/RESULTS.md` that ends with its aims, and writes it.
///
/// An aim is a figure in words, and true if it was met. Fails with those that were missed.
pub(super) fn publish_frontend(
    command: &str,
    mut text: String,
    aims: &[(bool, String)],
) -> Result<()> {
    let figures: Vec<&str> = aims.iter().map(|(_, figure)| figure.as_str()).collect();
    text.push_str(&figures.join("; "));
    text.push_str(".\n");
    println!("{text}");
    let path = workspace::root().join("frontend/RESULTS.md");
    write(&path, "What was measured of the frontend", command, &text)?;
    let missed: Vec<&str> = aims
        .iter()
        .filter(|(is_met, _)| !is_met)
        .map(|(_, figure)| figure.as_str())
        .collect();
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

fn replaced(text: &str, name: &str, body: &str) -> String {
    let (start, end) = (
        format!("<!-- written by: {name} -->"),
        format!("<!-- end of: {name} -->"),
    );
    let section = format!("{start}\n{}\n{end}", body.trim());
    let parts = text
        .split_once(&start)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    match parts {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{}\n\n{section}\n", text.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_appended_once_and_replaced_after_that() {
        let first = replaced("# Title\n\nWords.\n", "one", "1\n");
        assert_eq!(
            first,
            "# Title\n\nWords.\n\n<!-- written by: one -->\n1\n<!-- end of: one -->\n"
        );
        let second = replaced(&format!("{first}\nMore words.\n"), "two", "2");
        let third = replaced(&second, "one", "1 again");
        assert!(
            third.contains("1 again") && third.contains("\n2\n") && third.contains("More words."),
            "{third}"
        );
        assert!(
            !third.contains("\n1\n") && third.matches("written by: one").count() == 1,
            "{third}"
        );
    }
}
