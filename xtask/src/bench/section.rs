//! Parts of a Markdown file that benchmarks write, between marks, beside what people write.

use crate::prelude::*;

pub(crate) const FRONTEND: &str = "frontend/RESULTS.md";
pub(crate) const PARAMETER_SERVER: &str = "parity-trainer/parameter-server/RESULTS.md";

/// Puts `body` in the place of the file's section of this name, or at its end if it has none.
pub(crate) fn write(file: &str, name: &str, body: &str) -> Result<()> {
    let (sh, path) = (shell()?, root().join(file));
    let text = if path.exists() {
        sh.read_file(&path)?
    } else {
        "# Results\n".to_owned()
    };
    sh.write_file(&path, replaced(&text, name, body))?;
    println!("written: {}", path.display());
    Ok(())
}

/// Prints a section of the frontend's results that ends with its aims, and writes it.
///
/// An aim is a figure in words, and true if it was met. Fails with those that were missed.
pub(super) fn publish_frontend(name: &str, text: &str, aims: &[(bool, String)]) -> Result<()> {
    let figures: Vec<&str> = aims.iter().map(|(_, figure)| figure.as_str()).collect();
    let text = format!("{text}{}.\n", figures.join("; "));
    println!("{text}");
    write(FRONTEND, name, &text)?;
    let missed = aims.iter().filter(|(is_met, _)| !is_met);
    let missed: Vec<&str> = missed.map(|(_, figure)| figure.as_str()).collect();
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
    fn section_is_appended_once_and_replaced_after_that() {
        let one = |body| format!("<!-- written by: one -->\n{body}\n<!-- end of: one -->\n");
        let first = replaced("# Title\n\nWords.\n", "one", "1\n");
        assert_eq!(first, format!("# Title\n\nWords.\n\n{}", one("1")));
        let second = replaced(&format!("{first}\nMore words.\n"), "two", "2");
        let third = replaced(&second, "one", "1 again");
        assert_eq!(third, second.replace(&one("1"), &one("1 again")));
        assert!(
            third.contains("\n2\n") && third.contains("More words."),
            "{third}"
        );
    }
}
