//! Parts of a Markdown file that benchmarks write, between marks, beside what people write.

use crate::prelude::*;

pub(crate) const FRONTEND: &str = "frontend/RESULTS.md";
pub(crate) const PARAMETER_SERVER: &str = "parity-trainer/parameter-server/RESULTS.md";

/// Puts `body` in the place of the file's section of this name, or at its end if it has none.
pub(crate) fn write(file: &str, name: &str, body: &str) -> Result<()> {
    let (sh, path) = (shell()?, root().join(file));
    let text = sh.read_file(&path)?;
    sh.write_file(&path, replaced(&text, name, body))?;
    println!("written: {}", path.display());
    Ok(())
}

/// A figure with what is wanted of it, and true if it is so.
pub(super) type Aim = (String, bool);

pub(super) fn at_least(least: f64, figure: f64, what: &str) -> Aim {
    let text = format!("{what}: {figure:.2} (wanted: {least})");
    (text, figure >= least)
}

pub(super) fn at_most(most: f64, figure: f64, what: &str) -> Aim {
    let text = format!("{what}: {figure:.2} (wanted: {most})");
    (text, figure <= most)
}

/// Prints a section of the frontend's results that ends with its aims, and writes it. Fails with
/// those that were missed.
pub(super) fn publish_frontend(name: &str, text: &str, aims: &[Aim]) -> Result<()> {
    let figures: Vec<&str> = aims.iter().map(|(figure, _)| figure.as_str()).collect();
    let text = format!("{text}{}.\n", figures.join("; "));
    println!("{text}");
    write(FRONTEND, name, &text)?;
    let missed = aims.iter().filter(|(_, is_met)| !is_met);
    let missed: Vec<&str> = missed.map(|(figure, _)| figure.as_str()).collect();
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

fn replaced(text: &str, name: &str, body: &str) -> String {
    let start = format!("<!-- written by: {name} -->");
    let end = format!("<!-- end of: {name} -->");
    let section = format!("{start}\n{}\n{end}", body.trim());
    let parts = text
        .split_once(&start)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    match parts {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{}\n\n{section}\n", text.trim_end()),
    }
}

/// The middle one of the runs, and the ends; `NaN` of none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) lowest: f64,
    pub(super) median: f64,
    pub(super) highest: f64,
}

impl Spread {
    pub(super) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self {
            lowest: at(0),
            median,
            highest: at(last),
        }
    }

    pub(super) fn text(&self, digits: usize) -> String {
        let [median, lowest, highest] =
            [self.median, self.lowest, self.highest].map(|value| format!("{value:.digits$}"));
        format!("{median} ({lowest}-{highest})")
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

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        let ends = |spread: Spread| [spread.lowest, spread.median, spread.highest];
        for (values, expected) in [
            (&[7.0][..], [7.0; 3]),
            (&[9.0, 1.0, 2.0], [1.0, 2.0, 9.0]),
            (&[9.0, 1.0, 2.0, 4.0], [1.0, 3.0, 9.0]),
        ] {
            assert_eq!(ends(Spread::new(values.iter().copied())), expected);
        }
        assert!(ends(Spread::new([])).iter().all(|value| value.is_nan()));
    }
}
