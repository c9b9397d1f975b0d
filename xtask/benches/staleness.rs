//! `cargo xtask bench staleness`: one worker in four computes 4 times longer; how soon is a loss
//! reached, by what workers may miss of one another's updates? Each run is a process of its own.

use super::report::{self, in_turns, ratio, spread};
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

/// The loss to reach is that of BSP after so many clocks.
const CLOCKS: &str = "100";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Slow worker: never, always (one worker all the time) or turns:MILLISECONDS (one at a
    /// time, drawn anew)
    #[arg(long, value_delimiter = ',', default_value = "turns:100,always,never")]
    slowdowns: Vec<String>,
    /// Seeds, each a run of every model
    #[arg(long, default_value_t = 5)]
    seeds: u64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    cargo("build --release -p parapet-cluster --example sparse-logistic-regression")?;
    let (sh, program) = (shell()?, release("examples/sparse-logistic-regression"));
    for slowdown in &args.slowdowns {
        let runs = in_turns(args.seeds, MODELS.len(), |seed, arm| {
            let (model, number) = (MODELS[arm].0, seed.to_string());
            let command = cmd!(
                sh,
                "{program} staleness --consistency {model} --slowdown {slowdown} --clocks {CLOCKS}
                    --seed {number}"
            );
            let text = command.quiet().read()?;
            let whole = || format!("{model}, {slowdown}, seed {seed}: {text}");
            let document: Value = serde_json::from_str(&text).with_context(whole)?;
            let run = parse(&document).with_context(whole)?;
            eprintln!("{slowdown}, seed {seed}, {model}: {:.2} s", run[SECONDS]);
            Ok(run)
        })?;
        let names = MODELS.into_iter().map(|(_, name)| name);
        let text = markdown(slowdown, &names.zip(runs).collect::<Vec<_>>());
        println!("{text}");
        let name = format!("cargo xtask bench staleness, {slowdown}");
        report::write(report::PARAMETER_SERVER, &name, &text)?;
    }
    Ok(())
}

/// Seconds and minibatches to the loss; shares of the time in which workers waited, and of the
/// computations that ended late.
type Run = [f64; 4];
const SECONDS: usize = 0;

fn parse(run: &Value) -> Result<Run> {
    // A run that does not reach the loss has no time.
    let seconds = figure(run, "/seconds").unwrap_or(f64::INFINITY);
    let [minibatches, idle, late] = ["/minibatches", "/idle", "/late"].map(|at| figure(run, at));
    Ok([seconds, minibatches?, idle?, late?])
}

fn markdown(slowdown: &str, rows: &[(&str, Vec<Run>)]) -> String {
    let title = match slowdown.split_once(':') {
        Some(("turns", length)) => {
            format!("one worker in four 4 times slower, another one drawn every {length} ms")
        }
        _ if slowdown == "always" => "one worker in four 4 times slower, always the same".into(),
        _ => "no worker slower than the others".into(),
    };
    let bsp = &rows[0].1;
    let mut text = format!(
        "### Time to a loss: {title}\n\nThe held-out loss that BSP reaches after {CLOCKS} clocks. \
         Medians of {} seeds (lowest-highest).\n\n| model | seconds to the loss | sooner than \
         BSP, times | minibatches by then | idle | ended late |\n|---|---|---|---|---|---|\n",
        bsp.len()
    );
    for (name, runs) in rows {
        let [seconds, minibatches, idle, late] = [0, 1, 2, 3].map(|at| spread(runs, at));
        // Times sooner: of BSP's seconds over these.
        let (seconds, sooner) = (seconds.text(2), ratio(bsp, runs, SECONDS).text(2));
        text += &format!(
            "| {name} | {seconds} | {sooner} | {:.0} | {:.1} % | {:.1} % |\n",
            minibatches.median,
            100.0 * idle.median,
            100.0 * late.median
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_gains_are_of_seeds() {
        let runs = |seconds: [Value; 3]| {
            let run = |seconds| {
                let rest =
                    json!({ "seconds": seconds, "minibatches": 400, "idle": 0.25, "late": 0 });
                parse(&rest).unwrap()
            };
            seconds.map(run).to_vec()
        };
        let rows = [
            ("BSP", runs([json!(4.0), json!(3.0), json!(5.0)])),
            ("SSP, s = 4", runs([json!(2.0), json!(1.0), Value::Null])),
        ];
        let text = markdown("turns:100", &rows);
        for words in [
            "another one drawn every 100 ms",
            "| BSP | 4.00 (3.00-5.00) | 1.00 (1.00-1.00) | 400 | 25.0 % | 0.0 % |",
            "| SSP, s = 4 | 2.00 (1.00-inf) | 2.00 (0.00-3.00) |",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        assert!(parse(&json!({})).is_err());
    }
}
