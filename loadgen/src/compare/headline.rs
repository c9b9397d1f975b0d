//! A comparison in a sentence.

use super::{CompareReport, Interval, StrategyReport};

impl CompareReport {
    /// The main result: the strategy with the narrowest gap between p99.9 and p50, how sure that
    /// is, and what it takes.
    pub fn headline(&self) -> String {
        let base = &self.baseline;
        let others = self
            .strategies
            .iter()
            .filter(|strategy| strategy.name != *base);
        let ratios = others.filter_map(|strategy| Some((strategy, strategy.gap_ratio?)));
        let Some((best, ratio)) = ratios.max_by(|one, other| one.1.value.total_cmp(&other.1.value))
        else {
            return format!("{base}: there is no other strategy to compare it with.");
        };
        let name = &best.name;
        let value = ratio.value;
        let better = format!("{name} has a gap between p99.9 and p50 that is");
        let result = match ratio.interval {
            None => format!("{better} {value:.2} times narrower than {base}'s"),
            Some(Interval { low, high }) => {
                let times =
                    format!("{value:.2} times narrower (95 % interval {low:.2} to {high:.2})");
                if low > 1.0 {
                    format!("{better} {times} than {base}'s")
                } else if high < 1.0 {
                    format!(
                        "No strategy does better than {base}: the gap of the next, {name}, is \
                         {times}"
                    )
                } else {
                    format!(
                        "No strategy can be told from {base}: the gap of the best other one, \
                         {name}, is {times}"
                    )
                }
            }
        };
        let base = self.strategy(base);
        let quotable = |strategy: &StrategyReport| {
            let tail = strategy.confidence.get("p99_9");
            tail.is_some_and(|confidence| confidence.quotable)
        };
        let doubt = if quotable(best) && base.is_some_and(quotable) {
            ""
        } else {
            "Too few requests to be quoted: "
        };
        let base_median = base.map_or(f64::NAN, |base| base.latency.p50);
        let median = best.latency.p50;
        let extra = best
            .cost
            .extra_work
            .map(|extra| format!(", and it does {:.1} % extra work", 100.0 * extra));
        format!(
            "{doubt}{result}; its median is {median:.2} ms against {base_median:.2} ms{}.",
            extra.unwrap_or_default()
        )
    }
}
