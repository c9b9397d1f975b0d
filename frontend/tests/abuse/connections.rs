//! Abuse of connections.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::site::{self, Site, ask_status, many, until_all_closed, until_closed, whole};
use crate::support::instance::HANG;
use crate::support::{INPUTS, SAMPLE, body};

/// Connections that send nothing, and ones that have sent something before, are closed.
pub async fn idle(site: &Site) {
    let mut abusers = many(20, async || site.abuser().await).await;
    for stream in abusers.iter_mut().step_by(2) {
        assert_eq!(ask_status(stream).await, Some(200));
    }
    assert_eq!(until_all_closed(abusers).await, [""; 20]);
}

pub async fn flood_from_one(site: &Site) {
    let other = async || {
        let mut other = TcpStream::connect(site.address).await.unwrap();
        assert_eq!(ask_status(&mut other).await, Some(200));
    };
    let said = site::flood_from_one(site, async || site.abuser().await, other).await;
    assert_eq!(said, [""; 300]);
}

/// All places are taken: a newcomer waits until idle ones are closed.
pub async fn flood_from_everywhere(site: &Site) {
    let mut abusers = JoinSet::new();
    for i in 0..150_u8 {
        let mut stream = site.connect_from(Ipv4Addr::new(127, 0, 1, 1 + i)).await;
        abusers.spawn(async move { until_closed(&mut stream).await });
    }
    let mut newcomer = TcpStream::connect(site.address).await.unwrap();
    assert_eq!(ask_status(&mut newcomer).await, Some(200));
    assert_eq!(abusers.join_all().await, [""; 150]);
}

/// A reset in the middle of a request, instead of an orderly end.
pub async fn reset(site: &Site) {
    let request = whole("", body(&SAMPLE, ""));
    for i in 0..200 {
        let mut stream = site.abuser().await;
        stream.set_zero_linger().unwrap();
        let part = &request[..request.len() * (i % 11) / 10];
        stream.write_all(part).await.unwrap();
    }
}

pub async fn half_closed(site: &Site) {
    let request = whole("", body(&[HANG; INPUTS], ""));
    let ends = [0, 10, request.len() - 5, request.len()];
    site::half_closed(async || site.abuser().await, &request, &ends).await;
}

/// Sends requests without end and reads no answer: writing is blocked, and the client cut off.
pub async fn pipelined_unread(site: &Site) {
    let mut abusers = JoinSet::new();
    for _ in 0..3 {
        let mut stream = site.abuser().await;
        abusers.spawn(async move {
            let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
            let mut sent = 0;
            while sent < 1_000_000 && stream.write_all(requests.as_bytes()).await.is_ok() {
                sent += 100;
            }
            sent
        });
    }
    for sent in abusers.join_all().await {
        assert!(sent < 1_000_000, "a million requests were taken");
    }
}

/// Takes a few bytes whenever its time is nearly over.
pub async fn trickling_reader(site: &Site) {
    let mut stream = site.abuser().await;
    let (mut reading, mut writing) = stream.split();
    let write = async {
        let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
        while writing.write_all(requests.as_bytes()).await.is_ok() {}
    };
    let read = async {
        let mut taken = 0;
        let mut buffer = [0; 1024];
        loop {
            // The abuser's pace: nothing is awaited.
            tokio::time::sleep(Duration::from_millis(100)).await;
            match reading.read(&mut buffer).await {
                Ok(0) | Err(_) => break taken,
                Ok(bytes) => taken += bytes,
            }
        }
    };
    // The writer ends when the server has cut it off; what was under way by then need not be read
    // in drops.
    tokio::select! {
        () = write => {}
        _ = read => {}
    }
}

pub async fn endless_keep_alive(site: &Site) {
    let mut stream = site.abuser().await;
    let mut answers = 0;
    while ask_status(&mut stream).await.is_some() {
        answers += 1;
        // The abuser's pace: nothing is awaited.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(answers < 1000, "the connection is as old as it likes");
    }
    assert!(answers > 0);
}
