//! `cargo xtask netns serve`: serving on three hosts, one of which is cut off meanwhile.
//!
//! The hosts are network namespaces, joined by a bridge in a fourth; nothing of the machine's own
//! network is touched. Each has a frontend, two replicas, a parity instance and a member of etcd,
//! and `deploy/etcd/register.sh` keeps its instances registered; the first has a Prometheus.
//! Clients at the bridge ask the frontends of the first two hosts all along. The third is cut off
//! for some seconds: its instances must be taken out of service by health checks, and out of the
//! pools when their leases end; every request must be answered, and late queries are reconstructed;
//! its own frontend goes on for clients of its own; afterwards all is as before. The times are
//! those of docs/operations.md.

mod clients;
mod cluster;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::netns::hosts::{self, Host, Network};
use crate::processes::Place;
use crate::sample;
use crate::workspace::step;
use clients::{Clients, Seen};
use cluster::CheckedHosts;

/// Where everything of a run lies.
const FOLDER: &str = ".parapet/netns-serve";
/// Of an instance's lease.
const LEASE_SECONDS: u64 = 5;
/// Health checks as they are by default: two that fail, the second of which comes after
/// the shorter interval.
const UNHEALTHY_WITHIN: Duration = Duration::from_millis(1100 + 1000 + 220 + 1000);
/// A lease, the interval at which expired leases are found, and another lease if etcd's leader was
/// cut off, too: its successor lets each begin anew.
const GONE_WITHIN: Duration = Duration::from_secs(2 * LEASE_SECONDS + 3);
/// The registration is tried every second, with up to two for members that are silent; then etcd's
/// members find each other, and a health check succeeds.
const BACK_WITHIN: Duration = Duration::from_secs(12);
/// Machines that run three hosts are slow.
const ALLOWANCE: Duration = Duration::from_secs(2);

/// Arguments of `cargo xtask netns serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for which the host stays cut off once its instances have left
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Where the programs are; builds none
    #[arg(long)]
    programs: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    hosts::is_possible()?;
    cluster::is_possible()?;
    if args.programs.is_none() {
        sample::build()?;
    }
    let place = Place::new(FOLDER)?;
    let network = Network::new("serve")?;
    // A thread of its own stands at the bridge, and everything that it starts.
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| {
            network
                .enter()
                .and_then(|()| cut_off(args, &place, &network))
        });
        checked.join().map_err(|_| anyhow!("a thread ended"))?
    })
}

fn cut_off(args: &Args, place: &Place, network: &Network) -> Result<()> {
    step("three hosts, with a member of etcd, a frontend, two replicas and a parity instance each");
    let programs = args.programs.clone().unwrap_or_else(|| sample::binary(""));
    let programs = std::path::absolute(programs)?;
    let mut cluster = CheckedHosts::start(place, network, &programs, LEASE_SECONDS)?;
    let [one, two, three] = &network.hosts;
    let asked = [one, two].map(|host| cluster.frontend(host));
    let clients = Clients::start(&asked)?;
    std::thread::sleep(Duration::from_secs(3));
    let before = clients.so_far();

    step(&format!("host {} is cut off", three.name));
    network.cut(three)?;
    let cut = Instant::now();
    let mut delays = wait_until_out(&cluster, &asked, three, cut)?;
    let alone = ask_alone(&cluster, three)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let down = cluster.hosts_that_are_down()?;
    ensure!(
        down == [three.name],
        "Prometheus cannot scrape {down:?}, which should be {:?} alone",
        three.name
    );
    cluster.none_ended()?;

    let away = cut.elapsed();
    step(&format!("it is back after {:.1} s", away.as_secs_f64()));
    let meanwhile = clients.so_far();
    network.heal(three)?;
    delays.extend(wait_until_back(&cluster, &asked, three, Instant::now())?);
    std::thread::sleep(Duration::from_secs(1));
    cluster.none_ended()?;
    report(&delays, &clients.stop()?, &meanwhile.less(&before), &alone)
}

/// A wait for something, and the documented bound on it.
struct Delay {
    what: &'static str,
    took: Duration,
    documented: Duration,
}

fn wait_until(
    cluster: &CheckedHosts,
    what: &'static str,
    documented: Duration,
    since: Instant,
    is_so: &dyn Fn() -> Result<bool>,
) -> Result<Delay> {
    let took = cluster.until(what, documented + ALLOWANCE, since, is_so)?;
    Ok(Delay {
        what,
        took,
        documented,
    })
}

fn wait_until_out(
    cluster: &CheckedHosts,
    asked: &[String; 2],
    host: &Host,
    cut: Instant,
) -> Result<Vec<Delay>> {
    let down = "both frontends count its instances as down";
    let are_down = || cluster.are_out_of_service(asked, host);
    let gone = "they have left the pools";
    let are_gone = || cluster.have_left(asked, host);
    Ok(vec![
        wait_until(cluster, down, UNHEALTHY_WITHIN, cut, &are_down)?,
        wait_until(cluster, gone, GONE_WITHIN, cut, &are_gone)?,
    ])
}

fn wait_until_back(
    cluster: &CheckedHosts,
    asked: &[String; 2],
    host: &Host,
    healed: Instant,
) -> Result<Vec<Delay>> {
    let up = "its instances are back at all three frontends, counted from its return";
    let are_up =
        || Ok(cluster.are_all_up(asked)? && cluster.are_all_up(&[cluster.frontend(host)])?);
    let scraped = "Prometheus scrapes all three, counted likewise";
    let are_scraped = || Ok(cluster.hosts_that_are_down()?.is_empty());
    Ok(vec![
        wait_until(cluster, up, BACK_WITHIN, healed, &are_up)?,
        wait_until(cluster, scraped, BACK_WITHIN, healed, &are_scraped)?,
    ])
}

/// Asks the frontend of a host that is cut off, from there.
fn ask_alone(cluster: &CheckedHosts, host: &Host) -> Result<String> {
    std::thread::scope(|scope| {
        let ask = || {
            host.enter()
                .and_then(|()| clients::ask(&cluster.frontend(host)))
        };
        let asking = scope.spawn(ask);
        asking.join().map_err(|_| anyhow!("a thread ended"))?
    })
    .context("the frontend that is cut off does not answer a client of its own")
}

/// Prints what was measured, `gone` while the host was cut off, and checks the answers.
fn report(delays: &[Delay], seen: &Seen, gone: &Seen, alone: &str) -> Result<()> {
    println!("| | after, s | documented, s |\n|---|---|---|");
    for Delay {
        what,
        took,
        documented,
    } in delays
    {
        let (took, documented) = (took.as_secs_f64(), documented.as_secs_f64());
        println!("| {what} | {took:.1} | {documented:.1} |");
    }
    println!("\n| requests to the frontends of the two others | whole | while it was cut off |");
    println!("|---|---|---|");
    for ((what, all), (_, then)) in seen.rows().into_iter().zip(gone.rows()) {
        println!("| {what} | {all} | {then} |");
    }
    println!(
        "\nlongest {:.0} ms; the frontend that was cut off answered a client of its own: {alone}",
        seen.longest.as_secs_f64() * 1e3
    );
    let said = &seen.said;
    let (unanswered, errors) = (seen.unanswered, seen.errors);
    ensure!(
        unanswered == 0,
        "{unanswered} requests had no answer: {said}"
    );
    ensure!(
        errors == 0,
        "{errors} requests were answered with an error: {said}"
    );
    ensure!(
        gone.reconstructed > 0,
        "no query was reconstructed while the host was cut off"
    );
    Ok(())
}
