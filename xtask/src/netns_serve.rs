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

use crate::netns::hosts::{self, Network};
use crate::processes::Place;
use crate::sample;
use crate::workspace::step;
use clients::Clients;
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
    let mut cluster = CheckedHosts::start(
        place,
        network,
        &std::path::absolute(programs)?,
        LEASE_SECONDS,
    )?;
    let [one, two, three] = &network.hosts;
    let asked = [one, two].map(|host| cluster.frontend(host));
    let clients = Clients::start(&asked)?;
    std::thread::sleep(Duration::from_secs(3));
    let before = clients.so_far();
    let mut rows = Vec::new();

    step(&format!("host {} is cut off", three.name));
    network.cut(three)?;
    let cut = Instant::now();
    let since = |what: &str,
                 documented: Duration,
                 is_so: &dyn Fn() -> Result<bool>|
     -> Result<(String, Duration, Duration)> {
        let took = cluster.until(what, documented + ALLOWANCE, cut, is_so)?;
        Ok((what.to_owned(), took, documented))
    };
    rows.push(since(
        "both frontends count its instances as down",
        UNHEALTHY_WITHIN,
        &|| cluster.are_out_of_service(&asked, three),
    )?);
    rows.push(since("they have left the pools", GONE_WITHIN, &|| {
        cluster.have_left(&asked, three)
    })?);
    let alone = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            three
                .enter()
                .and_then(|()| clients::ask(&cluster.frontend(three)))
        });
        asking.join().map_err(|_| anyhow!("a thread ended"))?
    });
    let alone =
        alone.context("the frontend that is cut off does not answer a client of its own")?;
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
    let healed = Instant::now();
    let back = cluster.until("all are up again", BACK_WITHIN + ALLOWANCE, healed, &|| {
        Ok(cluster.are_all_up(&asked)? && cluster.are_all_up(&[cluster.frontend(three)])?)
    })?;
    rows.push((
        "its instances are back at all three frontends, counted from its return".to_owned(),
        back,
        BACK_WITHIN,
    ));
    let scraped = cluster.until("Prometheus again", BACK_WITHIN + ALLOWANCE, healed, &|| {
        Ok(cluster.hosts_that_are_down()?.is_empty())
    })?;
    rows.push((
        "Prometheus scrapes all three, counted likewise".to_owned(),
        scraped,
        BACK_WITHIN,
    ));
    std::thread::sleep(Duration::from_secs(1));
    cluster.none_ended()?;
    let seen = clients.stop()?;

    println!("| | after, s | documented, s |\n|---|---|---|");
    for (what, took, documented) in &rows {
        println!(
            "| {what} | {:.1} | {:.1} |",
            took.as_secs_f64(),
            documented.as_secs_f64()
        );
    }
    println!(
        "\n| requests to the frontends of the two others | whole | while it was cut off \
            |\n|---|---|---|"
    );
    let gone = meanwhile.less(&before);
    for ((what, all), (_, then)) in seen.rows().into_iter().zip(gone.rows()) {
        println!("| {what} | {all} | {then} |");
    }
    println!(
        "\nlongest {:.0} ms; the frontend that was cut off answered a client of its own: {alone}",
        seen.longest.as_secs_f64() * 1e3
    );
    ensure!(
        seen.unanswered == 0,
        "{} requests had no answer: {}",
        seen.unanswered,
        seen.said
    );
    ensure!(
        seen.errors == 0,
        "{} requests were answered with an error: {}",
        seen.errors,
        seen.said
    );
    ensure!(
        gone.reconstructed > 0,
        "no query was reconstructed while the host was cut off"
    );
    Ok(())
}
