//! Counts of a frontend, and the conditions that they meet.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Verdict, Violation};
use crate::configuration::{MAX_IN_FLIGHT, REDUNDANT_BURST, REDUNDANT_SHARE};

/// A group all of whose members were answered stays open for those who come later: one for each
/// number of samples that clients send (1 to 3) and each domain (tenants that mix, and the one that
/// does not).
const OPEN_GROUPS: f64 = 6.0;

#[derive(Debug, Clone, Default)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Of Prometheus' text format.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self(values.collect())
    }

    /// Returns true if there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.series(name, &[]).next().is_some()
    }

    /// All series of this name with these labels, added up.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.series(name, labels).map(|(_, value)| value).sum()
    }

    fn series<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = (&'a str, f64)> {
        let is_meant = move |series: &str| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
                && labels
                    .iter()
                    .all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")))
        };
        let all = self.0.iter().map(|(series, value)| (series.as_str(), *value));
        all.filter(move |(series, _)| is_meant(series))
    }

    /// The value of `label` with each series of this name.
    fn by<'a>(&'a self, name: &'a str, label: &str) -> BTreeSet<&'a str> {
        let before = format!("{label}=\"");
        let value = |(series, _): (&'a str, f64)| series.split_once(&before)?.1.split('"').next();
        self.series(name, &[]).filter_map(value).collect()
    }
}

/// Returns violations of the conditions that hold at any time.
pub fn at_any_time(metrics: &Metrics) -> Vec<Violation> {
    let mut found = Vec::new();
    let violated = metrics.sum("parapet_invariant_violations_total", &[]);
    if violated > 0.0 {
        let said = format!("the frontend counts {violated} violations itself");
        found.push(("counter", said));
    }
    let agreement = "parapet_reconstruction_agreement_total";
    let of_backup = [("agrees", "false"), ("code", "backup")];
    let disagree = metrics.sum(agreement, &of_backup[..1]) - metrics.sum(agreement, &of_backup);
    if disagree > 0.0 {
        let said = "reconstructions of a linear model were not what it said itself";
        found.push(("CG-6", format!("{disagree} {said}")));
    }
    for name in ["parapet_queries_in_flight", "parapet_coding_groups_in_flight"] {
        let held = metrics.sum(name, &[]);
        // One that retires has its own beside its successor's.
        if held > 2.0 * MAX_IN_FLIGHT as f64 {
            found.push(("bounds", format!("{name} is {held}")));
        }
    }
    found
}

/// Answers that clients have seen of one frontend.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Requests with an answer, by what it was.
    pub answers: BTreeMap<Verdict, u64>,
    /// Requests that their clients gave up.
    pub abandoned: u64,
    /// Sent at all.
    pub sent: u64,
    /// Configurations that it has served.
    pub configurations: u64,
}

