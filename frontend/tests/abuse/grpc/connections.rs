//! Abuse of connections.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tonic::Code;
use tonic::transport::Endpoint;

use super::wire::{DATA, END_STREAM, GOAWAY, HEADERS, SETTINGS, frame, hello, open, until_closed};
use super::{InferenceClient, client, expect, framed, request, sample};
use crate::site::{self, Random, Site, many, tls_hello, until_all_closed};
use crate::support::instance::HANG;
use crate::support::{INPUTS, SAMPLE};
use prost::Message as _;

/// Nothing, a part of the preface, all of it, and a call that was answered: they are closed, and no
/// pings keep them.
pub async fn idle(site: &Site) {
    let (caller, connection) = client(site).await;
    expect(&caller, &[], sample(), Code::Ok).await;
    let mut abusers = many(20, async || site.grpc_abuser().await).await;
    let said = [&b""[..], &hello()[..10], &hello()];
    for (stream, said) in abusers.iter_mut().zip(said.iter().cycle()) {
        stream.write_all(said).await.unwrap();
    }
    until_all_closed(abusers).await;
    // It ends in order, or not: it answers pings, and leaves the closing to the server.
    let _ = connection.await.unwrap();
}

/// A header's frame, a byte now and then.
pub async fn trickle(site: &Site) {
    let header = &frame(HEADERS, 0, 1, &[0; 10_000])[..9];
    let start = [&hello()[..], header].concat();
    site::trickle(async || site.grpc_abuser().await, &start, 0x83, 500).await;
}

pub async fn garbage(site: &Site) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut said = vec![b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(), tls_hello()];
    for _ in 0..20 {
        said.push(random.bytes(300));
        said.push([hello(), random.bytes(300)].concat());
        said.push([hello(), frame(HEADERS, 4, 1, &random.bytes(100))].concat());
        let [kind, flags] = [random.next() as u8 % 10, random.next() as u8];
        let garbled = frame(kind, flags, 1, &random.bytes(50));
        said.push([hello(), open(1, 0), garbled].concat());
    }
    // An even stream, stream 0, a frame that is too large, data before a header, settings of an odd
    // length.
    for frames in [
        open(2, 0),
        open(0, 0),
        frame(DATA, 0, 1, &[0; 20_000]),
        frame(DATA, 0, 1, b"x"),
        frame(SETTINGS, 0, 0, b"x"),
    ] {
        said.push([hello(), frames].concat());
    }
    for bytes in said {
        let mut stream = site.grpc_abuser().await;
        let _ = stream.write_all(&bytes).await;
        until_closed(&mut stream).await;
    }
}

pub async fn flood_from_one(site: &Site) {
    let other = async || {
        let endpoint = Endpoint::from_shared(format!("http://{}", site.grpc_address)).unwrap();
        let mut other = InferenceClient::new(endpoint.connect().await.unwrap());
        assert!(other.model_infer(request(&SAMPLE)).await.is_ok());
    };
    site::flood_from_one(site, async || site.grpc_abuser().await, other).await;
}

pub async fn half_closed(site: &Site) {
    let message = framed(0, &request(&[HANG; INPUTS]).encode_to_vec());
    let said = [hello(), open(1, 0), frame(DATA, END_STREAM, 1, &message)].concat();
    let ends = [0, 10, hello().len(), said.len() - 20, said.len()];
    site::half_closed(async || site.grpc_abuser().await, &said, &ends).await;
}

/// Told to go elsewhere when it is old, it asks on; what it opens is not looked at, and
/// it is closed.
pub async fn endless(site: &Site) {
    let stream = site.grpc_abuser().await;
    let (mut reading, mut writing) = stream.into_split();
    let asking = tokio::spawn(async move {
        let mut number = 1;
        let _ = writing.write_all(&hello()).await;
        loop {
            let asked = [open(number, 0), frame(DATA, END_STREAM, number, &sample())].concat();
            if writing.write_all(&asked).await.is_err() {
                return number / 2;
            }
            number += 2;
            // The abuser's pace: nothing is awaited.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let frames = until_closed(&mut reading).await;
    assert!(frames.iter().any(|frame| frame.kind == GOAWAY));
    let answers = frames.iter().filter(|frame| frame.kind == HEADERS).count();
    assert!(answers > 10, "until then it was answered");
    // No connection becomes as old as it likes.
    assert!(asking.await.unwrap() < 1000);
}
