//! Frontends that are restarted one after the other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;

use crate::served::{INFER, LIMIT, SAMPLE};
use crate::support::{body, instance, plain_toml, repository, wait_until};

/// A frontend as a process.
struct Process {
    config: PathBuf,
    child: Child,
}

impl Process {
    fn start(config: PathBuf) -> Self {
        let child = Self::spawn(&config);
        Self { config, child }
    }

    fn spawn(config: &Path) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_parapet-frontend"))
            .arg("--config")
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("http://"), "it said {line:?}");
        child
    }

    /// Asked to stop as a service manager does it; then started again.
    async fn restart(&mut self) {
        let asked = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status()
            .unwrap();
        assert!(asked.success());
        let mut status = None;
        while status.is_none() {
            status = self.child.try_wait().unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(status.unwrap().success(), "an orderly end");
        self.child = Self::spawn(&self.config);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two frontends behind clients that look who is ready, as a load balancer does. Each is stopped
/// and started again, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_no_request() {
    let repository = repository();
    let instances = [instance::start(None).await, instance::start(None).await];
    let free = || {
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    };
    let addresses = [free(), free()];
    let mut processes = Vec::new();
    for address in addresses {
        let text = plain_toml(repository.path(), &instances, "")
            .replace("127.0.0.1:0", &address.to_string())
            .replace("[repository]", "drain_delay_ms = 400\n[repository]");
        let config = repository.path().join(format!("{}.toml", address.port()));
        fs::write(&config, text).unwrap();
        processes.push(Process::start(config));
    }
    let ready: Arc<[AtomicBool; 2]> = Arc::default();
    let watching = {
        let ready = Arc::clone(&ready);
        tokio::spawn(async move {
            loop {
                for (address, ready) in addresses.iter().zip(&*ready) {
                    ready.store(is_ready(*address).await, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    wait_until("ready", LIMIT, async || {
        ready.iter().all(|ready| ready.load(Ordering::SeqCst))
    })
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        clients.spawn(keep_asking(
            client,
            addresses,
            Arc::clone(&ready),
            Arc::clone(&stop),
        ));
    }
    for round in 0..4 {
        processes[round % 2].restart().await;
        wait_until("ready", LIMIT, async || {
            ready.iter().all(|ready| ready.load(Ordering::SeqCst))
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    let answered: usize = clients.join_all().await.into_iter().sum();
    assert!(answered > 100, "{answered}");
    watching.abort();
}

async fn is_ready(address: SocketAddr) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else {
        return false;
    };
    let request = b"GET /v2/health/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// Asks on kept connections to frontends that are ready; every request must be answered.
async fn keep_asking(
    client: usize,
    addresses: [SocketAddr; 2],
    ready: Arc<[AtomicBool; 2]>,
    stop: Arc<AtomicBool>,
) -> usize {
    let mut answered = 0;
    while !stop.load(Ordering::SeqCst) {
        let target = (0..2)
            .map(|i| (client + i) % 2)
            .find(|&target| ready[target].load(Ordering::SeqCst));
        let target = target.expect("one is always ready");
        let stream = tokio::net::TcpStream::connect(addresses[target])
            .await
            .expect("whoever is ready accepts");
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        loop {
            let request = Request::post(INFER)
                .header("host", "x")
                .body(Full::new(Bytes::from(body(&SAMPLE, ""))))
                .unwrap();
            let response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            let closes = response
                .headers()
                .get("connection")
                .is_some_and(|value| value == "close");
            http_body_util::BodyExt::collect(response.into_body())
                .await
                .expect("a whole answer");
            answered += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
            if closes || stop.load(Ordering::SeqCst) {
                break;
            }
            if sender.ready().await.is_err() {
                break;
            }
        }
    }
    answered
}
