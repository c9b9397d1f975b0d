//! Rounds of a comparison, and parts of a Markdown file that benchmarks write, between marks,
//! beside what people write.

use crate::prelude::*;

pub(crate) const FRONTEND: &str = "frontend/RESULTS.md";
pub(crate) const MODELS: &str = "models/RESULTS.md";
pub(crate) const PARAMETER_SERVER: &str = "parity-trainer/parameter-server/RESULTS.md";

/// Puts `body` in the place of the file's section of this name, or at its end if it has none.
pub(crate) fn write(file: &str, name: &str, body: &str) -> Result<()> {
    let (sh, path) = (shell()?, root().join(file));
    sh.write_file(&path, replaced(&sh.read_file(&path)?, name, body))?;
    println!("written: {}", path.display());
    Ok(())
}

/// A figure with its unit, and what is wanted of it: so much at least, or at most.
pub(super) enum Aim<'a> {
    AtLeast(f64, f64, &'a str),
    AtMost(f64, f64, &'a str),
}

/// Prints a section of results that ends with its aims, and writes it. Fails with those missed.
pub(super) fn publish(file: &str, name: &str, text: &str, aims: &[Aim<'_>]) -> Result<()> {
    let (mut figures, mut missed) = (Vec::new(), Vec::new());
    for aim in aims {
        let (Aim::AtLeast(wanted, figure, what) | Aim::AtMost(wanted, figure, what)) = aim;
        let is_met = match aim {
            Aim::AtLeast(..) => figure >= wanted,
            Aim::AtMost(..) => figure <= wanted,
        };
        let text = format!("{what}: {figure:.2} (wanted: {wanted})");
        missed.extend((!is_met).then(|| text.clone()));
        figures.push(text);
    }
    let text = format!("{text}{}.\n", figures.join("; "));
    println!("{text}");
    write(file, name, &text)?;
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}

fn replaced(text: &str, name: &str, body: &str) -> String {
    let start = format!("<!-- written by: {name} -->");
    let end = format!("<!-- end of: {name} -->");
    let section = format!("{start}\n{}\n{end}", body.trim());
    if let Some((before, rest)) = text.split_once(&start)
        && let Some((_, after)) = rest.split_once(&end)
    {
        return format!("{before}{section}{after}");
    }
    format!("{}\n\n{section}\n", text.trim_end())
}

/// Measures every arm once a round, in an order that every other round turns round; returns what
/// each arm gave, round by round. Rounds count from 1.
pub(super) fn in_turns<T>(
    rounds: u64,
    arms: usize,
    mut measure: impl FnMut(u64, usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut measured: Vec<Vec<T>> = (0..arms).map(|_| Vec::new()).collect();
    for round in 1..=rounds.max(1) {
        for turn in 0..arms {
            let arm = if round.is_multiple_of(2) { arms - 1 - turn } else { turn };
            measured[arm].push(measure(round, arm)?);
        }
    }
    Ok(measured)
}

/// One figure of an arm's rounds, each of which has several.
pub(super) fn spread<const N: usize>(rounds: &[[f64; N]], figure: usize) -> Spread {
    Spread::new(rounds.iter().map(|round| round[figure]))
}

/// Ratios of a figure to that of another arm in the same round.
pub(super) fn ratio<const N: usize>(
    rounds: &[[f64; N]],
    base: &[[f64; N]],
    figure: usize,
) -> Spread {
    Spread::new(rounds.iter().zip(base).map(|(round, base)| round[figure] / base[figure]))
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
        Self { lowest: at(0), median, highest: at(last) }
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
        assert!(third.contains("\n2\n") && third.contains("More words."), "{third}");
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
