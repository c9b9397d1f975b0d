//! One run of `cargo xtask bench staleness`: real servers and workers over loopback, of which one
//! is slowed. Prints what was measured as JSON.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use parapet_parameter_server::Consistency;
use parapet_sparse_logistic_regression::data::Generated;
use parapet_sparse_logistic_regression::staleness::{Experiment, Injection, Slowdown, race};

#[derive(Debug, Parser)]
struct Cli {
    /// bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or eventual
    #[arg(long)]
    consistency: Consistency,
    /// Who is slow: never, always (the first worker) or turns:MILLISECONDS (one at a time, drawn
    /// anew)
    #[arg(long)]
    slowdown: Slowdown,
    /// How many times longer a slow worker computes
    #[arg(long, default_value_t = 4.0)]
    factor: f64,
    /// Workers
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Servers
    #[arg(long, default_value_t = 2)]
    servers: u64,
    /// Milliseconds that a minibatch takes where nobody is slow
    #[arg(long, default_value_t = 8)]
    compute: u64,
    /// The loss to reach is that of BSP after so many clocks
    #[arg(long, default_value_t = 100)]
    clocks: usize,
    /// Seconds after which a run is given up
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Seed of rows and draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let injection = Injection {
        slowdown: cli.slowdown,
        workers: cli.workers,
        factor: cli.factor,
        seed: cli.seed,
    };
    let experiment = Experiment {
        consistency: cli.consistency,
        injection,
        servers: cli.servers,
        compute: Duration::from_millis(cli.compute),
        clocks: cli.clocks,
        patience: Duration::from_secs(cli.patience),
        batch: 500,
        rate: 0.2,
        data: Generated {
            features: 2_000,
            rows: 40_000,
            held_out: 4_000,
            draws: 50,
            seed: cli.seed,
        },
    };
    let measured = tokio::runtime::Runtime::new()
        .map_err(|error| error.to_string())
        .and_then(|runtime| {
            runtime
                .block_on(race(experiment))
                .map_err(|error| error.to_string())
        })
        .and_then(|measured| serde_json::to_string(&measured).map_err(|error| error.to_string()));
    match measured {
        Ok(measured) => {
            println!("{measured}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
