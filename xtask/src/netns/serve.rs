//! `cargo xtask netns serve`: serving on three hosts with a frontend, two replicas, a parity
//! instance and a member of etcd each. Load generators at the bridge ask the frontends of the first
//! two all along. The third is cut off: its instances must leave service and the pools, every
//! request is answered, its own frontend goes on, and afterwards all is as before. The times are
//! those of docs/operations.md.

use super::{Host, Network, within};
use crate::check::dashboards;
use crate::cluster::{Cluster, MODEL, PARITY, write_models};
use crate::models::figure;
use crate::prelude::*;

const LEASE_SECONDS: u64 = 5;
/// Health checks as they are by default: two that fail, the second after the shorter interval.
const UNHEALTHY_WITHIN: Duration = Duration::from_millis(1100 + 1000 + 220 + 1000);
/// A lease, the interval at which expired leases are found, and another lease if etcd's leader was
/// cut off, too: its successor lets each begin anew.
const GONE_WITHIN: Duration = Duration::from_secs(2 * LEASE_SECONDS + 3);
/// The registration is tried every second, with up to two for members that are silent; then etcd's
/// members find each other, and a health check succeeds.
const BACK_WITHIN: Duration = Duration::from_secs(12);
/// Machines that run three hosts are slow.
const ALLOWANCE: Duration = Duration::from_secs(2);
/// On each host: port, model, and the pool's name in etcd.
const INSTANCES: [(u16, &str, &str); 3] =
    [(9001, MODEL, "replicas"), (9002, MODEL, "replicas"), (9101, PARITY, "parity")];

const RECONSTRUCTED: &str = "/provenance/reconstructed/count";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for which the host stays cut off once its instances have left
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Where the programs are; builds none
    #[arg(long)]
    programs: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    require(&[("prometheus", "prometheus"), ("curl", "curl")])?;
    if args.programs.is_none() {
        build_for_checks()?;
    }
    let programs = std::path::absolute(args.programs.clone().unwrap_or_else(|| debug("")))?;
    let network = Network::new("serve")?;
    within(&network.hub, || cut_off(args, &programs, &network))
}

fn cut_off(args: &Args, programs: &Path, network: &Network) -> Result<()> {
    step("three hosts, with a member of etcd, a frontend, two replicas and a parity instance each");
    let mut cluster = start(network, programs)?;
    let prometheus = start_prometheus(network, &mut cluster)?;
    let [one, two, three] = &network.hosts;
    let (asked, all) = ([one, two], [one, two, three]);
    let before = Loads::start("before", programs, &asked)?;
    std::thread::sleep(Duration::from_secs(3));
    let meanwhile = Loads::start("meanwhile", programs, &asked)?;
    let mut whole = before.end(&asked)?;

    step(&format!("host {} is cut off", three.name));
    network.set(three, "down")?;
    let since = Instant::now();
    wait_until("its instances are down", UNHEALTHY_WITHIN, since, || {
        are_out_of_service(&asked, three)
    })?;
    wait_until("they have left the pools", GONE_WITHIN, since, || {
        Ok(instances_of(&asked)?.iter().all(|(address, _)| !is_on(three, address)))
    })?;
    let url = format!("{}/v2/models/{MODEL}/infer", frontend(three));
    let alone = within(&three.namespace, || http::post(&url, &models::json_query()?))
        .context("the frontend that is cut off does not answer a client of its own")?;
    let alone: Value = serde_json::from_str(&alone)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let (down, cut) = (hosts_that_are_down(&prometheus)?, three.name);
    ensure!(down == [cut], "Prometheus cannot scrape {down:?}, not {cut} alone");
    cluster.processes.none_ended("")?;

    step(&format!("it is back after {:.1?}", since.elapsed()));
    let after = Loads::start("after", programs, &asked)?;
    let meanwhile = meanwhile.end(&asked)?;
    network.set(three, "up")?;
    let since = Instant::now();
    wait_until("its instances are back", BACK_WITHIN, since, || are_all_up(&all))?;
    wait_until("Prometheus scrapes all three", BACK_WITHIN, since, || {
        Ok(hosts_that_are_down(&prometheus)?.is_empty())
    })?;
    std::thread::sleep(Duration::from_secs(1));
    cluster.processes.none_ended("")?;
    whole.extend(after.end(&asked)?);
    whole.extend_from_slice(&meanwhile);
    report(&whole, &meanwhile, &alone["parameters"]["provenance"])
}

