//! A frontend as a process of its own, so that its memory can be looked at; an instance behind it;
//! a bystander and abusers in front of it.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{INPUTS, body, close, instance, linear, plain_toml, repository, wait_until};

/// The bounds under which most kinds of abuse take place.
const SERVER: &str = "max_connections = 60\nmax_connections_per_peer = 24\nheader_read_timeout_ms \
    = 400\n\
                      body_read_timeout_ms = 400\nwrite_timeout_ms = 400\nmax_bodies_bytes = \
                      300000\n";
/// The most that abuse may make the frontend grow by.
const MEMORY_KB: u64 = 64 * 1024;
/// Time that anything may take before the test counts it as hung.
pub const HUNG: Duration = Duration::from_secs(20);
/// Where abusers come from, unless they come from everywhere.
const ABUSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

pub const INFER: &str = "/v2/models/linear/infer";
pub const SAMPLE: [f32; INPUTS] = [1.0, 2.0, 3.0, 4.0];

pub struct Site {
    frontend: Child,
    pub address: SocketAddr,
    pub grpc_address: SocketAddr,
    _repository: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.frontend.kill();
        let _ = self.frontend.wait();
    }
}

/// Number of a bystander's answers, and the time that the slowest one took.
#[derive(Debug, Clone, Default)]
pub struct Answered {
    number: Arc<AtomicUsize>,
    worst_micros: Arc<AtomicU64>,
}

impl Answered {
    /// Notes an answer to what was asked at `asked`.
    pub fn note(&self, asked: Instant) {
        let micros = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.worst_micros.fetch_max(micros, Ordering::SeqCst);
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    fn number(&self) -> usize {
        self.number.load(Ordering::SeqCst)
    }

    fn worst(&self) -> Duration {
        Duration::from_micros(self.worst_micros.load(Ordering::SeqCst))
    }
}

/// Has `abuse` done to a frontend with `server` lines in its configuration. Meanwhile a bystander
/// asks without a pause and must be answered; afterwards no connection may be left, and memory must
/// not have grown.
pub async fn while_others_are_served(server: &str, abuse: impl AsyncFnOnce(&Site)) {
    let bystander = |site: &Site, answered| tokio::spawn(bystander(site.address, answered));
    while_one_is_served(Limits::Tight(server), bystander, abuse).await;
}

/// The same without a line of `[server]`.
pub async fn at_default_limits(_: &str, abuse: impl AsyncFnOnce(&Site)) {
    let bystander = |site: &Site, answered| tokio::spawn(bystander(site.address, answered));
    while_one_is_served(Limits::Default, bystander, abuse).await;
}

/// Bounds of the frontend.
#[derive(Debug, Clone, Copy)]
pub enum Limits<'a> {
    /// Bounds of [`SERVER`], and lines in their place.
    Tight(&'a str),
    Default,
}

/// The same beside another bystander.
pub async fn while_one_is_served(
    limits: Limits<'_>,
    bystander: impl FnOnce(&Site, Answered) -> JoinHandle<()>,
    abuse: impl AsyncFnOnce(&Site),
) {
    let site = Site::start(limits).await;
    let before = site.memory_kb("VmRSS:");
    let answered = Answered::default();
    let bystander = bystander(&site, answered.clone());
    wait_until("asked once", HUNG, async || {
        answered.number() > 0 || bystander.is_finished()
    })
    .await;

    tokio::time::timeout(HUNG, abuse(&site))
        .await
        .expect("the abuse comes to an end");

    // The first of these may have been on its way before the abuse ended, the second was asked
    // after the first.
    let so_far = answered.number();
    wait_until("answered", HUNG, async || {
        bystander.is_finished() || answered.number() >= so_far + 2
    })
    .await;
    assert!(
        !bystander.is_finished(),
        "the bystander gave up: {:?}",
        bystander.await
    );
    let left = async || metric(&site.metrics().await, "parapet_connections_open") <= 2.0;
    wait_until("rid of the abusers' connections", HUNG, left).await;
    bystander.abort();
    let grown = site.memory_kb("VmHWM:").saturating_sub(before);
    eprintln!(
        "memory grew by {grown} KB; the bystander's slowest answer took {:?}",
        answered.worst()
    );
    assert!(grown < MEMORY_KB, "memory grew by {grown} KB");
}

/// Asks on a kept connection, again and again; panics at the first answer that is wrong or
/// does not come.
async fn bystander(address: SocketAddr, answered: Answered) {
    let mut connection = None;
    loop {
        let mut stream: TcpStream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address)
                .await
                .expect("a bystander may connect"),
        };
        let asked = Instant::now();
        let answer = tokio::time::timeout(HUNG, ask(&mut stream, &SAMPLE))
            .await
            .expect("an answer");
        // A connection that was closed while it was idle is no missing answer.
        let Some((status, text)) = answer else {
            continue;
        };
        assert_eq!(status, 200, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let values: Vec<f32> =
            serde_json::from_value(json["outputs"][0]["data"].clone()).expect("values");
        assert!(close(&values, &linear(&SAMPLE)), "{values:?}");
        answered.note(asked);
        connection = Some(stream);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One inference; `None` if the connection was closed before any of an answer.
pub async fn ask(stream: &mut TcpStream, sample: &[f32]) -> Option<(u16, String)> {
    let body = body(sample, "");
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .ok()?;
    read_response(stream).await
}

/// The next response of known length: its status and body.
pub async fn read_response(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head)
        .expect("a header in ASCII")
        .to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut body).await.ok()?;
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .unwrap_or_else(|| panic!("no {name} in\n{text}"))
        .parse()
        .expect("a number")
}

