//! Names that the reference pages must have: every metric, every alert, every flag of an instance.
//! Each is found where it is declared, whether or not a running program would show it.

use crate::prelude::*;

/// Names that stand in `source` between `before` and `after`, and the page that must tell of them.
struct Reference {
    source: &'static str,
    before: &'static str,
    after: char,
    page: &'static str,
}

/// Prefix of names that a page may leave out.
const SHARED: &str = "parapet_parameter_server_";

const fn metrics(source: &'static str) -> Reference {
    let (before, after) = ("&str = \"", '"');
    Reference {
        source,
        before,
        after,
        page: "docs/metrics.md",
    }
}

const REFERENCES: [Reference; 5] = [
    metrics("frontend/src/metrics/names.rs"),
    metrics("models/src/metrics.rs"),
    metrics("parity-trainer/cluster/src/roles/metrics.rs"),
    Reference {
        source: "deploy/prometheus/rules.yml",
        before: "- alert: ",
        after: '\n',
        page: "docs/operations.md",
    },
    Reference {
        source: "models/src/config/settings.rs",
        before: "    pub ",
        after: ':',
        page: "docs/instance.md",
    },
];

pub(super) fn check(sh: &Shell) -> Result<()> {
    for reference in &REFERENCES {
        let Reference { source, page, .. } = reference;
        let (text, told) = (sh.read_file(source)?, sh.read_file(page)?);
        let names = declared(reference, &text);
        ensure!(
            !names.is_empty(),
            "{source} declares nothing for {page} any more"
        );
        let missing: Vec<&str> = names
            .into_iter()
            .filter(|name| !is_told(&told, name))
            .collect();
        ensure!(
            missing.is_empty(),
            "{page} lacks what {source} declares: {}",
            missing.join(", ")
        );
    }
    Ok(())
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn declared<'a>(reference: &Reference, source: &'a str) -> Vec<&'a str> {
    let rests = source.split(reference.before).skip(1);
    let names = rests.filter_map(|rest| rest.split(reference.after).next());
    names.filter(|name| name.chars().all(is_part)).collect()
}

/// Returns true if a page has a name as a word of its own: `parapet_requests_total` does not tell
/// of `parapet_requests`.
fn is_told(page: &str, name: &str) -> bool {
    let short = name.strip_prefix(SHARED).unwrap_or(name);
    page.split(|c: char| !is_part(c))
        .any(|word| word == name || word == short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_are_found_and_told_apart() {
        let source = "pub const A: &str = \"parapet_a_total\";\n\
            const B: &str = \"parapet_parameter_server_b\";\n";
        let [a, b] = ["parapet_a_total", "parapet_parameter_server_b"];
        assert_eq!(declared(&metrics(""), source), [a, b]);
        for (page, name, told) in [
            ("| `parapet_a_total` |", a, true),
            ("| `parapet_a_total_more` |", a, false),
            ("and `b`", b, true),
            ("and `c`", b, false),
        ] {
            assert_eq!(is_told(page, name), told, "{page}");
        }
    }

    #[test]
    fn reference_pages_are_complete() {
        check(&crate::workspace::shell().unwrap()).unwrap();
    }
}
