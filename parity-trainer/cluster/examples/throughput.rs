//! One process of the benchmark `cargo xtask bench parameter-server`: a server that adds up, or a
//! worker that pushes and pulls with all of its keys under way, and prints what it took.

#[path = "../tests/support/in_process.rs"]
mod in_process;

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use clap::{Parser, Subcommand};
use parapet_cluster::node::{NodeConfig, Pending, Pulled, ServerNode, TaskSpec, Transport, Worker};
use parapet_cluster::registry::View;
use parapet_parameter_server::{
    Add, ArrayConfig, ArrayId, ClientArray, Clock, Consistency, Epoch, KeyRange, Layout, NodeId,
    Route, Routing, Values, WorkerId,
};
use tokio::runtime::Builder;

use crate::in_process::InProcessRegistry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ARRAY: ArrayId = ArrayId(0);

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Servers of the cluster
    #[arg(long, global = true, default_value_t = 1)]
    servers: u64,
    /// Workers of the cluster
    #[arg(long, global = true, default_value_t = 1)]
    workers: u64,
    /// Bytes of each value
    #[arg(long, global = true, default_value_t = 65536)]
    bytes: usize,
    /// Keys, each with one value
    #[arg(long, global = true, default_value_t = 16)]
    keys: u64,
    /// TCP alone, as between machines, instead of a Unix socket
    #[arg(long, global = true)]
    tcp: bool,
    /// Threads of the process
    #[arg(long, global = true, default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serves until its standard input ends; prints its address
    Server {
        /// From 0
        node: u64,
    },
    /// Runs the rounds, and prints seconds for push, pull and both
    Worker {
        /// From 0
        worker: u64,
        /// Times that every key is pushed, and pulled
        #[arg(long, default_value_t = 100)]
        rounds: u64,
        /// The servers' addresses, in order
        #[arg(long, required = true)]
        address: Vec<String>,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime = match args.threads {
        // The main thread is one of them.
        0 | 1 => Builder::new_current_thread().enable_all().build()?,
        threads => Builder::new_multi_thread().worker_threads(threads - 1).enable_all().build()?,
    };
    let transport = match args.tcp {
        true => Transport::Tcp,
        false => Transport::Sockets,
    };
    let config = NodeConfig::new("benchmark", transport);
    match &args.role {
        Role::Server { node } => runtime.block_on(serve(&args, config, NodeId(*node))),
        Role::Worker { worker, rounds, address } => {
            runtime.block_on(work(&args, config, WorkerId(*worker), *rounds, address))
        }
    }
}

/// The keys cut into one shard for each server.
fn view(args: &Args, addresses: &[String]) -> Result<View, Box<dyn Error>> {
    let shards = KeyRange::new(0, args.keys).cut(args.servers);
    let route =
        |(node, range)| Route { array: ARRAY, range, epoch: Epoch(1), chain: vec![NodeId(node)] };
    let routing = Routing::new(1, (0..).zip(shards).map(route).collect())?;
    let workers = (0..args.workers).map(|worker| (WorkerId(worker), Clock(0)));
    let mut view = in_process::view(routing, workers.collect());
    let servers = addresses.iter().map(in_process::server);
    view.servers = (0..).map(NodeId).zip(servers).collect();
    Ok(view)
}

async fn serve(args: &Args, config: NodeConfig, node: NodeId) -> Result<(), Box<dyn Error>> {
    let layout = Layout::dense(args.bytes / 4, Add);
    let arrays = vec![(ARRAY, ArrayConfig { layout, consistency: Consistency::Bsp })];
    let embedded = InProcessRegistry::new(view(args, &[])?);
    let membership = embedded.membership();
    let mut server = ServerNode::bind(node, "127.0.0.1:0", arrays, config, membership).await?;
    println!("{}", server.address());
    std::io::stdout().flush()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(stop);
    });
    server.run(async { stopped.await.unwrap_or_default() }).await;
    Ok(())
}

async fn work(
    args: &Args,
    config: NodeConfig,
    id: WorkerId,
    rounds: u64,
    addresses: &[String],
) -> Result<(), Box<dyn Error>> {
    let width = args.bytes / 4;
    let arrays = vec![(ARRAY, ClientArray { width, consistency: Consistency::Bsp })];
    let embedded = InProcessRegistry::new(view(args, addresses)?);
    let worker = Worker::start(id, arrays, config, embedded.membership());
    let rounds = rounds.max(1);
    let values = (0..args.keys).map(|key| Values::from(vec![key as f32; width]));
    let values: Vec<Values> = values.collect();
    let mut clock = 0;
    let mut seconds = [0.0; 3];
    for (phase, seconds) in [Phase::Push, Phase::Pull, Phase::Both].into_iter().zip(&mut seconds) {
        clock = run(&worker, &values, phase, clock, rounds.min(3)).await?;
        let start = Instant::now();
        clock = run(&worker, &values, phase, clock, rounds).await?;
        *seconds = start.elapsed().as_secs_f64();
    }
    check(&worker, args, clock).await?;
    let [push, pull, both] = seconds;
    println!("{{\"push\": {push}, \"pull\": {pull}, \"both\": {both}}}");
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Push,
    Pull,
    Both,
}

/// Every key `rounds` times: a key's next round begins when its last has ended, so all keys are
/// under way at a time. The clock afterwards.
async fn run(
    worker: &Worker,
    values: &[Values],
    phase: Phase,
    clock: u64,
    rounds: u64,
) -> Result<u64, Box<dyn Error>> {
    let mut pushes: Vec<Option<Pending<()>>> = values.iter().map(|_| None).collect();
    let mut pulls: Vec<Option<Pending<Pulled>>> = values.iter().map(|_| None).collect();
    for round in 1..=rounds + 1 {
        for ((key, value), (push, pull)) in (0..).zip(values).zip(pushes.iter_mut().zip(&mut pulls))
        {
            if let Some(push) = push.take() {
                push.await?;
            }
            if let Some(pull) = pull.take() {
                pull.await?;
            }
            if round > rounds {
                continue;
            }
            let range = KeyRange::new(key, key + 1);
            if phase == Phase::Pull {
                *pull = Some(worker.pull(TaskSpec::new(ARRAY, range, Clock(clock))).await?);
                continue;
            }
            let spec = TaskSpec::new(ARRAY, range, Clock(clock + round));
            *push = Some(worker.push(spec, value.clone()).await?);
            if phase == Phase::Both {
                let next = TaskSpec::new(ARRAY, range, Clock(clock + round + 1));
                *pull = Some(worker.pull(next).await?);
            }
        }
    }
    Ok(if phase == Phase::Pull { clock } else { clock + rounds })
}

/// The server must have added up everything.
async fn check(worker: &Worker, args: &Args, clock: u64) -> Result<(), Box<dyn Error>> {
    let key = args.keys - 1;
    let spec = TaskSpec::new(ARRAY, KeyRange::new(key, key + 1), Clock(clock + 1));
    let pulled = worker.pull(spec).await?.await?;
    let expected = (key * clock * args.workers) as f32;
    match pulled.values.iter().find(|&&found| (found - expected).abs() > expected * 1e-3) {
        None => Ok(()),
        Some(found) => Err(format!("the servers have {found} where the sum is {expected}").into()),
    }
}
