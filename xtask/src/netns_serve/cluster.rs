//! Processes on the hosts, and their observable state.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::FOLDER;
use crate::netns::etcd;
use crate::netns::hosts::{Host, Network};
use crate::processes::{Place, Processes};
use crate::sample::{Kind, MODEL, write_model};
use crate::{http, workspace};

const PARITY: &str = "fashion-parity";
/// On each host: where, and what for.
const INSTANCES: [(u16, &str, &str); 3] = [
    (9001, MODEL, "replicas"),
    (9002, MODEL, "replicas"),
    (9101, PARITY, "parity"),
];
const FRONTEND: u16 = 8080;
const PROMETHEUS: u16 = 9090;
/// For processes to start.
const START: Duration = Duration::from_secs(60);

/// Fails if Prometheus or curl is not installed.
pub(super) fn is_possible() -> Result<()> {
    for (program, package) in [("prometheus", "prometheus"), ("curl", "curl")] {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        ensure!(
            found.is_ok(),
            "{program} is not installed (Debian, Ubuntu: `apt install {package}`)"
        );
    }
    Ok(())
}

/// All of it; ends with this value.
pub(super) struct CheckedHosts {
    processes: Processes,
    prometheus: String,
}

impl CheckedHosts {
    pub(super) fn start(
        place: &Place,
        network: &Network,
        programs: &Path,
        lease: u64,
    ) -> Result<Self> {
        let folder = &place.folder;
        let models = folder.join("models");
        workspace::make_folder(&models)?;
        write_model(&models, MODEL, Kind::Deployed)?;
        write_model(
            &models,
            PARITY,
            Kind::Parity {
                deployed: MODEL,
                encoder: "sum",
            },
        )?;
        let mut processes = Processes::default();
        for host in &network.hosts {
            processes.start(
                place,
                etcd(host, &network.hosts, folder),
                &format!("etcd-{}", host.name),
            )?;
        }
        for host in &network.hosts {
            for (port, model, pool) in INSTANCES {
                let address = format!("{}:{port}", host.address);
                let mut instance = host.run(&programs.join("parapet-instance"));
                instance
                    .arg("--repository")
                    .arg(&models)
                    .args(["--model", model, "--listen", &address]);
                processes.start(place, instance, &format!("instance-{}-{port}", host.name))?;
                let mut register = host.run(&workspace::root().join("deploy/etcd/register.sh"));
                let key = format!("/parapet/{pool}/{}-{port}", host.name);
                register.args([&members(host, network), &key, &address, &lease.to_string()]);
                processes.start(place, register, &format!("register-{}-{port}", host.name))?;
            }
            let config = folder.join(format!("{}.toml", host.name));
            workspace::write(&config, frontend(host, network))?;
            let mut frontend = host.run(&programs.join("parapet-frontend"));
            frontend.arg("--config").arg(&config);
            processes.start(place, frontend, &format!("frontend-{}", host.name))?;
        }
        let [one, ..] = &network.hosts;
        processes.start(place, prometheus(one, network, folder)?, "prometheus")?;
        let cluster = Self {
            processes,
            prometheus: format!("http://{}:{PROMETHEUS}", one.address),
        };
        let all = network.hosts.each_ref().map(|host| cluster.frontend(host));
        cluster.until(
            "all instances up at all frontends",
            START,
            Instant::now(),
            &|| cluster.are_all_up(&all),
        )?;
        cluster.until("scrapes of all frontends", START, Instant::now(), &|| {
            Ok(cluster.targets()?.len() == network.hosts.len()
                && cluster.hosts_that_are_down()?.is_empty())
        })?;
        Ok(cluster)
    }

    /// Where the frontend of `host` is asked.
    pub(super) fn frontend(&self, host: &Host) -> String {
        format!("http://{}:{FRONTEND}", host.address)
    }

    pub(super) fn none_ended(&mut self) -> Result<()> {
        self.processes.none_ended()
    }

