//! Gain of moving shards away from a slow server: four servers in network namespaces of their own
//! behind rate-limited links (`tc tbf`, both ways), one of which has an eighth of the bandwidth; or
//! without limits, and one has a quarter of a processor (a control group's quota). Some runs begin
//! with all shards on the first server; some deal them in turns, as MXNet does with its layers; in
//! some the last server is a standby.
//!
//! One process pushes the gradients of four executors and pulls the parameters, and computes
//! nothing, so that a step takes what the servers take. The oracle is the cluster without the slow
//! server, whose links would carry less than one of its shards in the others' time.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parapet_cluster::node::Transport;
use parapet_cluster::registry::{Address, Registry};
use parapet_cluster::roles::training::{NewTraining, Settled, Training};
use parapet_parameter_server::LoadPlan;

use crate::support::learning::new;
use crate::workers::median;

pub(crate) const HUB: &str = "parapet-load-hub";
pub(crate) const SERVERS: usize = 4;
/// Megabits per second of a server's link, and of a slow one's.
const RATE: f64 = 160.0;
const SLOW: f64 = RATE / 8.0;
const EXECUTORS: usize = 4;
pub(crate) const REGISTRY: &str = "10.78.0.254:7070";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of a run, and once more after a change of the slow server
    #[arg(long, default_value_t = 85)]
    seconds: u64,
    /// Seconds at the end of a run that count
    #[arg(long, default_value_t = 25)]
    last: u64,
    /// Servers that hold each shard
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    replicas: Vec<usize>,
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Only arms with these words in their names
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Push {
    #[arg(long)]
    seconds: u64,
    #[arg(long, default_value_t = 1 << 18)]
    parameters: usize,
    #[arg(long, default_value_t = 16)]
    shards: u64,
    /// Servers of the shards to begin with: the ring's (0), in turns (1), or the first ones (2)
    #[arg(long)]
    deal: usize,
}

/// Moves the training's shards before they count.
async fn deal(registry: &Registry, deal: usize) {
    let view = registry.view();
    let view = view.borrow();
    let (table, leader) = (view.table.clone(), view.leader.unwrap());
    let servers = Vec::from_iter(view.servers.keys().copied());
    drop(view);
    let chains = table.routing.routes().iter().enumerate().map(|(place, route)| {
        let first = if deal == 1 { place } else { 0 };
        let chain = (first..).map(|at| servers[at % servers.len()]).take(route.chain.len());
        (route.array, route.range, chain.collect())
    });
    let plan = LoadPlan { chains: chains.collect(), ..LoadPlan::default() };
    let (routing, hand_overs) = (&table.routing, &table.hand_overs);
    registry.change(leader.term, table.revision, routing, hand_overs, &plan).await.unwrap();
}

impl Push {
    /// Prints when each step was done, in milliseconds.
    pub(crate) async fn run(&self) {
        let address: Address = format!("parapet://{REGISTRY}").parse().unwrap();
        let registry = address.open().await.unwrap();
        let weights = vec![0.5; self.parameters];
        let new =
            NewTraining { executors: EXECUTORS, shards: self.shards, ..new(1 << 30, &weights) };
        let begun = Training::begin(&registry, address.cluster(), Transport::Sockets, new).await;
        let (mut training, begun) = (begun.unwrap(), Instant::now());
        if self.deal > 0 {
            deal(&registry, self.deal).await;
        }
        while begun.elapsed() < Duration::from_secs(self.seconds) {
            for executor in training.to_do() {
                let gradient = training.weights().to_vec();
                training.push(executor, 0, gradient.into_iter()).await.unwrap();
            }
            if training.settle().await.unwrap() == Settled::Done {
                println!("{}", begun.elapsed().as_millis());
            }
        }
        training.leave().await.unwrap();
    }
}

fn run(words: &str) {
    let mut words = words.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words.clone()).status();
    assert!(status.is_ok_and(|status| status.success()), "{:?}", Vec::from_iter(words));
}

/// Four servers and a hub with the registry, until this is dropped.
pub(crate) struct Network;