impl Site {
    async fn start(limits: Limits<'_>) -> Self {
        let instance = instance::start(None).await;
        let repository = repository();
        let model = "slots_per_instance = 64\nmax_queue = 8\nmax_timeout_ms = 2500";
        let text = plain_toml(repository.path(), &[instance], model);
        let (text, server) = match limits {
            Limits::Tight(server) => (text, merged(server)),
            Limits::Default => (
                text.replacen("max_body_bytes = 100000\n", "", 1),
                String::new(),
            ),
        };
        let text = text.replacen(
            "[server]\n",
            &format!("[server]\ngrpc_listen = \"127.0.0.1:0\"\n{server}"),
            1,
        );
        let config = repository.path().join("parapet.toml");
        std::fs::write(&config, text).unwrap();
        let mut frontend = Command::new(env!("CARGO_BIN_EXE_parapet-frontend"))
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(frontend.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut addresses = line
            .split("://")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        let (Some(address), Some(grpc_address)) = (addresses.next(), addresses.next()) else {
            panic!("the frontend said {line:?}")
        };
        let site = Self {
            frontend,
            address,
            grpc_address,
            _repository: repository,
        };
        let ready = async || {
            crate::support::get(address, "/v2/health/ready")
                .await
                .status
                == 200
        };
        wait_until("ready", HUNG, ready).await;
        site
    }

    /// A connection from the abuser's address.
    pub async fn abuser(&self) -> TcpStream {
        self.connect_from(ABUSER).await
    }

    /// The same to the gRPC listener.
    pub async fn grpc_abuser(&self) -> TcpStream {
        connect(ABUSER, self.grpc_address).await
    }

    pub async fn connect_from(&self, peer: Ipv4Addr) -> TcpStream {
        connect(peer, self.address).await
    }

    /// Sends `bytes` from the abuser's address and returns all that comes back until the server
    /// closes. It must close.
    pub async fn send(&self, bytes: impl AsRef<[u8]>) -> String {
        send_over(self.abuser().await, bytes).await
    }

    /// Sends a whole request that asks for its connection's end; the status that comes back.
    pub async fn status(&self, headers: &str, body: impl AsRef<[u8]>) -> u16 {
        let body = body.as_ref();
        let head = format!(
            "POST {INFER} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: \
                {}\r\n{headers}\r\n",
            body.len()
        );
        status_of(&self.send([head.as_bytes(), body].concat()).await)
    }

    pub async fn metrics(&self) -> String {
        let answer = crate::support::get(self.address, "/metrics").await;
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    pub fn memory_kb(&self, field: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.frontend.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

/// As [`Site::send`], on this connection.
pub async fn send_over(mut stream: TcpStream, bytes: impl AsRef<[u8]>) -> String {
    // The server may close before all of it is written: that is what it is there for.
    let _ = stream.write_all(bytes.as_ref()).await;
    until_closed(&mut stream).await
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Returns the server's bytes until it closes the connection, however it does so.
pub async fn until_closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match tokio::time::timeout(HUNG, stream.read(&mut buffer))
            .await
            .expect("the server closes")
        {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&said).into_owned(),
            Ok(bytes) => said.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// The status of the first response; 0 if there is none.
pub fn status_of(said: &str) -> u16 {
    said.strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .unwrap_or(0)
}

/// The lines of [`SERVER`], but for those that `server` has, too.
fn merged(server: &str) -> String {
    let field = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let given: Vec<String> = server.lines().map(field).collect();
    let kept = SERVER.lines().filter(|line| !given.contains(&field(line)));
    kept.chain(server.lines())
        .map(|line| format!("{line}\n"))
        .collect()
}
