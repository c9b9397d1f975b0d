//! `cargo xtask bench parameter-server`: push and pull over loopback, workers and servers as
//! processes of their own, beside mxnet's kvstore where a Python with mxnet is given. Runs of the
//! two take turns, and medians count.

use super::report::{self, Spread, in_turns};
use crate::models::figure;
use crate::prelude::*;
use crate::process::memory;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python with mxnet 1.9.1 and numpy 1.23.5, to compare with
    #[arg(long)]
    mxnet_python: Option<PathBuf>,
    /// Runs of each system at each size
    #[arg(long, default_value_t = 5)]
    runs: u64,
    /// Mebibytes that each worker pushes, and pulls, in a run
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// Only values of these sizes, in bytes
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Millions of parameters of the server whose memory is measured; 0 for none
    #[arg(long, default_value_t = 100)]
    millions: u64,
}

/// Ours as it is on one machine, ours as it is between machines, and mxnet's kvstore.
const SYSTEMS: [&str; 3] = ["Parapet", "Parapet over TCP", "mxnet"];
const NAME: &str = "cargo xtask bench parameter-server";
const PHASES: [&str; 3] = ["push", "pull", "push and pull"];

type Seconds = [f64; 3];

#[derive(Debug, Clone, Copy)]
struct Load {
    nodes: u64,
    bytes: u64,
    keys: u64,
    rounds: u64,
}

impl Load {
    /// Keys so that a few megabytes are under way, as the layers of a network would be.
    fn new(nodes: u64, bytes: u64, args: &Args) -> Self {
        let values = args.mebibytes * (1 << 20) / bytes;
        let (keys, total) = match bytes {
            ..=4096 => (1024, 400_000),
            4097..=262_144 => (64, values),
            262_145..=2_097_152 => (16, values),
            _ => (8, values),
        };
        Self { nodes, bytes, keys, rounds: (total / keys).max(1) }
    }

    /// Gbit/s of values, or thousands of operations/s for small ones, of all workers together;
    /// pushes and pulls both count where both are done.
    fn rate(&self, runs: &[Seconds], phase: usize) -> Spread {
        let operations = (self.keys * self.rounds * self.nodes) as f64;
        let ways = if phase == 2 { 2.0 } else { 1.0 };
        let gbit = self.bytes as f64 * 8.0 / 1e9;
        let unit = if self.bytes <= 4096 { 1e-3 } else { gbit };
        Spread::new(runs.iter().map(|run| ways * operations * unit / run[phase]))
    }

    fn lines(&self, systems: &[Vec<Seconds>]) -> String {
        let Self { nodes, bytes, .. } = self;
        let size = match bytes {
            bytes if *bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if *bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        };
        let is_small = *bytes <= 4096;
        let unit = if is_small { "thousand op/s" } else { "Gbit/s" };
        let mut text = String::new();
        for (phase, name) in PHASES.into_iter().enumerate() {
            let rates: Vec<Spread> = systems.iter().map(|runs| self.rate(runs, phase)).collect();
            let shown = |rate: &Spread| rate.text(usize::from(rate.median < 100.0));
            let mut cells: Vec<String> = rates.iter().map(shown).collect();
            match rates[..] {
                // One of ours over theirs, by medians.
                [ours, over_tcp, theirs] => cells.extend(
                    [ours, over_tcp].map(|own| format!("{:.2}", own.median / theirs.median)),
                ),
                _ => cells.extend(["not run", "-", "-"].map(str::to_owned)),
            }
            let cells = cells.join(" | ");
            text += &format!("| {nodes} + {nodes} | {size} | {name} | {unit} | {cells} |\n");
        }
        text
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    cargo("build --release -p parapet-cluster --example throughput --example memory")?;
    let systems = if args.mxnet_python.is_some() { 3 } else { 2 };
    let mut rows = String::new();
    for nodes in [1, 2] {
        for bytes in [64, 64 << 10, 1 << 20, 4 << 20] {
            if !args.sizes.is_empty() && !args.sizes.contains(&bytes) {
                continue;
            }
            let load = Load::new(nodes, bytes, args);
            let runs = in_turns(args.runs, systems, |_, system| {
                let what = || format!("{} with values of {bytes} bytes", SYSTEMS[system]);
                measure(args, system, load).with_context(what)
            })?;
            let lines = load.lines(&runs);
            print!("{lines}");
            rows += &lines;
        }
    }
    let mut text = HEAD.replace("RUNS", &args.runs.to_string()) + &rows + GOAL;
    if args.millions > 0 {
        let memory = measure_memory(args.millions)?;
        print!("{memory}");
        text = text + MEMORY + &memory;
    }
    report::write(report::PARAMETER_SERVER, NAME, &text)
}

fn measure(args: &Args, system: usize, load: Load) -> Result<Seconds> {
    let (sh, mut processes) = (shell()?, Processes::new(&scratch("bench-parameter-server"))?);
    let names: Vec<String> = (0..load.nodes).map(|id| format!("worker-{id}")).collect();
    let [nodes, bytes, keys, rounds] =
        [load.nodes, load.bytes, load.keys, load.rounds].map(|n| n.to_string());
    if let (2, Some(python)) = (system, &args.mxnet_python) {
        let script = "parity-trainer/parameter-server/benches/mxnet_kvstore.py";
        let address = free_address()?;
        let (_, port) = address.split_once(':').unwrap_or_default();
        let line = || {
            cmd!(sh, "{python} {script} --bytes {bytes} --keys {keys} --rounds {rounds}")
                .env("DMLC_PS_ROOT_URI", "127.0.0.1")
                .env("DMLC_NODE_HOST", "127.0.0.1")
                .env("DMLC_PS_ROOT_PORT", port)
                .env("DMLC_NUM_SERVER", &nodes)
                .env("DMLC_NUM_WORKER", &nodes)
        };
        processes.start("scheduler", line().env("DMLC_ROLE", "scheduler"))?;
        for id in 0..load.nodes {
            processes.start(&format!("server-{id}"), line().env("DMLC_ROLE", "server"))?;
        }
        for name in &names {
            processes.start(name, line().env("DMLC_ROLE", "worker"))?;
        }
    } else {
        let program = release("examples/throughput");
        let tcp = (system == 1).then_some("--tcp");
        let line = |role: &str, id: u64| -> Cmd<'_> {
            let id = id.to_string();
            cmd!(
                sh,
                "{program} {role} {id} --servers {nodes} --workers {nodes} --bytes {bytes}
                    --keys {keys} {tcp...}"
            )
        };
        let mut addresses = Vec::new();
        for id in 0..load.nodes {
            let address = processes.start_ready(&format!("server-{id}"), line("server", id), "")?;
            addresses.extend(["--address".to_owned(), address]);
        }
        for (id, name) in (0..).zip(&names) {
            let worker = line("worker", id).args(["--rounds", &rounds]);
            processes.start(name, worker.args(&addresses))?;
        }
    }
    let mut slowest = [0.0; 3];
    for name in &names {
        processes.wait(name)?;
        let said = sh.read_file(processes.log(name))?;
        let result = said.lines().last().unwrap_or_default();
        let result = serde_json::from_str(result).with_context(|| format!("{name}: {said}"))?;
        for (slowest, phase) in slowest.iter_mut().zip(["/push", "/pull", "/both"]) {
            *slowest = figure(&result, phase)?.max(*slowest);
        }
    }
    Ok(slowest)
}

