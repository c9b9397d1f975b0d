//! The accept loop on connections in memory, in paused time.

use std::io;
use std::sync::Arc;

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

mod http2;

type Arrivals = mpsc::Receiver<io::Result<DuplexStream>>;

impl Accept for Arrivals {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, Option<IpAddr>)> {
        match self.recv().await {
            Some(arrival) => arrival.map(|io| (io, None)),
            None => std::future::pending().await,
        }
    }
}

/// A server that runs, on connections in memory.
struct Site {
    arrivals: mpsc::Sender<io::Result<DuplexStream>>,
    shutdown: oneshot::Sender<()>,
    answer_slow: Arc<Notify>,
    ended: JoinHandle<DrainReport>,
}

const GRACE: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

fn report(drained: usize, aborted: usize) -> DrainReport {
    DrainReport { drained, aborted }
}

impl Site {
    /// `/` answers at once, `/slow` when told to, `/large` with a megabyte.
    fn start(limits: Limits) -> Self {
        let answer_slow = Arc::new(Notify::new());
        let told = answer_slow.clone();
        let app = Router::new()
            .route("/", get(async || "ok"))
            .route("/slow", get(async move || told.notified().await))
            .route("/large", get(async || vec![0; 1 << 20]));
        Self::run(Server::new(app, limits), answer_slow)
    }

    fn run<P: Protocol>(server: Server<P>, answer_slow: Arc<Notify>) -> Self {
        let (arrivals, source): (_, Arrivals) = mpsc::channel(16);
        let (shutdown, asked) = oneshot::channel::<()>();
        let asked = async move { asked.await.unwrap_or(()) };
        let ended = tokio::spawn(server.run(source, asked, GRACE));
        Self { arrivals, shutdown, answer_slow, ended }
    }

    async fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(4096);
        self.arrivals.send(Ok(server)).await.unwrap();
        client
    }

    async fn shut_down(self) -> DrainReport {
        self.shutdown.send(()).unwrap();
        self.ended.await.unwrap()
    }
}

async fn send(client: &mut DuplexStream, path: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
}

async fn receive(client: &mut DuplexStream) -> String {
    let mut buffer = [0; 4096];
    let length = client.read(&mut buffer).await.unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

async fn assert_answered(client: &mut DuplexStream) -> String {
    let answer = receive(client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Lets every task run until it waits.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_serves_one_request_after_another() {
    let server = Site::start(Limits::default());
    let mut client = server.connect().await;
    for _ in 0..3 {
        send(&mut client, "/").await;
        assert_answered(&mut client).await;
    }
    assert_eq!(server.shut_down().await, report(1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_header_that_does_not_arrive_closes_the_connection() {
    let server = Site::start(Limits { header_read_timeout: 3 * SECOND, ..Limits::default() });
    let start = Instant::now();
    for beginning in ["", "GET / HTTP/1.1\r\nhos"] {
        let mut client = server.connect().await;
        client.write_all(beginning.as_bytes()).await.unwrap();
        receive(&mut client).await;
    }
    assert_eq!(start.elapsed().as_secs(), 6);
    // The same holds between two requests.
    let mut client = server.connect().await;
    send(&mut client, "/").await;
    receive(&mut client).await;
    assert_eq!(receive(&mut client).await, "");
    assert_eq!(start.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_header_that_is_too_large_is_refused() {
    let server = Site::start(Limits { max_header_bytes: 1024, ..Limits::default() });
    let mut client = server.connect().await;
    send(&mut client, &format!("/{}", "x".repeat(1024))).await;
    assert!(receive(&mut client).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_closed() {
    let server =
        Site::start(Limits { max_connections: 1, write_timeout: 2 * SECOND, ..Limits::default() });
    let start = Instant::now();
    let mut stalled = server.connect().await;
    send(&mut stalled, "/large").await;
    let mut next = server.connect().await;
    send(&mut next, "/").await;
    receive(&mut next).await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_little_now_and_then_is_closed() {
    let server = Site::start(Limits {
        max_connections: 1,
        write_timeout: 2 * SECOND,
        min_write_rate: 10_000,
        ..Limits::default()
    });
    let start = Instant::now();
    let mut trickling = server.connect().await;
    send(&mut trickling, "/large").await;
    // 4 KB each second: half of what is asked for. Each of them comes before the 2 s in which
    // nothing may be taken end.
    let mut taken = 0;
    loop {
        tokio::time::sleep(SECOND).await;
        let mut buffer = [0; 4096];
        match trickling.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(bytes) => taken += bytes,
        }
    }
    let elapsed = start.elapsed().as_secs();
    assert!((3..10).contains(&elapsed), "{elapsed}");
    assert!(taken < 1 << 16, "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_old_is_closed_after_an_answer() {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    let server = Site::start(Limits {
        max_connection_age: minute,
        header_read_timeout: hour,
        ..Limits::default()
    });
    let mut client = server.connect().await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(
        client.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok(),
        "closed too soon"
    );
    tokio::time::sleep(2 * SECOND).await;
    server.answer_slow.notify_one();
    let answer = assert_answered(&mut client).await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(receive(&mut client).await, "");
}

#[tokio::test(start_paused = true)]
async fn connections_that_wait_to_be_accepted_are_served_on_shutdown() {
    let server = Site::start(Limits::default());
    settle().await;
    // Nothing runs between these two: the shutdown is seen first.
    let (mut client, io) = duplex(4096);
    server.arrivals.try_send(Ok(io)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").now_or_never().unwrap().unwrap();
    assert_eq!(server.shut_down().await, report(1, 0));
    assert_answered(&mut client).await;
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_limit_wait() {
    let server = Site::start(Limits { max_connections: 1, ..Limits::default() });
    let first = server.connect().await;
    settle().await;
    let mut second = server.connect().await;
    send(&mut second, "/").await;
    let waiting = tokio::time::timeout(SECOND, receive(&mut second)).await;
    assert!(waiting.is_err());
    drop(first);
    assert_answered(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn accepting_goes_on_after_errors() {
    let server = Site::start(Limits::default());
    let start = Instant::now();
    for kind in
        [io::ErrorKind::OutOfMemory, io::ErrorKind::ConnectionAborted, io::ErrorKind::OutOfMemory]
    {
        server.arrivals.send(Err(kind.into())).await.unwrap();
    }
    let mut client = server.connect().await;
    send(&mut client, "/").await;
    assert_answered(&mut client).await;
    assert!((30..40).contains(&start.elapsed().as_millis()), "10 ms, then 20 ms");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_answered_while_idle_connections_close() {
    let server = Site::start(Limits::default());
    let mut fresh = server.connect().await;
    let mut busy = server.connect().await;
    send(&mut busy, "/slow").await;
    settle().await;
    let answer_slow = server.answer_slow.clone();
    let drained = tokio::spawn(server.shut_down());
    assert_eq!(receive(&mut fresh).await, "");
    answer_slow.notify_one();
    let answer = assert_answered(&mut busy).await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(drained.await.unwrap(), report(2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_ends() {
    let server = Site::start(Limits::default());
    let mut busy = server.connect().await;
    send(&mut busy, "/slow").await;
    settle().await;
    let start = Instant::now();
    assert_eq!(server.shut_down().await, report(0, 1));
    assert_eq!(start.elapsed(), GRACE);
    assert_eq!(receive(&mut busy).await, "");
}
