//! `cargo xtask netns train`: training on three hosts with an etcd each, one of which is cut off
//! meanwhile.
//!
//! The hosts are network namespaces, joined by a bridge in a fourth; nothing of the machine's own
//! network is touched. Each has an etcd, a parameter server and a worker; the training runs on the
//! third. Once it is under way the host of the cluster's leader is cut off for some seconds. The
//! training must not wait for it to come back, and must end with the same model, byte for byte, as
//! the same training on whole network.

pub(crate) mod hosts;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::processes::{LIMIT, Place, Processes};
use crate::workspace::step;
use crate::{cargo, native};
use hosts::{Host, Network};

/// Where everything of a run lies.
const FOLDER: &str = ".parapet/netns-train";

/// Arguments of `cargo xtask netns train`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for which the leader's host is cut off
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Steps of the training; the cut begins after a fifth of them
    #[arg(long, default_value_t = 2500)]
    steps: u64,
    /// Seed of the training
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use this parity-trainer, and build none
    #[arg(long)]
    trainer: Option<PathBuf>,
}

/// # Errors
/// If namespaces are not allowed, etcd is missing, a step fails, the training stops while the host
/// is away, or the models differ.
pub(crate) fn run(args: &Args) -> Result<()> {
    hosts::is_possible()?;
    let mut place = Place::new(FOLDER)?;
    if let Some(trainer) = &args.trainer {
        place.trainer = std::path::absolute(trainer)?;
    } else {
        native::run(&native::Args::default())?;
        cargo::run(&["build", "-p", "parity-trainer"])?;
    }

    step("a deployed model to learn from");
    place.train_deployed()?;
    let network = Network::new("train")?;
    let cluster = NetnsCluster::start(&place, &network)?;
    disturbed(args, &cluster)?;

    step("the same training on the whole network");
    let started = Instant::now();
    place.finish(cluster.training(args, "undisturbed"), "undisturbed")?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    ensure!(
        place.model("disturbed")? == place.model("undisturbed")?,
        "the two trainings ended with different models"
    );
    println!(
        "the leader's host was cut off for {} s; the model is the same, byte for byte",
        args.seconds
    );
    Ok(())
}

/// Three hosts with an etcd, a parameter server and a worker each; the third host's worker is the
/// process that trains.
struct NetnsCluster<'a> {
    place: &'a Place,
    network: &'a Network,
    registry: String,
    /// The server that leads. It is not on the host of the process that trains.
    leader: String,
    processes: Processes,
}

impl<'a> NetnsCluster<'a> {
    fn start(place: &'a Place, network: &'a Network) -> Result<Self> {
        step("three hosts, with an etcd, a server and a worker each");
        let mut processes = Processes::default();
        for host in &network.hosts {
            let etcd = etcd(host, &network.hosts, &place.folder);
            processes.start(place, etcd, &format!("etcd-{}", host.name))?;
        }
        let members = network.hosts.each_ref();
        let members = members.map(|host| format!("{}:2379", host.address));
        let mut cluster = Self {
            place,
            network,
            registry: format!("etcd://{}/netns", members.join(",")),
            leader: String::new(),
            processes,
        };
        place.wait("answer of etcd", || cluster.led_by())?;
        let [one, two, three] = &network.hosts;
        // The first server that there is leads.
        cluster.serve(one)?;
        cluster.leader = place.wait("leader", || cluster.leader())?;
        cluster.serve(two)?;
        cluster.serve(three)?;
        for host in [one, two] {
            let mut worker = host.run(&place.trainer);
            worker.args(["--threads", "1", "worker", "--registry"]);
            worker.arg(&cluster.registry);
            let name = format!("worker-{}", host.name);
            cluster.processes.start(place, worker, &name)?;
        }
        Ok(cluster)
    }

    fn serve(&mut self, host: &Host) -> Result<()> {
        let mut command = host.run(&self.place.trainer);
        command.args(["server", "--registry", &self.registry]);
        command.args(["--listen", &format!("{}:0", host.address)]);
        command.args(["--replicas", "2", "--min-servers", "2"]);
        let name = format!("server-{}", host.name);
        self.processes.start(self.place, command, &name)
    }

    fn training(&self, args: &Args, name: &str) -> Command {
        let mut command = self.network.hosts[2].run(&self.place.trainer);
        self.place
            .add_training(&mut command, name, args.steps, args.seed);
        command.args(["--cluster", &self.registry]);
        command
    }

