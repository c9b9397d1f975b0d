//! Abuse of HTTP/2's frames.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;

use super::wire::{
    CONTINUATION, DATA, END_STREAM, Frame, GOAWAY, HEADERS, PING, REFUSED_STREAM, RST_STREAM,
    SETTINGS, fields, frame, open, open_for, reset, until_closed,
};
use super::{INFER, begin, call_of, client, client_with, expect, framed, said_by_hand, sample};
use crate::site::Site;

/// HTTP/2's `ENHANCE_YOUR_CALM`.
const CALM: u8 = 11;

/// Sends what `next` makes, again and again, until the server has had enough: how often,
/// and its frames.
async fn flood(
    stream: TcpStream,
    most: u32,
    mut next: impl FnMut(u32) -> Vec<u8>,
) -> (u32, Vec<Frame>) {
    let (mut reading, mut writing) = stream.into_split();
    let write = async {
        let mut sent = 0;
        while sent < most && writing.write_all(&next(sent)).await.is_ok() {
            sent += 1;
        }
        sent
    };
    tokio::join!(write, until_closed(&mut reading))
}

fn reason(frames: &[Frame]) -> Option<u8> {
    let last = frames.iter().rev().find(|frame| frame.kind == GOAWAY);
    last.and_then(Frame::reason)
}

/// Streams opened and reset in one write (CVE-2023-44487).
pub async fn rapid_reset(site: &Site) {
    let stream = said_by_hand(site, b"").await;
    let hundred = |sent: u32| -> Vec<u8> {
        let streams = (0..100).map(|i| 2 * (100 * sent + i) + 1);
        streams.flat_map(|number| [open(number, 0), reset(number)].concat()).collect()
    };
    let (sent, frames) = flood(stream, 10_000, hundred).await;
    assert!(sent < 10_000, "a million streams were taken");
    assert_eq!(reason(&frames), Some(CALM), "{frames:?}");
}

/// One by one, so that each is looked at before it is reset: more work than the other, and
/// not so fast.
pub async fn slow_reset(site: &Site) {
    let (caller, connection) = client(site).await;
    let mut sent = 0;
    while sent < 2000 {
        let Ok((response, mut body)) = begin(&caller, call_of(&[]), false).await else {
            break;
        };
        let _ = body.send_data(Bytes::from_static(b"\0\0\0"), false);
        // The abuser's pace: nothing is awaited.
        tokio::time::sleep(Duration::from_millis(1)).await;
        body.send_reset(h2::Reason::CANCEL);
        drop(response);
        sent += 1;
    }
    assert!(sent < 2000, "2000 streams were taken");
    let _ = connection.await.unwrap();
}

/// A field or all of them too long: 431, and the connection goes on; far too long, and it does not.
pub async fn long_header(site: &Site) {
    let (caller, _connection) = client(site).await;
    let long = [("x", "y".repeat(20_000))];
    let many = vec![("x", "y".to_owned()); 600];
    for fields in [&long[..], &many] {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let call = call_of(&fields.collect::<Vec<_>>());
        let (response, _) = begin(&caller, call, true).await.unwrap();
        assert_eq!(response.await.unwrap().status(), 431);
    }
    // Others go on.
    expect(&caller, &[], sample(), Code::Ok).await;
}

/// A header that never ends (CVE-2024-27316), of nothing or of fields.
pub async fn continuations(site: &Site) {
    let field = [&[0x00, 0x01][..], b"x", &[0x01], b"y"].concat();
    for payload in [vec![], field.repeat(3000)] {
        let stream = said_by_hand(site, &frame(HEADERS, 0, 1, &fields(INFER))).await;
        let next = |_| frame(CONTINUATION, 0, 1, &payload);
        let (sent, frames) = flood(stream, 10_000_000, next).await;
        // No header of ten million frames is taken.
        assert!(sent < 10_000_000);
        assert!(reason(&frames).is_some(), "{frames:?}");
    }
}

/// Each is to be answered, beside a call that never ends. However busy such a client is, it is cut
/// off: when its answers can be written no more, or when it has asked for nothing else for as long
/// as one may.
pub async fn control_flood(site: &Site) {
    let pings = frame(PING, 0, 0, b"12345678").repeat(100);
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]).repeat(100);
    let mut abusers = JoinSet::new();
    for frames in [pings, settings] {
        for reads in [true, false] {
            let stream = said_by_hand(site, &open(1, 0)).await;
            let (mut reading, mut writing) = stream.into_split();
            let frames = frames.clone();
            abusers.spawn(async move {
                let write = async {
                    while writing.write_all(&frames).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                match reads {
                    true => drop(tokio::join!(write, until_closed(&mut reading))),
                    false => write.await,
                }
            });
        }
    }
    abusers.join_all().await;
}

/// Streams beyond the limit are refused, and a client that ignores it is cut off.
pub async fn too_many_streams(site: &Site) {
    let opened: Vec<u8> = (0..200).flat_map(|i| open(2 * i + 1, 0)).collect();
    let mut stream = said_by_hand(site, &opened).await;
    let frames = until_closed(&mut stream).await;
    let resets = frames.iter().filter(|frame| frame.kind == RST_STREAM);
    let refused = resets.filter(|frame| frame.reason() == Some(REFUSED_STREAM));
    assert_eq!(refused.count(), 200 - 32);
    let answered = frames.iter().filter(|frame| frame.kind == HEADERS).count();
    assert!(answered >= 32, "the others are answered");

    let stream = said_by_hand(site, b"").await;
    let (_, frames) = flood(stream, 10_000, |sent| open(2 * sent + 1, 0)).await;
    assert_eq!(reason(&frames), Some(CALM), "{frames:?}");
    // Ten thousand streams are not refused one by one.
    assert!(frames.len() < 1000);
}

/// No room for any answer, while other calls, whose answers need none, go on.
pub async fn closed_window(site: &Site) {
    let (caller, connection) = client_with(site, Builder::new().initial_window_size(0)).await;
    let mut answers = Vec::new();
    for _ in 0..10 {
        // Where these take their time, the first has been left for long enough.
        let Ok((response, mut body)) = begin(&caller, call_of(&[]), false).await else {
            break;
        };
        let _ = body.send_data(sample(), true);
        answers.extend(response.await);
    }
    assert!(!answers.is_empty());
    for asked in 0.. {
        // No answer may be left unread for as long as one likes.
        assert!(asked < 100);
        let other = Request::post("http://x/none").body(()).unwrap();
        let Ok((response, _)) = begin(&caller, other, true).await else {
            break;
        };
        let Ok(_) = response.await else { break };
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = connection.await.unwrap();
}

/// All the window there is, and a socket that is not read.
pub async fn unread_socket(site: &Site) {
    let window = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let more = frame(8, 0, 0, &0x7f00_0000_u32.to_be_bytes());
    let mut stream = said_by_hand(site, &[window, more].concat()).await;
    let mut sent = 0;
    while sent < 1_000_000 {
        let number = 2 * sent + 1;
        let asked = open_for("/inference.GRPCInferenceService/ServerMetadata", number, 0);
        let asked = [asked, frame(DATA, END_STREAM, number, &framed(0, b""))].concat();
        if stream.write_all(&asked).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 1_000_000, "a million calls were taken");
}

/// Data without any, which no window bounds (CVE-2019-9518).
pub async fn empty_data(site: &Site) {
    let stream = said_by_hand(site, &open(1, 0)).await;
    let hundred = frame(DATA, 0, 1, b"").repeat(100);
    let (sent, _) = flood(stream, 100_000, |_| hundred.clone()).await;
    assert!(sent < 100_000, "ten million frames were taken");
}
