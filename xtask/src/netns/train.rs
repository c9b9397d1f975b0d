//! `cargo xtask netns train`: training on three hosts with an etcd, a parameter server and a worker
//! each. The host of the cluster's leader is cut off for some seconds. The training must not wait
//! for it, and must end with the same model, byte for byte, as the same training on whole network.

use super::{Host, Network};
use crate::prelude::*;
use crate::training::{TrainingCluster, Trainings};

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

const DISTURBED: &str = "disturbed";
const UNDISTURBED: &str = "undisturbed";

pub(super) fn run(args: &Args) -> Result<()> {
    if args.trainer.is_none() {
        build_trainer()?;
    }
    let trainer = args.trainer.clone();
    let trainer = trainer.unwrap_or_else(|| debug("parity-trainer"));
    let trainings = Trainings::new("netns-train", &trainer, args.steps)?;
    let network = Network::new("train")?;
    let (mut cluster, first) = start(&trainings, &network)?;
    let [one, _, three] = &network.hosts;

    step("the training, and the leader's host cut off");
    let started = Instant::now();
    cluster.start_training(&three.place, DISTURBED)?;
    let before = cluster.reach(DISTURBED, args.steps / 5)?;
    let leads_still = leader(&trainings, &network)?.as_ref() == Some(&first);
    ensure!(leads_still, "another server leads by now; run it again");
    if args.seconds > 0 {
        network.set(one, "down")?;
        cut_off(args, &mut cluster, &network, &first, before)?;
    }
    cluster.processes.wait(DISTURBED)?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());

    step("the same training on the whole network");
    let started = Instant::now();
    cluster.start_training(&three.place, UNDISTURBED)?;
    cluster.processes.wait(UNDISTURBED)?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());
    let is_same = trainings.model(DISTURBED)? == trainings.model(UNDISTURBED)?;
    ensure!(is_same, "the two trainings ended with different models");
    println!(
        "the leader's host was cut off for {} s; the model is the same, byte for byte",
        args.seconds
    );
    Ok(())
}

/// Starts an etcd and a parameter server on each host, and a worker on the first two: the third's
/// is the process that trains. Returns the server that leads, too, which is on the first host.
fn start<'a>(trainings: &'a Trainings, network: &Network) -> Result<(TrainingCluster<'a>, String)> {
    step("three hosts, with an etcd, a server and a worker each");
    let members = network.hosts.each_ref().map(Host::member).join(",");
    let mut cluster = TrainingCluster::new(trainings, format!("etcd://{members}/netns"))?;
    network.start_etcd(&mut cluster.processes, &trainings.folder)?;
    wait_for("answer of etcd", LIMIT, || led_by(trainings, network))?;
    let mut leads = String::new();
    for host in &network.hosts {
        let listen = format!("{}:0", host.address);
        let more = ["--listen", &listen, "--replicas", "2", "--min-servers", "2"];
        cluster.start(&host.place, ("server", host.name), &more)?;
        // The first server that there is leads.
        if leads.is_empty() {
            leads = wait_for("leader", LIMIT, || leader(trainings, network))?;
        }
    }
    for host in &network.hosts[..2] {
        cluster.start(&host.place, ("worker", host.name), &[])?;
    }
    Ok((cluster, leads))
}

/// The leader as `top` shows it; nothing if the registry does not answer. It is not asked by way of
/// the host that will be cut off.
fn led_by(trainings: &Trainings, network: &Network) -> Result<Option<String>> {
    let [_, two, three] = &network.hosts;
    let registry = format!("etcd://{},{}/netns", two.member(), three.member());
    let said = trainings.top(&three.place, &registry)?;
    let first = said.lines().next().unwrap_or_default();
    Ok(first.split_once("led by ").map(|(_, leader)| leader).map(str::to_owned))
}

fn leader(trainings: &Trainings, network: &Network) -> Result<Option<String>> {
    Ok(led_by(trainings, network)?.filter(|leader| leader != "nobody"))
}

/// Watches training and succession of `first`, cut off after `before` steps; then undoes that.
fn cut_off(
    args: &Args,
    cluster: &mut TrainingCluster<'_>,
    network: &Network,
    first: &str,
    before: u64,
) -> Result<()> {
    let (cut, trainings) = (Instant::now(), cluster.trainings);
    let another = || Ok(leader(trainings, network)?.filter(|found| found != first));
    let (successor, stood_still) = std::thread::scope(|scope| {
        let succession = scope.spawn(|| {
            Ok::<_, anyhow::Error>((wait_for("other leader", LIMIT, another)?, cut.elapsed()))
        });
        let stood_still = longest_pause(cluster, before, before + args.steps / 20);
        (succession.join(), stood_still)
    });
    let stood_still = stood_still.context("the training waits for the host that is cut off")?;
    let (successor, led) = successor.map_err(|_| anyhow!("a thread ended"))??;
    eprintln!(
        "    {first} is cut off at step {before}; {successor} leads after {led:.1?}; the training \
         stood still for {stood_still:.1?}"
    );
    std::thread::sleep(Duration::from_secs(args.seconds).saturating_sub(cut.elapsed()));
    let ended = cluster.processes.none_ended(DISTURBED);
    ended.context("over before the host came back; give more --steps")?;
    network.set(&network.hosts[0], "up")?;
    eprintln!("    back after {:.1} s", cut.elapsed().as_secs_f64());
    Ok(())
}

fn longest_pause(cluster: &mut TrainingCluster<'_>, mut done: u64, until: u64) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while done <= until {
        let since = Instant::now();
        done = cluster.reach(DISTURBED, done + 1)?;
        longest = longest.max(since.elapsed());
    }
    Ok(longest)
}
