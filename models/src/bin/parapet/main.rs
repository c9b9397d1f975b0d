//! `parapet`: Parapet's programs under one name, and the way from a model's file to a server.

mod process;
mod up;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand};
use parapet_config::repository::{ModelToml, entry_folder, name_of};
use parapet_models::describe::{GivenShape, describe, import};
use parapet_models::engine::OnnxRuntime;

/// Straggler-proof prediction serving.
#[derive(Debug, Parser)]
#[command(name = "parapet", version, after_help = include_str!("help.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
enum Action {
    /// Serve a model on this machine, and train its parity model meanwhile
    Up(up::Args),
    /// Write the model.toml of an ONNX model
    Describe(DescribeArgs),
    /// Serve by the Open Inference Protocol with coded redundancy (parapet-frontend)
    #[command(disable_help_flag = true)]
    Frontend(Rest),
    /// Serve models of a repository (parapet-instance)
    #[command(disable_help_flag = true)]
    Instance(Rest),
    /// Train a parity model (parity-trainer train)
    #[command(disable_help_flag = true)]
    Train(Rest),
    /// Evaluate parity models on the test set (parity-trainer eval)
    #[command(disable_help_flag = true)]
    Eval(Rest),
    /// Send load and measure its latency (parapet-loadgen run)
    #[command(disable_help_flag = true)]
    Load(Rest),
    /// Simulate a cluster (parapet-loadgen simulate)
    #[command(disable_help_flag = true)]
    Simulate(Rest),
}

/// The flags of another program.
#[derive(Debug, clap::Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct DescribeArgs {
    /// The model
    #[arg(value_name = "FILE.onnx")]
    file: PathBuf,
    /// Its name [default: the folder's of NAME/VERSION/model.onnx, else the file's]
    #[arg(long)]
    name: Option<String>,
    /// Lengths of an input's axes that the graph leaves free, without the batch; -1 for any, as
    /// without this flag
    #[arg(long, value_name = "INPUT=3,224,224")]
    shape: Vec<GivenShape>,
    /// Put the model into this repository, instead of describing it where it is
    #[arg(long, value_name = "REPOSITORY")]
    out: Option<PathBuf>,
    /// Replace the description that is there
    #[arg(long)]
    force: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("parapet: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Action) -> anyhow::Result<()> {
    let (program, subcommand, rest) = match command {
        Action::Up(args) => return up::run(&args),
        Action::Describe(args) => return describe_file(&args),
        Action::Frontend(rest) => ("parapet-frontend", None, rest),
        Action::Instance(rest) => ("parapet-instance", None, rest),
        Action::Train(rest) => ("parity-trainer", Some("train"), rest),
        Action::Eval(rest) => ("parity-trainer", Some("eval"), rest),
        Action::Load(rest) => ("parapet-loadgen", Some("run"), rest),
        Action::Simulate(rest) => ("parapet-loadgen", Some("simulate"), rest),
    };
    let error = Command::new(process::find(program)?).args(subcommand).args(rest.flags).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}

fn describe_file(args: &DescribeArgs) -> anyhow::Result<()> {
    let (default, folder) = place_of(&args.file);
    let name = args.name.clone().unwrap_or(default);
    let found = describe(&OnnxRuntime::load(None)?, &args.file, &name, &args.shape)?;
    let folder = match &args.out {
        Some(repository) => repository.join(&name),
        None => folder,
    };
    let path = folder.join(ModelToml::FILE_NAME);
    let is_new = args.force || !path.exists();
    ensure!(is_new, "{}: is there already; --force replaces it", path.display());
    match &args.out {
        Some(repository) => drop(import(repository, &args.file, &found.model)?),
        None => found.model.save(&folder)?,
    }
    println!("{}: {}", path.display(), up::signature(&found.model));
    if found.model.free_tensor().is_some() {
        println!(
            "an axis of -1 takes any length; codes want it to be that of sequences, [-1, features], or \
             fixed: --shape"
        );
    }
    if found.is_single {
        println!("its batch axis is fixed at 1: start parapet-instance with --max-batch-size 1");
    }
    Ok(())
}

/// Name of a model in `file`, and the folder for its description.
fn place_of(file: &Path) -> (String, PathBuf) {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = entry_folder(&absolute).or(absolute.parent()).unwrap_or(Path::new("/"));
    (name_of(&absolute).unwrap_or_else(|| "model".to_owned()), folder.to_owned())
}
