//! Abuse of messages.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::Code;

use super::{GZIP, begin, call, call_of, client, code_of, expect, framed, packed, request, sample};
use crate::site::{self, Site, metric};
use crate::support::INPUTS;
use crate::support::instance::HANG;

const LIMIT: usize = 100_000;

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
    let (caller, _connection) = client(site).await;
    for claimed in [LIMIT as u32 + 1, u32::MAX] {
        for flag in [0, 1] {
            let prefix = [&[flag][..], &claimed.to_be_bytes()].concat();
            let answer = call(&caller, &[GZIP], prefix.into(), false).await;
            let (code, said) = answer.unwrap();
            assert_eq!(code, Code::OutOfRange, "{said:?}");
        }
    }
    let prefix = [&[0][..], &(LIMIT as u32).to_be_bytes(), b"x"].concat();
    for ends in [true, false] {
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            let (caller, prefix) = (caller.clone(), Bytes::from(prefix.clone()));
            calls.spawn(async move { call(&caller, &[], prefix, ends).await.unwrap().0 });
        }
        let expected = match ends {
            true => Code::InvalidArgument,
            false => Code::DeadlineExceeded,
        };
        assert_eq!(calls.join_all().await, [expected; 200]);
    }
}

/// Unpacked no further than a message may be long.
pub async fn bombs(site: &Site) {
    // The instance lives on this thread.
    let bomb = tokio::task::spawn_blocking(|| packed(&[0; 5_000_000]));
    let bomb = bomb.await.unwrap();
    assert!(bomb.len() < LIMIT);
    let (caller, _connection) = client(site).await;
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (caller, bomb) = (caller.clone(), bomb.clone());
        calls.spawn(async move { call(&caller, &[GZIP], bomb, true).await.unwrap().0 });
    }
    let codes = calls.join_all().await;
    // So many at once may be more than all may hold, and take longer than they may.
    let others = [Code::Unavailable, Code::DeadlineExceeded];
    let is_refused = |code| others.contains(code) || *code == Code::ResourceExhausted;
    assert!(codes.iter().all(is_refused), "{codes:?}");
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    let garbled = framed(1, b"\x1f\x8b\x08garbled");
    expect(&caller, &[GZIP], garbled, Code::InvalidArgument).await;
    let zstd = [("grpc-encoding", "zstd")];
    expect(&caller, &zstd, sample(), Code::Unimplemented).await;
}

/// Slowloris in the message: given up at the body's timeout, however many bytes came and on
/// however many streams.
pub async fn endless(site: &Site) {
    let (caller, _connection) = client(site).await;
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (response, mut body) = begin(&caller, call_of(&[]), false).await.unwrap();
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
    assert_eq!(calls.join_all().await, [Code::DeadlineExceeded; 100]);
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
        let caller = callers[i % 4].0.clone();
        let most = framed(0, &vec![0; LIMIT - 10]).slice(..LIMIT - 20);
        calls.spawn(async move { call(&caller, &[], most, false).await.unwrap() });
    }
    let mut refused = 0;
    for (code, said) in calls.join_all().await {
        if code == Code::Unavailable {
            assert_eq!(said["grpc-retry-pushback-ms"], "1000");
            refused += 1;
        } else {
            assert_eq!(code, Code::DeadlineExceeded, "{said:?}");
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

pub async fn given_up(site: &Site) {
    let hang = framed(0, &request(&[HANG; INPUTS]).encode_to_vec());
    let (caller, _connection) = client(site).await;
    let ask = async || {
        let asked = call_of(&[("grpc-timeout", "2500m")]);
        let (response, mut body) = begin(&caller, asked, false).await.unwrap();
        body.send_data(hang.clone(), true).unwrap();
        (response, body)
    };
    site::given_up(site, ask).await;
}
