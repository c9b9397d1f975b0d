//! Queries of the dashboard, the rules and the adapter.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A query, and where it stands.
pub(super) struct Query {
    pub(super) name: String,
    pub(super) expression: String,
}

/// Returns the queries of all panels, with Grafana's variables filled in.
pub(super) fn of_dashboard(json: &str) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(json).context("the dashboard")?;
    let panels = dashboard
        .get("panels")
        .and_then(Value::as_array)
        .context("no panels")?;
    let mut queries = Vec::new();
    for panel in panels
        .iter()
        .filter(|panel| panel.get("type").and_then(Value::as_str) != Some("row"))
    {
        let title = panel
            .get("title")
            .and_then(Value::as_str)
            .context("a panel without a title")?;
        let targets = panel.get("targets").and_then(Value::as_array);
        let targets = targets.filter(|targets| !targets.is_empty());
        for target in targets.with_context(|| format!("{title}: no query"))? {
            let expression = target
                .get("expr")
                .and_then(Value::as_str)
                .context("a target without expr")?;
            let expression = expression
                .replace("$__rate_interval", "30s")
                .replace("$model", ".*");
            ensure!(
                !expression.contains('$'),
                "{title}: an unknown variable in {expression}"
            );
            queries.push(Query {
                name: format!("panel {title:?}"),
                expression,
            });
        }
    }
    Ok(queries)
}

/// Returns the queries of all rules. Of an alert, what stands before the comparison: the whole of
/// it gives nothing while all is well.
pub(super) fn of_rules(rules: &Value) -> Result<Vec<Query>> {
    let groups = rules
        .pointer("/data/groups")
        .and_then(Value::as_array)
        .context("no groups of rules")?;
    let rules = groups
        .iter()
        .filter_map(|group| group.get("rules")?.as_array())
        .flatten();
    let queries: Result<Vec<Query>> = rules
        .map(|rule| {
            let text = |field: &str| rule.get(field).and_then(Value::as_str).unwrap_or_default();
            let (name, expression) = (format!("rule {}", text("name")), text("query"));
            let expression = match text("type") {
                "alerting" => before_comparison(expression).with_context(|| {
                    format!("{name}: end its expression in a comparison with a number")
                })?,
                _ => expression,
            };
            Ok(Query {
                name,
                expression: expression.to_owned(),
            })
        })
        .collect();
    let queries = queries?;
    ensure!(!queries.is_empty(), "no rules");
    Ok(queries)
}

/// Returns the queries of the Prometheus adapter, with its templates filled in as it does
/// for a pod.
pub(super) fn of_adapter(yaml: &str) -> Result<Vec<Query>> {
    let field = |name: &str| -> Result<&str> {
        let line = yaml
            .lines()
            .find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(name));
        line.map(str::trim)
            .with_context(|| format!("no {name} in the adapter's configuration"))
    };
    let series = field("seriesQuery:")?;
    let name = series.split('{').next().unwrap_or_default();
    let expression = field("metricsQuery:")?
        .replace("<<.GroupBy>>", "pod")
        .replace("<<.Series>>", name)
        .replace(
            "<<.LabelMatchers>>",
            "namespace=\"check\",pod=~\"frontend\"",
        );
    Ok(vec![
        Query {
            name: "the adapter's seriesQuery".to_owned(),
            expression: format!("count({series})"),
        },
        Query {
            name: "the adapter's metricsQuery".to_owned(),
            expression,
        },
    ])
}

fn before_comparison(expression: &str) -> Option<&str> {
    let (before, number) = expression.trim().rsplit_once(['>', '<', '='])?;
    number.trim().parse::<f64>().ok()?;
    Some(before.trim_end_matches(['>', '<', '=', '!', ' ']))
}

/// Names of our metrics in an expression, recorded ones left out.
pub(super) fn metrics(expression: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c: char| !is_part(c));
    words
        .filter(|word| word.starts_with("parapet_") && !word.contains(':'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_asked_for_what_they_compare() {
        assert_eq!(before_comparison("a / b > 0.01"), Some("a / b"));
        assert_eq!(
            before_comparison("min(x{l=\"y\"}) < 1"),
            Some("min(x{l=\"y\"})")
        );
        assert_eq!(before_comparison("x != 3"), Some("x"));
        assert_eq!(before_comparison("x > 3 and y"), None);
        assert_eq!(before_comparison("absent(x)"), None);
    }

    #[test]
    fn metrics_are_found_in_an_expression() {
        let expression =
            "sum by (le) (rate(parapet_a_bucket{model=~\"m\"}[5m])) / parapet:b:rate5m + parapet_c";
        assert_eq!(metrics(expression), ["parapet_a_bucket", "parapet_c"]);
    }
}
