//! One process of the memory benchmark in `cargo xtask bench parameter-server`: a server of one
//! large dense shard, or a worker that pushes all of it again and again.
//!
//! Lines on the standard input are what a registry would say: `copy ADDRESS` asks server 0 to copy
//! the shard to the server there, `joined ADDRESS` tells everyone that it has. A process ends with
//! its standard input.

#[path = "../tests/support/in_process.rs"]
mod in_process;

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use parapet_cluster::node::{NodeConfig, ServerNode, TaskError, TaskSpec, Timing, Worker};
use parapet_cluster::registry::View;
use parapet_parameter_server::{
    Adam, Add, ArrayConfig, ArrayId, ClientArray, Clock, Consistency, Epoch, HandOver, KeyRange,
    Layout, NodeId, Route, Routing, ShardRef, Values, WorkerId,
};
use tokio::sync::{mpsc, watch};

use crate::in_process::InProcessRegistry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ARRAY: ArrayId = ArrayId(0);
const WORKER: WorkerId = WorkerId(0);

/// Numbers in a row.
const WIDTH: usize = 1000;

/// A busy machine must not look like a dead one: the registry of a single process removes every
/// server that it suspects.
const TIMING: Timing = Timing { heartbeat: Duration::from_secs(1) };

fn config() -> NodeConfig {
    NodeConfig { timing: TIMING, ..NodeConfig::default() }
}

/// Rows in a push.
const AT_ONCE: u64 = 1000;

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Update rule of the array
    #[arg(long, global = true, default_value = "add")]
    rule: Rule,
    /// Parameters, in millions
    #[arg(long, global = true, default_value_t = 100)]
    millions: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rule {
    /// No state
    Add,
    /// Two numbers of state for each parameter
    Adam,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Prints its address, and `joined` when it knows that server 1 has been let in
    Server {
        /// 0 or 1
        node: u64,
    },
    /// Prints `pushed` each time that it has pushed all rows, and `joined` as servers do
    Worker {
        /// Of server 0
        address: String,
    },
}

impl Args {
    fn range(&self) -> KeyRange {
        KeyRange::new(0, self.millions * 1_000_000 / WIDTH as u64)
    }

    fn layout(&self) -> Layout {
        match self.rule {
            Rule::Add => Layout::dense(WIDTH, Add),
            Rule::Adam => Layout::dense(WIDTH, Adam::default()),
        }
    }

    /// The shard at `chain`, with server 0 at this address.
    fn view(&self, epoch: u64, chain: &[u64], address: &str) -> Result<View, Box<dyn Error>> {
        let chain = chain.iter().copied().map(NodeId).collect();
        let route = Route { array: ARRAY, range: self.range(), epoch: Epoch(epoch), chain };
        let routing = Routing::new(epoch, vec![route])?;
        let mut view = in_process::view(routing, vec![(WORKER, Clock(0))]);
        view.servers.insert(NodeId(0), in_process::server(address));
        Ok(view)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    match &args.role {
        Role::Server { node } => serve(&args, *node).await,
        Role::Worker { address } => work(&args, address).await,
    }
}

/// The standard input, line by line.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Tells a node what the lines say, to the end of them.
async fn follow(args: &Args, view: &watch::Sender<Arc<View>>, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        let Some((word, address)) = line.split_once(' ') else {
            continue;
        };
        let mut next = View::clone(&view.borrow());
        next.servers.insert(NodeId(1), in_process::server(address));
        match word {
            "copy" => {
                let at = ShardRef { array: ARRAY, range: args.range(), epoch: Epoch(1) };
                next.table.hand_overs.push(HandOver { at, to: NodeId(1) });
            }
            _ => {
                if let Ok(joined) = args.view(2, &[0, 1], "") {
                    next.table.routing = joined.table.routing;
                }
            }
        }
        view.send_replace(Arc::new(next));
    }
}

fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

/// Says that server 1 has joined, once it has, and goes on forever.
async fn announce(mut view: watch::Receiver<Arc<View>>) {
    let _ = view.wait_for(|view| view.table.routing.version() > 1).await;
    say("joined");
    std::future::pending::<()>().await;
}

async fn serve(args: &Args, node: u64) -> Result<(), Box<dyn Error>> {
    let arrays =
        vec![(ARRAY, ArrayConfig { layout: args.layout(), consistency: Consistency::Bsp })];
    let mut view = args.view(1, &[0], "")?;
    // Server 0 connects to server 1.
    view.servers.clear();
    let embedded = InProcessRegistry::new(view);
    let joined = announce(embedded.view.subscribe());
    let (node, membership) = (NodeId(node), embedded.membership());
    let mut server = ServerNode::bind(node, "127.0.0.1:0", arrays, config(), membership).await?;
    say(server.address());
    tokio::select! {
        () = server.run(follow(args, &embedded.view, lines())) => {}
        () = joined => {}
    }
    Ok(())
}

async fn work(args: &Args, address: &str) -> Result<(), Box<dyn Error>> {
    let arrays = vec![(ARRAY, ClientArray { width: WIDTH, consistency: Consistency::Bsp })];
    let embedded = InProcessRegistry::new(args.view(1, &[0], address)?);
    let worker = Worker::start(WORKER, arrays, config(), embedded.membership());
    let joined = announce(embedded.view.subscribe());
    tokio::select! {
        () = joined => Ok(()),
        () = follow(args, &embedded.view, lines()) => Ok(()),
        failed = push(args, &worker) => Ok(failed?),
    }
}

/// Pushes all rows, again and again, a few pushes at a time.
async fn push(args: &Args, worker: &Worker) -> Result<(), TaskError> {
    let values = Values::from(vec![1e-3; WIDTH * AT_ONCE as usize]);
    for clock in (1..).map(Clock) {
        let mut pending = Vec::new();
        for start in (0..args.range().end).step_by(AT_ONCE as usize) {
            let range = KeyRange::new(start, (start + AT_ONCE).min(args.range().end));
            let values = values.slice(0..range.len() as usize * WIDTH);
            let spec = TaskSpec::new(ARRAY, range, clock);
            pending.push(worker.push(spec, values).await?);
        }
        for push in pending {
            push.await?;
        }
        say("pushed");
    }
    Ok(())
}