impl Network {
    pub(crate) fn new(is_limited: bool) -> Self {
        let network = Self;
        network.remove();
        run(&format!("ip netns add {HUB}"));
        run(&format!("ip -n {HUB} link add bridge type bridge"));
        for line in
            ["link set lo up", "link set bridge up", "address add 10.78.0.254/24 dev bridge"]
        {
            run(&format!("ip -n {HUB} {line}"));
        }
        for server in 0..SERVERS {
            let space = space(server);
            run(&format!("ip netns add {space}"));
            run(&format!("ip link add s{server} netns {HUB} type veth peer eth0 netns {space}"));
            run(&format!("ip -n {HUB} link set s{server} master bridge up"));
            run(&format!("ip -n {space} address add 10.78.0.{}/24 dev eth0", server + 1));
            run(&format!("ip -n {space} link set eth0 up"));
            if is_limited {
                // A packet that waits, and is longer than a new burst, would block its link.
                for link in [format!("{HUB} link set bridge"), format!("{space} link set eth0")] {
                    run(&format!("ip -n {link} gso_max_size 9000"));
                }
                network.limit(server, RATE);
            }
        }
        network
    }

    pub(crate) fn limit(&self, server: usize, rate: f64) {
        for (space, device) in
            [(HUB.to_owned(), format!("s{server}")), (space(server), "eth0".into())]
        {
            run(&format!(
                "tc -n {space} qdisc replace dev {device} root tbf rate {rate}mbit burst {}kb \
                 latency 200ms",
                rate as u32 / 2
            ));
        }
    }

