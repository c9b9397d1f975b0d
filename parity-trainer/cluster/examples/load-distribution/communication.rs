//! Gain of a wait-free backward pass: four workers behind links of limited rates (`tc tbf`, both
//! ways), two servers without limits. The computation is slept, so that the processors of one
//! machine, which all share, decide nothing.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use parapet_cluster::array::FilterSpec;
use parapet_cluster::node::Transport;
use parapet_cluster::registry::Address;
use parapet_cluster::roles::training::{NewTraining, ROW, Settled, Training, next_job};
use parapet_parameter_server::Factors;

use crate::servers::{HUB, Network, REGISTRY, SERVERS as WORKERS, space, start};
use crate::support::learning::new;
use crate::workers::median;

const SERVERS: usize = 2;
const ROWS: usize = 2048;
/// Inputs and outputs of each of two fully connected layers.
const LAYER: usize = 1024;
/// Samples of each executor's part; the first are those of the arms.
/// With 512, factors are as many numbers as gradients.
const SAMPLES: [usize; 6] = [16, 64, 128, 256, 480, 544];
/// Milliseconds of a step: a third forward, two thirds backward.
const COMPUTATION: u64 = 300;
const STEPS: u64 = 40;
/// Megabits per second of a worker's link; 0 for no limit.
const RATES: [f64; 3] = [100.0, 1000.0, 0.0];

/// Rows of the convolutions of a `vgg11:16` for images of 32 x 32, and its computation in each, of
/// 100 parts.
const VGG11: [(usize, u32); 8] =
    [(2, 4), (18, 12), (72, 12), (144, 24), (288, 12), (576, 24), (576, 6), (576, 6)];