/// Waits until it is so, counted from `since`; prints how long that took and what is documented.
fn wait_until(
    what: &str,
    documented: Duration,
    since: Instant,
    is_so: impl Fn() -> Result<bool>,
) -> Result<()> {
    let limit = (documented + ALLOWANCE).saturating_sub(since.elapsed());
    // A server that is still starting refuses connections.
    wait_for(what, limit, || Ok(is_so().unwrap_or(false).then_some(())))?;
    let took = since.elapsed();
    println!("{what}: after {took:.1?}; documented: {documented:.1?}");
    Ok(())
}

/// Starts a Prometheus on the first host; returns its URL once it has scraped all frontends.
fn start_prometheus(network: &Network, cluster: &mut Cluster) -> Result<String> {
    let hosts = &network.hosts;
    let target = |host: &Host| {
        let (address, name) = (host.at(8080), host.name);
        format!("  - {{ targets: [{address:?}], labels: {{ host: {name} }} }}\n")
    };
    let targets: String = hosts.iter().map(target).collect();
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 900ms }}\nscrape_configs:\n\
         - job_name: parapet-frontend\n  static_configs:\n{targets}"
    );
    let url = cluster.prometheus(&hosts[0].place, &hosts[0].at(9090), &config)?;
    wait_until("scrapes of all frontends", LIMIT, Instant::now(), || {
        let targets = dashboards::ask(&url, "up")?;
        Ok(targets.len() == hosts.len() && hosts_that_are_down(&url)?.is_empty())
    })?;
    Ok(url)
}

fn hosts_that_are_down(prometheus: &str) -> Result<Vec<String>> {
    let down = dashboards::ask(prometheus, "up == 0")?;
    let host = |sample: &Value| Some(sample["metric"]["host"].as_str()?.to_owned());
    Ok(down.iter().filter_map(host).collect())
}

/// Load on the frontends of some hosts, with a report for each.
struct Loads(Cluster);

impl Loads {
    fn start(name: &str, programs: &Path, hosts: &[&Host]) -> Result<Self> {
        let folder = scratch("netns-serve").join(name);
        let mut loads = Cluster::new(programs.to_owned(), &folder, &folder)?;
        hosts.iter().try_for_each(|host| loads.start_load(&frontend(host)))?;
        Ok(Self(loads))
    }

    fn end(mut self, hosts: &[&Host]) -> Result<Vec<Value>> {
        let mut end = |host: &&Host| self.0.end_load(&frontend(host));
        hosts.iter().map(&mut end).collect()
    }
}

fn report(whole: &[Value], meanwhile: &[Value], alone: &Value) -> Result<()> {
    println!("\n| requests to the frontends of the two others | whole | while it was cut off |");
    println!("|---|---|---|");
    let figures = |reports: &[Value], pointer: &str| -> Vec<f64> {
        reports.iter().map(|report| figure(report, pointer)).filter_map(Result::ok).collect()
    };
    let sum = |reports: &[Value], pointer: &str| -> f64 { figures(reports, pointer).iter().sum() };
    for (kind, pointer) in [
        ("exact", "/provenance/exact/count"),
        ("reconstructed", RECONSTRUCTED),
        ("error", "/counts/failed"),
        ("unanswered", "/counts/unanswered"),
    ] {
        let (whole, meanwhile) = (sum(whole, pointer), sum(meanwhile, pointer));
        println!("| {kind} | {whole} | {meanwhile} |");
    }
    let longest = figures(whole, "/latency/all/max").into_iter().fold(0.0, f64::max);
    let own = format!("the frontend that was cut off answered a client of its own: {alone}");
    println!("\nlongest {longest:.0} ms; {own}");
    let wrong = sum(whole, "/counts/failed") + sum(whole, "/counts/unanswered");
    let why: Vec<&Value> = whole.iter().map(|report| &report["errors"]).collect();
    ensure!(wrong == 0.0, "{wrong} requests failed: {why:?}");
    let coded = sum(meanwhile, RECONSTRUCTED) > 0.0;
    ensure!(coded, "no query was reconstructed while the host was away");
    Ok(())
}

