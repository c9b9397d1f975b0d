//! Medians over seeds, as a table.

use std::fmt;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::spread::Spread;

/// One run of one model.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Seconds until the loss was reached; endless if it was not.
    seconds: f64,
    minibatches: f64,
    idle: f64,
    late: f64,
    pub(super) document: Value,
}

impl Run {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(text).context("the program printed no JSON")?;
        let number = |name: &str| document.get(name).and_then(Value::as_f64);
        let wanted =
            |name: &'static str| number(name).with_context(|| format!("no {name} in {text}"));
        Ok(Self {
            seconds: number("seconds").unwrap_or(f64::INFINITY),
            minibatches: wanted("minibatches")?,
            idle: wanted("idle")?,
            late: wanted("late")?,
            document,
        })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} s, {:.0} % idle, {} minibatches",
            self.seconds,
            100.0 * self.idle,
            self.minibatches
        )
    }
}

/// The middle one, and the ends.
fn text_of(
    Spread {
        lowest,
        median,
        highest,
    }: Spread,
) -> String {
    format!("{median:.2} ({lowest:.2}-{highest:.2})")
}

/// All runs of one slowdown.
#[derive(Debug)]
pub(super) struct Table {
    slowdown: String,
    clocks: usize,
    /// Each model's runs in the seeds' order; BSP first.
    rows: Vec<(&'static str, Vec<Run>)>,
}

impl Table {
    pub(super) fn new(
        slowdown: &str,
        clocks: usize,
        models: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let rows = models
            .into_iter()
            .map(|model| (model, Vec::new()))
            .collect();
        Self {
            slowdown: slowdown.into(),
            clocks,
            rows,
        }
    }

    pub(super) fn add(&mut self, model: usize, run: Run) {
        if let Some((_, runs)) = self.rows.get_mut(model) {
            runs.push(run);
        }
    }

    /// Each model's seconds.
    pub(super) fn seconds(&self) -> impl Iterator<Item = (&'static str, Spread)> + '_ {
        self.rows.iter().map(|(model, runs)| {
            (
                *model,
                Spread::new(runs.iter().map(|run| run.seconds).collect()),
            )
        })
    }

    /// Returns the speed-up over BSP, seed by seed.
    fn gain(&self, runs: &[Run]) -> Spread {
        let bsp = self
            .rows
            .first()
            .map(|(_, runs)| runs.as_slice())
            .unwrap_or_default();
        Spread::new(
            bsp.iter()
                .zip(runs)
                .map(|(bsp, run)| bsp.seconds / run.seconds)
                .collect(),
        )
    }

    /// The title of what is measured.
    pub(super) fn title(&self) -> String {
        match self.slowdown.split_once(':') {
            Some(("turns", length)) => {
                format!("one worker in four 4 times slower, another one drawn every {length} ms")
            }
            _ if self.slowdown == "always" => {
                "one worker in four 4 times slower, always the same".into()
            }
            _ => "no worker slower than the others".into(),
        }
    }

    pub(super) fn markdown(&self) -> String {
        let seeds = self
            .rows
            .iter()
            .map(|(_, runs)| runs.len())
            .max()
            .unwrap_or_default();
        let (title, clocks) = (self.title(), self.clocks);
        let mut text = format!(
            "### Time to a loss: {title}\n\nThe held-out loss that BSP reaches after {clocks} \
                clocks. Medians of {seeds} seeds (lowest-highest).\n\n| model | seconds to the \
                loss | sooner than BSP, times | minibatches by then | idle | ended late \
                |\n|---|---|---|---|---|---|\n"
        );
        for (model, runs) in &self.rows {
            let of = |get: fn(&Run) -> f64| Spread::new(runs.iter().map(get).collect()).median;
            // Writing to a string never fails.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.1} % | {:.1} % |",
                name(model),
                text_of(Spread::new(runs.iter().map(|run| run.seconds).collect())),
                text_of(self.gain(runs)),
                of(|run| run.minibatches),
                100.0 * of(|run| run.idle),
                100.0 * of(|run| run.late)
            );
        }
        text
    }
}

/// As people write it.
fn name(model: &str) -> String {
    match model.split_once(':') {
        Some(("bounded-delay", slack)) => format!("bounded delay, tau = {slack}"),
        Some(("ssp", slack)) => format!("SSP, s = {slack}"),
        Some(("eager-ssp", slack)) => format!("eager SSP, s = {slack}"),
        _ if model == "bsp" => "BSP".into(),
        _ => model.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_gains_are_of_seeds() {
        let mut table = Table::new("turns:100", 7, ["bsp", "ssp:4"]);
        for (seconds, ssp) in [("4.0", "2.0"), ("3.0", "1.0"), ("5.0", "null")] {
            for (model, seconds) in [(0, seconds), (1, ssp)] {
                let text = format!(
                    "{{\"seconds\": {seconds}, \"minibatches\": 400, \"idle\": 0.25, \"late\": 0, \"target\": 0.5}}"
                );
                table.add(model, Run::parse(&text).unwrap());
            }
        }
        let text = table.markdown();
        assert!(
            text.contains("| BSP | 4.00 (3.00-5.00) | 1.00 (1.00-1.00) | 400 | 25.0 % | 0.0 % |"),
            "{text}"
        );
        assert!(
            text.contains("| SSP, s = 4 | 2.00 (1.00-inf) | 2.00 (0.00-3.00) |"),
            "{text}"
        );
        assert!(Run::parse("{}").is_err());
    }
}
