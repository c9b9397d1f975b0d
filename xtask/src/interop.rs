//! `cargo xtask interop`: real clients, and another server, against the frontend and the instance.
//!
//! The requests stand in `xtask/interop/*.py`; here the programs are built, the models written, and
//! the Python packages installed.

use crate::prelude::*;
use parapet_onnx::ElementType::{self, Float, Int64};
use parapet_onnx::{identity_model, linear_model};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check both servers against their OpenAPI document with schemathesis
    #[arg(long)]
    schemathesis: bool,
    /// Serve with MLServer beside our own instance, and have its answers decoded
    #[arg(long)]
    mlserver: bool,
    /// Write the table of docs/protocol.md of what the clients can do, instead of comparing
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&setup::Args { serving_only: true })?;
    build_for_checks()?;
    let (sh, folder) = (shell()?, scratch("interop"));
    let (repository, logs) = (folder.join("models"), folder.join("logs"));
    write_models(&sh, &repository)?;
    let (python, binaries) = (python::program("interop", "python")?, debug(""));
    let (kserve, write) = (python::program("kserve", "python")?, args.write.then_some("--write"));
    let script = root().join("xtask/interop/main.py");
    let mut command = cmd!(
        sh,
        "{python} -B {script} --binaries {binaries} --repository {repository} --logs {logs}
            --kserve {kserve} {write...}"
    );
    for (wanted, tool) in [(args.schemathesis, "schemathesis"), (args.mlserver, "mlserver")] {
        if wanted {
            command = command.arg(format!("--{tool}")).arg(python::program(tool, tool)?);
        }
    }
    let library = native().join("onnxruntime/libonnxruntime.so");
    let checked = command.env("ORT_DYLIB_PATH", library).quiet().run();
    checked.with_context(|| format!("logs are in {}", logs.display()))
}

/// The weights of `linear`; `xtask/interop/clients.py` has the same.
const WEIGHTS: [f32; 12] = [1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 3.0, 1.0, -2.0, 1.0, 1.0, 0.0];

/// Tensors of the identity models: name, datatype, element, length.
type Tensor = (&'static str, &'static str, ElementType, i64);

const EVERY_DATATYPE: [Tensor; 14] = [
    ("BOOL", "BOOL", ElementType::Bool, 2),
    ("UINT8", "UINT8", ElementType::Uint8, 2),
    ("UINT16", "UINT16", ElementType::Uint16, 2),
    ("UINT32", "UINT32", ElementType::Uint32, 2),
    ("UINT64", "UINT64", ElementType::Uint64, 2),
    ("INT8", "INT8", ElementType::Int8, 2),
    ("INT16", "INT16", ElementType::Int16, 2),
    ("INT32", "INT32", ElementType::Int32, 2),
    ("INT64", "INT64", Int64, 2),
    ("FP16", "FP16", ElementType::Float16, 2),
    ("BF16", "BF16", ElementType::Bfloat16, 2),
    ("FP32", "FP32", Float, 2),
    ("FP64", "FP64", ElementType::Double, 2),
    ("BYTES", "BYTES", ElementType::String, 2),
];
const WIDE: Tensor = ("wide", "FP32", Float, 600);
const CAMERA: Tensor = ("camera", "INT64", Int64, 1);
const SCORES: Tensor = ("scores", "FP32", Float, 4);
const BOXES: Tensor = ("boxes", "FP32", Float, 2);

/// `linear` and, since a linear model is its own parity model for the sum code, `linear-parity`;
/// `identity`, with a tensor of every datatype; `wide`, whose answers are worth compressing; and
/// `scene`, some of whose tensors are coded.
fn write_models(sh: &Shell, repository: &Path) -> Result<()> {
    let linear = linear_model(&[4], &WEIGHTS, &[0.0; 3])?;
    let tensors = tensor("inputs", "input", "FP32", 4) + &tensor("outputs", "output", "FP32", 3);
    let sum = |deployed| format!("[code]\ndeployed = \"{deployed}\"\nencoder = \"sum\"\nk = 2\n");
    models::write(sh, repository, "linear", &tensors, &linear)?;
    let coded = tensors + &sum("linear");
    models::write(sh, repository, "linear-parity", &coded, &linear)?;
    let coded = sum("scene")
        + "inputs = [\"boxes\", \"scores\"]\noutputs = [\"boxes_out\", \"scores_out\"]\n";
    let models: [(&str, &[Tensor], &str); 4] = [
        ("identity", &EVERY_DATATYPE, ""),
        ("wide", &[WIDE], ""),
        ("scene", &[CAMERA, SCORES, BOXES], ""),
        ("scene-parity", &[BOXES, SCORES], &coded),
    ];
    for (name, tensors, code) in models {
        let mut text = String::new();
        for (name, datatype, _, length) in tensors {
            text += &tensor("inputs", name, datatype, *length);
            text += &tensor("outputs", &format!("{name}_out"), datatype, *length);
        }
        let given = tensors
            .iter()
            .map(|(name, _, element, length)| (*name, *element, std::slice::from_ref(length)));
        let file = identity_model(&given.collect::<Vec<_>>());
        models::write(sh, repository, name, &(text + code), &file)?;
    }
    Ok(())
}

fn tensor(side: &str, name: &str, datatype: &str, length: i64) -> String {
    format!("[[{side}]]\nname = \"{name}\"\ndatatype = \"{datatype}\"\nshape = [{length}]\n")
}
