//! Queries of the dashboard, the rules and the adapter: name and expression.

use crate::prelude::*;

type Query = (String, String);

fn array<'a>(value: &'a Value, pointer: &str) -> Result<&'a Vec<Value>> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found
        .filter(|found| !found.is_empty())
        .with_context(|| format!("no {pointer} in {value}"))
}

/// Queries of all panels, with Grafana's variables filled in.
pub(super) fn of_dashboard(json: &str) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(json).context("the dashboard")?;
    let mut queries = Vec::new();
    for panel in array(&dashboard, "/panels")?
        .iter()
        .filter(|panel| panel["type"] != "row")
    {
        let title = panel["title"].as_str().context("a panel without a title")?;
        for target in array(panel, "/targets")? {
            let expression = target["expr"].as_str().context("a target without expr")?;
            let expression = expression
                .replace("$__rate_interval", "30s")
                .replace("$model", ".*");
            ensure!(
                !expression.contains('$'),
                "{title}: an unknown variable in {expression}"
            );
            queries.push((format!("panel {title:?}"), expression));
        }
    }
    Ok(queries)
}

/// Queries of all rules, as Prometheus read them. Of an alert, what stands before the comparison:
/// the whole of it gives nothing while all is well.
pub(super) fn of_rules(answer: &Value) -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for group in array(answer, "/data/groups")? {
        for rule in array(group, "/rules")? {
            let text = |field: &str| rule[field].as_str().unwrap_or_default();
            let (name, mut expression) = (format!("rule {}", text("name")), text("query"));
            if text("type") == "alerting" {
                expression = before_comparison(expression).with_context(|| {
                    format!("{name}: end its expression in a comparison with a number")
                })?;
            }
            queries.push((name, expression.to_owned()));
        }
    }
    Ok(queries)
}

/// Queries of the Prometheus adapter, with its templates filled in as it does for a pod.
pub(super) fn of_adapter(yaml: &str) -> Result<Vec<Query>> {
    let field = |name: &str| -> Result<&str> {
        let mut lines = yaml
            .lines()
            .map(|line| line.trim().trim_start_matches("- "));
        let value = lines.find_map(|line| line.strip_prefix(name));
        Ok(value
            .with_context(|| format!("no {name} in the adapter's configuration"))?
            .trim())
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
        (
            "the adapter's seriesQuery".to_owned(),
            format!("count({series})"),
        ),
        ("the adapter's metricsQuery".to_owned(), expression),
    ])
}

fn before_comparison(expression: &str) -> Option<&str> {
    let (before, number) = expression.trim().rsplit_once(['>', '<', '='])?;
    number.trim().parse::<f64>().ok()?;
    Some(before.trim_end_matches(['>', '<', '=', '!', ' ']))
}

pub(super) fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(move |c: char| !is_part(c));
    words.filter(|word| word.starts_with("parapet_") && !word.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_asked_for_what_they_compare() {
        for (alert, compared) in [
            ("a / b > 0.01", Some("a / b")),
            ("min(x{l=\"y\"}) < 1", Some("min(x{l=\"y\"})")),
            ("x != 3", Some("x")),
            ("x > 3 and y", None),
            ("absent(x)", None),
        ] {
            assert_eq!(before_comparison(alert), compared);
        }
    }

    #[test]
    fn metrics_are_found_in_an_expression() {
        let expression =
            "sum by (le) (rate(parapet_a_bucket{model=~\"m\"}[5m])) / parapet:b:rate5m + parapet_c";
        let found: Vec<&str> = metrics(expression).collect();
        assert_eq!(found, ["parapet_a_bucket", "parapet_c"]);
    }
}
