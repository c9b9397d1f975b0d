//! Redundant work, by a frontend's metrics.

use std::collections::BTreeSet;

use crate::compare::Redundancy;

const UP: &str = "parapet_instance_up{";

pub(super) fn redundancy(scrape: &str, model: &str) -> Redundancy {
    let of_model = format!("model=\"{model}\"");
    let sum = |name: &str, label: &str| -> u64 {
        let lines = scrape.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with(['{', ' ']) && rest.contains(label) && rest.contains(&of_model)
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.map(|value| value as u64).sum()
    };
    let requests = |fate: &str| {
        sum(
            "parapet_redundant_requests_total",
            &format!("fate=\"{fate}\""),
        )
    };
    let groups = [
        "parapet_coding_groups_total",
        "parapet_coding_groups_spared_total",
    ];
    Redundancy {
        issued: requests("issued"),
        won: requests("won"),
        wasted: requests("wasted"),
        shed: requests("shed"),
        failed: requests("failed"),
        unrecoverable: sum("parapet_late_unrecoverable_total", ""),
        groups: groups.iter().map(|name| sum(name, "")).sum(),
        upstream_requests: sum("parapet_upstream_request_duration_seconds_count", ""),
    }
}

pub(super) fn combine(
    a: &Redundancy,
    b: &Redundancy,
    with: impl Fn(u64, u64) -> u64,
) -> Redundancy {
    Redundancy {
        issued: with(a.issued, b.issued),
        won: with(a.won, b.won),
        wasted: with(a.wasted, b.wasted),
        shed: with(a.shed, b.shed),
        failed: with(a.failed, b.failed),
        unrecoverable: with(a.unrecoverable, b.unrecoverable),
        groups: with(a.groups, b.groups),
        upstream_requests: with(a.upstream_requests, b.upstream_requests),
    }
}

/// Instances that serve `model` in some way, each once; `None` in a scrape that knows of none.
pub(super) fn instances(scrape: &str, model: &str) -> Option<usize> {
    let of_model = format!("model=\"{model}\"");
    let lines = scrape
        .lines()
        .filter(|line| line.starts_with(UP) && line.contains(&of_model));
    let names = lines.filter_map(|line| line.split_once("instance=\"")?.1.split('"').next());
    let names: BTreeSet<&str> = names.collect();
    (!names.is_empty()).then_some(names.len())
}

pub(super) fn all_up(scrape: &str) -> bool {
    let mut instances = scrape
        .lines()
        .filter(|line| line.starts_with(UP))
        .peekable();
    instances.peek().is_some() && instances.all(|line| line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# TYPE parapet_redundant_requests_total counter\n\
        parapet_redundant_requests_total{model=\"m\",fate=\"issued\"} 12\n\
        parapet_redundant_requests_total{model=\"m\",fate=\"won\"} 3\n\
        parapet_coding_groups_total{model=\"m\",fillers=\"false\"} 5\n\
        parapet_coding_groups_total{model=\"m\",fillers=\"true\"} 2\n\
        parapet_coding_groups_spared_total{model=\"m\"} 4\n\
        parapet_coding_groups_total{model=\"other\",fillers=\"true\"} 9\n\
        parapet_instance_up{model=\"m\",pool=\"deployed\",instance=\"a\"} 1\n";

    #[test]
    fn instances_count_once() {
        let again = SCRAPE.replace("pool=\"deployed\"", "pool=\"parity\"");
        let other = SCRAPE.replace("instance=\"a\"", "instance=\"b\"");
        assert_eq!(instances(&format!("{SCRAPE}{again}{other}"), "m"), Some(2));
        assert_eq!(instances(SCRAPE, "other"), None);
    }

    #[test]
    fn totals_are_summed_over_labels() {
        let found = redundancy(SCRAPE, "m");
        assert_eq!((found.issued, found.won, found.groups), (12, 3, 11));
        let twice = combine(&found, &found, u64::saturating_add);
        assert_eq!(combine(&twice, &found, u64::saturating_sub), found);
        let down = SCRAPE.replace("\"a\"} 1", "\"a\"} 0");
        assert!(all_up(SCRAPE) && !all_up(&down) && !all_up(""));
    }
}
