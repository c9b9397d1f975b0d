//! `cargo xtask interop`: real clients, and another server, against the frontend and the instance.
//!
//! The requests stand in `xtask/interop/*.py`; here the programs are built, the models written, and
//! the Python packages installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use parapet_onnx::{ElementType, identity_model, linear_model};

use crate::python::Environment;
use crate::{native, sample, workspace};

/// Arguments of `cargo xtask interop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check both servers against their OpenAPI document with schemathesis
    #[arg(long)]
    schemathesis: bool,
    /// Serve with MLServer beside our own instance, and have its answers decoded
    #[arg(long)]
    mlserver: bool,
}

const CLIENTS: Environment = Environment::new("interop");
const SCHEMATHESIS: Environment = Environment::new("schemathesis");
const MLSERVER: Environment = Environment::new("mlserver");

/// Builds, installs and runs all of it.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args { serving_only: true })?;
    sample::build()?;
    let folder = workspace::root().join(".parapet/interop");
    let repository = folder.join("models");
    write_models(&repository)?;
    let mut command = Command::new(CLIENTS.program("python")?);
    command
        .arg("-B")
        .arg(workspace::root().join("xtask/interop/main.py"));
    command
        .arg("--binaries")
        .arg(workspace::target().join("debug"));
    command
        .arg("--repository")
        .arg(&repository)
        .arg("--logs")
        .arg(folder.join("logs"));
    if args.schemathesis {
        command
            .arg("--schemathesis")
            .arg(SCHEMATHESIS.program("schemathesis")?);
    }
    if args.mlserver {
        command.arg("--mlserver").arg(MLSERVER.program("mlserver")?);
    }
    let library = workspace::native().join("onnxruntime/libonnxruntime.so");
    let status = command
        .env("ORT_DYLIB_PATH", library)
        .status()
        .context("cannot start Python")?;
    ensure!(
        status.success(),
        "a check failed ({status}); logs are in {}",
        folder.join("logs").display()
    );
    Ok(())
}

/// The weights of `linear`; `xtask/interop/clients.py` has the same.
const WEIGHTS: [f32; 12] = [1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 3.0, 1.0, -2.0, 1.0, 1.0, 0.0];

/// `linear` and, since a linear model is its own parity model for the sum code, `linear-parity`;
/// `identity`, with a tensor of every datatype; `wide`, whose answers are worth compressing; and
/// `scene`, some of whose tensors are coded.
fn write_models(repository: &Path) -> Result<()> {
    let linear = linear_model(&[4], &WEIGHTS, &[0.0; 3])?;
    let tensors =
        tensors("inputs", &[("input", "FP32", 4)]) + &tensors("outputs", &[("output", "FP32", 3)]);
    write_model(repository, "linear", &tensors, &linear)?;
    let code = "[code]\ndeployed = \"linear\"\nencoder = \"sum\"\nk = 2\n";
    write_model(repository, "linear-parity", &(tensors + code), &linear)?;
    let typed = |element: (&'static str, ElementType)| (element.0, element.1, &[2_usize][..]);
    write_identity(repository, "identity", &ELEMENTS.map(typed), "")?;
    write_identity(
        repository,
        "wide",
        &[("wide", ElementType::Float, &[600])],
        "",
    )?;
    let [scores, boxes]: [(_, _, &[usize]); 2] = [
        ("scores", ElementType::Float, &[4]),
        ("boxes", ElementType::Float, &[2]),
    ];
    write_identity(
        repository,
        "scene",
        &[("camera", ElementType::Int64, &[1]), scores, boxes],
        "",
    )?;
    let code = "[code]\ndeployed = \"scene\"\nencoder = \"sum\"\nk = 2\n\
                inputs = [\"boxes\", \"scores\"]\noutputs = [\"boxes_out\", \"scores_out\"]\n";
    write_identity(repository, "scene-parity", &[boxes, scores], code)
}

/// The identity model's tensors are named after their datatypes.
const ELEMENTS: [(&str, ElementType); 14] = [
    ("BOOL", ElementType::Bool),
    ("UINT8", ElementType::Uint8),
    ("UINT16", ElementType::Uint16),
    ("UINT32", ElementType::Uint32),
    ("UINT64", ElementType::Uint64),
    ("INT8", ElementType::Int8),
    ("INT16", ElementType::Int16),
    ("INT32", ElementType::Int32),
    ("INT64", ElementType::Int64),
    ("FP16", ElementType::Float16),
    ("BF16", ElementType::Bfloat16),
    ("FP32", ElementType::Float),
    ("FP64", ElementType::Double),
    ("BYTES", ElementType::String),
];

/// An identity model; `code` follows its tensors.
fn write_identity(
    repository: &Path,
    name: &str,
    given: &[(&str, ElementType, &[usize])],
    code: &str,
) -> Result<()> {
    let datatype = |element: ElementType| {
        ELEMENTS
            .iter()
            .find(|(_, known)| *known == element)
            .map_or("", |(datatype, _)| *datatype)
    };
    let specs = |suffix: &str| -> Vec<(String, &str, usize)> {
        let spec = |(name, element, shape): &(&str, ElementType, &[usize])| {
            (
                format!("{name}{suffix}"),
                datatype(*element),
                shape.iter().product(),
            )
        };
        given.iter().map(spec).collect()
    };
    let text = tensors("inputs", &specs("")) + &tensors("outputs", &specs("_out")) + code;
    write_model(repository, name, &text, &identity_model(given))
}

fn tensors<N: AsRef<str>>(side: &str, specs: &[(N, &str, usize)]) -> String {
    let table = |(name, datatype, length): &(N, &str, usize)| {
        let name = name.as_ref();
        format!("[[{side}]]\nname = \"{name}\"\ndatatype = \"{datatype}\"\nshape = [{length}]\n")
    };
    specs.iter().map(table).collect()
}

fn write_model(repository: &Path, name: &str, tensors: &str, file: &[u8]) -> Result<()> {
    let folder = repository.join(name);
    let write = || {
        fs::create_dir_all(folder.join("1"))?;
        let text = format!("name = \"{name}\"\nplatform = \"onnxruntime_onnx\"\n{tensors}");
        fs::write(folder.join("model.toml"), text)?;
        fs::write(folder.join("1/model.onnx"), file)
    };
    write().with_context(|| format!("cannot write {}", folder.display()))
}
