//! Frontends beside each other, each of which is replaced now and then.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::check::Violation;
use crate::configuration::{DRAIN_DELAY, DRAIN_GRACE, Tenants, Topology};
use crate::metrics::Seen;
use crate::plan::{FRONTENDS, Instance, Mistake};
use crate::processes;
use crate::wire::{Message, Reader};

/// For a frontend to become ready, and for questions to its admin listener.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Frontend {
    pub name: String,
    /// Where clients ask it.
    pub address: SocketAddr,
    admin: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    child: tokio::sync::Mutex<Child>,
    pub pid: u32,
    pub started: Instant,
    /// It was asked to stop.
    pub stopping: AtomicBool,
    pub seen: Mutex<Seen>,
}

/// Where everything is that a frontend needs.
#[derive(Debug)]
pub struct Site {
    pub program: PathBuf,
    pub folder: PathBuf,
    pub repository: PathBuf,
    pub replicas: Vec<SocketAddr>,
    pub parity: Vec<SocketAddr>,
    pub tenants: Tenants,
}

impl Site {
    fn cluster(&self) -> Topology<'_> {
        Topology {
            repository: &self.repository,
            replicas: &self.replicas,
            parity: &self.parity,
            tenants: &self.tenants,
        }
    }
}

/// Data listeners take any free port, so that two processes of one place never want the same.
fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// All of them. Clients ask the current one of a place, as a load balancer would have them do.
#[derive(Debug)]
pub struct Frontends {
    site: Site,
    places: [Mutex<Arc<Frontend>>; FRONTENDS],
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    variant: AtomicUsize,
    started: AtomicU64,
}

impl Frontends {
    pub async fn start(site: Site) -> Result<Self> {
        let (one, two) = (start(&site, 0, 0).await?, start(&site, 1, 0).await?);
        Ok(Self {
            site,
            places: [Mutex::new(one), Mutex::new(two)],
            changing: tokio::sync::Mutex::default(),
            variant: AtomicUsize::new(0),
            started: AtomicU64::new(2),
        })
    }

    pub fn at(&self, place: usize) -> Arc<Frontend> {
        Arc::clone(&self.places[place % FRONTENDS].lock())
    }

    pub fn all(&self) -> Vec<Arc<Frontend>> {
        (0..FRONTENDS).map(|place| self.at(place)).collect()
    }

    /// The instance with this address, as configurations have it.
    pub fn instance(&self, address: &str) -> Option<Instance> {
        let mut addresses = self.site.replicas.iter().chain(&self.site.parity);
        addresses.position(|other| other.to_string() == address)
    }

    pub fn tenants(&self) -> &Tenants {
        &self.site.tenants
    }