fn start(network: &Network, programs: &Path) -> Result<Cluster> {
    let (sh, folder) = (shell()?, scratch("netns-serve"));
    empty(&sh, &folder)?;
    let (models, hosts) = (folder.join("models"), &network.hosts);
    write_models(&sh, &models, "sum")?;
    let mut cluster = Cluster::new(programs.to_owned(), &folder, &models)?;
    network.start_etcd(&mut cluster.processes, &folder)?;
    for host in hosts {
        for (port, model, pool) in INSTANCES {
            let (name, address) = (format!("{}-{port}", host.name), host.at(port));
            cluster.instance(&host.place, (&format!("instance-{name}"), model, &address), &[])?;
            let (key, lease) = (format!("/parapet/{pool}/{name}"), LEASE_SECONDS.to_string());
            let register = host.place.command(&sh, "deploy/etcd/register.sh");
            let register = register.args([&members(host, hosts).join(","), &key, &address, &lease]);
            cluster.processes.start(&format!("register-{name}"), register)?;
        }
    }
    for host in hosts {
        let name = format!("frontend-{}", host.name);
        cluster.frontend(&host.place, &name, &configuration(host, hosts))?;
    }
    let (what, all) = ("all instances up at all frontends", hosts.each_ref());
    wait_until(what, LIMIT, Instant::now(), || are_all_up(&all))?;
    Ok(cluster)
}

fn frontend(host: &Host) -> String {
    format!("http://{}", host.at(8080))
}

/// The instances that these frontends know, and true for those that they count as up.
fn instances_of(hosts: &[&Host]) -> Result<Vec<(String, bool)>> {
    let mut instances = Vec::new();
    for host in hosts {
        for line in http::get(&format!("{}/metrics", frontend(host)))?.lines() {
            let labels = line.strip_prefix("parapet_instance_up{");
            let after = labels.and_then(|labels| labels.split_once("address=\""));
            if let Some((address, _)) = after.and_then(|(_, rest)| rest.split_once('"')) {
                instances.push((address.to_owned(), line.ends_with(" 1")));
            }
        }
    }
    Ok(instances)
}

fn is_on(host: &Host, address: &str) -> bool {
    address.split(':').next() == Some(&host.address)
}

/// Returns true if these frontends have all instances of all hosts, and all are up.
fn are_all_up(hosts: &[&Host]) -> Result<bool> {
    let known = instances_of(hosts)?;
    Ok(known.len() == hosts.len() * 3 * INSTANCES.len() && known.iter().all(|(_, up)| *up))
}

/// Returns true if each of these frontends has all instances of `host` down, if it has them at all.
/// Fails if it has one of the others down.
fn are_out_of_service(asked: &[&Host], host: &Host) -> Result<bool> {
    let known = instances_of(asked)?;
    let is_own = |(address, _): &&(String, bool)| is_on(host, address);
    let wrong = known.iter().find(|one| !is_own(one) && !one.1);
    ensure!(wrong.is_none(), "{wrong:?} counts as down");
    Ok(known.iter().filter(is_own).all(|(_, up)| !up))
}

fn members(host: &Host, hosts: &[Host]) -> Vec<String> {
    let others = hosts.iter().filter(|other| other.name != host.name);
    [host].into_iter().chain(others).map(Host::member).collect()
}

fn configuration(host: &Host, hosts: &[Host]) -> String {
    let endpoints = members(host, hosts);
    let discovered = |pool| {
        format!("{{ etcd = {{ endpoints = {endpoints:?}, prefix = \"/parapet/{pool}/\" }} }}")
    };
    format!(
        "[server]\nlisten = \"{}:8080\"\n[repository]\npath = \"models\"\n\
         [[models]]\nname = \"{MODEL}\"\ntimeout_ms = 5000\ninstances = {}\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\n\
         hold_back = {{ fixed_ms = 50 }}\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\ninstances = {}\n",
        host.address,
        discovered("replicas"),
        discovered("parity"),
    )
}
