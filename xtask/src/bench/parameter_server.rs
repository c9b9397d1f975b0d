//! `cargo xtask bench parameter-server`: push and pull over loopback, workers and servers as
//! processes of their own, beside mxnet's kvstore where a Python with mxnet is given. Runs of the
//! two take turns, and medians count.

use super::report::Spread;
use super::{in_turns, report};
use crate::models::figure;
use crate::prelude::*;
use crate::resources::memory;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

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
    /// Workers, and servers.
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
        let rounds = (total / keys).max(1);
        Self {
            nodes,
            bytes,
            keys,
            rounds,
        }
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
            let mut runs = vec![Vec::new(); systems];
            for round in 0..args.runs {
                in_turns(round, systems, |system| {
                    let seconds = measure(args, system, load).with_context(|| {
                        format!("{} with values of {bytes} bytes", SYSTEMS[system])
                    })?;
                    runs[system].push(seconds);
                    Ok(())
                })?;
            }
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
    let folder = scratch("bench-parameter-server");
    let (sh, mut processes) = (shell()?, Processes::new(&folder)?);
    let names: Vec<String> = (0..load.nodes).map(|id| format!("worker-{id}")).collect();
    let Load {
        nodes,
        bytes,
        keys,
        rounds,
    } = load;
    let [nodes, bytes, keys, rounds] = [nodes, bytes, keys, rounds].map(|n| n.to_string());
    if let (2, Some(python)) = (system, &args.mxnet_python) {
        let script = "parity-trainer/parameter-server/benches/mxnet_kvstore.py";
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let port = address.port().to_string();
        let line = || {
            cmd!(
                sh,
                "{python} {script} --bytes {bytes} --keys {keys} --rounds {rounds}"
            )
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_NODE_HOST", "127.0.0.1")
            .env("DMLC_PS_ROOT_PORT", &port)
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

Written by `cargo xtask bench parameter-server --mxnet-python PYTHON` (a Python with mxnet==1.9.1
and numpy==1.23.5; without it, our side alone). Workers and servers are processes of their own on
one machine. One key a message; all keys are under way at a time, and a key's next round begins when
its last has ended. Every round is a clock under BSP: the servers add up what the workers push,
which is checked at the end. mxnet's kvstore is `dist_sync` (ps-lite inside), with the same keys,
values and rounds. On one machine our nodes connect through Unix sockets, between machines with TCP:
both are here; mxnet has TCP. Gbit/s count values only, of all workers together, by the slowest
worker's time; starting processes and the first rounds are outside of it. Medians of RUNS runs
(lowest-highest); runs of the three take turns.

| workers + servers | value | | unit | Parapet | Parapet over TCP | mxnet | ratio | ratio over TCP |
|---|---|---|---|---|---|---|---|---|
";

const GOAL: &str = "
Parapet sums up a 64-bit checksum of every message at both ends and refuses numbers that are not
finite; mxnet does neither. The goal is a ratio of 1.5 from 64 KiB on, and 150 thousand op/s at
64 B.
";

const MEMORY: &str = "
### Memory

The highest resident memory (`VmHWM`) of a server process with one dense shard: alone, after every
row has been pushed to twice; then of the two servers, one of which has copied the shard to the
other while pushes went on. The goal is 1.2 times parameters and optimiser state, beside buffers,
which have bounds (received messages 64 MiB, the log 64 MiB, vectors to be used again 32 MiB for
each connection, messages to be sent 16 MiB for each): they count here, too.

| parameters | rule | server | parameters and state | highest | ratio |
|---|---|---|---|---|---|
";

/// A process that is told and tells something in lines; it ends with this value.
struct Talker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

const ENDED: &str = "a process of the memory benchmark ended early";

impl Talker {
    fn start(rule: &str, millions: u64, arguments: &[&str]) -> Result<Self> {
        let mut process = Command::new(release("examples/memory"))
            .args(arguments)
            .args(["--rule", rule, "--millions", &millions.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the memory benchmark")?;
        let lines = BufReader::new(process.stdout.take().context(ENDED)?).lines();
        Ok(Self { process, lines })
    }

    fn hear(&mut self) -> Result<String> {
        Ok(self.lines.next().context(ENDED)??.trim().to_owned())
    }

    fn hear_of_join(&mut self) -> Result<()> {
        while self.hear()? != "joined" {}
        Ok(())
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().context(ENDED)?;
        writeln!(stdin, "{line}").context(ENDED)
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server of `millions` of parameters: after all have been pushed to, and while and after
/// it is copied. Returns the table's rows.
fn measure_memory(millions: u64) -> Result<String> {
    let mut rows = String::new();
    for (rule, numbers) in [("add", 1.0), ("adam", 3.0)] {
        // Parameters and optimiser state.
        let content = millions as f64 * 1e6 * 4.0 * numbers / f64::from(1 << 20);
        let mut note = |server: &str, talker: &Talker| -> Result<()> {
            let highest = memory(talker.process.id())?.highest;
            let ratio = highest / content;
            rows += &format!(
                "| {millions} M | {rule} | {server} | {content:.0} MiB | {highest:.0} MiB | \
                 {ratio:.2} |\n"
            );
            Ok(())
        };
        let mut old = Talker::start(rule, millions, &["server", "0"])?;
        let address = old.hear()?;
        let mut worker = Talker::start(rule, millions, &["worker", &address])?;
        for _ in 0..2 {
            worker.hear()?;
        }
        note("alone", &old)?;
        let mut new = Talker::start(rule, millions, &["server", "1"])?;
        let address = new.hear()?;
        old.tell(&format!("copy {address}"))?;
        old.hear_of_join()?;
        for other in [&mut new, &mut worker] {
            other.tell(&format!("joined {address}"))?;
            other.hear_of_join()?;
        }
        // Twice: the first round may have begun before the join.
        for _ in 0..2 {
            worker.hear()?;
        }
        note("copied from", &old)?;
        note("copied to", &new)?;
    }
    Ok(rows)
}
