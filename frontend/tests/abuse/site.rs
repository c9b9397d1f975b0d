//! A frontend as a process of its own, so that its memory can be looked at; an instance behind it;
//! a bystander and abusers in front of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::grpc;
use crate::support::process::Process;
use crate::support::{
    GRPC, INFER, SAMPLE, assert_close, body, get, instance, linear, plain_toml, repository,
    wait_until, with_server,
};

/// The bounds under which most kinds of abuse take place.
const SERVER: &str = "max_connections = 60\nmax_connections_per_peer = 24\n\
                      header_read_timeout_ms = 400\nbody_read_timeout_ms = 400\n\
                      write_timeout_ms = 400\nmax_bodies_bytes = 300000\n";
/// The most that abuse may make the frontend grow by.
const MEMORY_KB: u64 = 64 * 1024;
/// Time that anything may take before the test counts it as hung.
pub const HUNG: Duration = Duration::from_secs(20);
/// Where abusers come from, unless they come from everywhere.
const ABUSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

pub struct Site {
    frontend: Process,
    pub address: SocketAddr,
    pub grpc_address: SocketAddr,
    _repository: tempfile::TempDir,
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

/// Bounds of the frontend.
#[derive(Debug, Clone, Copy)]
pub enum Limits {
    /// Limits of [`SERVER`].
    Tight,
    Default,
}

/// Protocol by which the bystander asks.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    Http,
    Grpc,
}

/// Has `abuse` done to a frontend with these limits, and `server` lines in its configuration.
/// Meanwhile a bystander asks without a pause and must be answered; afterwards no connection may be
/// left, and memory must not have grown.
pub async fn while_others_are_served(
    (limits, server): (Limits, &str),
    protocol: Protocol,
    abuse: impl AsyncFnOnce(&Site),
) {
    let site = Site::start(limits, server).await;
    let before = site.memory_kb("VmRSS:");
    let answered = Answered::default();
    let bystander = match protocol {
        Protocol::Http => tokio::spawn(bystander(site.address, answered.clone())),
        Protocol::Grpc => tokio::spawn(grpc::bystander(site.grpc_address, answered.clone())),
    };
    let asked = async || answered.number() > 0 || bystander.is_finished();
    wait_until("asked once", HUNG, asked).await;

    let abused = tokio::time::timeout(HUNG, abuse(&site)).await;
    abused.expect("the abuse comes to an end");

    // The first of these may have been on its way before the abuse ended, the second was asked
    // after the first.
    let enough = answered.number() + 2;
    let go_on = async || bystander.is_finished() || answered.number() >= enough;
    wait_until("answered", HUNG, go_on).await;
    if bystander.is_finished() {
        panic!("the bystander gave up: {:?}", bystander.await);
    }
    let left = async || metric(&site.metrics().await, "parapet_connections_open") <= 2.0;
    wait_until("rid of the abusers' connections", HUNG, left).await;
    bystander.abort();
    let grown = site.memory_kb("VmHWM:").saturating_sub(before);
    let worst = answered.worst();
    eprintln!("memory grew by {grown} KB; the bystander's slowest answer took {worst:?}");
    assert!(grown < MEMORY_KB, "memory grew by {grown} KB");
}

