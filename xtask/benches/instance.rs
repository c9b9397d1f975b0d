//! `cargo xtask bench instance`: a small model's instance, beside ONNX Runtime without a server.
//!
//! Each has one core to itself and one thread, `wrk` the other core. Targets take turns. Needs wrk
//! and the models of `cargo xtask demo`.

use super::peers::wrk;
use super::prepare;
use super::report::Aim::{AtLeast, AtMost};
use super::report::{MODELS, Spread, in_turns, publish, ratio, spread};
use crate::cluster::{ANY_PORT, Cluster};
use crate::models::repository;
use crate::prelude::*;
use crate::process::stay_on;

const SERVED: Place = Place::Core(1);
const MODEL: &str = "fashion";
const SECONDS: u32 = 4;
const ROUNDS: u64 = 5;
/// Connections; none for ONNX Runtime alone.
const ARMS: [u32; 4] = [0, 1, 4, 16];

pub(super) fn run() -> Result<()> {
    require(&[("wrk", "wrk")])?;
    prepare()?;
    cargo("build --release -p parapet-models --example bare_onnx_runtime")?;
    stay_on(0)?;
    let (sh, seconds) = (shell()?, SECONDS.to_string());
    let mut cluster = Cluster::for_bench(&scratch("bench-instance"))?;
    let address = cluster.instance(&SERVED, ("instance", MODEL, ANY_PORT), &[])?;
    let address = address.trim_start_matches("http://");
    let bare = SERVED.command(&sh, release("examples/bare_onnx_runtime"));
    let bare = bare.arg(repository().join(MODEL).join("1/model.onnx"));
    let bare = bare.args(["--shape", "1,28,28", "--seconds", &seconds]);
    let library = native().join("onnxruntime/libonnxruntime.so");
    let bare = bare.env("ORT_DYLIB_PATH", library).quiet();
    let figures = in_turns(ROUNDS, ARMS.len(), |_, arm| {
        Ok([match ARMS[arm] {
            0 => bare.read()?.parse()?,
            connections => wrk(address, connections, SECONDS)?.0,
        }])
    })?;
    let mut text = format!(
        "`cargo xtask bench instance`: the demo's {MODEL}, one 28x28 image a request, binary \
         tensors; one thread on one core, the\nclient on the other; medians of {ROUNDS} rounds in \
         turns.\n\n| connections, 0 for ONNX Runtime alone | runs/s | times ONNX Runtime's \
         |\n|---|---|---|\n"
    );
    for (connections, rounds) in ARMS.iter().zip(&figures) {
        let (per_second, times) = (spread(rounds, 0).median, ratio(rounds, &figures[0], 0).median);
        text += &format!("| {connections} | {per_second:.0} | {times:.2} |\n");
    }
    let added = figures[1].iter().zip(&figures[0]).map(|([one], [bare])| 1e3 / one - 1e3 / bare);
    let four = ratio(&figures[2], &figures[0], 0).median;
    let aims = [
        AtMost(0.1, Spread::new(added).median, "ms more than a run, with one connection"),
        AtLeast(0.9, four, "runs/s, times ONNX Runtime's, with four"),
    ];
    publish(MODELS, "cargo xtask bench instance", &(text + "\nMedians of the rounds: "), &aims)
}