    /// Waits until it is so; for how long it was not, counted from `since`.
    pub(super) fn until(
        &self,
        what: &str,
        limit: Duration,
        since: Instant,
        is_so: &dyn Fn() -> Result<bool>,
    ) -> Result<Duration> {
        loop {
            // A server that is still starting refuses connections.
            if is_so().unwrap_or(false) {
                return Ok(since.elapsed());
            }
            ensure!(
                since.elapsed() < limit,
                "not after {:.1} s: {what}; see {FOLDER}",
                limit.as_secs_f64()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns true if each of these frontends has all instances of all hosts, and all are up.
    pub(super) fn are_all_up(&self, frontends: &[String]) -> Result<bool> {
        for frontend in frontends {
            let known = instances(frontend)?;
            if known.len() != 3 * INSTANCES.len() || known.iter().any(|(_, up)| !up) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if each of them has all instances of `host` down, if it has them at all, and
    /// all others up.
    pub(super) fn are_out_of_service(&self, frontends: &[String], host: &Host) -> Result<bool> {
        let mut all = true;
        for frontend in frontends {
            for (address, up) in instances(frontend)? {
                let is_meant = address.starts_with(&format!("{}:", host.address));
                ensure!(is_meant || up, "{frontend} counts {address} as down");
                all &= !(is_meant && up);
            }
        }
        Ok(all)
    }

    /// Returns true if none of them knows an instance of `host` any longer.
    pub(super) fn have_left(&self, frontends: &[String], host: &Host) -> Result<bool> {
        for frontend in frontends {
            let known = instances(frontend)?;
            if known
                .iter()
                .any(|(address, _)| address.starts_with(&format!("{}:", host.address)))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hosts whose frontend Prometheus could not scrape the last time it tried.
    pub(super) fn hosts_that_are_down(&self) -> Result<Vec<String>> {
        Ok(self
            .targets()?
            .into_iter()
            .filter(|(_, up)| !up)
            .map(|(host, _)| host)
            .collect())
    }

    fn targets(&self) -> Result<Vec<(String, bool)>> {
        let answer = http::get_json(&format!("{}/api/v1/query?query=up", self.prometheus))?;
        let samples = answer
            .pointer("/data/result")
            .and_then(Value::as_array)
            .context("no result")?;
        let target = |sample: &Value| {
            let host = sample.pointer("/metric/host")?.as_str()?.to_owned();
            Some((host, sample.pointer("/value/1")?.as_str()? == "1"))
        };
        Ok(samples.iter().filter_map(target).collect())
    }
}

/// The instances that a frontend knows, and whether it counts them as up.
fn instances(frontend: &str) -> Result<Vec<(String, bool)>> {
    let metrics = http::get(&format!("{frontend}/metrics"))?;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("parapet_instance_up{"));
    lines
        .map(|line| {
            let address = line
                .split_once("address=\"")
                .and_then(|(_, rest)| rest.split_once('"'));
            let (Some((address, _)), Some((_, up))) = (address, line.rsplit_once(' ')) else {
                bail!("{frontend}: {line}");
            };
            Ok((address.to_owned(), up == "1"))
        })
        .collect()
}

/// All members of etcd, `host`'s own first.
fn members(host: &Host, network: &Network) -> String {
    let others = network.hosts.iter().filter(|other| other.name != host.name);
    let all: Vec<String> = [host]
        .into_iter()
        .chain(others)
        .map(|host| format!("{}:2379", host.address))
        .collect();
    all.join(",")
}

fn frontend(host: &Host, network: &Network) -> String {
    let members: Vec<String> = members(host, network)
        .split(',')
        .map(|member| format!("\"{member}\""))
        .collect();
    let members = members.join(", ");
    format!(
        "[server]\nlisten = \"{}:{FRONTEND}\"\n\n[repository]\npath = \"models\"\n\n\
         [[models]]\nname = \"{MODEL}\"\ntimeout_ms = 5000\n\
         instances = {{ etcd = {{ endpoints = [{members}], prefix = \"/parapet/replicas/\" }} }}\n\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\nhold_back = {{ fixed_ms = 50 }}\n\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\n\
         instances = {{ etcd = {{ endpoints = [{members}], prefix = \"/parapet/parity/\" }} }}\n",
        host.address
    )
}

fn prometheus(host: &Host, network: &Network, folder: &Path) -> Result<Command> {
    let targets: Vec<String> = network
        .hosts
        .iter()
        .map(|host| {
            format!(
                "{{ targets: [\"{}:{FRONTEND}\"], labels: {{ host: {} }} }}",
                host.address, host.name
            )
        })
        .collect();
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 900ms }}\nscrape_configs:\n\
         - job_name: parapet-frontend\n  static_configs: [{}]\n",
        targets.join(", ")
    );
    let path = folder.join("prometheus.yml");
    workspace::write(&path, config)?;
    let mut command = host.run(Path::new("prometheus"));
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        folder.join("prometheus").display()
    ));
    command.arg(format!(
        "--web.listen-address={}:{PROMETHEUS}",
        host.address
    ));
    Ok(command)
}
