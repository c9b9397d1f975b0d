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

    step("three hosts, with an etcd, a server and a worker each");
    let network = Network::new("train")?;
    let mut processes = Processes::default();
    for host in &network.hosts {
        processes.start(
            &place,
            etcd(host, &network.hosts, &place.folder),
            &format!("etcd-{}", host.name),
        )?;
    }
    let registry = format!(
        "etcd://{}/netns",
        network
            .hosts
            .each_ref()
            .map(|host| format!("{}:2379", host.address))
            .join(",")
    );
    let [one, two, three] = &network.hosts;
    // To look at the cluster, not by way of the host that will be cut off.
    let seen = format!("etcd://{}:2379,{}:2379/netns", two.address, three.address);
    place.wait("answer of etcd", || led_by(&place, three, &seen))?;
    let leader = || Ok(led_by(&place, three, &seen)?.filter(|leader| leader != "nobody"));
    let serve = |host: &Host| {
        let mut command = host.run(&place.trainer);
        command.args([
            "server",
            "--registry",
            &registry,
            "--listen",
            &format!("{}:0", host.address),
        ]);
        command.args(["--replicas", "2", "--min-servers", "2"]);
        command
    };
    // The first server there is leads; it is not on the host of the process that trains.
    processes.start(&place, serve(one), "server-one")?;
    let first = place.wait("leader", leader)?;
    for host in [two, three] {
        processes.start(&place, serve(host), &format!("server-{}", host.name))?;
    }
    for host in [one, two] {
        let mut worker = host.run(&place.trainer);
        worker.args(["--threads", "1", "worker", "--registry", &registry]);
        processes.start(&place, worker, &format!("worker-{}", host.name))?;
    }

    step("the training, and the leader's host cut off");
    let train = |name: &str| {
        let mut command = three.run(&place.trainer);
        place.add_training(&mut command, name, args.steps, args.seed);
        command.args(["--cluster", &registry]);
        command
    };
    let started = Instant::now();
    let mut training = Processes::default();
    training.start(&place, train("disturbed"), "disturbed")?;
    let steps = || {
        Ok(place
            .steps("disturbed")
            .filter(|&steps| steps >= args.steps / 5))
    };
    let before = place.wait("fifth of the steps", || {
        training.none_ended().and_then(|()| steps())
    })?;
    ensure!(
        leader()?.as_deref() == Some(&first),
        "another server leads than at the start; run it again"
    );
    if args.seconds > 0 {
        network.cut(one)?;
        let cut = Instant::now();
        let another = || Ok(leader()?.filter(|found| *found != first));
        let (successor, stood_still) = std::thread::scope(|scope| {
            let succession = scope.spawn(|| {
                place
                    .wait("other leader", another)
                    .map(|found| (found, cut.elapsed()))
            });
            let stood_still = longest_pause(&place, &mut training, before + args.steps / 20);
            (succession.join(), stood_still)
        });
        let stood_still = stood_still.context("the training waits for the host that is cut off")?;
        let (successor, led) = successor.map_err(|_| anyhow!("a thread ended"))??;
        eprintln!(
            "    {first} is cut off at step {before}; {successor} leads after {:.1} s; the \
                training stood still for {:.1} s",
            led.as_secs_f64(),
            stood_still.as_secs_f64()
        );
        std::thread::sleep(Duration::from_secs(args.seconds).saturating_sub(cut.elapsed()));
        training
            .none_ended()
            .context("it was over before the host came back; give more --steps")?;
        network.heal(one)?;
        eprintln!("    back after {:.1} s", cut.elapsed().as_secs_f64());
    }
    training.wait()?;
    eprintln!("    trained in {:.1} s", started.elapsed().as_secs_f64());

    step("the same training on the whole network");
    let started = Instant::now();
    place.finish(train("undisturbed"), "undisturbed")?;
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

pub(crate) fn etcd(host: &Host, all: &[Host], folder: &Path) -> Command {
    let (client, peer) = (
        format!("http://{}:2379", host.address),
        format!("http://{}:2380", host.address),
    );
    let members: Vec<_> = all
        .iter()
        .map(|host| format!("{}=http://{}:2380", host.name, host.address))
        .collect();
    let mut command = host.run(Path::new("etcd"));
    command
        .args(["--name", host.name, "--data-dir"])
        .arg(folder.join(format!("etcd-{}", host.name)));
    command.args([
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    command.args([
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
    ]);
    command.args([
        "--initial-cluster",
        &members.join(","),
        "--log-level",
        "error",
    ]);
    command
}

/// Returns the leader of the cluster as seen from `host`. Nothing if the registry does not answer.
fn led_by(place: &Place, host: &Host, registry: &str) -> Result<Option<String>> {
    let mut command = host.run(&place.trainer);
    let output = command
        .args(["top", "--once", "--registry", registry])
        .stderr(Stdio::null())
        .output();
    let text = output
        .with_context(|| format!("cannot start {}", place.trainer.display()))?
        .stdout;
    let text = String::from_utf8_lossy(&text);
    Ok(text
        .lines()
        .next()
        .and_then(|line| line.split_once("led by "))
        .map(|(_, leader)| leader.to_owned()))
}
