//! Abuse of messages.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::Code;

use super::{call, call_of, client, code_of, expect, framed, request, sample};
use crate::site::{Site, metric};
use crate::support::instance::HANG;
use crate::support::{INPUTS, wait_until};

const LIMIT: usize = 100_000;
const GZIP: (&str, &str) = ("grpc-encoding", "gzip");

pub async fn too_long(site: &Site) {
    let (caller, _connection) = client(site).await;
    for length in [LIMIT + 1, 1_000_000] {
        expect(&caller, &[], framed(0, &vec![0; length]), Code::OutOfRange).await;
    }
    // Others go on.
    expect(&caller, &[], sample(), Code::Ok).await;
}

/// Refused before anything of them is there; what is claimed within the limit takes no memory, as
/// the least that it may be.
pub async fn claimed(site: &Site) {
    let (mut caller, _connection) = client(site).await;
    for claimed in [LIMIT as u32 + 1, u32::MAX] {
        for flag in [0, 1] {
            let prefix = [&[flag][..], &claimed.to_be_bytes()].concat();
            let (code, said) = call(&mut caller, &[GZIP], prefix.into(), false)
                .await
                .unwrap();
            assert_eq!(code, Code::OutOfRange, "{said:?}");
        }
    }
    let prefix = [&[0][..], &(LIMIT as u32).to_be_bytes(), b"x"].concat();
    for ends in [true, false] {
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            let (mut caller, prefix) = (caller.clone(), Bytes::from(prefix.clone()));
            calls.spawn(async move { call(&mut caller, &[], prefix, ends).await.unwrap().0 });
        }
        let expected = match ends {
            true => Code::InvalidArgument,
            false => Code::DeadlineExceeded,
        };
        while let Some(code) = calls.join_next().await {
            assert_eq!(code.unwrap(), expected);
        }
    }
}

fn gzip(length: usize) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; length]).unwrap();
    framed(1, &encoder.finish().unwrap())
}

/// Unpacked no further than a message may be long.
pub async fn bombs(site: &Site) {
    // The instance lives on this thread.
    let bomb = tokio::task::spawn_blocking(|| gzip(5_000_000))
        .await
        .unwrap();
    assert!(bomb.len() < LIMIT);
    let (caller, _connection) = client(site).await;
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (mut caller, bomb) = (caller.clone(), bomb.clone());
        calls.spawn(async move { call(&mut caller, &[GZIP], bomb, true).await.unwrap() });
    }
    let mut codes = Vec::new();
    while let Some(answer) = calls.join_next().await {
        codes.push(answer.unwrap().0);
    }
    // So many at once may be more than all may hold, and take longer than they may.
    let refused = [
        Code::ResourceExhausted,
        Code::Unavailable,
        Code::DeadlineExceeded,
    ];
    assert!(codes.iter().all(|code| refused.contains(code)), "{codes:?}");
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    let garbled = framed(1, b"\x1f\x8b\x08garbled");
    expect(&caller, &[GZIP], garbled, Code::InvalidArgument).await;
    expect(
        &caller,
        &[("grpc-encoding", "zstd")],
        sample(),
        Code::Unimplemented,
    )
    .await;
}

/// Slowloris in the message: given up at the body's timeout, however many bytes came and on
/// however many streams.
pub async fn endless(site: &Site) {
    let (caller, _connection) = client(site).await;
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let mut ready = caller.clone().ready().await.unwrap();
        let (response, mut body) = ready.send_request(call_of(&[]), false).unwrap();
        calls.spawn(async move {
            let trickle = async {
                let _ = body.send_data(framed(0, &[0; 1000]).slice(..10), false);
                while body.send_data(Bytes::from_static(b"\0"), false).is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                std::future::pending().await
            };
            tokio::select! {
                () = trickle => unreachable!(),
                response = response => code_of(response.unwrap()).await.unwrap().0,
            }
        });
    }
    while let Some(code) = calls.join_next().await {
        assert_eq!(code.unwrap(), Code::DeadlineExceeded);
    }
}

/// All messages together have a bound, over however many connections and streams. Small ones are
/// not touched by it.
pub async fn fill_memory(site: &Site) {
    let mut callers = Vec::new();
    for _ in 0..4 {
        callers.push(client(site).await);
    }
    let mut calls = JoinSet::new();
    for i in 0..40 {
        let mut caller = callers[i % 4].0.clone();
        let most = framed(0, &vec![0; LIMIT - 10]).slice(..LIMIT - 20);
        calls.spawn(async move { call(&mut caller, &[], most, false).await.unwrap() });
    }
    let mut refused = 0;
    while let Some(answer) = calls.join_next().await {
        let (code, said) = answer.unwrap();
        assert!(
            [Code::DeadlineExceeded, Code::Unavailable].contains(&code),
            "{code:?} {said:?}"
        );
        if code == Code::Unavailable {
            assert_eq!(said["grpc-retry-pushback-ms"], "1000");
            refused += 1;
        }
    }
    // 300 KB, and 64 KB of each connection, are no more than seven of them.
    assert!(refused >= 33, "{refused} were refused");
    let held = metric(&site.metrics().await, "parapet_request_bodies_bytes");
    assert!(held < 1000.0, "{held} bytes are still held");
}

/// A call has one.
pub async fn several(site: &Site) {
    let (caller, _connection) = client(site).await;
    let several = [sample(), sample()].concat().into();
    expect(&caller, &[], several, Code::InvalidArgument).await;
    let unknown_flag = framed(7, b"x");
    expect(&caller, &[], unknown_flag, Code::Internal).await;
}

/// Calls for what takes long, reset: their work is withdrawn (CG-8).
pub async fn given_up(site: &Site) {
    let hang = framed(0, &request(&[HANG; INPUTS]).encode_to_vec());
    let (caller, _connection) = client(site).await;
    for _ in 0..5 {
        let mut calls = Vec::new();
        for _ in 0..30 {
            let mut ready = caller.clone().ready().await.unwrap();
            let asked = call_of(&[("grpc-timeout", "2500m")]);
            let (response, mut body) = ready.send_request(asked, false).unwrap();
            body.send_data(hang.clone(), true).unwrap();
            calls.push(response);
        }
        let in_flight = async || metric(&site.metrics().await, "parapet_queries_in_flight");
        let asked = async || in_flight().await >= 25.0;
        wait_until("asked", Duration::from_secs(5), asked).await;
        drop(calls);
        let withdrawn = async || in_flight().await <= 2.0;
        wait_until("withdrawn", Duration::from_millis(1500), withdrawn).await;
    }
}
