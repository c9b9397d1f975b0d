//! The OpenMetrics form of a scrape, which unlike Prometheus' own text format has exemplars.
//!
//! It is made from the other one, line by line. What differs (OpenMetrics 1.0): a counter's family
//! is named without `_total`, bounds of buckets are written as floating-point numbers, exemplars
//! come after samples, and the end is marked.

use std::collections::{HashMap, HashSet};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns true if an `Accept` header takes it, as Prometheus' does.
pub(super) fn is_accepted(accept: &str) -> bool {
    let ranges = accept
        .split(',')
        .map(|range| range.trim().to_ascii_lowercase());
    let mut ours =
        ranges.filter(|range| range.split(';').next() == Some("application/openmetrics-text"));
    ours.any(|range| !range.split(';').any(|parameter| parameter.trim() == "q=0"))
}

/// `text` in the other form; `exemplars` are what comes after a sample, by the series as it stands
/// in `text`.
pub(super) fn of(text: &str, exemplars: &HashMap<String, String>) -> String {
    let counters: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len() + 128 * exemplars.len());
    for line in text.lines().filter(|line| !line.is_empty()) {
        match family(line) {
            Some((keyword, name, rest)) if counters.contains(name) => {
                let name = name.strip_suffix("_total").unwrap_or(name);
                out.extend(["# ", keyword, " ", name, " ", rest]);
            }
            Some(_) => out.push_str(line),
            None => sample(line, exemplars, &mut out),
        }
        out.push('\n');
    }
    out.push_str("# EOF\n");
    out
}

/// Keyword, name and the rest of a line that describes a family.
fn family(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    Some((keyword, name, rest))
}

fn sample(line: &str, exemplars: &HashMap<String, String>, out: &mut String) {
    let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
    match line.split_once("le=\"") {
        Some((before, rest)) if series.contains("_bucket{") => {
            let bound = rest.split('"').next().unwrap_or_default();
            out.extend([before, "le=\"", bound]);
            if bound.bytes().all(|byte| byte.is_ascii_digit()) {
                out.push_str(".0");
            }
            out.push_str(&rest[bound.len()..]);
        }
        _ => out.push_str(line),
    }
    if let Some(exemplar) = exemplars.get(series) {
        out.push(' ');
        out.push_str(exemplar);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_it_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(is_accepted(prometheus) && is_accepted("Application/OpenMetrics-Text"));
        for other in [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;q=0",
            "application/openmetrics-textual",
        ] {
            assert!(!is_accepted(other), "{other}");
        }
    }

    #[test]
    fn what_differs_between_the_forms() {
        let text = "# HELP a_total How \"many\"\n# TYPE a_total counter\na_total{m=\"x\"} 3\n\n\
                    # HELP b_seconds B\n# TYPE b_seconds \
                    histogram\nb_seconds_bucket{m=\"x\",le=\"0.5\"} 1\n\
                    b_seconds_bucket{m=\"x\",le=\"1\"} 2\nb_seconds_bucket{m=\"x\",le=\"+Inf\"} \
                    2\nb_seconds_sum{m=\"x\"} 1.25\n\
                    b_seconds_count{m=\"x\"} 2\n\n# TYPE c gauge\nc{title=\"1\"} 7\n";
        let after = |series: &str| (series.to_owned(), "# {trace_id=\"ab\"} 0.75 1.5".to_owned());
        let exemplars = HashMap::from([after("b_seconds_bucket{m=\"x\",le=\"1\"}"), after("d")]);
        let expected = "# HELP a How \"many\"\n# TYPE a counter\na_total{m=\"x\"} 3\n\
                        # HELP b_seconds B\n# TYPE b_seconds \
                        histogram\nb_seconds_bucket{m=\"x\",le=\"0.5\"} 1\n\
                        b_seconds_bucket{m=\"x\",le=\"1.0\"} 2 # {trace_id=\"ab\"} 0.75 1.5\n\
                        b_seconds_bucket{m=\"x\",le=\"+Inf\"} 2\nb_seconds_sum{m=\"x\"} \
                        1.25\nb_seconds_count{m=\"x\"} 2\n\
                        # TYPE c gauge\nc{title=\"1\"} 7\n# EOF\n";
        assert_eq!(of(text, &exemplars), expected);
    }
}