/// Returns violations of the conditions that hold once all requests have ended.
pub fn at_rest(metrics: &Metrics, seen: &Seen) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, most) in [
        ("parapet_queries_in_flight", 0.0),
        ("parapet_coding_groups_in_flight", OPEN_GROUPS),
        ("parapet_queries_queued", 0.0),
        ("parapet_request_bodies_bytes", 0.0),
    ] {
        let left = metrics.sum(name, &[]);
        if left > most || !metrics.has(name) {
            found.push(("CG-8", format!("{name} is {left} when all is over")));
        }
    }
    let abandoned = seen.abandoned;
    for verdict in Verdict::PREDICTIONS {
        let outcome = verdict.outcome();
        let counted = metrics.sum("parapet_requests_total", &[("outcome", outcome)]);
        let least = seen.answers.get(&verdict).copied().unwrap_or_default() as f64;
        // Answers to clients that went away are unknown.
        if counted < least || counted > least + abandoned as f64 {
            let said = format!(
                "{counted} requests counted as {outcome}, clients have seen {least} and given up \
                 {abandoned}"
            );
            found.push(("CG-1", said));
        }
    }
    let redundant = "parapet_redundant_requests_total";
    let (sent, configurations) = (seen.sent as f64, seen.configurations as f64);
    for class in metrics.by(redundant, "class") {
        let [issued, won, wasted, failed] = ["issued", "won", "wasted", "failed"]
            .map(|fate| metrics.sum(redundant, &[("class", class), ("fate", fate)]));
        let ended = won + wasted + failed;
        let said = format!("class {class}: {issued} redundant requests");
        if issued != ended {
            found.push(("CG-7", format!("{said} were issued, {ended} have ended")));
        }
        if issued > REDUNDANT_SHARE * sent + REDUNDANT_BURST * configurations {
            found.push(("CG-7", format!("{said} for {sent} queries")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# HELP parapet_queries_in_flight x\n\
        parapet_queries_in_flight{model=\"linear\"} \
        0\nparapet_coding_groups_in_flight{model=\"linear\"} 0\n\
        parapet_queries_queued{model=\"linear\"} 0\nparapet_request_bodies_bytes 0\n\
        parapet_requests_total{model=\"linear\",outcome=\"exact\"} 10\n\
        parapet_requests_total{model=\"linear\",outcome=\"reconstructed\"} 2\n\
        parapet_redundant_requests_total{model=\"linear\",class=\"default\",strategy=\"coded\",fate=\"issued\"} 5\n\
        parapet_redundant_requests_total{model=\"linear\",class=\"default\",strategy=\"coded\",fate=\"won\"} 2\n\
        parapet_redundant_requests_total{model=\"linear\",class=\"default\",strategy=\"coded\",fate=\"wasted\"} 3\n\
        parapet_reconstruction_agreement_total{model=\"linear\",code=\"sum\",source=\"audit\",agrees=\"true\"} 2\n\
        parapet_invariant_violations_total{model=\"linear\",invariant=\"CG-1\"} 0\n";

    fn seen() -> Seen {
        let answers = BTreeMap::from([(Verdict::Exact, 9), (Verdict::Reconstructed, 2)]);
        Seen { answers, abandoned: 1, sent: 12, configurations: 1 }
    }

    fn found(change: impl Fn(String) -> String) -> Vec<&'static str> {
        let metrics = Metrics::parse(&change(SCRAPE.to_owned()));
        let found = at_any_time(&metrics).into_iter().chain(at_rest(&metrics, &seen()));
        found.map(|(invariant, _)| invariant).collect()
    }

    #[test]
    fn whatever_does_not_add_up_is_seen() {
        assert_eq!(found(|text| text), [""; 0]);
        for (from, to, invariant) in [
            (
                "queries_in_flight{model=\"linear\"} 0",
                "queries_in_flight{model=\"linear\"} 1",
                "CG-8",
            ),
            (
                "groups_in_flight{model=\"linear\"} 0",
                "groups_in_flight{model=\"linear\"} 7",
                "CG-8",
            ),
            ("parapet_queries_queued", "parapet_something_else", "CG-8"),
            ("outcome=\"exact\"} 10", "outcome=\"exact\"} 11", "CG-1"),
            ("outcome=\"exact\"} 10", "outcome=\"exact\"} 8", "CG-1"),
            ("fate=\"wasted\"} 3", "fate=\"wasted\"} 2", "CG-7"),
            ("agrees=\"true\"", "agrees=\"false\"", "CG-6"),
            ("invariant=\"CG-1\"} 0", "invariant=\"CG-1\"} 1", "counter"),
        ] {
            let found = found(|text| text.replace(from, to));
            assert!(
                !found.is_empty() && found.iter().all(|other| *other == invariant),
                "{from} {to}: {found:?}"
            );
        }
    }

    #[test]
    fn more_redundant_requests_than_the_budget_are_seen() {
        let found = found(|text| {
            text.replace("issued\"} 5", "issued\"} 100").replace("wasted\"} 3", "wasted\"} 98")
        });
        assert_eq!(found, ["CG-7"]);
    }

    #[test]
    fn a_backup_models_disagreement_is_none() {
        assert_eq!(
            found(|text| text
                .replace("code=\"sum\"", "code=\"backup\"")
                .replace("agrees=\"true\"", "agrees=\"false\"")),
            [""; 0]
        );
    }
}