const HEAD: &str = "\
## Push and pull over loopback

`--mxnet-python PYTHON` (with mxnet==1.9.1 and numpy==1.23.5) adds mxnet's kvstore (`dist_sync`,
ps-lite inside). Workers and servers are processes of one machine, each round is a clock under BSP,
and the sums are checked. Our nodes connect through Unix sockets, or TCP as between machines; mxnet
has TCP. Gbit/s count values only, by the slowest worker's time. Medians of RUNS runs in turns
(lowest-highest).

| workers + servers | value | | unit | Parapet | Parapet over TCP | mxnet | ratio | ratio over TCP |
|---|---|---|---|---|---|---|---|---|
";

const GOAL: &str = "
Parapet checks a 64-bit checksum of every message and refuses numbers that are not finite; mxnet
does neither. The goal is a ratio of 1.5 from 64 KiB on, and 150 thousand op/s at 64 B.
";

const MEMORY: &str = "
### Memory

Highest resident memory (`VmHWM`) of a server process with one dense shard: alone, after every row
has been pushed to twice; then of the two servers, one of which has copied the shard to the other
while pushes went on. The goal is 1.2 times parameters and optimiser state. Buffers count, too.

| parameters | rule | server | parameters and state | highest | ratio |
|---|---|---|---|---|---|
";

/// Limit of a round of pushes to all of a large shard, and of its copy.
const SLOW: Duration = Duration::from_secs(600);

/// A server of `millions` of parameters: after all have been pushed to, and while and after
/// it is copied. Returns the table's rows.
fn measure_memory(millions: u64) -> Result<String> {
    let (sh, program) = (shell()?, release("examples/memory"));
    let mut rows = String::new();
    for (rule, numbers) in [("add", 1.0), ("adam", 3.0)] {
        // Parameters and optimiser state.
        let content = millions as f64 * 1e6 * 4.0 * numbers / f64::from(1 << 20);
        let mut note = |server: &str, pid: u32| -> Result<()> {
            let highest = memory(pid)?.highest;
            let ratio = highest / content;
            rows += &format!(
                "| {millions} M | {rule} | {server} | {content:.0} MiB | {highest:.0} MiB | \
                 {ratio:.2} |\n"
            );
            Ok(())
        };
        let count = millions.to_string();
        let node = |role: &str, of: &str| {
            cmd!(sh, "{program} {role} {of} --rule {rule} --millions {count}")
        };
        let mut nodes = Processes::new(&scratch("bench-parameter-server"))?;
        let old = nodes.start_ready("old", node("server", "0"), "")?;
        nodes.start("worker", node("worker", &old))?;
        let two_pushes = |said: &str| (said.matches("pushed").count() >= 2).then_some(());
        nodes.hear("worker", SLOW, two_pushes)?;
        note("alone", nodes.pid("old")?)?;
        let new = nodes.start_ready("new", node("server", "1"), "")?;
        let after_join = |said: &str| Some(said.split_once("joined")?.1.to_owned());
        nodes.tell("old", &format!("copy {new}"))?;
        nodes.hear("old", SLOW, after_join)?;
        for other in ["new", "worker"] {
            nodes.tell(other, &format!("joined {new}"))?;
            nodes.hear(other, SLOW, after_join)?;
        }
        // Twice: the first round may have begun before the join.
        nodes.hear("worker", SLOW, |said| two_pushes(&after_join(said)?))?;
        note("copied from", nodes.pid("old")?)?;
        note("copied to", nodes.pid("new")?)?;
    }
    Ok(rows)
}