/// Asks on a kept connection, again and again; panics at the first answer that is wrong or
/// does not come.
async fn bystander(address: SocketAddr, answered: Answered) {
    let mut connection = None;
    loop {
        let mut stream: TcpStream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.expect("a bystander may connect"),
        };
        let asked = Instant::now();
        let answer = tokio::time::timeout(HUNG, ask(&mut stream, &SAMPLE)).await;
        // A connection that was closed while it was idle is no missing answer.
        let Some((status, text)) = answer.expect("an answer") else {
            continue;
        };
        assert_eq!(status, 200, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let data = json["outputs"][0]["data"].clone();
        let values: Vec<f32> = serde_json::from_value(data).expect("values");
        assert_close(&values, &linear(&SAMPLE));
        answered.note(asked);
        connection = Some(stream);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A whole request for a prediction, with these header fields.
pub fn whole(fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let (body, length) = (body.as_ref(), body.as_ref().len());
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n");
    [head.as_bytes(), fields.as_bytes(), b"\r\n", body].concat()
}

/// One inference; `None` if the connection was closed before any of an answer.
pub async fn ask(stream: &mut TcpStream, sample: &[f32]) -> Option<(u16, String)> {
    stream.write_all(&whole("", body(sample, ""))).await.ok()?;
    read_response(stream).await
}

/// The status of the answer to the sample.
pub async fn ask_status(stream: &mut TcpStream) -> Option<u16> {
    ask(stream, &SAMPLE).await.map(|(status, _)| status)
}

/// Has twenty abusers at the same time; their ends.
pub async fn twenty<F: Future<Output: Send> + Send + 'static>(
    connect: impl AsyncFn() -> TcpStream,
    abuse: impl Fn(TcpStream) -> F,
) -> Vec<F::Output> {
    let mut abusers = JoinSet::new();
    for _ in 0..20 {
        abusers.spawn(abuse(connect().await));
    }
    abusers.join_all().await
}

/// Slowloris: twenty that send `start` and then `byte` now and then. All are cut off before they
/// sent `limit`.
pub async fn trickle(connect: impl AsyncFn() -> TcpStream, start: &[u8], byte: u8, limit: usize) {
    let abuse = |mut stream: TcpStream| {
        let start = start.to_vec();
        async move {
            stream.write_all(&start).await.unwrap();
            let mut sent = 0;
            while stream.write_all(&[byte]).await.is_ok() {
                sent += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            sent
        }
    };
    let sent = twenty(connect, abuse).await;
    let cut_off = sent.iter().all(|sent| *sent < limit);
    assert!(cut_off, "waited for: {sent:?}");
}

/// So many connections.
pub async fn many(number: usize, connect: impl AsyncFn() -> TcpStream) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..number {
        streams.push(connect().await);
    }
    streams
}

/// The server's bytes on each of these until it closes them.
pub async fn until_all_closed(mut streams: Vec<TcpStream>) -> Vec<String> {
    let mut said = Vec::new();
    for stream in &mut streams {
        said.push(until_closed(stream).await);
    }
    said
}

/// Many connections of one peer, while another asks; what they got.
pub async fn flood_from_one(
    site: &Site,
    connect: impl AsyncFn() -> TcpStream,
    other: impl AsyncFnOnce(),
) -> Vec<String> {
    let abusers = many(300, connect).await;
    // A client without a place is refused at once, well before idle connections are closed; another
    // peer still has room.
    other().await;
    let said = until_all_closed(abusers).await;
    let refused = metric(&site.metrics().await, "parapet_connections_refused_total");
    assert!(refused >= 200.0, "{refused} were refused");
    said
}

/// Twenty that send the beginning of a request, up to one of these places, and close their half:
/// they have no interest in an answer, and their connections do not stay.
pub async fn half_closed(connect: impl AsyncFn() -> TcpStream, request: &[u8], ends: &[usize]) {
    let mut abusers = many(20, connect).await;
    for (stream, end) in abusers.iter_mut().zip(ends.iter().cycle()) {
        stream.write_all(&request[..*end]).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    until_all_closed(abusers).await;
}

/// Clients that ask for what takes long and leave: their work is withdrawn (CG-8).
pub async fn given_up<Asked>(site: &Site, ask: impl AsyncFn() -> Asked) {
    let in_flight = async || metric(&site.metrics().await, "parapet_queries_in_flight");
    for _ in 0..5 {
        let mut abusers = Vec::new();
        for _ in 0..30 {
            abusers.push(ask().await);
        }
        let asked = async || in_flight().await >= 25.0;
        wait_until("asked", Duration::from_secs(5), asked).await;
        drop(abusers);
        let withdrawn = async || in_flight().await <= 2.0;
        wait_until("withdrawn", Duration::from_millis(1500), withdrawn).await;
    }
}

/// Bytes without meaning, the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// The first bytes of a TLS client.
pub fn tls_hello() -> Vec<u8> {
    let head = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    [&head[..], &[0x5a; 508]].concat()
}

/// The next response of known length: its status and body.
pub async fn read_response(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("a header in ASCII").to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut body).await.ok()?;
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The value of the first series of a metric.
pub fn metric(text: &str, name: &str) -> f64 {
    let value =
        [" ", "{"].iter().find_map(|end| crate::support::metric(text, &format!("{name}{end}")));
    value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

impl Site {
    async fn start(limits: Limits, server: &str) -> Self {
        let instance = instance::start(None).await;
        let repository = repository();
        let model = "slots_per_instance = 64\nmax_queue = 8\nmax_timeout_ms = 2500";
        let text = plain_toml(repository.path(), &[instance], model);
        let text = match limits {
            Limits::Tight => with_server(&text, &merged(server)),
            Limits::Default => text.replacen("max_body_bytes = 100000\n", "", 1),
        };
        let config = repository.path().join("parapet.toml");
        std::fs::write(&config, with_server(&text, GRPC)).unwrap();
        let frontend = Process::frontend(&config);
        let [address, grpc_address] = frontend.addresses[..] else {
            panic!("the frontend listens on {:?}", frontend.addresses)
        };
        let site = Self { frontend, address, grpc_address, _repository: repository };
        let ready = async || get(address, "/v2/health/ready").await.status == 200;
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
        let fields = format!("connection: close\r\n{headers}");
        status_of(&self.send(whole(&fields, body)).await)
    }

    pub async fn metrics(&self) -> String {
        get(self.address, "/metrics").await.text()
    }

    pub fn memory_kb(&self, field: &str) -> u64 {
        let status = format!("/proc/{}/status", self.frontend.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(field)).unwrap();
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
        let read = tokio::time::timeout(HUNG, stream.read(&mut buffer)).await;
        match read.expect("the server closes") {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&said).into_owned(),
            Ok(bytes) => said.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// The status of the first response; 0 if there is none.
pub fn status_of(said: &str) -> u16 {
    let rest = said.strip_prefix("HTTP/1.1 ");
    rest.and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

/// The lines of [`SERVER`], but for those that `server` has, too.
fn merged(server: &str) -> String {
    let field = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let given: Vec<String> = server.lines().map(field).collect();
    let kept = SERVER.lines().filter(|line| !given.contains(&field(line)));
    kept.chain(server.lines()).collect::<Vec<_>>().join("\n")
}
