//! Serves models of a repository by the Open Inference Protocol.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use parapet_config::log::{self, LevelFilter};
use parapet_models::Instance;
use parapet_models::config::{Config, Settings};
use parapet_net::server::DrainReport;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match run(Settings::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("parapet-instance: {}", log::one_line(error.as_ref()));
            ExitCode::from(2)
        }
    }
}

fn run(flags: Settings) -> anyhow::Result<()> {
    let config = Config::from_flags(flags)?;
    log::start(config.log_format, LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start tokio")?;
    let served = runtime.block_on(serve(config));
    // A signal during start-up must not wait for a model that is still being loaded.
    runtime.shutdown_background();
    served
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // Asked for first: a signal during start-up ends the process as well.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut asked = std::pin::pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    let instance = tokio::select! {
        started = Instance::start(config) => started?,
        () = &mut asked => return Ok(()),
    };
    let grpc = instance.grpc_address;
    let grpc = grpc.map_or_else(String::new, |address| format!(" and grpc://{address}"));
    let (tls, address) = (instance.tls(), instance.address);
    let scheme = tls.map_or("http", |_| "https");
    let ready = format!("parapet-instance ready on {scheme}://{address}{grpc}");
    writeln!(std::io::stdout(), "{ready}").context("cannot say that the instance is ready")?;
    asked.await;
    tracing::info!("shutting down");
    let DrainReport { drained, aborted } = instance.shut_down().await;
    tracing::info!(drained, aborted, "shut down");
    Ok(())
}