/// Name and flags.
const ARMS: [(&str, &str); 14] = [
    ("whole gradients", "--segments 1"),
    ("wait-free", "--segments 8"),
    ("whole gradients, bf16", "--segments 1 --filters bf16"),
    ("wait-free, bf16", "--segments 8 --filters bf16"),
    ("8 MiB in two fully connected layers, whole gradients", "--layers 2 --segments 1"),
    ("the same, wait-free", "--layers 2 --segments 2"),
    ("the same, factors", "--layers 2 --segments 1 --factors"),
    ("the same, wait-free, factors", "--layers 2 --segments 2 --factors"),
    ("vgg11:16, whole gradients", "--vgg11 --segments 1"),
    ("vgg11:16, wait-free", "--vgg11 --segments 8"),
    ("vgg11:16, wait-free, bf16", "--vgg11 --segments 8 --filters bf16"),
    ("text MLP, 10 ms of computation", "--layers 1 --outputs 64 --ms 10 --segments 1"),
    ("the same, bf16", "--layers 1 --outputs 64 --ms 10 --segments 1 --filters bf16"),
    ("the same, factors", "--layers 1 --outputs 64 --ms 10 --segments 1 --factors"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only arms with these words in their names
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    #[arg(long)]
    leads: bool,
    #[arg(long)]
    segments: usize,
    /// The parameters are those of a `vgg11:16`.
    #[arg(long)]
    vgg11: bool,
    /// Computation of a step.
    #[arg(long, default_value_t = COMPUTATION)]
    ms: u64,
    #[arg(long, default_value = "")]
    filters: String,
    /// Fully connected layers that the parameters are.
    #[arg(long)]
    layers: Option<usize>,
    /// Outputs of such a layer.
    #[arg(long, default_value_t = LAYER)]
    outputs: usize,
    /// Their gradients are pushed as factors.
    #[arg(long)]
    factors: bool,
    /// Samples of a part.
    #[arg(long, default_value_t = SAMPLES[0])]
    samples: usize,
}

impl Work {
    /// Rows of each segment, and its part of the backward pass.
    fn segments(&self, rows: usize) -> Vec<(usize, f64)> {
        match self.vgg11 && self.segments > 1 {
            true => VGG11.map(|(rows, part)| (rows, f64::from(part) / 100.0)).to_vec(),
            false => vec![(rows / self.segments, 1.0 / self.segments as f64); self.segments],
        }
    }

    /// Prints each step's time in milliseconds, and the bytes that this process sent and was sent.
    pub(crate) async fn run(&self) {
        let address: Address = format!("parapet://{REGISTRY}").parse().unwrap();
        let (registry, cluster) = (address.open().await.unwrap(), address.cluster());
        let filters: FilterSpec = match self.filters.as_str() {
            "" => FilterSpec::NONE,
            filters => filters.parse().unwrap(),
        };
        let layer = self.outputs * LAYER / ROW;
        let network = if self.vgg11 { VGG11.iter().map(|(rows, _)| rows).sum() } else { ROWS };
        let all = self.layers.map_or(network, |layers| layers * layer);
        let weights = vec![0.5; all * ROW];
        let side = |length: usize| vec![0.01; length * self.samples];
        let factors = Factors::new(self.samples, &side(self.outputs), &side(LAYER));
        let transport = Transport::Sockets;
        let layers = match self.vgg11 {
            true => VGG11.map(|(rows, _)| rows).to_vec(),
            false => vec![layer; self.layers.unwrap_or(0)],
        };
        let mut end = 0;
        let layers = Vec::from_iter(layers.into_iter().map(|rows| {
            end += rows * ROW;
            end - rows * ROW..end
        }));
        let mut training = if self.leads {
            let new = NewTraining {
                executors: WORKERS,
                shards: 8,
                layers: &layers,
                filters,
                factors: self.factors,
                ..new(STEPS, &weights)
            };
            Training::begin(&registry, cluster, transport, new).await.unwrap()
        } else {
            let job = next_job(&registry, None).await.unwrap();
            Training::join(&registry, cluster, transport, job).await.unwrap()
        };
        while training.steps_done() < STEPS {
            let (begun, before) = (Instant::now(), transferred());
            for executor in training.to_do() {
                let third = Duration::from_millis(self.ms) / 3;
                tokio::time::sleep(third).await;
                let mut from = all;
                for (rows, part) in self.segments(all).into_iter().rev() {
                    tokio::time::sleep((third * 2).mul_f64(part)).await;
                    from -= rows;
                    let piece = std::iter::repeat_n(0.001, rows * ROW);
                    let layers = (from..from + rows).step_by(layer).filter(|_| self.factors);
                    let factors = layers.map(|row| (row * ROW, factors.clone())).collect();
                    let pushed = training.push_factors(executor, from as u64, piece, factors);
                    pushed.await.unwrap();
                }
            }
            if training.settle().await.unwrap() == Settled::Done {
                println!("{} {}", begun.elapsed().as_millis(), transferred() - before);
            }
        }
        training.leave().await.unwrap();
    }
}

/// Bytes over the link of this process's network namespace, both ways.
fn transferred() -> u64 {
    let counts = ["rx_bytes", "tx_bytes"].map(|name| {
        let file = format!("/sys/class/net/eth0/statistics/{name}");
        std::fs::read_to_string(file).unwrap().trim().parse::<u64>().unwrap()
    });
    counts.iter().sum()
}

/// Medians of the second half of the steps: milliseconds, and MiB of a worker.
fn measure(rate: f64, flags_of_work: &str) -> [f64; 2] {
    let network = Network::new(false);
    if rate > 0.0 {
        (0..WORKERS).for_each(|worker| network.limit(worker, rate));
    }
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("parapet-parameter-server");
    let flags = format!("--replicas 1 --min-servers {SERVERS}");
    let mut processes =
        vec![start(HUB, &program, &format!("coordinator --serve {REGISTRY} {flags}"))];
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..SERVERS {
        let words =
            format!("server --registry parapet://{REGISTRY} --listen 10.78.0.254:0 {flags}");
        processes.push(start(HUB, &program, &words));
    }
    let words = format!("work {flags_of_work}");
    let mut leading = start(&space(0), &own, &format!("{words} --leads"));
    processes.extend((1..WORKERS).map(|worker| start(&space(worker), &own, &words)));
    let output = BufReader::new(leading.0.stdout.take().unwrap());
    let steps = Vec::from_iter(output.lines().map(Result::unwrap).skip(STEPS as usize / 2));
    [(0, 1.0), (1, f64::from(1 << 20))].map(|(column, unit)| {
        let number = |line: &String| line.split(' ').nth(column).unwrap().parse::<f64>().unwrap();
        median(steps.iter().map(|line| number(line) / unit).collect())
    })
}

pub(crate) fn bench(args: &Args) {
    println!(
        "{WORKERS} workers, 2 MiB of parameters on {SERVERS} servers (8 MiB in layers of {LAYER} x \
         {LAYER}, {} samples a worker), {} ms of slept computation a step; medians of {} \
         steps.\n\n| Mbit/s of a worker's link | arm | ms a step | speed, of \
         the computation alone | MiB a step of a worker |\n|---|---|---|---|---|",
        SAMPLES[0],
        COMPUTATION,
        STEPS / 2
    );
    for rate in RATES {
        for (name, flags) in ARMS {
            tell(args, rate, name, flags);
        }
    }
    for samples in SAMPLES.into_iter().skip(1) {
        let flags = format!("{} --samples {samples}", ARMS[7].1);
        tell(args, 0.0, &format!("wait-free, factors, {samples} samples a worker"), &flags);
    }
}

fn tell(args: &Args, rate: f64, name: &str, flags: &str) {
    if !name.contains(&args.only) {
        return;
    }
    let [step, mib] = measure(rate, flags);
    let limit = if rate > 0.0 { format!("{rate}") } else { "no limit".to_owned() };
    let computation = if flags.contains("--ms 10") { 10.0 } else { COMPUTATION as f64 };
    let speed = computation / step;
    println!("| {limit} | {name} | {step:.0} | {speed:.2} | {mib:.2} |");
}
