//! `cargo xtask bench staleness`: one worker in four computes 4 times longer; how soon is a loss
//! reached, by what workers may miss of one another's updates? Each run is a process of its own.

use super::report::Spread;
use super::{in_turns, report};
use crate::models::figure;
use crate::prelude::*;

/// Consistency models as the program reads them, and as people write them; BSP is first.
const MODELS: [(&str, &str); 11] = [
    ("bsp", "BSP"),
    ("bounded-delay:1", "bounded delay, tau = 1"),
    ("bounded-delay:2", "bounded delay, tau = 2"),
    ("bounded-delay:4", "bounded delay, tau = 4"),
    ("bounded-delay:8", "bounded delay, tau = 8"),
    ("ssp:1", "SSP, s = 1"),
    ("ssp:2", "SSP, s = 2"),
    ("ssp:4", "SSP, s = 4"),
    ("ssp:8", "SSP, s = 8"),
    ("eager-ssp:4", "eager SSP, s = 4"),
    ("eventual", "eventual"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Slow worker: never, always (one worker all the time) or turns:MILLISECONDS (one at a
    /// time, drawn anew)
    #[arg(long, value_delimiter = ',', default_value = "turns:100,always,never")]
    slowdowns: Vec<String>,
    /// Seeds, each a run of every model
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The loss to reach is that of BSP after so many clocks
    #[arg(long, default_value_t = 100)]
    clocks: usize,
}

pub(super) fn run(args: &Args) -> Result<()> {
    cargo("build --release -p parapet-cluster --example sparse-logistic-regression")?;
    let (sh, clocks) = (shell()?, args.clocks.to_string());
    let program = release("examples/sparse-logistic-regression");
    let mut all = Vec::new();
    for slowdown in &args.slowdowns {
        let mut runs = MODELS.map(|_| Vec::new());
        for seed in 1..=args.seeds.max(1) {
            in_turns(seed, MODELS.len(), |place| {
                let (model, seed) = (MODELS[place].0, seed.to_string());
                let command = cmd!(
                    sh,
                    "{program} staleness --consistency {model} --slowdown {slowdown}
                        --clocks {clocks} --seed {seed}"
                );
                let text = command.quiet().read()?;
                let run = Run::parse(&text)
                    .with_context(|| format!("{model}, {slowdown}, seed {seed}: {text}"))?;
                eprintln!("{slowdown}, seed {seed}, {model}: {:.2} s", run.seconds);
                let document: Value = serde_json::from_str(&text)?;
                all.push(json!({ "slowdown": slowdown, "model": model, "seed": seed,
                    "run": document }));
                runs[place].push(run);
                Ok(())
            })?;
        }
        let rows: Vec<(&str, Vec<Run>)> =
            MODELS.into_iter().map(|(_, name)| name).zip(runs).collect();
        let text = markdown(slowdown, args.clocks, &rows);
        println!("{text}");
        let name = format!("cargo xtask bench staleness, {slowdown}");
        report::write(report::PARAMETER_SERVER, &name, &text)?;
    }
    let path = target().join("bench-staleness.json");
    sh.write_file(&path, format!("{:#}\n", json!(all)))?;
    println!("written: {}", path.display());
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Run {
    seconds: f64,
    minibatches: f64,
    /// Share of the time in which workers waited, and of computations that ended late.
    idle: f64,
    late: f64,
}

impl Run {
    fn parse(text: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(text).context("the program printed no JSON")?;
        Ok(Self {
            seconds: figure(&document, "/seconds").unwrap_or(f64::INFINITY),
            minibatches: figure(&document, "/minibatches")?,
            idle: figure(&document, "/idle")?,
            late: figure(&document, "/late")?,
        })
    }
}

fn markdown(slowdown: &str, clocks: usize, rows: &[(&str, Vec<Run>)]) -> String {
    let title = match slowdown.split_once(':') {
        Some(("turns", length)) => {
            format!("one worker in four 4 times slower, another one drawn every {length} ms")
        }
        _ if slowdown == "always" => "one worker in four 4 times slower, always the same".into(),
        _ => "no worker slower than the others".into(),
    };
    let bsp = &rows[0].1;
    let mut text = format!(
        "### Time to a loss: {title}\n\nThe held-out loss that BSP reaches after {clocks} clocks. \
         Medians of {} seeds (lowest-highest).\n\n| model | seconds to the loss | sooner than \
         BSP, times | minibatches by then | idle | ended late |\n|---|---|---|---|---|---|\n",
        bsp.len()
    );
    for (name, runs) in rows {
        let of = |get: fn(&Run) -> f64| Spread::new(runs.iter().map(get));
        let pairs = bsp.iter().zip(runs);
        let gains = pairs.map(|(bsp, run)| bsp.seconds / run.seconds);
        text += &format!(
            "| {name} | {} | {} | {:.0} | {:.1} % | {:.1} % |\n",
            of(|run| run.seconds).text(2),
            Spread::new(gains).text(2),
            of(|run| run.minibatches).median,
            100.0 * of(|run| run.idle).median,
            100.0 * of(|run| run.late).median
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_gains_are_of_seeds() {
        let runs = |seconds: [&str; 3]| {
            let run = |seconds| {
                let rest = "\"minibatches\": 400, \"idle\": 0.25, \"late\": 0, \"target\": 0.5";
                Run::parse(&format!("{{\"seconds\": {seconds}, {rest}}}")).unwrap()
            };
            seconds.map(run).to_vec()
        };
        let rows = [
            ("BSP", runs(["4.0", "3.0", "5.0"])),
            ("SSP, s = 4", runs(["2.0", "1.0", "null"])),
        ];
        let text = markdown("turns:100", 7, &rows);
        for words in [
            "another one drawn every 100 ms",
            "| BSP | 4.00 (3.00-5.00) | 1.00 (1.00-1.00) | 400 | 25.0 % | 0.0 % |",
            "| SSP, s = 4 | 2.00 (1.00-inf) | 2.00 (0.00-3.00) |",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        assert!(Run::parse("{}").is_err());
    }
}