    fn remove(&self) {
        for space in (0..SERVERS).map(space).chain([HUB.to_owned()]) {
            let mut delete = Command::new("ip");
            let _ = delete.args(["netns", "delete", &space]).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

pub(crate) fn space(server: usize) -> String {
    format!("parapet-load-{server}")
}

/// A process that ends with this.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn start(space: &str, program: &PathBuf, words: &str) -> Process {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space]).arg(program).args(words.split_whitespace());
    Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// The slow server of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slow {
    Nothing,
    First,
    /// The first, and then another one for as long.
    Another,
    /// The slow one is left out.
    Without,
    /// No link is; the first server's processor is.
    Processor,
    /// The same, and it is left out.
    WithoutProcessor,
    /// None is; the first one has all shards.
    HasAll,
    /// The first, and shards are dealt in turns.
    InTurns,
    /// None is, or the first one, and the last one is a standby.
    Standby,
    FirstStandby,
}

impl Slow {
    const fn is_processor(self) -> bool {
        matches!(self, Self::Processor | Self::WithoutProcessor)
    }

    const fn is_oracle(self) -> bool {
        matches!(self, Self::Without | Self::WithoutProcessor)
    }

    const fn has_standby(self) -> bool {
        matches!(self, Self::Standby | Self::FirstStandby)
    }
}

/// Gives a process a quarter of a processor.
fn throttle(process: &Process) {
    let folder = std::path::Path::new("/sys/fs/cgroup");
    let (folder, limit) = match folder.join("cpu").is_dir() {
        true => (folder.join("cpu/parapet-slow"), ("cpu.cfs_quota_us", "25000")),
        false => (folder.join("parapet-slow"), ("cpu.max", "25000 100000")),
    };
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(limit.0), limit.1).unwrap();
    std::fs::write(folder.join("cgroup.procs"), process.0.id().to_string()).unwrap();
}

/// Steps/s in the last seconds of a run.
fn measure(args: &Args, replicas: usize, slow: Slow, rebalance: u64) -> f64 {
    let network = Network::new(!slow.is_processor());
    let folder = std::env::current_exe().unwrap();
    let program = folder.parent().unwrap().parent().unwrap().join("parapet-parameter-server");
    let servers: Vec<usize> = (usize::from(slow.is_oracle())..SERVERS).collect();
    if matches!(slow, Slow::First | Slow::InTurns | Slow::Another | Slow::FirstStandby) {
        network.limit(0, SLOW);
    }
    let regular = servers.len() - usize::from(slow.has_standby());
    let leading = format!("--replicas {replicas} --min-servers {regular} --rebalance {rebalance}");
    let mut processes =
        vec![start(HUB, &program, &format!("coordinator --serve {REGISTRY} {leading}"))];
    std::thread::sleep(Duration::from_millis(500));
    for &server in &servers {
        let is_standby = slow.has_standby() && server + 1 == SERVERS;
        let standby = if is_standby { "--standby" } else { "" };
        let words = format!(
            "server --registry parapet://{REGISTRY} --listen 10.78.0.{}:0 {leading} {standby}",
            server + 1
        );
        let process = start(&space(server), &program, &words);
        if slow == Slow::Processor && server == 0 {
            throttle(&process);
        }
        processes.push(process);
        std::thread::sleep(Duration::from_millis(300));
    }
    let own = std::env::current_exe().unwrap();
    let seconds = args.seconds * if slow == Slow::Another { 2 } else { 1 };
    let deal = match slow {
        Slow::InTurns => 1,
        Slow::HasAll => 2,
        _ => 0,
    };
    let mut pushing = start(HUB, &own, &format!("push --seconds {seconds} --deal {deal}"));
    if slow == Slow::Another {
        std::thread::sleep(Duration::from_secs(args.seconds));
        network.limit(0, RATE);
        network.limit(1, SLOW);
    }
    let mut said = String::new();
    let mut output = pushing.0.stdout.take().unwrap();
    std::io::Read::read_to_string(&mut output, &mut said).unwrap();
    assert!(pushing.0.wait().unwrap().success(), "the worker has failed");
    let stretch = (seconds - args.last) * 1000..seconds * 1000;
    let done = said.lines().map(|line| line.parse::<u64>().unwrap());
    done.filter(|at| stretch.contains(at)).count() as f64 / args.last as f64
}

/// Seconds between plans of a cluster that keeps to the plan it was given.
const NEVER: u64 = 86_400;

const ARMS: [(&str, Slow, u64); 15] = [
    ("ring, one slow", Slow::First, 0),
    ("load distribution, one slow", Slow::First, 2),
    ("oracle, one slow", Slow::Without, 0),
    ("load distribution, then another one slow for as long", Slow::Another, 2),
    ("ring, none slow", Slow::Nothing, 0),
    ("load distribution, none slow", Slow::Nothing, 2),
    ("ring, a quarter of a processor", Slow::Processor, 0),
    ("load distribution, a quarter of a processor", Slow::Processor, 2),
    ("oracle, a quarter of a processor", Slow::WithoutProcessor, 0),
    ("in turns, one slow", Slow::InTurns, NEVER),
    ("all on one server", Slow::HasAll, NEVER),
    ("load distribution, all on one server", Slow::HasAll, 2),
    ("a standby that is never taken in, none slow", Slow::Standby, NEVER),
    ("a standby, none slow", Slow::Standby, 2),
    ("a standby, one slow", Slow::FirstStandby, 2),
];

pub(crate) fn bench(args: &Args) {
    println!(
        "{SERVERS} servers of {RATE} Mbit/s each, a slow one of {SLOW}; 1 MiB of parameters in 16 \
         shards, {EXECUTORS} executors in one process that computes nothing. Steps/s of the last \
         {} s of {} s; medians of {} runs in turns.\n\n| replicas | arm | steps/s | over the ring \
         | over the oracle |\n|---|---|---|---|---|",
        args.last, args.seconds, args.rounds
    );
    for &replicas in &args.replicas {
        let mut runs: Vec<Vec<f64>> = vec![Vec::new(); ARMS.len()];
        for round in 0..args.rounds {
            for (runs, &(name, slow, rebalance)) in runs.iter_mut().zip(&ARMS) {
                if !name.contains(&args.only) {
                    continue;
                }
                let rate = measure(args, replicas, slow, rebalance);
                eprintln!("round {round}, {replicas} replicas, {name}: {rate:.2} steps/s");
                runs.push(rate);
            }
        }
        // Arms that the others are compared to may not be run.
        let rate = |arm: usize| match runs[arm].len() {
            0 => f64::NAN,
            _ => median(runs[arm].clone()),
        };
        for (arm, (name, slow, _)) in ARMS.iter().enumerate() {
            if runs[arm].is_empty() {
                continue;
            }
            let (ring, oracle) = match slow {
                Slow::Nothing | Slow::HasAll | Slow::Standby => (4, None),
                slow if slow.is_processor() => (6, Some(8)),
                _ => (0, Some(2)),
            };
            let (ring, own) = (rate(ring), rate(arm));
            let over = oracle.map(|oracle| format!("{:.2}", own / rate(oracle)));
            let over = over.unwrap_or_else(|| "-".to_owned());
            println!("| {replicas} | {name} | {own:.2} | {:.2} | {over} |", own / ring);
        }
    }
}
