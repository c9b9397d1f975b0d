//! `cargo xtask netns train`: training on three hosts with an etcd, a parameter server and a worker
//! each. The host of the cluster's leader is cut off for some seconds. The training must not wait
//! for it, and must end with the same model, byte for byte, as the same training on whole network.

use super::{Host, Network};
use crate::prelude::*;
use crate::training::{Trainings, top};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for which the leader's host is cut off
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Steps of the training; the cut begins after a fifth of them
    #[arg(long, default_value_t = 2500)]
    steps: u64,
    /// Use this parity-trainer, and build none
    #[arg(long)]
    trainer: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    if args.trainer.is_none() {
        build_trainer()?;
    }
    let trainer = args.trainer.clone();
    let trainer = trainer.unwrap_or_else(|| debug("parity-trainer"));
    let trainings = Trainings::new("netns-train", &trainer, args.steps)?;
    let network = Network::new("train")?;
    let cluster = NetnsCluster::start(&trainings, &network)?;
    disturbed(args, &cluster)?;

    step("the same training on the whole network");
    let started = Instant::now();
    cluster.start_training("undisturbed")?.wait("undisturbed")?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    let is_same = trainings.model("disturbed")? == trainings.model("undisturbed")?;
    ensure!(is_same, "the two trainings ended with different models");
    println!(
        "the leader's host was cut off for {} s; the model is the same, byte for byte",
        args.seconds
    );
    Ok(())
}

/// Three hosts with an etcd, a parameter server and a worker each; the third host's worker is the
/// process that trains.
struct NetnsCluster<'a> {
    trainings: &'a Trainings,
    network: &'a Network,
    registry: String,
    /// The server that leads. It is not on the host of the process that trains.
    leader: String,
    processes: Processes,
}

impl<'a> NetnsCluster<'a> {
    fn start(trainings: &'a Trainings, network: &'a Network) -> Result<Self> {
        step("three hosts, with an etcd, a server and a worker each");
        let sh = shell()?;
        let processes = network.start_etcd(&sh, &trainings.folder)?;
        let members = network.hosts.each_ref().map(Host::member).join(",");
        let registry = format!("etcd://{members}/netns");
        let leader = String::new();
        let mut cluster = Self {
            trainings,
            network,
            registry,
            leader,
            processes,
        };
        wait_for("answer of etcd", LIMIT, || cluster.led_by())?;
        let [one, two, three] = &network.hosts;
        // The first server that there is leads.
        cluster.serve(one)?;
        cluster.leader = wait_for("leader", LIMIT, || cluster.leader())?;
        cluster.serve(two)?;
        cluster.serve(three)?;
        for host in [one, two] {
            let worker = ["--threads", "1", "worker", "--registry", &cluster.registry];
            let command = host.run(&sh, &trainings.trainer).args(worker);
            let name = format!("worker-{}", host.name);
            cluster.processes.start(&name, command)?;
        }
        Ok(cluster)
    }

    fn serve(&mut self, host: &Host) -> Result<()> {
        let (registry, address) = (&self.registry, &host.address);
        let line = format!("--registry {registry} --listen {address}:0 --replicas 2");
        let (sh, words) = (shell()?, line.split(' '));
        let command = host.run(&sh, &self.trainings.trainer).arg("server");
        let command = command.args(words).args(["--min-servers", "2"]);
        self.processes
            .start(&format!("server-{}", host.name), command)
    }

    fn start_training(&self, name: &str) -> Result<Processes> {
        let (sh, mut training) = (shell()?, Processes::new(&self.trainings.folder)?);
        let command = self.network.hosts[2].run(&sh, &self.trainings.trainer);
        let arguments = self.trainings.arguments(name, Some(&self.registry));
        training.start(name, command.args(arguments))?;
        Ok(training)
    }

    /// The leader as `top` shows it; nothing if the registry does not answer. It is not asked by
    /// way of the host that will be cut off.
    fn led_by(&self) -> Result<Option<String>> {
        let [_, two, three] = &self.network.hosts;
        let registry = format!("etcd://{},{}/netns", two.member(), three.member());
        let said = top(three.run(&shell()?, &self.trainings.trainer), &registry);
        let first = said.lines().next().unwrap_or_default();
        let leader = first.split_once("led by ").map(|(_, leader)| leader);
        Ok(leader.map(str::to_owned))
    }

    fn leader(&self) -> Result<Option<String>> {
        Ok(self.led_by()?.filter(|leader| leader != "nobody"))
    }
}

fn disturbed(args: &Args, cluster: &NetnsCluster<'_>) -> Result<()> {
    step("the training, and the leader's host cut off");
    let started = Instant::now();
    let mut training = cluster.start_training("disturbed")?;
    let fifth = args.steps / 5;
    let before = cluster.trainings.reach(&mut training, "disturbed", fifth)?;
    let leads_still = cluster.leader()?.as_ref() == Some(&cluster.leader);
    ensure!(leads_still, "another server leads by now; run it again");
    if args.seconds > 0 {
        cut_off(args, cluster, &mut training, before)?;
    }
    training.wait("disturbed")?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn cut_off(
    args: &Args,
    cluster: &NetnsCluster<'_>,
    training: &mut Processes,
    before: u64,
) -> Result<()> {
    let (first, host) = (&cluster.leader, &cluster.network.hosts[0]);
    cluster.network.set(host, "down")?;
    let cut = Instant::now();
    let another = || Ok(cluster.leader()?.filter(|found| found != first));
    let (successor, stood_still) = std::thread::scope(|scope| {
        let succession = scope.spawn(|| {
            let found = wait_for("other leader", LIMIT, another)?;
            Ok::<_, anyhow::Error>((found, cut.elapsed()))
        });
        let until = before + args.steps / 20;
        let stood_still = longest_pause(cluster.trainings, training, before, until);
        (succession.join(), stood_still)
    });
    let stood_still = stood_still.context("the training waits for the host that is cut off")?;
    let (successor, led) = successor.map_err(|_| anyhow!("a thread ended"))??;
    eprintln!(
        "    {first} is cut off at step {before}; {successor} leads after {led:.1?}; the training \
         stood still for {stood_still:.1?}"
    );
    std::thread::sleep(Duration::from_secs(args.seconds).saturating_sub(cut.elapsed()));
    let ended = training.none_ended();
    ended.context("over before the host came back; give more --steps")?;
    cluster.network.set(host, "up")?;
    eprintln!("    back after {:.1} s", cut.elapsed().as_secs_f64());
    Ok(())
}

fn longest_pause(
    trainings: &Trainings,
    training: &mut Processes,
    mut done: u64,
    until: u64,
) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while done <= until {
        let since = Instant::now();
        done = trainings.reach(training, "disturbed", done + 1)?;
        longest = longest.max(since.elapsed());
    }
    Ok(longest)
}