    /// All of them read another variant: by their admin listeners, or by a signal.
    pub async fn reload(&self, variant: usize) -> Result<()> {
        let _alone = self.changing.lock().await;
        self.variant.store(variant, Ordering::SeqCst);
        for (place, frontend) in self.all().into_iter().enumerate() {
            let text = self
                .site
                .cluster()
                .toml(any_port(), frontend.admin, variant);
            fs::write(&frontend.config, text).context("cannot write a configuration")?;
            // Before it has happened: requests may meet it from now on.
            frontend.seen.lock().configurations += 1;
            if (place + variant).is_multiple_of(2) {
                let answer = frontend.ask("POST", "/admin/reload").await?;
                ensure!(
                    answer.status() == Some(200),
                    "{}: a reload was refused: {answer:?}",
                    frontend.name
                );
            } else {
                let before = frontend.reloads().await?;
                processes::send(&*frontend.child.lock().await, Signal::SIGHUP);
                let end = Instant::now() + LIMIT;
                while frontend.reloads().await? <= before {
                    ensure!(
                        Instant::now() < end,
                        "{}: SIGHUP reloads nothing",
                        frontend.name
                    );
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        Ok(())
    }

    /// All of them are told to read a file with a mistake, refuse it, and go on as before.
    pub async fn misconfigure(&self, mistake: Mistake) -> Result<Option<Violation>> {
        let _alone = self.changing.lock().await;
        let variant = self.variant.load(Ordering::SeqCst);
        for frontend in self.all() {
            let cluster = self.site.cluster();
            let broken = cluster.mistaken(any_port(), frontend.admin, variant, mistake);
            fs::write(&frontend.config, broken).context("cannot write a configuration")?;
            let answer = frontend.ask("POST", "/admin/reload").await?;
            let sound = cluster.toml(any_port(), frontend.admin, variant);
            fs::write(&frontend.config, sound).context("cannot write a configuration")?;
            if answer.status() != Some(409) {
                let said = format!(
                    "{}: {mistake:?} was answered by {:?}",
                    frontend.name, answer.line
                );
                return Ok(Some(Violation::new("reload", said)));
            }
        }
        Ok(None)
    }

    /// A new process takes this place; then the old one is asked to stop.
    pub async fn roll(&self, place: usize) -> Result<Option<Violation>> {
        let _alone = self.changing.lock().await;
        let new = start(&self.site, place, self.variant.load(Ordering::SeqCst)).await?;
        self.started.fetch_add(1, Ordering::SeqCst);
        let old = std::mem::replace(&mut *self.places[place % FRONTENDS].lock(), new);
        old.stop().await
    }

    /// Number of frontends that were started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }
}

async fn start(site: &Site, place: usize, variant: usize) -> Result<Arc<Frontend>> {
    let admin = processes::own_address(21 + place as u8)?;
    let name = format!("frontend-{place}-{}", admin.port());
    let (config, log) = (
        site.folder.join(format!("{name}.toml")),
        site.folder.join(format!("{name}.log")),
    );
    fs::write(&config, site.cluster().toml(any_port(), admin, variant))
        .context("cannot write a configuration")?;
    let arguments = ["--config".to_owned(), config.display().to_string()];
    let (child, address) = processes::start(&site.program, &arguments, &log).await?;
    let pid = child.id().context("it has ended")?;
    let frontend = Arc::new(Frontend {
        name,
        address,
        admin,
        config,
        log,
        child: tokio::sync::Mutex::new(child),
        pid,
        started: Instant::now(),
        stopping: AtomicBool::new(false),
        seen: Mutex::new(Seen {
            configurations: 1,
            ..Seen::default()
        }),
    });
    let end = Instant::now() + LIMIT;
    while frontend.ask("GET", "/v2/health/ready").await?.status() != Some(200) {
        ensure!(
            Instant::now() < end,
            "{} does not become ready",
            frontend.name
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(frontend)
}

impl Frontend {
    /// Asks its admin listener.
    pub async fn ask(&self, method: &str, path: &str) -> Result<Message> {
        let asking = async {
            let mut stream = TcpStream::connect(self.admin).await?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: \
                    close\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            Reader::new(stream).next().await
        };
        let answer = tokio::time::timeout(LIMIT, asking).await;
        let answer = answer.with_context(|| format!("{}: no answer to {path}", self.name))?;
        answer
            .with_context(|| format!("{}: {path}", self.name))?
            .with_context(|| format!("{}: {path}: closed", self.name))
    }

    async fn reloads(&self) -> Result<f64> {
        let text = self.ask("GET", "/metrics").await?.body;
        let metrics = crate::metrics::Metrics::parse(&String::from_utf8_lossy(&text));
        Ok(metrics.sum("parapet_config_reloads_total", &[("outcome", "taken")]))
    }

    /// Asks it to stop as a service manager does. It must do so in time, in order, and
    /// with nothing dropped.
    pub async fn stop(&self) -> Result<Option<Violation>> {
        self.stopping.store(true, Ordering::SeqCst);
        let mut child = self.child.lock().await;
        processes::send(&child, Signal::SIGTERM);
        let asked = Instant::now();
        let status = tokio::time::timeout(LIMIT, child.wait()).await;
        let Ok(status) = status else {
            bail!("{} does not stop", self.name)
        };
        let status = status.with_context(|| format!("{}: its end", self.name))?;
        let (took, most) = (
            asked.elapsed(),
            DRAIN_DELAY + DRAIN_GRACE + Duration::from_secs(1),
        );
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let stopped = log
            .lines()
            .rev()
            .find(|line| line.contains("stopped"))
            .unwrap_or_default();
        if !status.success() || !stopped.contains("aborted=0") {
            let said = format!("{} ended with {status}, saying {stopped:?}", self.name);
            return Ok(Some(Violation::new("drain", said)));
        }
        if took > most {
            eprintln!("    {} took {:.1} s to stop", self.name, took.as_secs_f64());
        }
        Ok(None)
    }

    pub fn memory_kb(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }
}