    /// Returns the leader as `top` shows it; nothing if the registry does not answer. It is
    /// not asked by way of the host that will be cut off.
    fn led_by(&self) -> Result<Option<String>> {
        let [_, two, three] = &self.network.hosts;
        let registry = format!("etcd://{}:2379,{}:2379/netns", two.address, three.address);
        let mut command = three.run(&self.place.trainer);
        let command = command.args(["top", "--once", "--registry", &registry]);
        let output = command.stderr(Stdio::null()).output();
        let output =
            output.with_context(|| format!("cannot start {}", self.place.trainer.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let first = text.lines().next();
        let leader = first.and_then(|line| line.split_once("led by "));
        Ok(leader.map(|(_, leader)| leader.to_owned()))
    }

    fn leader(&self) -> Result<Option<String>> {
        Ok(self.led_by()?.filter(|leader| leader != "nobody"))
    }
}

/// Trains while the leader's host is cut off.
fn disturbed(args: &Args, cluster: &NetnsCluster<'_>) -> Result<()> {
    step("the training, and the leader's host cut off");
    let place = cluster.place;
    let started = Instant::now();
    let mut training = Processes::default();
    training.start(place, cluster.training(args, "disturbed"), "disturbed")?;
    let enough = |steps: &u64| *steps >= args.steps / 5;
    let before = place.wait("fifth of the steps", || {
        training.none_ended()?;
        Ok(place.steps("disturbed").filter(enough))
    })?;
    ensure!(
        cluster.leader()?.as_deref() == Some(&cluster.leader),
        "another server leads than at the start; run it again"
    );
    if args.seconds > 0 {
        cut_off(args, cluster, &mut training, before)?;
    }
    training.wait()?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Cuts the leader's host off for some seconds, from step `before` of the training on.
fn cut_off(
    args: &Args,
    cluster: &NetnsCluster<'_>,
    training: &mut Processes,
    before: u64,
) -> Result<()> {
    let NetnsCluster {
        place,
        network,
        leader: first,
        ..
    } = cluster;
    let [one, ..] = &network.hosts;
    network.cut(one)?;
    let cut = Instant::now();
    let another = || Ok(cluster.leader()?.filter(|found| found != first));
    let (successor, stood_still) = std::thread::scope(|scope| {
        let succession = scope.spawn(|| {
            let found = place.wait("other leader", another);
            found.map(|found| (found, cut.elapsed()))
        });
        let stood_still = longest_pause(place, training, before + args.steps / 20);
        (succession.join(), stood_still)
    });
    let stood_still = stood_still.context("the training waits for the host that is cut off")?;
    let (successor, led) = successor.map_err(|_| anyhow!("a thread ended"))??;
    eprintln!(
        "    {first} is cut off at step {before}; {successor} leads after {:.1} s; the training \
            stood still for {:.1} s",
        led.as_secs_f64(),
        stood_still.as_secs_f64()
    );
    std::thread::sleep(Duration::from_secs(args.seconds).saturating_sub(cut.elapsed()));
    training
        .none_ended()
        .context("it was over before the host came back; give more --steps")?;
    network.heal(one)?;
    eprintln!("    back after {:.1} s", cut.elapsed().as_secs_f64());
    Ok(())
}

/// The longest time without a step until this step is made.
fn longest_pause(place: &Place, training: &mut Processes, until: u64) -> Result<Duration> {
    let (mut longest, mut step, mut since) = (Duration::ZERO, 0, Instant::now());
    while step <= until {
        ensure!(
            since.elapsed() < LIMIT,
            "no step for {LIMIT:?}; see {}",
            place.folder.display()
        );
        std::thread::sleep(Duration::from_millis(20));
        training.none_ended()?;
        let now = place.steps("disturbed").unwrap_or_default();
        if now > step {
            longest = longest.max(since.elapsed());
            (step, since) = (now, Instant::now());
        }
    }
    Ok(longest)
}

/// An etcd on `host`, one of the members on `all`.
pub(crate) fn etcd(host: &Host, all: &[Host], folder: &Path) -> Command {
    let url = |host: &Host, port: u16| format!("http://{}:{port}", host.address);
    let member = |host: &Host| format!("{}={}", host.name, url(host, 2380));
    let members: Vec<_> = all.iter().map(member).collect();
    let (client, peer) = (url(host, 2379), url(host, 2380));
    let mut command = host.run(Path::new("etcd"));
    command.args(["--name", host.name, "--data-dir"]);
    command.arg(folder.join(format!("etcd-{}", host.name)));
    for (option, value) in [
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &members.join(",")),
        ("--log-level", &"error".to_owned()),
    ] {
        command.args([option, value]);
    }
    command
}
