//! A comparison in a sentence.

use super::{CompareReport, Estimate, StrategyReport};

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
        let result = match ratio {
            Estimate {
                value,
                interval: None,
            } => {
                format!(
                    "{name} has a gap between p99.9 and p50 that is {value:.2} times narrower \
                        than {base}'s"
                )
            }
            Estimate {
                value,
                interval: Some(range),
            } => {
                let (low, high) = (range.low, range.high);
                let interval =
                    format!("{value:.2} times narrower (95 % interval {low:.2} to {high:.2})");
                if range.low > 1.0 {
                    format!(
                        "{name} has a gap between p99.9 and p50 that is {interval} than {base}'s"
                    )
                } else if range.high < 1.0 {
                    format!(
                        "No strategy does better than {base}: the gap of the next, {name}, is \
                            {interval}"
                    )
                } else {
                    format!(
                        "No strategy can be told from {base}: the gap of the best other one, \
                            {name}, is {interval}"
                    )
                }
            }
        };
        let quotable = |strategy: &StrategyReport| {
            strategy
                .confidence
                .get("p99_9")
                .is_some_and(|confidence| confidence.quotable)
        };
        let sure = quotable(best) && self.strategy(base).is_some_and(quotable);
        let doubt = if sure {
            ""
        } else {
            "Too few requests to be quoted: "
        };
        format!("{doubt}{result}; {}.", self.price(best))
    }

    fn price(&self, strategy: &StrategyReport) -> String {
        let median = strategy.latency.p50;
        let base = self
            .strategy(&self.baseline)
            .map_or(f64::NAN, |base| base.latency.p50);
        let extra = strategy.cost.extra_work;
        let extra = extra.map_or_else(String::new, |extra| {
            format!(", and it does {:.1} % extra work", 100.0 * extra)
        });
        format!("its median is {median:.2} ms against {base:.2} ms{extra}")
    }
}
