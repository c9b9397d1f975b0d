//! Frontends beside each other, each of which is replaced now and then.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::check::Violation;
use crate::configuration::{DRAIN_DELAY, DRAIN_GRACE, Topology};
use crate::metrics::{Metrics, Seen};
use crate::plan::{FRONTENDS, Instance, Mistake};
use crate::processes;
use crate::wire::{Message, Reader};

/// For a frontend to become ready, and for questions to its admin listener.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const UNWRITTEN: &str = "cannot write a configuration";

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

/// All of them. Clients ask the current one of a place, as a load balancer would have them do.
#[derive(Debug)]
pub struct Frontends {
    program: PathBuf,
    folder: PathBuf,
    pub topology: Topology,
    places: Mutex<Vec<Arc<Frontend>>>,
    /// One change at a time; the variant that is served.
    variant: tokio::sync::Mutex<usize>,
    started: AtomicU64,
}

impl Frontends {
    pub async fn start(program: PathBuf, folder: PathBuf, topology: Topology) -> Result<Self> {
        let frontends = Self {
            program,
            folder,
            topology,
            places: Mutex::default(),
            variant: tokio::sync::Mutex::default(),
            started: AtomicU64::new(0),
        };
        for place in 0..FRONTENDS {
            let started = frontends.start_at(place, 0).await?;
            frontends.places.lock().push(started);
        }
        Ok(frontends)
    }

    pub fn at(&self, place: usize) -> Arc<Frontend> {
        Arc::clone(&self.places.lock()[place % FRONTENDS])
    }

    pub fn all(&self) -> Vec<Arc<Frontend>> {
        self.places.lock().clone()
    }

    /// The instance with this address, as configurations have it.
    pub fn instance(&self, address: &str) -> Option<Instance> {
        let mut addresses = self.topology.instances.iter();
        addresses.position(|other| other.to_string() == address)
    }

    /// All of them read another variant: by their admin listeners, or by a signal.
    pub async fn reload(&self, variant: usize) -> Result<()> {
        let mut served = self.variant.lock().await;
        *served = variant;
        for (place, frontend) in self.all().into_iter().enumerate() {
            let name = &frontend.name;
            frontend.configure(&self.topology.toml(frontend.admin, variant))?;
            // Before it has happened: requests may meet it from now on.
            frontend.seen.lock().configurations += 1;
            if (place + variant).is_multiple_of(2) {
                let answer = frontend.ask("POST", "/admin/reload").await?;
                let is_taken = answer.status() == Some(200);
                ensure!(is_taken, "{name}: a reload was refused: {answer:?}");
            } else {
                let before = frontend.reloads().await?;
                processes::send(&*frontend.child.lock().await, Signal::SIGHUP);
                let end = Instant::now() + LIMIT;
                while frontend.reloads().await? <= before {
                    ensure!(Instant::now() < end, "{name}: SIGHUP reloads nothing");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// All of them are told to read a file with a mistake, refuse it, and go on as before.
    pub async fn misconfigure(&self, mistake: Mistake) -> Result<Option<Violation>> {
        let variant = self.variant.lock().await;
        for frontend in self.all() {
            let broken = self.topology.mistaken(frontend.admin, *variant, mistake);
            frontend.configure(&broken)?;
            let answer = frontend.ask("POST", "/admin/reload").await?;
            frontend.configure(&self.topology.toml(frontend.admin, *variant))?;
            if answer.status() != Some(409) {
                let (name, line) = (&frontend.name, answer.line);
                let said = format!("{name}: {mistake:?} was answered by {line:?}");
                return Ok(Some(("reload", said)));
            }
        }
        Ok(None)
    }

    /// A new process takes this place; then the old one is asked to stop.
    pub async fn roll(&self, place: usize) -> Result<Option<Violation>> {
        let variant = self.variant.lock().await;
        let new = self.start_at(place, *variant).await?;
        let old = std::mem::replace(&mut self.places.lock()[place % FRONTENDS], new);
        old.stop().await
    }

    /// Number of frontends that were started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    async fn start_at(&self, place: usize, variant: usize) -> Result<Arc<Frontend>> {
        let admin = processes::own_address(21 + place as u8)?;
        let name = format!("frontend-{place}-{}", admin.port());
        let config = self.folder.join(format!("{name}.toml"));
        let log = self.folder.join(format!("{name}.log"));
        fs::write(&config, self.topology.toml(admin, variant)).context(UNWRITTEN)?;
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&config);
        let (child, address) = processes::start(&mut command, &log).await?;
        self.started.fetch_add(1, Ordering::SeqCst);
        let frontend = Arc::new(Frontend {
            name,
            address,
            admin,
            config,
            log,
            pid: child.id().context("it has ended")?,
            child: tokio::sync::Mutex::new(child),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            seen: Mutex::new(Seen { configurations: 1, ..Seen::default() }),
        });
        let end = Instant::now() + LIMIT;
        while frontend.ask("GET", "/v2/health/ready").await?.status() != Some(200) {
            let name = &frontend.name;
            ensure!(Instant::now() < end, "{name} does not become ready");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(frontend)
    }
}

impl Frontend {
    fn configure(&self, text: &str) -> Result<()> {
        fs::write(&self.config, text).context(UNWRITTEN)
    }

    /// Asks its admin listener.
    pub async fn ask(&self, method: &str, path: &str) -> Result<Message> {
        let asking = async {
            let mut stream = TcpStream::connect(self.admin).await?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                 content-length: 0\r\n\r\n"
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
        let metrics = Metrics::parse(&String::from_utf8_lossy(&text));
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
        let status = status.with_context(|| format!("{} does not stop", self.name))?;
        let status = status.with_context(|| format!("{}: its end", self.name))?;
        let (took, most) = (asked.elapsed(), DRAIN_DELAY + DRAIN_GRACE + Duration::from_secs(1));
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let stopped = log.lines().rev().find(|line| line.contains("stopped"));
        let stopped = stopped.unwrap_or_default();
        if !status.success() || !stopped.contains("aborted=0") {
            let said = format!("{} ended with {status}, saying {stopped:?}", self.name);
            return Ok(Some(("drain", said)));
        }
        if took > most {
            eprintln!("    {} took {:.1} s to stop", self.name, took.as_secs_f64());
        }
        Ok(None)
    }

    pub fn memory_kb(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }
}
