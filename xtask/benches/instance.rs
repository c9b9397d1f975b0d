//! `cargo xtask bench instance`: instances of a small and a larger model, beside ONNX Runtime
//! without a server.
//!
//! Each has one core to itself and one thread, `wrk` the other core. Targets take turns. Needs wrk
//! and the models of `cargo xtask demo`.

use super::peers::wrk;
use super::prepare;
use super::processor::stay_on;
use super::report::Aim::{AtLeast, AtMost};
use super::report::{MODELS, Spread, in_turns, publish, ratio, spread};
use crate::cluster::{ANY_PORT, Cluster};
use crate::models::{repository, write};
use crate::prelude::*;
use parapet_onnx::GraphBuilder;

const SERVED: Place = Place::Core(1);
const MODEL: &str = "fashion";
const SECONDS: u32 = 3;
const ROUNDS: u64 = 5;
/// Connections; none for ONNX Runtime alone.
const ARMS: [u32; 4] = [0, 1, 4, 16];
/// Features of the larger model's three hidden layers.
const WIDTH: usize = 512;

pub(super) fn run() -> Result<()> {
    require(&[("wrk", "wrk")])?;
    prepare()?;
    cargo("build --release -p parapet-models --example bare_onnx_runtime")?;
    stay_on(0)?;
    let (sh, seconds) = (shell()?, SECONDS.to_string());
    let repositories = [repository(), scratch("bench-instance/larger")];
    write_larger(&sh, &repositories[1])?;
    let mut clusters = Vec::new();
    let mut addresses = Vec::new();
    for (size, repository) in repositories.iter().enumerate() {
        let folder = scratch("bench-instance").join(size.to_string());
        let mut cluster = Cluster::new(release(""), &folder, repository)?;
        let address = cluster.instance(&SERVED, ("instance", MODEL, ANY_PORT), &[])?;
        addresses.push(address.trim_start_matches("http://").to_owned());
        clusters.push(cluster);
    }
    let library = native().join("onnxruntime/libonnxruntime.so");
    let figures = in_turns(ROUNDS, repositories.len() * ARMS.len(), |_, arm| {
        let (size, connections) = (arm / ARMS.len(), ARMS[arm % ARMS.len()]);
        if connections > 0 {
            return Ok([wrk(&addresses[size], connections, SECONDS)?.0]);
        }
        let bare = SERVED.command(&sh, release("examples/bare_onnx_runtime"));
        let bare = bare.arg(repositories[size].join(MODEL).join("1/model.onnx"));
        let bare = bare.args(["--shape", "1,28,28", "--seconds", &seconds]);
        Ok([bare.env("ORT_DYLIB_PATH", &library).quiet().read()?.parse()?])
    })?;
    let mut text = format!(
        "`cargo xtask bench instance`: the demo's {MODEL}, and an MLP with three hidden layers of \
         {WIDTH}; one 28x28 image a\nrequest, binary tensors; one thread on one core, the client \
         on the other; medians of {ROUNDS} rounds in turns.\n\n| model | connections, 0 for ONNX \
         Runtime alone | runs/s | times ONNX Runtime's |\n|---|---|---|---|\n"
    );
    for (name, figures) in [MODEL, "MLP"].iter().zip(figures.chunks(ARMS.len())) {
        for (connections, rounds) in ARMS.iter().zip(figures) {
            let per_second = spread(rounds, 0).median;
            let times = ratio(rounds, &figures[0], 0).median;
            text += &format!("| {name} | {connections} | {per_second:.0} | {times:.2} |\n");
        }
    }
    let added = figures[1].iter().zip(&figures[0]).map(|([one], [bare])| 1e3 / one - 1e3 / bare);
    let four = |size: usize| ratio(&figures[size + 2], &figures[size], 0).median;
    let aims = [
        AtMost(0.1, Spread::new(added).median, "ms more than a run, with one connection"),
        AtLeast(0.9, four(0), "runs/s, times ONNX Runtime's, with four"),
        AtLeast(0.9, four(ARMS.len()), "and of the MLP"),
    ];
    publish(MODELS, "cargo xtask bench instance", &(text + "\nMedians of the rounds: "), &aims)
}

fn write_larger(sh: &Shell, repository: &Path) -> Result<()> {
    let mut graph = GraphBuilder::new("input", &[1, 28, 28]).flatten();
    for (inputs, outputs) in [(784, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 10)] {
        // Any numbers will do.
        let weights = (0..inputs * outputs).map(|i| (i * 7919 % 101) as f32 / 1010.0 - 0.05);
        graph = graph.gemm(&weights.collect::<Vec<_>>(), &vec![0.0; outputs]);
        if outputs == WIDTH {
            graph = graph.relu();
        }
    }
    let tensors = "[[inputs]]\nname = \"input\"\ndatatype = \"FP32\"\nshape = [1, 28, 28]\n\
        [[outputs]]\nname = \"output\"\ndatatype = \"FP32\"\nshape = [10]\n";
    write(sh, repository, MODEL, tensors, &graph.finish("output")?)
}
