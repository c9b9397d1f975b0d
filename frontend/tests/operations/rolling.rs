//! Frontends that are restarted one after the other.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use super::*;
use crate::support::process::Process;

/// Asked to stop as a service manager does it; then started again.
async fn restart(process: &mut Process) {
    let kill = format!("kill -TERM {}", process.child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status();
    assert!(killed.unwrap().success());
    let mut status = None;
    while status.is_none() {
        status = process.child.try_wait().unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(status.unwrap().success(), "an orderly end");
    process.restart();
}

/// Two frontends behind clients that look which is ready, as a load balancer does. Each is stopped
/// and started again, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_no_request() {
    let repository = repository();
    let instances = instance::start_all::<2>().await;
    let addresses = [(); 2].map(|()| free_address());
    let mut processes = Vec::new();
    for address in addresses {
        let text = plain_toml(repository.path(), &instances, "")
            .replace("127.0.0.1:0", &address.to_string())
            .replace("[repository]", "drain_delay_ms = 400\n[repository]");
        let config = repository.path().join(format!("{}.toml", address.port()));
        fs::write(&config, text).unwrap();
        processes.push(Process::frontend(&config));
    }
    let ready: Arc<[AtomicBool; 2]> = Arc::default();
    let looked_at = Arc::clone(&ready);
    let watching = tokio::spawn(async move {
        loop {
            for (address, ready) in addresses.iter().zip(&*looked_at) {
                ready.store(is_ready(*address).await, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let both_ready = async || ready.iter().all(|ready| ready.load(Ordering::SeqCst));
    wait_until("ready", LIMIT, both_ready).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        let (ready, stop) = (Arc::clone(&ready), Arc::clone(&stop));
        clients.spawn(keep_asking(client, addresses, ready, stop));
    }
    for round in 0..4 {
        restart(&mut processes[round % 2]).await;
        wait_until("ready", LIMIT, both_ready).await;
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
        let mut targets = (0..2).map(|i| (client + i) % 2);
        let target = targets.find(|&target| ready[target].load(Ordering::SeqCst));
        let target = addresses[target.expect("one is always ready")];
        let stream = tokio::net::TcpStream::connect(target).await;
        let stream = stream.expect("a frontend that is ready accepts");
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        loop {
            let body = Full::new(Bytes::from(body(&SAMPLE, "")));
            let request = Request::post(INFER).header("host", "x").body(body).unwrap();
            let response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            let connection = response.headers().get("connection");
            let closes = connection.is_some_and(|value| value == "close");
            let whole = http_body_util::BodyExt::collect(response.into_body()).await;
            whole.expect("a whole answer");
            answered += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
            if closes || stop.load(Ordering::SeqCst) || sender.ready().await.is_err() {
                break;
            }
        }
    }
    answered
}
