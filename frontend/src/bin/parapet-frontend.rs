//! `parapet-frontend --config parapet.toml`: serves models with coded redundancy.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use parapet_config::log::{self, LevelFilter};
use parapet_frontend::config::FrontendConfig;
use parapet_frontend::tenants::{Key, KeyHash};
use parapet_frontend::{Frontend, online};
use parapet_onnx::runtime::OnnxRuntime;
use tokio::signal::unix::{SignalKind, signal};

/// Time that instances have to describe models that are in no repository to `--check --online`.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Straggler-proof prediction serving: an Open Inference Protocol frontend with coded redundancy.
#[derive(Debug, Parser)]
#[command(version, about, after_help = include_str!("help.txt"))]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The configuration; see deploy/local/parapet.toml for an example.
    #[arg(long, default_value = "parapet.toml")]
    config: PathBuf,
    /// Check the configuration and the model repository, and exit
    #[arg(long)]
    check: bool,
    /// With --check: ask every instance once whether it is ready and fits its model
    #[arg(long, requires = "check")]
    online: bool,
    /// Print every setting in force with the line that it is from, and exit
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// Threads that serve requests. One answers soonest, as no request changes threads, and is good
    /// for some 10,000 requests/s; more carry more load.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// ONNX Runtime's library, which learned codes need [default: beside this program, or where
    /// `cargo xtask setup` put it]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a new key and its hash; or the hash of the key on standard input
    HashKey {
        /// Hash the key on standard input instead
        #[arg(long)]
        stdin: bool,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Its messages name their sources themselves.
            eprintln!("parapet-frontend: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(Command::HashKey { stdin }) = arguments.command {
        return hash_key(stdin);
    }
    if arguments.onnxruntime.is_some() {
        // Once loaded it is there for every code that needs it.
        OnnxRuntime::load(arguments.onnxruntime.as_deref())?;
    }
    if arguments.print_config {
        print!("{}", FrontendConfig::in_force(&arguments.config)?);
        return Ok(());
    }
    let config = FrontendConfig::load(&arguments.config)?;
    if arguments.check && !arguments.online {
        let names = config.models.iter().map(|model| model.entry.name.clone());
        let asked = config.undescribed().map(|name| format!("{name} (to be asked with --online)"));
        let names: Vec<String> = names.chain(asked).collect();
        println!("{}: all well: {}", arguments.config.display(), names.join(", "));
        return Ok(());
    }
    let level = if arguments.check { LevelFilter::WARN } else { LevelFilter::INFO };
    log::start(config.server.log_format, level);
    let mut runtime = match arguments.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if arguments.threads > 1 {
        runtime.worker_threads(arguments.threads);
    }
    let runtime = runtime.enable_all().build()?;
    match arguments.check {
        true => runtime.block_on(check_online(config)),
        false => runtime.block_on(serve(config)),
    }
}

/// Prints a line for each instance.
async fn check_online(config: FrontendConfig) -> anyhow::Result<()> {
    let config = config.describe(CHECK_WITHIN).await?;
    let mut wrong = 0;
    for model in &config.models {
        for (instance, fits) in online::check(model).await {
            wrong += usize::from(fits.is_err());
            println!("{instance}: {}", fits.err().as_deref().unwrap_or("ok"));
        }
    }
    anyhow::ensure!(wrong == 0, "{wrong} instances are not ready, or do not fit their model");
    Ok(())
}

/// A key is shown once, to the user; the configuration has its hash.
fn hash_key(stdin: bool) -> anyhow::Result<()> {
    if !stdin {
        let key = Key::generate();
        println!("key        {}", key.text());
        println!("key_sha256 {}", key.hash());
        return Ok(());
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let key = line.trim();
    anyhow::ensure!(
        key.len() >= 32,
        "a key of less than 32 characters can be guessed; take one that this prints"
    );
    println!("{}", KeyHash::of(key.as_bytes()));
    Ok(())
}

async fn serve(config: FrontendConfig) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hang_up = signal(SignalKind::hangup())?;
    let frontend = tokio::select! {
        bound = Frontend::bind(config) => bound?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    // The one line on standard output: scripts wait for it, and learn the port.
    let scheme = if frontend.is_secure() { "https" } else { "http" };
    let grpc = frontend
        .grpc_address()?
        .map_or_else(String::new, |address| format!(" and grpc://{address}"));
    println!("parapet-frontend listening on {scheme}://{}{grpc}", frontend.address()?);
    if let Some(admin) = frontend.admin_address() {
        tracing::info!(%admin, "admin listener");
    }
    let app = Arc::clone(frontend.app());
    let reloading = tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            // It says itself in the log how it went.
            let _reloaded = app.reload().await;
        }
    });
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("draining");
    };
    let report = frontend.run(shutdown).await;
    reloading.abort();
    tracing::info!(drained = report.drained, aborted = report.aborted, "stopped");
    Ok(())
}
