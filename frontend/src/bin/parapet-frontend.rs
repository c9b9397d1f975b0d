//! `parapet-frontend --config parapet.toml`: serves models with coded redundancy.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use parapet_frontend::Frontend;
use parapet_frontend::config::{FrontendConfig, LogFormat};
use parapet_onnx_runtime::OnnxRuntime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Straggler-proof prediction serving: an Open Inference Protocol frontend with coded redundancy.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The configuration; see deploy/local/parapet.toml for an example.
    #[arg(long, default_value = "parapet.toml")]
    config: PathBuf,
    /// Check the configuration and the model repository, and exit.
    #[arg(long)]
    check: bool,
    /// Threads that serve requests. One answers soonest, as no request changes threads, and is good for some 10,000
    /// requests/s; more carry more load.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// ONNX Runtime's library, which learned codes need [default: beside this program, or where `cargo xtask setup` put it]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Its messages name their sources themselves.
            eprintln!("parapet-frontend: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.onnxruntime.is_some() {
        // Once loaded it is there for whoever needs it.
        OnnxRuntime::load(arguments.onnxruntime.as_deref())?;
    }
    let config = FrontendConfig::load(&arguments.config)?;
    if arguments.check {
        println!("{}: {} models, all well", arguments.config.display(), config.models.len());
        return Ok(());
    }
    log_to_stderr(config.server.log_format);
    let mut runtime = match arguments.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if arguments.threads > 1 {
        runtime.worker_threads(arguments.threads);
    }
    runtime.enable_all().build()?.block_on(serve(config))
}

async fn serve(config: FrontendConfig) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let frontend = Frontend::bind(config).await?;
    // The one line on standard output: scripts wait for it, and learn the port.
    let grpc = frontend.grpc_address()?.map_or_else(String::new, |address| format!(" and grpc://{address}"));
    println!("parapet-frontend listening on http://{}{grpc}", frontend.address()?);
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("draining");
    };
    let report = frontend.run(shutdown).await;
    tracing::info!(drained = report.drained, aborted = report.aborted, "stopped");
    Ok(())
}

fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_env("RUST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
}
