//! Names that the reference pages must have: every metric, every alert, every flag of an instance.
//! Each is found where it is declared, whether or not a running program would show it.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Names that stand in `source` between `before` and `after`, and where they must be told of.
struct Reference {
    what: &'static str,
    source: &'static str,
    before: &'static str,
    after: char,
    page: &'static str,
    /// Prefix of names on the page, which may leave it out.
    shared: &'static str,
}

const METRICS: Reference = Reference {
    what: "metric",
    source: "",
    before: "&str = \"",
    after: '"',
    page: "docs/metrics.md",
    shared: "parapet_parameter_server_",
};

const REFERENCES: [Reference; 5] = [
    Reference {
        source: "frontend/src/metrics/names.rs",
        ..METRICS
    },
    Reference {
        source: "models/src/metrics.rs",
        ..METRICS
    },
    Reference {
        source: "parity-trainer/cluster/src/roles/metrics.rs",
        ..METRICS
    },
    Reference {
        what: "alert",
        source: "deploy/prometheus/rules.yml",
        before: "- alert: ",
        after: '\n',
        page: "docs/operations.md",
        shared: "",
    },
    Reference {
        what: "setting",
        source: "models/src/config/settings.rs",
        before: "    pub ",
        after: ':',
        page: "docs/instance.md",
        shared: "",
    },
];

pub(super) fn check() -> Result<()> {
    for reference in &REFERENCES {
        let read = |path: &str| {
            fs::read_to_string(workspace::root().join(path))
                .with_context(|| format!("cannot read {path}"))
        };
        let (source, page) = (read(reference.source)?, read(reference.page)?);
        let names = declared(reference, &source);
        ensure!(
            !names.is_empty(),
            "{} declares no {} any more",
            reference.source,
            reference.what
        );
        let missing: Vec<&str> = names
            .into_iter()
            .filter(|name| !is_told(&page, name, reference.shared))
            .collect();
        ensure!(
            missing.is_empty(),
            "{} lacks every {} of these, which {} declares: {}",
            reference.page,
            reference.what,
            reference.source,
            missing.join(", ")
        );
    }
    Ok(())
}

fn declared<'a>(reference: &Reference, source: &'a str) -> Vec<&'a str> {
    let names = source
        .split(reference.before)
        .skip(1)
        .filter_map(|rest| rest.split(reference.after).next());
    names
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .collect()
}

/// Returns true if a page has a name as a word of its own: `parapet_requests_total` does not tell
/// of `parapet_requests`.
fn is_told(page: &str, name: &str, shared: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = page.split(|c: char| !is_part(c));
    let short = Some(name)
        .filter(|_| !shared.is_empty())
        .and_then(|name| name.strip_prefix(shared));
    words.any(|word| word == name || Some(word) == short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_is_found_and_told_apart() {
        let source = "pub const A: &str = \"parapet_a_total\";\nconst B: &str = \
            \"parapet_parameter_server_b\";\n";
        assert_eq!(
            declared(&METRICS, source),
            ["parapet_a_total", "parapet_parameter_server_b"]
        );
        assert!(is_told(
            "| `parapet_a_total` |",
            "parapet_a_total",
            METRICS.shared
        ));
        assert!(!is_told(
            "| `parapet_a_total_more` |",
            "parapet_a_total",
            METRICS.shared
        ));
        assert!(is_told(
            "and `b`",
            "parapet_parameter_server_b",
            METRICS.shared
        ));
        assert!(!is_told(
            "and `c`",
            "parapet_parameter_server_b",
            METRICS.shared
        ));
    }

    #[test]
    fn the_reference_pages_are_complete() {
        check().unwrap();
    }
}
